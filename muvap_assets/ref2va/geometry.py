"""The model's arithmetic: frame counts, canvases, row counts, sequence lengths, buckets. Pure and exact.

Time is a ``Fraction`` of seconds or an integer of frames, slots or samples. Only the two sizing rules work in float, in
the very order the library does: its float arithmetic *is* the rule, and an exact one would differ at half-way cases.

    slot        0       1       2       3        one a 24th of a second
    time        0 s   1/24    2/24    3/24
    frame       shown from slot floor(24 * time + 1/2) up to the slot of the next frame
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction

from muvap_assets.errors import ConfigError
from muvap_assets.ref2va.contract import (
    AUDIO_CHANNELS,
    AUDIO_HOP_SAMPLES,
    AUDIO_LATENTS_PER_SEC,
    AUDIO_RATE_HZ,
    CANVAS_MULTIPLE,
    CAPACITY_MULTIPLE,
    CLIP_FRAMES,
    CLIP_LATENTS,
    DROPPED_LATENTS,
    FPS,
    FRAME_REMAINDER,
    MAX_ASPECT,
    MIN_ASPECT,
    SPATIAL_FACTOR,
    Format,
    Geometry,
    ModelSizes,
    ReferenceGeometry,
    ReferenceKind,
    Size,
    is_frame_count,
)

BUCKET_PATTERN = re.compile(r"bucket=([1-9]\d{0,8})x([1-9]\d{0,8})-([1-9]\d{0,8})f", re.ASCII)


def largest_frame_count(available: int) -> int | None:
    """The longest 17 * n + 5 that ``available`` frames hold, ``None`` where they hold none."""
    if available < FRAME_REMAINDER:
        return None
    return (available - FRAME_REMAINDER) // CLIP_FRAMES * CLIP_FRAMES + FRAME_REMAINDER


def video_latent_frames(num_frames: int) -> int:
    """Latent frames the video VAE makes of ``num_frames`` (facts): 5 * ceil(F / 17) - 3, and one for a still image.

    For 17 * n + 5 frames that is 5 * n + 2. Shorter videos are filled up to a clip by repeating their last frame.
    """
    if num_frames < 1:
        raise ConfigError(f"num_frames: found {num_frames}, required is at least 1. Give the video a frame.")
    if num_frames == 1:
        return 1
    return CLIP_LATENTS * -(-num_frames // CLIP_FRAMES) - DROPPED_LATENTS


def frames_of_latents(latents: int) -> int | None:
    """The 17 * n + 5 frames of which the video VAE makes ``latents`` latent frames, ``None`` where it makes 5 * n + 2 of none."""
    clips, remainder = divmod(latents + DROPPED_LATENTS, CLIP_LATENTS)
    frames = (clips - 1) * CLIP_FRAMES + FRAME_REMAINDER
    return frames if not remainder and is_frame_count(frames) else None


def target_audio_latents(num_frames: int) -> int:
    """Audio latents of a target: round(F / 24 * 40). Thirds never lie half-way, so the rounding is not in question."""
    return (2 * num_frames * AUDIO_LATENTS_PER_SEC + FPS) // (2 * FPS)


def audio_latents_of(samples: int) -> int:
    """Audio latents the audio VAE makes of ``samples`` at 32 kHz: one a started hop of 800."""
    return -(-samples // AUDIO_HOP_SAMPLES)


def clip_duration_samples(num_frames: int) -> int:
    """Whole samples at 32 kHz that lie within ``num_frames`` at 24 fps: floor(F * 32000 / 24)."""
    return num_frames * AUDIO_RATE_HZ // FPS


def target_audio_samples(num_frames: int, format: Format) -> int:
    """Samples at 32 kHz a target's audio is cut to before encoding.

    ``sft`` keeps the whole audio latents, latents * 800; ``packed`` also stops at the clip's own duration. Without the
    cut, counts with F % 3 == 2 would give one latent too many; cutting latents after encoding changes the last 11.
    """
    whole_latents = target_audio_latents(num_frames) * AUDIO_HOP_SAMPLES
    return whole_latents if format is Format.SFT else min(whole_latents, clip_duration_samples(num_frames))


def required_audio_samples(num_frames: int) -> int:
    """The fewest samples at 32 kHz a target's audio may have, in either format.

    Audio exactly as long as the clip is not short: the VAE fills the last, started hop itself.
    """
    return target_audio_samples(num_frames, Format.PACKED)


def resampled_count(samples: int, rate_hz: int) -> int:
    """Samples at 32 kHz that soxr makes of ``samples`` at ``rate_hz``: the nearest count, halves up."""
    return (2 * samples * AUDIO_RATE_HZ + rate_hz) // (2 * rate_hz)


def reference_audio_limit(num_frames: int, rate_hz: int) -> int:
    """Samples at its own rate a reference's sound is cut to before it is resampled: the target's duration (blocks)."""
    return num_frames * rate_hz // FPS


def slot_of(seconds: Fraction) -> int:
    """The 24 fps slot a frame with this timestamp is shown from: floor(24 * t + 1/2) (facts)."""
    return (2 * FPS * seconds.numerator + seconds.denominator) // (2 * seconds.denominator)


def frames_at_24(source_frames: int, fps: Fraction) -> int:
    """Frames at 24 fps that ``source_frames`` at a constant ``fps`` fill (blocks): floor(N * 24 / fps + 1/2)."""
    return slot_of(Fraction(source_frames) / fps)


def is_supported_aspect(size: Size) -> bool:
    """Whether width : height lies within 1:4 and 4:1 (blocks)."""
    return size.width > 0 and size.height > 0 and MIN_ASPECT <= Fraction(size.width, size.height) <= MAX_ASPECT


def resolve_canvas(size: Size, sizes: ModelSizes) -> Size:
    """The canvas for a display size: short edge 768, at most 768 * 1344 before rounding, multiples of 32.

    The rule of ``diffusers`` ``resolve_canvas_size``, width first here; rounding may exceed the area slightly.

    Raises:
        ConfigError: the aspect ratio lies outside 1:4 to 4:1.
    """
    _require_aspect(size)
    ratio = size.width / size.height
    short = sizes.canvas_short_edge
    width, height = (short * ratio, float(short)) if ratio >= 1.0 else (float(short), short / ratio)
    area = width * height
    if area > sizes.canvas_max_pixels:
        scale = (sizes.canvas_max_pixels / area) ** 0.5
        width, height = width * scale, height * scale
    return Size(_to_multiple(width), _to_multiple(height))


def reference_image_size(size: Size, sizes: ModelSizes) -> Size:
    """The size a reference image is brought to (blocks): short edge 2048, up or down, multiples of 32, no area cap.

    Raises:
        ConfigError: the aspect ratio lies outside 1:4 to 4:1.
    """
    _require_aspect(size)
    scale = sizes.reference_image_short_edge / min(size.width, size.height)
    return Size(_to_multiple(size.width * scale), _to_multiple(size.height * scale))


def reference_video_frames(available: int, target_frames: int) -> int:
    """Frames at 24 fps of a reference video that the conditioner reads: what it has, cut to the target's length."""
    return min(available, target_frames)


def encoded_reference_frames(frames: int) -> int:
    """Of those, the frames the video VAE encodes (blocks): down to 17 * n + 5, but all of them under 22.

    Under 22 frames the blocks ask for 22 and get what there is, which the VAE then fills up.
    """
    snapped = max(1, (frames - FRAME_REMAINDER) // CLIP_FRAMES) * CLIP_FRAMES + FRAME_REMAINDER
    return min(frames, snapped)


def reference_geometry(
    kind: ReferenceKind, *, size: Size | None = None, frames: int = 1, audio_samples: int = 0
) -> ReferenceGeometry:
    """The latent geometry of a prepared reference.

    Args:
        kind: its kind; a soundtrack counts only for the kinds that have one.
        size: pixels it was resized to, ``None`` for audio.
        frames: frames handed to the video VAE, 1 for an image.
        audio_samples: samples at 32 kHz a channel.
    """
    return ReferenceGeometry(
        media_type=kind.media_type,
        has_audio=kind.has_audio,
        num_latent_frames=video_latent_frames(frames) if size else 0,
        latent_height=size.height // SPATIAL_FACTOR if size else 0,
        latent_width=size.width // SPATIAL_FACTOR if size else 0,
        num_audio_latents=audio_latents_of(audio_samples) if kind.has_audio else 0,
    )


def target_video_shape(geometry: Geometry) -> tuple[int, int, int]:
    """[T, H/16, W/16] of a target's video latents."""
    return (
        video_latent_frames(geometry.num_frames),
        geometry.height // SPATIAL_FACTOR,
        geometry.width // SPATIAL_FACTOR,
    )


def target_rows(geometry: Geometry) -> int:
    """Rows of the joint sequence a target takes: both audio channels, and one a latent frame and 2x2 patch."""
    video = (
        video_latent_frames(geometry.num_frames)
        * (geometry.height // CANVAS_MULTIPLE)
        * (geometry.width // CANVAS_MULTIPLE)
    )
    return video + AUDIO_CHANNELS * target_audio_latents(geometry.num_frames)


def joint_sequence_length(text_tokens: int, references: Iterable[ReferenceGeometry], geometry: Geometry) -> int:
    """Rows of the joint sequence: text, reference rows, target audio, target video (contract)."""
    conditions = sum(reference.visual_rows + reference.audio_rows for reference in references)
    return text_tokens + conditions + target_rows(geometry)


def padded_length(length: int) -> int:
    """The smallest positive multiple of 256 that holds ``length`` rows: the tightest capacity it can be padded to."""
    return max(1, -(-length // CAPACITY_MULTIPLE)) * CAPACITY_MULTIPLE


def bucket_name(geometry: Geometry) -> str:
    """The folder rows of this shape lie in; native sampling reads the shape from it (contract)."""
    return f"bucket={geometry.width}x{geometry.height}-{geometry.num_frames}f"


def parse_bucket_name(name: str) -> Geometry:
    """The inverse of :func:`bucket_name`.

    Raises:
        ConfigError: the name is no bucket's, or its geometry is off the lattice.
    """
    match = BUCKET_PATTERN.fullmatch(name)
    if match is None:
        raise ConfigError(f"bucket folder {name!r}: required is bucket=<W>x<H>-<N>f. Restore its name.")
    return Geometry(*map(int, match.groups()))


def _to_multiple(side: float) -> int:
    return max(CANVAS_MULTIPLE, round(side / CANVAS_MULTIPLE) * CANVAS_MULTIPLE)


def _require_aspect(size: Size) -> None:
    if not is_supported_aspect(size):
        raise ConfigError(f"size {size}: its aspect ratio is not within 1:4 and 4:1, as required. Crop the picture.")
