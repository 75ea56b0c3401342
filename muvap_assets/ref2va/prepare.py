"""Raw media to pixels and waveforms at the model's rates and sizes. CPU only, no model, no torch.

    what       how                                                                             yields
    frames     24 fps by timestamps, cut to the count, Pillow Lanczos to the canvas            uint8 [n <= 17, H, W, 3]
    picture    upright, opaque, Pillow Lanczos to its size                                     uint8 [1, H, W, 3]
    sound      stereo, aligned or from its start, soxr HQ to 32 kHz, cut                       float32 [2, N]

Frame i is shown from slot floor(24 * t + 1/2) to the slot of the next one, repeated or left out whole (facts). Resizing
does not preserve a mismatched aspect ratio (contract). Memory is bounded by one block of frames, whatever the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray
from PIL import Image

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding
from muvap_assets.media import images, soundtrack, video
from muvap_assets.media.images import read_image
from muvap_assets.media.sound_files import SoundChoice
from muvap_assets.media.soundtrack import SoundSource
from muvap_assets.media.video import VideoSource
from muvap_assets.ref2va.contract import (
    AUDIO_CHANNELS,
    AUDIO_RATE_HZ,
    CLIP_FRAMES,
    DatasetOptions,
    RawSample,
    Reference,
    ReferenceKind,
    Size,
)
from muvap_assets.ref2va.encoder import Frames, ReferenceInput, RowInput, Waveform
from muvap_assets.ref2va.geometry import (
    reference_audio_limit,
    required_audio_samples,
    slot_of,
    target_audio_samples,
)
from muvap_assets.ref2va.media_facts import MediaFacts
from muvap_assets.ref2va.plan import RowPlan
from muvap_assets.ref2va.plan_references import ReferencePlan

RECIPE = 1  # raised whenever a change here changes what is made


def media_version() -> str:
    """Everything prepared media depends on besides its files: our recipe and the libraries that decode and resample."""
    return "; ".join(
        (f"prepare {RECIPE}", video.PROBE, soundtrack.PROBE, images.PROBE, f"soxr {soxr.__version__}"),
    )


def frame_blocks(
    path: Path, *, size: Size, num_frames: int, fps: Fraction | None = None, block_frames: int = CLIP_FRAMES
) -> Iterator[Frames]:
    """The first ``num_frames`` frames at 24 fps on a canvas, uint8 [n, H, W, 3], ``block_frames`` at a time.

    Args:
        path: the video file.
        size: of the canvas.
        num_frames: how many frames at 24 fps to yield in all.
        fps: a constant source rate that overrides the file's timestamps.
        block_frames: frames a block; the last one may be shorter.

    Raises:
        ValidationError: the file holds fewer frames, or does not decode.
    """
    made = 0
    block = np.empty((block_frames, size.height, size.width, 3), np.uint8)
    with VideoSource(path) as source:
        for frame in source.frames(fps):
            shown = min(slot_of(frame.stop), num_frames) - slot_of(frame.start)
            if shown <= 0:
                continue
            pixels = resized(Image.fromarray(frame.pixels()), size)
            for _ in range(shown):
                block[made % block_frames] = pixels
                made += 1
                if made % block_frames == 0:
                    yield block
                    block = np.empty_like(block)
            if made == num_frames:
                break
    if made < num_frames:
        raise _changed(path, f"{made} frames at 24 fps", f"{num_frames}")
    if made % block_frames:
        yield block[: made % block_frames]


def picture_block(path: Path, *, size: Size) -> Iterator[Frames]:
    """A reference image as one block, uint8 [1, H, W, 3].

    Raises:
        ValidationError: it does not decode as one picture.
    """
    yield resized(read_image(path), size)[None]


def resized(image: Image.Image, size: Size) -> NDArray[np.uint8]:
    """uint8 [H, W, 3] by Pillow Lanczos, untouched where the size is right already (blocks, contract)."""
    if image.size != size:
        image = image.resize(size, Image.Resampling.LANCZOS)
    return np.array(image)  # a copy: PIL hands out read-only memory


def waveform(
    path: Path,
    *,
    limit: int,
    origin: Fraction | None = None,
    rate_hz: int | None = None,
    source_limit: int | None = None,
    stream: str | None = None,
) -> Waveform:
    """Stereo sound at 32 kHz, float32 [2, N] with N at most ``limit``.

    Args:
        path: the file.
        limit: samples at 32 kHz to stop at.
        origin: time on the container's clock the first sample stands at; ``None`` for the sound's own first sample.
        rate_hz: overrides the decoder's sample rate.
        source_limit: samples at the sound's own rate to cut to before resampling.
        stream: of several audio streams, the one that is meant.

    Raises:
        ValidationError: it does not decode, or a sample is not finite.
    """
    out = np.empty((AUDIO_CHANNELS, limit), np.float32)
    made = 0
    with SoundSource(path, SoundChoice(stream)) as source:
        blocks = source.blocks(origin) if source_limit is None else _first(source.blocks(origin), source_limit)
        for block in resampled(blocks, rate_hz or source.rate_hz):
            taken = block[:, : limit - made]
            out[:, made : made + taken.shape[1]] = taken
            made += taken.shape[1]
            if made == limit:
                break
    if not np.isfinite(out[:, :made]).all():
        raise ValidationError(Finding(Code.AUDIO_NON_FINITE, path, "samples that are NaN or infinite"))
    return out[:, :made]


def resampled(blocks: Iterator[NDArray[np.float32]], rate_hz: int) -> Iterator[NDArray[np.float32]]:
    """Blocks [2, n] at ``rate_hz`` as blocks at 32 kHz; all in all as many and the same as resampled in one piece."""
    if rate_hz == AUDIO_RATE_HZ:
        yield from blocks
        return
    stream = soxr.ResampleStream(rate_hz, AUDIO_RATE_HZ, AUDIO_CHANNELS, dtype="float32", quality="HQ")
    for block in blocks:
        yield stream.resample_chunk(np.ascontiguousarray(block.T)).T
    yield stream.resample_chunk(np.empty((0, AUDIO_CHANNELS), np.float32), last=True).T


def target_waveform(path: Path, *, origin: Fraction, limit: int, required: int, stream: str | None = None) -> Waveform:
    """A target's sound, cut before it is encoded: float32 [2, N], ``required`` <= N <= ``limit``.

    Raises:
        ValidationError: the file holds less, or does not decode.
    """
    sound = waveform(path, limit=limit, origin=origin, stream=stream)
    if sound.shape[1] < required:
        raise _changed(path, f"{sound.shape[1]} audio samples at 32 kHz", f"{required}")
    return sound


def reference_waveform(plan: ReferencePlan, path: Path, num_frames: int) -> Waveform:
    """A reference's sound, float32 [2, plan.audio_samples].

    Raises:
        ValidationError: the file holds less, or does not decode.
    """
    sound = waveform(
        path,
        limit=plan.audio_samples,
        origin=plan.audio_origin_sec,
        rate_hz=plan.audio_rate_hz,
        source_limit=reference_audio_limit(num_frames, plan.audio_rate_hz),
        stream=plan.reference.audio_stream,
    )
    if sound.shape[1] < plan.audio_samples:
        raise _changed(path, f"{sound.shape[1]} audio samples at 32 kHz", f"{plan.audio_samples}")
    return sound


def row_input(plan: RowPlan, raw: RawSample, facts: MediaFacts, options: DatasetOptions) -> RowInput:
    """A planned row as the encoder takes it; its media is decoded when it is asked for. Pickles.

    Args:
        plan: of the resolved sample.
        raw: the same sample as the manifest has it: its path becomes the row's file name.
        facts: digests of its files.
        options: the dataset's.
    """
    path, num_frames = plan.sample.target_video, plan.geometry.num_frames
    return RowInput(
        sample_id=plan.sample.id,
        row=plan.sample.row,
        caption=plan.sample.caption,
        geometry=plan.geometry,
        format=options.format,
        file_name=raw.target_video.as_posix(),
        target_digest=facts.digest(path),
        target_sound=_stream_key(plan.sample.audio_stream),
        media_version=media_version(),
        target_frames=partial(frame_blocks, path, size=plan.geometry.size, num_frames=num_frames),
        target_waveform=partial(
            target_waveform,
            path,
            origin=plan.audio_origin_sec,
            limit=target_audio_samples(num_frames, options.format),
            required=required_audio_samples(num_frames),
            stream=plan.sample.audio_stream,
        ),
        references=tuple(_reference_input(reference, num_frames, facts) for reference in plan.references),
        reference_noise_seed=options.reference_noise_seed,
        media=facts.digests_of(plan.sample),
    )


def _reference_input(plan: ReferencePlan, num_frames: int, facts: MediaFacts) -> ReferenceInput:
    reference = plan.reference
    frames = _frames_of(plan)
    sound = None if reference.audio is None else partial(reference_waveform, plan, reference.audio, num_frames)
    return ReferenceInput(
        kind=ReferenceKind(plan.kind),
        size=plan.size,
        num_frames=plan.num_frames,
        audio_samples=plan.audio_samples,
        visual_digest=_visual_digest(reference, facts),
        audio_digest=_audio_digest(plan, facts),
        frames=frames,
        waveform=sound,
    )


def _frames_of(plan: ReferencePlan) -> Callable[[], Iterator[Frames]] | None:
    reference, size = plan.reference, plan.size
    if size is None:
        return None
    if reference.image is not None:
        return partial(picture_block, reference.image, size=size)
    if reference.video is None:
        return None
    return partial(frame_blocks, reference.video, size=size, num_frames=plan.num_frames, fps=reference.fps)


def _visual_digest(reference: Reference, facts: MediaFacts) -> str:
    path = reference.image or reference.video
    return "" if path is None else f"{facts.digest(path)} fps={reference.fps}"


def _audio_digest(plan: ReferencePlan, facts: MediaFacts) -> str:
    path = plan.reference.audio
    if path is None:
        return ""
    stream = _stream_key(plan.reference.audio_stream)
    return f"{facts.digest(path)} rate={plan.audio_rate_hz} origin={plan.audio_origin_sec}{stream}"


def _stream_key(stream: str | None) -> str:
    return "" if stream is None else f" stream={stream}"


def _first(blocks: Iterator[NDArray[np.float32]], limit: int) -> Iterator[NDArray[np.float32]]:
    left = limit
    for block in blocks:
        yield block[:, :left]
        left -= block.shape[1]
        if left <= 0:
            return


def _changed(path: Path, found: str, required: str) -> ValidationError:
    return ValidationError(
        Finding(Code.DIGEST_MISMATCH, path, f"it yields only {found}", case="media", counted=required)
    )
