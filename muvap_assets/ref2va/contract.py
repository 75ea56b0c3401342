"""What a ref2va row is, and the numbers MiniMax-H3 was released with.

Records and constants only: no arithmetic beyond checks of themselves, no file is opened. Sources, by name in the comments:
*contract* is the preprocessing contract of the packed and SFT formats, *blocks* the modular blocks of
``diffusers.modular_pipelines.minimax_h3``, *facts* what this project measured.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

from muvap_assets.errors import ConfigError
from muvap_assets.options import ItemTimeout, Option, check_options
from muvap_assets.threads import ITEM_TIMEOUT_SEC

RAW_SCHEMA = "minimax_h3_ref2va_raw_v1"  # contract: the public raw schema, the only one a manifest may name
SFT_SCHEMA = "minimax_h3_ref2va_precomputed_v1"  # contract: rows with already noised anchors
PACKED_SCHEMA = "minimax_h3_ref2va_packed_v1"  # ours for `pyarrow_schema_ref2va`, whose id is published nowhere (facts)

FPS = 24  # blocks: MINIMAX_H3_FPS
CLIP_FRAMES = 17  # blocks: vae.clip_length, pixel frames the video VAE encodes at a time
CLIP_LATENTS = 5  # blocks: vae.tokens_chunk_size, latent frames of such a clip
DROPPED_LATENTS = 3  # blocks: vae.token_drop, latent frames dropped at the end of a video
FRAME_REMAINDER = 5  # contract: frame counts are 17 * n + 5
SPATIAL_FACTOR = 16  # blocks: vae_spatial_compression_ratio
PATCH = 2  # blocks: patch_size[1:], latent pixels a row spans in each direction
CANVAS_MULTIPLE = SPATIAL_FACTOR * PATCH  # blocks: canvas_multiple, 32
VIDEO_CHANNELS = 24  # blocks: vae_latent_channels
VISUAL_ROW_WIDTH = VIDEO_CHANNELS * PATCH * PATCH  # contract: [N_visual, 96]
PIXEL_MEAN, PIXEL_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # blocks: pixel_mean, pixel_std (ImageNet)
AUDIO_RATE_HZ = 32_000  # blocks: audio_sampling_rate
AUDIO_HOP_SAMPLES = 800  # facts: product of the audio VAE's encoder rates
AUDIO_LATENTS_PER_SEC = 40  # blocks: MINIMAX_H3_AUDIO_LATENTS_PER_SECOND
AUDIO_CHANNELS = 2  # blocks: MINIMAX_H3_AUDIO_CHANNELS
AUDIO_ROW_WIDTH = 32  # contract: [N_audio, 32]
TEXT_WIDTH = 5120  # facts: hidden size of the released conditioner
MIN_ASPECT, MAX_ASPECT = Fraction(1, 4), Fraction(4)  # blocks: MINIMAX_H3_MIN/MAX_ASPECT_RATIO
CONDITIONER_FPS = 2  # blocks: video_sample_fps, the rate the conditioner reads a reference video at
MIN_REFERENCE_FRAMES = 13  # blocks: two conditioner frames are merged, so frames 0 and 12 have to exist
SFT_MIN_FRAMES, SFT_MAX_FRAMES = 124, 362  # contract: clips under 124 frames fail, longer ones train on their first 362
RELEASED_MIN_FRAMES, RELEASED_MAX_FRAMES = 124, 345  # blocks: 5 to 15 seconds at inference
MAX_CANVAS_PIXELS = 36_000_000  # ours: what a frame of a video may have (media.video.MAX_PIXELS)
MAX_TARGET_FRAMES = 14_387  # ours: ten minutes, forty times what was released; its sound is held in memory as a whole
FLOAT_BYTES = 4  # every tensor of a row is float32
MAX_CELL_BYTES = 2**31 - 1  # Arrow's binary columns have 32-bit offsets
MAX_PRESENTATION_TOKENS = MAX_CELL_BYTES // (FLOAT_BYTES * TEXT_WIDTH)  # 104,857: more have no place in a row
DEFAULT_PRESENTATION_TOKENS = 65_536  # contract: --max-presentation-tokens
CAPACITY_MULTIPLE = 256  # contract: padded joint sequence lengths
MAX_NOISE_SEED = 2**63 - 1  # contract: stored as int64
MAX_SOUND_GAPS_SEC = Fraction(1, FPS)  # ours: all gaps of a used sound; a lost packet or its rounding, no hole
MAX_MISSING_PICTURE_SHARE = Fraction(1, 20)  # ours, and a half second where that is more: of what a header promises
MAX_MISSING_PICTURE_SEC = Fraction(1, 2)
MAX_SQUEEZE = Fraction(11, 10)  # ours: a shape further off its canvas is seen
RATE_WARNING_SHARE = Fraction(1, 100)  # issue: overrides off the decoder's rate by more than 1 % are reported


class Format(StrEnum):
    """What a dataset's rows become. It ties the geometry policy and the output schema together."""

    PACKED = "packed"
    SFT = "sft"

    @property
    def schema_id(self) -> str:
        """The id written into the rows of this format."""
        return PACKED_SCHEMA if self is Format.PACKED else SFT_SCHEMA


class ReferenceKind(StrEnum):
    """The four entries the raw schema knows."""

    IMAGE = "image"
    VIDEO = "video"
    AUDIO = "audio"
    VIDEO_AUDIO = "video_audio"

    @property
    def has_visual(self) -> bool:
        """Whether it contributes visual rows."""
        return self is not ReferenceKind.AUDIO

    @property
    def has_audio(self) -> bool:
        """Whether it contributes audio rows. A ``video`` does not, even where its file has sound (contract: silent)."""
        return self in (ReferenceKind.AUDIO, ReferenceKind.VIDEO_AUDIO)

    @property
    def media_type(self) -> str:
        """The modality written into a row: ``image``, ``video`` or ``audio``."""
        return "video" if self is ReferenceKind.VIDEO_AUDIO else str(self)


class Size(NamedTuple):
    """Pixels, width first."""

    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


CANVAS_RULE = f"a canvas of at most {MAX_CANVAS_PIXELS:,} pixels"


@dataclass(frozen=True, slots=True)
class Geometry:
    """A target's canvas in pixels and its frame count at 24 fps.

    Raises:
        ConfigError: width or height is no positive multiple of 32, both have more than MAX_CANVAS_PIXELS, or num_frames is
            not 17 * n + 5 or above MAX_TARGET_FRAMES.
    """

    width: int
    height: int
    num_frames: int

    def __post_init__(self) -> None:
        for name, rule in GEOMETRY_RULES.items():
            if required := rule(getattr(self, name)):
                raise ConfigError(f"geometry: {name} is {getattr(self, name)!r}, required is {required}. Change it.")
        if self.width * self.height > MAX_CANVAS_PIXELS:
            raise ConfigError(f"geometry: found {self.size}, required is {CANVAS_RULE}. Choose a smaller canvas.")

    @property
    def size(self) -> Size:
        """The canvas alone."""
        return Size(self.width, self.height)


def is_frame_count(value: int) -> bool:
    """Whether ``value`` is 17 * n + 5 for a nonnegative n (contract), and no more than a target may have."""
    return FRAME_REMAINDER <= value <= MAX_TARGET_FRAMES and value % CLIP_FRAMES == FRAME_REMAINDER


def frame_count_rule(value: int) -> str:
    """The rule in words, with the valid counts next to ``value``."""
    if value > MAX_TARGET_FRAMES:
        return f"17 * n + 5 for a nonnegative n, and at most {MAX_TARGET_FRAMES}"
    below = (value - FRAME_REMAINDER) // CLIP_FRAMES * CLIP_FRAMES + FRAME_REMAINDER
    near = [str(count) for count in (below, below + CLIP_FRAMES) if is_frame_count(count)] or [str(FRAME_REMAINDER)]
    return f"17 * n + 5 for a nonnegative n (nearest: {' or '.join(near)})"


def _wrong_side(value: int) -> str | None:
    return None if value > 0 and value % CANVAS_MULTIPLE == 0 else f"a positive multiple of {CANVAS_MULTIPLE}"


def _wrong_frame_count(value: int) -> str | None:
    return None if is_frame_count(value) else frame_count_rule(value)


GEOMETRY_RULES: Mapping[str, Callable[[int], str | None]] = {
    "width": _wrong_side,
    "height": _wrong_side,
    "num_frames": _wrong_frame_count,
}
"""What is required of a wrong value of each field of a :class:`Geometry` (contract); ``None`` where the value is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One reference, in the place its row gives it.

    Paths are relative to the manifest's folder, absolute only where they lead out of it, until :meth:`resolved` puts them
    under it. ``fps`` and ``sample_rate_hz`` are the manifest's overrides of what the decoder says, ``None`` where it gives none.
    ``audio_stream`` chooses one of several audio streams: see :class:`muvap_assets.media.sound.SoundChoice`.
    """

    kind: ReferenceKind
    image: Path | None = None
    video: Path | None = None
    audio: Path | None = None
    fps: Fraction | None = None
    sample_rate_hz: int | None = None
    audio_stream: str | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """Its files, visual before audio."""
        return tuple(path for path in (self.image, self.video, self.audio) if path is not None)

    def resolved(self, base: Path) -> Reference:
        """The same with every path under ``base``, unless it was given absolute."""
        image, video, audio = (None if path is None else base / path for path in (self.image, self.video, self.audio))
        return replace(self, image=image, video=video, audio=audio)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawSample:
    """One row of a raw manifest.

    ``row`` is the 1-based line (JSONL) or position (JSON array) it stands at; ``audio_stream`` chooses the target's sound.
    """

    id: str
    target_video: Path
    caption: str
    references: tuple[Reference, ...]
    geometry: Geometry | None = None
    row: int = 1
    audio_stream: str | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """Its files: the target, then those of each reference in order."""
        return (self.target_video, *(path for reference in self.references for path in reference.paths))

    def resolved(self, base: Path) -> RawSample:
        """The same with every path under ``base``, the manifest's folder."""
        references = tuple(reference.resolved(base) for reference in self.references)
        return replace(self, target_video=base / self.target_video, references=references)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceGeometry:
    """The latent geometry of one encoded reference: what a row stores about it (facts: the SFT `references` column).

    An audio reference has the visual geometry 0, 0, 0; an image or a silent video has no audio latents.
    """

    media_type: str
    has_audio: bool
    num_latent_frames: int = 0
    latent_height: int = 0
    latent_width: int = 0
    num_audio_latents: int = 0

    @property
    def visual_rows(self) -> int:
        """Rows of [N, 96] it contributes: one a latent frame and 2x2 patch."""
        return self.num_latent_frames * (self.latent_height // PATCH) * (self.latent_width // PATCH)

    @property
    def audio_rows(self) -> int:
        """Rows of [M, 32] it contributes: both stereo channels."""
        return self.num_audio_latents * AUDIO_CHANNELS


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentedReference:
    """What the conditioner is shown of one prepared reference: all that a token count depends on besides the caption.

    ``frames`` are the prepared frames at 24 fps, cut to the target's length but *not* down to 17 * n + 5, for the
    conditioner samples them before the VAE's cut; 1 for an image. ``size`` is ``None`` for audio, ``frames`` 0.
    """

    kind: ReferenceKind
    size: Size | None = None
    frames: int = 0


@dataclass(frozen=True, slots=True)
class TokenPlan:
    """How many tokens a presentation takes, by part: the caption, and every reference with its label, in order."""

    caption_tokens: int
    reference_tokens: tuple[int, ...]

    @property
    def total(self) -> int:
        """All tokens of the presentation."""
        return self.caption_tokens + sum(self.reference_tokens)


class TokenPlanner(Protocol):
    """Counts the tokens of a presentation with a checkpoint's own tokenizer and processor, without pixels or weights."""

    def plan_tokens(self, caption: str, references: Sequence[PresentedReference]) -> TokenPlan:
        """The plan; its total must equal what encoding the same row then produces."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSizes:
    """The sizes a checkpoint may change in its ``modular_model_index.json`` (blocks: ConfigSpec of the setup step)."""

    canvas_short_edge: int = 768
    canvas_max_pixels: int = 768 * 1344
    reference_image_short_edge: int = 2048

    @classmethod
    def of_index(cls, index: Mapping[str, Any]) -> ModelSizes:
        """The sizes a parsed ``modular_model_index.json`` declares, the released ones where it is silent."""
        names = ("canvas_short_edge", "canvas_max_pixels", "reference_image_short_edge")
        declared = {name: index[name] for name in names if index.get(name) is not None}
        for name, value in declared.items():
            if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
                raise ConfigError(
                    f"modular_model_index.json: {name} is {value!r}, required is a positive integer. Repair the checkpoint."
                )
        return cls(**declared)


def _a_row(what: str) -> str:
    return f"{what} a row may have; the default is the model's."


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetOptions:
    """What a dataset's entry may set; each option says what it is for, and the defaults are the contract's.

    ``width``, ``height`` and ``num_frames`` are for rows whose ``target_geometry`` leaves them out; ``sft`` ignores them. How
    many references a row may carry is by default what ``MiniMaxH3Ref2VASetupStep`` of the blocks takes; a video's soundtrack
    is no standalone audio. Where the defaults of ``decode_check_min_psnr_db`` and ``decode_check_min_audio_snr_db`` come from
    is told in ``decode_check``.

    Raises:
        ConfigError: a value is outside what it may be; the message names it.
    """

    format: Annotated[
        Format,
        Option(help="packed: one canvas a row, noised at batch time; sft: each clip's own geometry, noised anchors."),
    ] = Format.PACKED
    width: Annotated[int, Option(rule=_wrong_side, help="Canvas of rows that name none (packed).")] = 1344
    height: Annotated[int, Option(rule=_wrong_side, help="Canvas of rows that name none (packed).")] = 768
    num_frames: Annotated[int, Option(rule=_wrong_frame_count, help="17n+5 frames at 24 fps (packed).")] = 124
    max_presentation_tokens: Annotated[
        int,
        Option(
            least=1,
            most=MAX_PRESENTATION_TOKENS,
            why=f"as many as one Arrow cell holds of {TEXT_WIDTH} float32 values each",
            help="Longer presentations are refused; nothing is ever truncated.",
        ),
    ] = DEFAULT_PRESENTATION_TOKENS
    max_images: Annotated[int, Option(least=0, help=_a_row("Image references"))] = 9
    max_videos: Annotated[int, Option(least=0, help=_a_row("Video references, silent or sounding,"))] = 3
    max_audios: Annotated[int, Option(least=0, help=_a_row("Standalone audio references"))] = 3
    max_references: Annotated[int, Option(least=0, help=_a_row("References in all"))] = 12
    allow_outside: Annotated[bool, Option(help="Let media paths leave the manifest's folder.")] = False
    global_batch_rows: Annotated[int, Option(least=1, help="What the bucket table fills its buckets up to.")] = 8
    reference_noise_seed: Annotated[
        int,
        Option(
            least=0,
            most=MAX_NOISE_SEED,
            why="for it is stored as int64",
            help="Stored with packed rows: what their reference noise is drawn from.",
        ),
    ] = 42
    decode_check: Annotated[
        int,
        Option(
            least=0,
            help="Rows to decode again and compare with their media; reported, never a reason not to publish.",
        ),
    ] = 0
    decode_check_min_psnr_db: Annotated[float, Option(help="Warn below, pixels.")] = 20.0
    decode_check_min_audio_snr_db: Annotated[float, Option(help="Warn below, sound.")] = 0.0
    item_timeout_sec: ItemTimeout = ITEM_TIMEOUT_SEC
    sizes: ModelSizes = field(default_factory=ModelSizes)

    def __post_init__(self) -> None:
        check_options(self)
        Geometry(self.width, self.height, self.num_frames)

    @property
    def geometry(self) -> Geometry:
        """The geometry of a packed row that names none."""
        return Geometry(self.width, self.height, self.num_frames)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """One dataset as the line sees it: its partition key, its manifest and its options.

    ``parts`` is the number of shares its rows are encoded in; a row's share depends on its id alone.
    """

    name: str
    manifest: Path
    options: DatasetOptions = field(default_factory=DatasetOptions)
    parts: int = 1

    def part_of(self, sample_id: str) -> int:
        """The share a row belongs to, in ``range(parts)``."""
        return int.from_bytes(hashlib.sha256(sample_id.encode()).digest()[:8]) % self.parts
