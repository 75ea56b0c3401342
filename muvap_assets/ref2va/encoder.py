"""What an encoder is: its stages, its media boundary, its protocol, and the fingerprint of what its results depend on.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from muvap_assets.errors import ConfigError
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
Decoded = npt.NDArray[np.float32]  # frames [n, height, width, 3] in 0..1, or a waveform [2, samples] at 32 kHz


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
        file_name: the target's path, relative to the manifest unless it leads out of its folder.
        target_digest: of the target file's bytes.
        target_sound: which of its audio streams is chosen; empty where none is.
        media: SHA-256 of every file it is made of, sorted, each once: the row says so, and is purged by them.
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
    target_sound: str = ""
    media: tuple[str, ...] = ()


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
            ValidationError: the media is not what the row promises, or the device's memory does not suffice.
        """

    def decode(self, stage: Stage, latents: npt.NDArray[np.float32], where: str) -> Iterator[Decoded]:
        """The media of a target's normalized latents, a clip at a time.

        Args:
            stage: ``target_video`` or ``target_audio``, whichever is this component's.
            latents: as :meth:`encode` made them: float32 [24, 5 * n + 2, H/16, W/16] with n at least 1, or [2, 32, T].
            where: the row, for messages.

        Yields:
            Frames float32 [17, H, W, 3] between 0 and 1, the last five as a block of their own; or the one waveform,
            float32 [2, 800 * T].

        Raises:
            ValidationError: the latents are of another shape, or the device's memory does not suffice.
        """


class Encoder(Protocol):
    """Encodes rows stage by stage. At most one component is loaded at a time."""

    @property
    def fingerprint(self) -> EncoderFingerprint:
        """What results depend on."""

    @property
    def device(self) -> str:
        """Where it computes, as ``device.json`` names it: the kind of device, and its instruction set or model."""

    @property
    def text_width(self) -> int:
        """Values of a presentation token's embedding."""

    def plan_tokens(self, caption: str, references: Sequence[PresentedReference]) -> TokenPlan:
        """Presentation tokens by part, with no weight loaded; the total equals what the text stage then produces.

        Raises:
            ValidationError: the caption holds a vision token, which would be read as a reference.
        """

    def conditioner_frames(self, num_frames: int) -> tuple[int, ...]:
        """Indices of the frames of a reference video the conditioner reads."""

    def loaded(self, component: Component) -> AbstractContextManager[LoadedComponent]:
        """Load a component for the duration of the block, and release it afterwards."""


def describe_plan(plan: TokenPlan) -> str:
    """A presentation's tokens by part, for messages."""
    parts = [f"reference {index}: {count}" for index, count in enumerate(plan.reference_tokens)]
    return f"{plan.total} presentation tokens ({', '.join([*parts, f'caption: {plan.caption_tokens}'])})"


def json_digest(value: Any) -> str:
    """SHA-256 of a JSON value written in one canonical way."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
