"""The real encoder: MiniMax-H3's own components, loaded one at a time, and nothing a recipe does not need.

Belongs here: all that touches diffusers and transformers for encoding. Recipes are the facts document's ("Encoding
recipes"), which are those of ``diffusers.modular_pipelines.minimax_h3``; their private pieces used here are pinned by
tests that compare every tensor with the stock blocks, byte for byte:

- video: clip by clip (17 frames), so that one clip is in memory; posterior sampled under a CPU generator seeded 42;
- references: the same, rounded to float16 before normalizing, then patchified 1x2x2;
- audio: the two stereo channels as two batch items of the mono VAE; posterior mode;
- text: the state after decoder layer 50, caught by a hook, with only 51 layers loaded.

One sample at a time, a fixed number of threads, no TF32 and no autotuned kernels: the same bytes each time.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from diffusers import AutoencoderKLMiniMaxH3, AutoencoderKLMiniMaxH3Audio
from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution
from diffusers.modular_pipelines.minimax_h3.before_denoise import patchify_video_latents
from diffusers.modular_pipelines.minimax_h3.encoders import MiniMaxH3Ref2VATextEncoderStep
from diffusers.utils import logging as diffusers_logging
from transformers import Qwen2TokenizerFast, Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLProcessor
from transformers.utils import logging as transformers_logging

from muvap_assets.codes import Code
from muvap_assets.errors import ConfigError, ValidationError
from muvap_assets.findings import Finding, Place
from muvap_assets.ref2va.checkpoint import (
    device_name,
    fixed_arithmetic,
    load_component,
    load_plain,
    require_all,
    require_device,
    require_tensors,
    stored_tensors,
    whole_component,
)
from muvap_assets.ref2va.contract import (
    AUDIO_CHANNELS,
    CLIP_FRAMES,
    PIXEL_MEAN,
    PIXEL_STD,
    PresentedReference,
    Size,
    TokenPlan,
)
from muvap_assets.ref2va.encoder import (
    Component,
    Decoded,
    EncoderFingerprint,
    Frames,
    LoadedComponent,
    MediaBlock,
    RowInput,
    Stage,
    Tensors,
)
from muvap_assets.ref2va.encoder_spec import POSTERIOR_SEED, TEXT_LAYER, EncoderSpec, fingerprint_of, read_model_index
from muvap_assets.ref2va.prefetch import by_reference, clips_of, refuse_media, size_of
from muvap_assets.ref2va.presentation import Presentation
from muvap_assets.ref2va.vae_decoding import decoded_frames, decoded_waveform
from muvap_assets.storage.digests import Digests

PATCH_SIZE = (1, 2, 2)  # blocks: patch_size


class H3Encoder:
    """Encodes with a checkpoint on disk; see :class:`muvap_assets.ref2va.encoder.Encoder`.

    ``loads`` counts how often each component was loaded.

    Raises:
        ConfigError: the checkpoint is incomplete, the device is not there, or a checkpoint that is not tiny would have to
            be encoded on the CPU.
    """

    def __init__(self, spec: EncoderSpec, digests: Digests | None = None) -> None:
        require_device(spec)
        self.spec = spec
        self.loads: Counter[Component] = Counter()
        self._digests = digests
        self._fingerprint: EncoderFingerprint | None = None
        self._presentation: Presentation | None = None
        self._live: weakref.ref[Any] | None = None

    @property
    def fingerprint(self) -> EncoderFingerprint:
        """What results depend on; the first call reads every weight file that ``digests`` does not know."""
        if self._fingerprint is None:
            self._fingerprint = fingerprint_of(self.spec, self._digests)
        return self._fingerprint

    @property
    def device(self) -> str:
        """Where it computes; see :func:`muvap_assets.ref2va.checkpoint.device_name`."""
        return device_name(self.spec)

    @property
    def text_width(self) -> int:
        """The hidden size of the conditioner, by its configuration."""
        return int(_text_config(self.spec).text_config.hidden_size)

    @property
    def presentation(self) -> Presentation:
        """The tokenizer and processor: small, loaded once, kept."""
        if self._presentation is None:
            self._presentation = open_presentation(self.spec)
        return self._presentation

    def plan_tokens(self, caption: str, references: Sequence[PresentedReference]) -> TokenPlan:
        """Presentation tokens by part, with no weight loaded."""
        return self.presentation.plan_tokens(caption, references)

    def conditioner_frames(self, num_frames: int) -> tuple[int, ...]:
        """Indices of the frames of a reference video the conditioner reads."""
        return self.presentation.sample(num_frames)[0]

    @contextmanager
    def loaded(self, component: Component) -> Iterator[LoadedComponent]:
        """Load a component for the duration of the block, and release it afterwards.

        Raises:
            ConfigError: the component cannot be loaded whole.
            ValidationError: the component loaded before is still in use.
        """
        if self._live is not None and self._live() is not None:
            found = f"the component loaded before {component} is still referenced"
            raise ValidationError(Finding(Code.ENCODE_FAILED, "encoder", found, case="component"))
        with fixed_arithmetic(self.spec):
            with quiet():
                session = self._open(component)
            self.loads[component] += 1
            self._live = weakref.ref(session.model)
            try:
                yield session
            finally:
                session.model = None
                gc.collect()
                if self.spec.device_type == "cuda":
                    torch.cuda.empty_cache()

    def _open(self, component: Component) -> _Session:
        if component is Component.VAE:
            model = load_component(AutoencoderKLMiniMaxH3, self.spec, "vae", torch_dtype=torch.float32)
            return _VideoVae(model, self.spec)
        if component is Component.AUDIO_VAE:
            model = load_component(AutoencoderKLMiniMaxH3Audio, self.spec, "audio_vae", torch_dtype=torch.float32)
            return _AudioVae(model, self.spec)
        return _TextEncoder(_load_text_encoder(self.spec), self.spec, self.presentation)


class _Session:
    """One loaded component. ``model`` is the only reference to it, so that dropping it frees the memory."""

    MEMORY_CASE: ClassVar[str] = ""
    """What to do where memory is not enough, as a case of ``DEVICE_MEMORY``."""

    def __init__(self, model: Any, spec: EncoderSpec) -> None:
        self.model: Any = model
        self.spec = spec

    def encode(self, stage: Stage, row: RowInput, media: Iterator[MediaBlock], sequence_length: int) -> Tensors:
        """The stage's tensors of ``row``; see :class:`muvap_assets.ref2va.encoder.LoadedComponent`."""
        try:
            with torch.no_grad():
                return self._encode(stage, row, media)
        except torch.OutOfMemoryError as error:
            target = f"target {row.geometry.size} with {row.geometry.num_frames} frames"
            row_needs = f"a joint sequence of {sequence_length} rows, {target}"
            place = Place(sample_id=row.sample_id, field=f"stage {stage}")
            raise self._out_of_memory(place, row_needs, error) from error

    def decode(self, stage: Stage, latents: npt.NDArray[np.float32], where: str) -> Iterator[Decoded]:
        """The media of a target's latents; see :class:`muvap_assets.ref2va.encoder.LoadedComponent`."""
        try:
            yield from self._decode(stage, latents, where)
        except torch.OutOfMemoryError as error:
            place = Place(field=f"{where}, decoding {stage}")
            raise self._out_of_memory(place, f"latents {list(latents.shape)}", error) from error

    def _out_of_memory(self, place: Place, at: str, error: torch.OutOfMemoryError) -> ValidationError:
        found = f"out of memory on {self.spec.device} at {at} ({str(error).splitlines()[0]})"
        return ValidationError(Finding(Code.DEVICE_MEMORY, place, found, case=self.MEMORY_CASE))

    def _encode(self, stage: Stage, row: RowInput, media: Iterator[MediaBlock]) -> Tensors:
        raise NotImplementedError

    def _decode(self, stage: Stage, latents: npt.NDArray[np.float32], where: str) -> Iterator[Decoded]:
        raise NotImplementedError


class _VideoVae(_Session):
    MEMORY_CASE = "vae"

    def _encode(self, stage: Stage, row: RowInput, media: Iterator[MediaBlock]) -> Tensors:
        if stage is Stage.TARGET_VIDEO:
            blocks = (block.data for block in media)
            sampled = self._sample(blocks, row.geometry.num_frames, row.geometry.size, f"row {row.sample_id}, target")
            return {"vae_latent": self._normalized(sampled)[0].contiguous().numpy()}
        rows, measured = [], []
        for index, frames in by_reference(media):
            reference = row.references[index]
            where = f"row {row.sample_id}, reference {index}"
            sampled = self._sample(frames, reference.encoded_frames, size_of(reference.size, where), where)
            # The rounding to float16 is part of the released conditioning (blocks: encode_vae_condition).
            latents = self._normalized(sampled.to(torch.float16).float())
            rows.append(patchify_video_latents(latents, PATCH_SIZE))
            measured.append(latents.shape[2:])
        return {
            "ref_visual_rows": torch.cat(rows).numpy(),
            "ref_visual_geometry": np.array(measured, dtype=np.int64).reshape(-1, 3),
        }

    def _decode(self, stage: Stage, latents: npt.NDArray[np.float32], where: str) -> Iterator[Decoded]:
        return decoded_frames(self.model, latents, self.spec.device, where)

    def _sample(self, blocks: Iterator[Frames], num_frames: int, size: Size, where: str) -> torch.Tensor:
        """The sampled posterior [1, 24, T, H/16, W/16] of ``num_frames`` frames, holding one clip of them at a time."""
        moments = [
            self.model._encode_clip(self._pixels(clip, num_frames))
            for clip in clips_of(blocks, num_frames, size, where)
        ]
        joined = torch.cat(moments, dim=2)
        if num_frames > 1:
            joined = joined[:, :, : -self.model.config.token_drop]
        posterior = DiagonalGaussianDistribution(joined)
        return torch.as_tensor(posterior.sample(generator=torch.Generator().manual_seed(POSTERIOR_SEED)))

    def _pixels(self, clip: Frames, num_frames: int) -> torch.Tensor:
        device = torch.device(self.spec.device)
        pixels = torch.from_numpy(clip).to(device).permute(3, 0, 1, 2)[None]
        mean = torch.tensor(PIXEL_MEAN, device=device).view(1, -1, 1, 1, 1)
        std = torch.tensor(PIXEL_STD, device=device).view(1, -1, 1, 1, 1)
        normalized = (pixels.to(torch.float32).div(255.0) - mean) / std
        missing = CLIP_FRAMES - clip.shape[0]
        if num_frames > 1 and missing:
            normalized = torch.cat([normalized, normalized[:, :, -1:].repeat(1, 1, missing, 1, 1)], dim=2)
        return normalized

    def _normalized(self, latents: torch.Tensor) -> torch.Tensor:
        mean = torch.tensor(self.model.config.latents_mean).view(1, -1, 1, 1, 1)
        std = torch.tensor(self.model.config.latents_std).view(1, -1, 1, 1, 1)
        return (latents.float().cpu() - mean) / std


class _AudioVae(_Session):
    def _encode(self, stage: Stage, row: RowInput, media: Iterator[MediaBlock]) -> Tensors:
        if stage is Stage.TARGET_AUDIO:
            (block,) = media
            return {"audio_latent": self._latents(block, f"row {row.sample_id}, target").contiguous().numpy()}
        rows, counts = [], []
        for block in media:
            latents = self._latents(block, f"row {row.sample_id}, reference {block.reference}")
            rows.append(latents.transpose(1, 2).reshape(-1, latents.shape[1]))  # channel-major
            counts.append(latents.shape[2])
        return {
            "ref_audio_rows": torch.cat(rows).contiguous().numpy(),
            "ref_audio_latents": np.array(counts, dtype=np.int64),
        }

    def _decode(self, stage: Stage, latents: npt.NDArray[np.float32], where: str) -> Iterator[Decoded]:
        yield decoded_waveform(self.model, latents, self.spec.device, where)

    def _latents(self, block: MediaBlock, where: str) -> torch.Tensor:
        """Normalized latents [2, 32, T] of a stereo waveform."""
        wave = block.data
        if wave.ndim != 2 or wave.shape[0] != AUDIO_CHANNELS or wave.dtype != np.float32 or not wave.shape[1]:
            refuse_media(where, f"a waveform {wave.dtype} {list(wave.shape)}", "float32 [2, samples]")
        samples = torch.from_numpy(np.array(wave, order="C")).to(self.spec.device)[:, None]
        latents = self.model.encode(samples, return_dict=False)[0].mode().float().cpu()
        mean = torch.tensor(self.model.config.latents_mean).view(1, -1, 1)
        std = torch.tensor(self.model.config.latents_std).view(1, -1, 1)
        return torch.as_tensor((latents - mean) / std)


class _TextEncoder(_Session):
    MEMORY_CASE = "text_encoder"

    def __init__(self, model: Any, spec: EncoderSpec, presentation: Presentation) -> None:
        super().__init__(model, spec)
        self.presentation = presentation

    def _encode(self, stage: Stage, row: RowInput, media: Iterator[MediaBlock]) -> Tensors:
        presented = [reference.presented for reference in row.references]
        planned = self.presentation.plan_tokens(row.caption, presented).total
        frames = {index: np.concatenate(list(blocks)) for index, blocks in by_reference(media)}
        vision = self.presentation.vision(presented, frames)
        token_ids, tags = self.presentation.tokens(row.caption, presented)
        if len(token_ids) != planned:
            refuse_media(f"row {row.sample_id}", f"{len(token_ids)} tokens", f"the {planned} of its plan")
        state = self._hidden_state(token_ids, vision)
        return {
            "text_embedding": state.float().cpu().contiguous().numpy(),
            "text_token_tags": np.array(tags, dtype=np.int64),
        }

    def _hidden_state(self, token_ids: list[int], vision: dict[str, torch.Tensor]) -> torch.Tensor:
        """The state [L, D] after decoder layer 50; a hook keeps that one, where the model's own option keeps all."""
        device, caught = torch.device(self.spec.device), []
        inputs = torch.tensor([token_ids], dtype=torch.long, device=device)
        types = self.presentation.processor.create_mm_token_type_ids([token_ids])
        layer = self.model.model.language_model.layers[TEXT_LAYER - 1]
        hook = layer.register_forward_hook(lambda _module, _arguments, output: caught.append(output))
        try:
            self.model.model(
                input_ids=inputs,
                attention_mask=torch.ones_like(inputs),
                mm_token_type_ids=torch.tensor(types, dtype=torch.long, device=device),
                use_cache=False,
                **{
                    name: value.to(device, self.model.dtype) if name.startswith("pixel_") else value.to(device)
                    for name, value in vision.items()
                },
            )
        finally:
            hook.remove()
        (state,) = caught
        return torch.as_tensor(state)[0]


def open_presentation(spec: EncoderSpec) -> Presentation:
    """The token planner of a checkpoint: its tokenizer and processor, and no weight.

    Raises:
        ConfigError: the checkpoint is incomplete, or one of them cannot be loaded.
    """
    read_model_index(spec.checkpoint)
    with quiet():
        tokenizer = load_plain(Qwen2TokenizerFast.from_pretrained, spec, "tokenizer")
        processor = load_plain(Qwen3VLProcessor.from_pretrained, spec, "processor")
    return Presentation(tokenizer, processor, MiniMaxH3Ref2VATextEncoderStep)


def require_usable(spec: EncoderSpec) -> None:
    """Refuse a device that is not there and a checkpoint that is not whole, before media are decoded for either.

    Of weights, the headers are read: each file has its length, and each component every tensor it is loaded with.

    Raises:
        ConfigError: something is wrong; all of it is named.
    """
    require_all(partial(require_device, spec), partial(_require_checkpoint, spec))


def _require_checkpoint(spec: EncoderSpec) -> None:
    read_model_index(spec.checkpoint)
    require_all(
        partial(open_presentation, spec),
        partial(_require_vae, AutoencoderKLMiniMaxH3, spec, "vae"),
        partial(_require_vae, AutoencoderKLMiniMaxH3Audio, spec, "audio_vae"),
        partial(_require_text_encoder, spec),
    )


def _require_vae(kind: Any, spec: EncoderSpec, name: str) -> None:
    model = load_plain(partial(_without_weights, kind), spec, name)
    require_tensors(spec.checkpoint / name, model.state_dict().keys())


def _without_weights(kind: Any, folder: Path, **options: Any) -> Any:
    with torch.device("meta"):
        return kind.from_config(kind.load_config(folder, **options))


def _require_text_encoder(spec: EncoderSpec) -> None:
    folder = spec.checkpoint / "text_encoder"
    stored_tensors(folder)  # names the file that is not whole, which the library does not
    with quiet():
        whole_component(Qwen3VLForConditionalGeneration, folder, config=_text_config(spec), device_map={"": "meta"})


def _load_text_encoder(spec: EncoderSpec) -> Any:
    dtype = getattr(torch, spec.text_dtype)
    config = _text_config(spec)
    return load_component(Qwen3VLForConditionalGeneration, spec, "text_encoder", config=config, dtype=dtype)


def _text_config(spec: EncoderSpec) -> Any:
    """The conditioner's first 51 layers: bit-identical at layer 50, and 14 GB less than all 64.

    Raises:
        ConfigError: it has fewer; the last state of a shorter stack is post-norm and no conditioning.
    """
    config = load_plain(Qwen3VLConfig.from_pretrained, spec, "text_encoder")
    layers = config.text_config.num_hidden_layers
    if layers <= TEXT_LAYER:
        raise ConfigError(
            f"checkpoint {spec.checkpoint}: its text_encoder has {layers} decoder layers, required are more than "
            f"{TEXT_LAYER}. Use a MiniMax-H3 checkpoint."
        )
    config.text_config.num_hidden_layers = TEXT_LAYER + 1
    return config


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars of the libraries, nor their notes on the weights left out on purpose."""
    levels = [(library, library.get_verbosity()) for library in (diffusers_logging, transformers_logging)]
    bars = [(library, library.is_progress_bar_enabled()) for library, _ in levels]
    for library, _ in levels:
        library.set_verbosity_error()
        library.disable_progress_bar()
    try:
        yield
    finally:
        for library, level in levels:
            library.set_verbosity(level)
        for library, enabled in bars:
            if enabled:
                library.enable_progress_bar()
