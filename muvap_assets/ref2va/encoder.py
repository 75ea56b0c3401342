"""What an encoder is: its stages, its media boundary, its specification with a fingerprint a stage, its protocol.

Belongs here: everything callers and encoders agree on, in plain NumPy. No torch, no model, no decoding; ``h3`` is the
real encoder. One row is encoded in five stages, each of which needs one large component:

    component      stage              reads                                makes
    vae            target_video       frames on the target's canvas        vae_latent       float32 [24, T, H/16, W/16]
    vae            reference_visual   images and videos, declared order    ref_visual_rows  float32 [N, 96]
    audio_vae      target_audio       stereo at 32 kHz, already cut        audio_latent     float32 [2, 32, T_audio]
    audio_vae      reference_audio    soundtracks, declared order          ref_audio_rows   float32 [M, 32]
    text_encoder   text               caption, images, 2 fps video frames  text_embedding   float32 [L, D], text_token_tags
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from muvap_assets.errors import ConfigError
from muvap_assets.publish import file_sha256
from muvap_assets.ref2va.contract import (
    Format,
    Geometry,
    PresentedReference,
    ReferenceGeometry,
    ReferenceKind,
    Size,
    TokenPlan,
)
from muvap_assets.ref2va.geometry import encoded_reference_frames, reference_geometry

Frames = npt.NDArray[np.uint8]  # [n, height, width, 3], RGB
Waveform = npt.NDArray[np.float32]  # [2, samples] at 32 kHz
Tensors = Mapping[str, npt.NDArray[Any]]

# Raised whenever a recipe below changes what it makes, so that parts made before are made again.
RECIPE_VERSION = 1
POSTERIOR_SEED = 42  # blocks: keyframe_encode_seed; facts use the same for targets
TEXT_LAYER = 50  # blocks: text_encoder_layer, the hidden state that conditions the transformer
INDEX_NAME = "modular_model_index.json"
REQUIRED_COMPONENTS = ("vae", "audio_vae", "tokenizer", "processor", "text_encoder", "transformer_ref")


class Component(StrEnum):
    """The large components, in the order a run loads them."""

    VAE = "vae"
    AUDIO_VAE = "audio_vae"
    TEXT_ENCODER = "text_encoder"

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that need it."""
        return tuple(stage for stage in Stage if stage.component is self)


class Stage(StrEnum):
    """One step of a row's encoding; its tensors are one part of the row store."""

    TARGET_VIDEO = "target_video"
    REFERENCE_VISUAL = "reference_visual"
    TARGET_AUDIO = "target_audio"
    REFERENCE_AUDIO = "reference_audio"
    TEXT = "text"

    @property
    def component(self) -> Component:
        """The large component it needs."""
        return _COMPONENT_OF[self]


_COMPONENT_OF = {
    Stage.TARGET_VIDEO: Component.VAE,
    Stage.REFERENCE_VISUAL: Component.VAE,
    Stage.TARGET_AUDIO: Component.AUDIO_VAE,
    Stage.REFERENCE_AUDIO: Component.AUDIO_VAE,
    Stage.TEXT: Component.TEXT_ENCODER,
}
# Folders of the checkpoint a stage's result depends on, and the libraries that compute it.
_FOLDERS_OF = {
    Component.VAE: ("vae",),
    Component.AUDIO_VAE: ("audio_vae",),
    Component.TEXT_ENCODER: ("text_encoder", "tokenizer", "processor"),
}
_LIBRARIES_OF = {
    Component.VAE: ("torch", "diffusers"),
    Component.AUDIO_VAE: ("torch", "diffusers"),
    Component.TEXT_ENCODER: ("torch", "diffusers", "transformers", "torchvision"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceInput:
    """One reference at the model's rates and sizes. All but its media is known before anything is decoded.

    Attributes:
        kind: what the manifest declares it as.
        size: pixels of ``frames``, ``None`` for audio.
        num_frames: frames at 24 fps, cut to the target's length; 1 for an image, 0 for audio.
        audio_samples: samples a channel of ``waveform``, 0 without sound.
        visual_digest, audio_digest: of everything the media is made of (file bytes, overrides); empty where there is none.
        frames: yields its ``num_frames`` frames in blocks, uint8 [n, height, width, 3].
        waveform: float32 [2, audio_samples] at 32 kHz.
    """

    kind: ReferenceKind
    size: Size | None = None
    num_frames: int = 0
    audio_samples: int = 0
    visual_digest: str = ""
    audio_digest: str = ""
    frames: Callable[[], Iterator[Frames]] | None = None
    waveform: Callable[[], Waveform] | None = None

    def __post_init__(self) -> None:
        visual = (self.size, self.num_frames, self.visual_digest, self.frames)
        sound = (self.audio_samples, self.audio_digest, self.waveform)
        for declared, values, what in ((self.kind.has_visual, visual, "frames"), (self.kind.has_audio, sound, "sound")):
            if any(bool(value) is not declared for value in values):
                wanted = "all of" if declared else "none of"
                raise ConfigError(
                    f"reference of kind {self.kind}: required is {wanted} its {what}. Prepare it by its kind."
                )

    @property
    def encoded_frames(self) -> int:
        """Of ``num_frames``, the first ones the video VAE encodes."""
        return encoded_reference_frames(self.num_frames) if self.kind is not ReferenceKind.IMAGE else 1

    @property
    def geometry(self) -> ReferenceGeometry:
        """The latent geometry its encoding must have."""
        frames = self.encoded_frames if self.kind.has_visual else 1
        return reference_geometry(self.kind, size=self.size, frames=frames, audio_samples=self.audio_samples)

    @property
    def presented(self) -> PresentedReference:
        """What the conditioner is shown of it."""
        return PresentedReference(kind=self.kind, size=self.size, frames=self.num_frames)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowInput:
    """One row at the model's rates and sizes, ready to encode; its media is decoded when it is asked for.

    Attributes:
        sample_id: the row's id, unique in its dataset.
        row: where the manifest has it, for messages.
        caption: appended verbatim to the presentation.
        geometry: the target's canvas and frame count.
        format: what the row becomes; it decides where the target's sound is cut.
        file_name: the target's path as the manifest gives it.
        target_digest: of everything the target's media is made of (file bytes, overrides).
        media_version: of the code and libraries that decode and resize; a change makes every part again.
        target_frames: yields ``geometry.num_frames`` frames in blocks, uint8 [n, height, width, 3].
        target_waveform: float32 [2, n] at 32 kHz, cut to at most target_audio_samples(num_frames, format).
        references: in declared order.
        reference_noise_seed: stored by the packed format; the anchors of ``sft`` have a seed of their own.
    """

    sample_id: str
    row: int | None = None
    caption: str
    geometry: Geometry
    format: Format
    file_name: str
    target_digest: str
    media_version: str
    target_frames: Callable[[], Iterator[Frames]]
    target_waveform: Callable[[], Waveform]
    references: tuple[ReferenceInput, ...]
    reference_noise_seed: int = 42


@dataclass(frozen=True, slots=True)
class MediaBlock:
    """A piece of a stage's media: frames or a waveform, and which reference it belongs to (None: the target)."""

    reference: int | None
    data: npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedSample:
    """Everything encoded of one row, clean, as C-contiguous float32 (tags int64).

    Shapes: vae_latent [24, T, H/16, W/16], audio_latent [2, 32, T_audio], text_embedding [L, D], text_token_tags [L] (0 a
    vision row, 1 a text row), ref_visual_rows [N, 96], ref_audio_rows [M, 32]. ``references`` is measured on the encoded
    latents, in declared order.
    """

    vae_latent: npt.NDArray[np.float32]
    audio_latent: npt.NDArray[np.float32]
    text_embedding: npt.NDArray[np.float32]
    text_token_tags: npt.NDArray[np.int64]
    ref_visual_rows: npt.NDArray[np.float32]
    ref_audio_rows: npt.NDArray[np.float32]
    references: tuple[ReferenceGeometry, ...]


class LoadedComponent(Protocol):
    """One large component while it is loaded."""

    def encode(self, stage: Stage, row: RowInput, media: Iterator[MediaBlock], sequence_length: int) -> Tensors:
        """The stage's tensors of ``row`` by name.

        Args:
            stage: one of this component's.
            row: the row.
            media: what :func:`muvap_assets.ref2va.prefetch.stage_media` yields for the stage.
            sequence_length: rows of the joint sequence, for the message when memory does not suffice.

        Raises:
            EncodeError: the media is not what the row promises, or the device's memory does not suffice.
        """


class Encoder(Protocol):
    """Encodes rows stage by stage. At most one component is loaded at a time."""

    @property
    def fingerprint(self) -> EncoderFingerprint:
        """What results depend on."""

    @property
    def max_presentation_tokens(self) -> int:
        """The longest presentation it takes."""

    def plan_tokens(self, caption: str, references: Sequence[PresentedReference]) -> TokenPlan:
        """Presentation tokens by part, with no weight loaded; the total equals what the text stage then produces.

        Raises:
            EncodeError: the caption holds a vision token, which would be read as a reference.
        """

    def conditioner_frames(self, num_frames: int) -> tuple[int, ...]:
        """Indices of the frames of a reference video the conditioner reads."""

    def loaded(self, component: Component) -> AbstractContextManager[LoadedComponent]:
        """Load a component for the duration of the block, and release it afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSpec:
    """Which checkpoint to encode with, and how.

    Attributes:
        checkpoint: the folder that holds ``modular_model_index.json``.
        device: ``cuda``, ``cuda:N``, or ``cpu`` for a tiny checkpoint.
        vae_dtype: both VAEs compute in it; only float32 gives the released model's latents.
        text_dtype: the conditioner computes in it; the released one is bfloat16.
        threads: of torch on the CPU; another count changes audio latents by about 2e-6, so it is part of the recipe.
        max_presentation_tokens: rows above are rejected before a weight is loaded; none is ever truncated.

    Raises:
        ConfigError: a value is outside what it may be.
    """

    checkpoint: Path
    device: str = "cuda"
    vae_dtype: str = "float32"
    text_dtype: str = "bfloat16"
    threads: int = 1
    max_presentation_tokens: int = 65_536

    def __post_init__(self) -> None:
        checks = (
            ("device", self.device, bool(re.fullmatch(r"cpu|cuda(:\d+)?", self.device)), "cuda, cuda:N or cpu"),
            ("vae_dtype", self.vae_dtype, self.vae_dtype == "float32", "float32: lower precision changes the latents"),
            ("text_dtype", self.text_dtype, self.text_dtype in ("bfloat16", "float32"), "bfloat16 or float32"),
            ("threads", self.threads, self.threads >= 1, "at least 1"),
            ("max_presentation_tokens", self.max_presentation_tokens, self.max_presentation_tokens >= 1, "at least 1"),
        )
        for name, value, holds, required in checks:
            if not holds:
                raise ConfigError(f"encoder: {name} is {value!r}, required is {required}. Change it.")

    @property
    def device_type(self) -> str:
        """``cuda`` or ``cpu``, without a device's number."""
        return self.device.partition(":")[0]


@dataclass(frozen=True, slots=True)
class EncoderFingerprint:
    """What an encoder's results depend on, a stage at a time, as plain JSON values. Names no path of a machine."""

    stages: Mapping[Stage, Mapping[str, Any]]

    def digest(self, stage: Stage) -> str:
        """Goes into the key of that stage's part of every row."""
        return json_digest(self.stages[stage])

    @property
    def total(self) -> str:
        """Goes into the published metadata: differs where any stage differs."""
        return json_digest({str(stage): self.digest(stage) for stage in Stage})


@dataclass(slots=True)
class FileDigests:
    """SHA-256 of files, remembered by path, size and modification time where ``cache`` names a file.

    Reading 67 GB of weights to name them takes a minute; a run that finds them unchanged reads nothing.
    """

    cache: Path | None = None
    hashed: int = 0
    _known: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.cache is not None and self.cache.is_file():
            try:
                known = json.loads(self.cache.read_text(encoding="utf-8"))
            except ValueError:
                known = {}  # a torn cache only costs the reading
            self._known = {str(key): str(value) for key, value in known.items()} if isinstance(known, dict) else {}

    def sha256(self, path: Path) -> str:
        """Hexadecimal digest of the file's bytes."""
        status = path.stat()
        key = f"{path.resolve()}|{status.st_size}|{status.st_mtime_ns}"
        if key not in self._known:
            self._known[key] = file_sha256(path)
            self.hashed += 1
        return self._known[key]

    def save(self) -> None:
        """Write the cache, in one step."""
        if self.cache is not None:
            self.cache.parent.mkdir(parents=True, exist_ok=True)
            scratch = self.cache.with_name(f".{self.cache.name}-{uuid.uuid4().hex}")
            scratch.write_text(json.dumps(self._known, indent=0, sort_keys=True), encoding="utf-8")
            scratch.replace(self.cache)


def describe_plan(plan: TokenPlan) -> str:
    """A presentation's tokens by part, for messages."""
    parts = [f"reference {index}: {count}" for index, count in enumerate(plan.reference_tokens)]
    return f"{plan.total} presentation tokens ({', '.join([*parts, f'caption: {plan.caption_tokens}'])})"


def json_digest(value: Any) -> str:
    """SHA-256 of a JSON value written in one canonical way."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def read_model_index(checkpoint: Path) -> dict[str, Any]:
    """The checkpoint's ``modular_model_index.json``, with every component folder the encoding requires in its place.

    Raises:
        ConfigError: the index or a component is missing; all that is missing is named.
    """
    path = checkpoint / INDEX_NAME
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"checkpoint {checkpoint}: {INDEX_NAME} cannot be read ({error}), required is a MiniMax-H3 checkpoint folder. "
            "Check the path."
        ) from error
    missing = [name for name in REQUIRED_COMPONENTS if not _is_filled(checkpoint / name) or name not in index]
    if missing:
        raise ConfigError(
            f"checkpoint {checkpoint}: no {', '.join(missing)}, required are the folders and index entries "
            f"{', '.join(REQUIRED_COMPONENTS)}. Complete the download."
        )
    return dict(index)


def fingerprint_of(spec: EncoderSpec, digests: FileDigests | None = None) -> EncoderFingerprint:
    """The fingerprint of an encoder by its files, settings and libraries; no weight is loaded.

    Raises:
        ConfigError: the checkpoint is incomplete.
    """
    files = digests or FileDigests()
    read_model_index(spec.checkpoint)
    folders = {name: _folder_digest(spec.checkpoint / name, files) for name in REQUIRED_COMPONENTS[:-1]}
    files.save()
    return EncoderFingerprint({stage: _stage_facts(stage, spec, folders) for stage in Stage})


def _stage_facts(stage: Stage, spec: EncoderSpec, folders: Mapping[str, str]) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "recipe": RECIPE_VERSION,
        "weights": {name: folders[name] for name in _FOLDERS_OF[stage.component]},
        "libraries": {name: version(name) for name in _LIBRARIES_OF[stage.component]},
        "device": spec.device_type,
        "threads": spec.threads,
        "dtype": spec.text_dtype if stage is Stage.TEXT else spec.vae_dtype,
    }
    if stage.component is Component.VAE:
        facts["posterior_seed"] = POSTERIOR_SEED
    if stage is Stage.TEXT:
        facts["layer"] = TEXT_LAYER
    return facts


def _folder_digest(folder: Path, files: FileDigests) -> str:
    """Over names and bytes of a component's files; a downloaded snapshot's links are followed, hidden files are not."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return json_digest({name: files.sha256(folder / name) for name in names if not name.startswith(".")})


def _is_filled(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
