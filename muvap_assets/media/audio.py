"""Recordings as everything after decoding wants them: counted, mixed to mono, at 16 kHz, as 16-bit integers.

Everything streams: memory holds blocks, whatever a recording's length. What the samples mean is the callers' business.

    file ─► native_blocks ─► mono_blocks ─► resampled_blocks ─► to_int16
            float32 [n, C]   float32 [n]    float32 [n] 16 kHz   int16 [n]

Source: the audio-visual data contract, "Audio".
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soxr

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding, Place
from muvap_assets.media.closing import Closing
from muvap_assets.media.sound import SoundFile
from muvap_assets.media.sound_files import Float32, SoundChoice, refuse_missing
from muvap_assets.media.soundtrack import Gap, SoundSource, lead_samples
from muvap_assets.media.video import VideoSource
from muvap_assets.storage.digests import file_sha256

RATE_HZ = 16_000
"""Rate everything is resampled to."""

RESAMPLER_QUALITY = "HQ"
"""Of soxr: aliases 140 dB down. The qualities called quick and low do not filter."""

INT16_SCALE = 32_768

MAX_PEAK = 16.0
"""Floating-point sound may exceed full scale, which is 1; a peak beyond this is that of integers that were only cast."""


def wrong_scale(where: Place | Path, peak: float) -> Finding | None:
    """The finding about samples of another scale, if they are: clipped to 16 bits they would be a square wave."""
    if peak <= MAX_PEAK:
        return None
    return Finding(Code.AUDIO_SCALE, where, f"samples of up to {peak:,.0f}", limit=f"{MAX_PEAK:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioProbe:
    """What decoding a whole recording showed.

    ``frames`` and ``rate_hz`` are native, ``samples_16k`` is what :func:`mono_16k_blocks` yields in all. ``non_finite``
    counts NaN and infinite values over all channels. ``constant`` says that the mono mix spans one 16-bit step at most:
    silence, or nothing but an offset (never said of a recording with non-finite values). ``peak`` is the mono mix's, full
    scale being 1; only floating point goes beyond. ``cancelled_db`` is how far the mono mix lies below the mean power of
    the channels, both less their means; infinite where only the mix is silent. ``sha256`` is of the file's bytes, ``track``
    what the choice of a stream or channel adds to the recording's identity.
    ``offset_sec`` is how much later than its first frame the sound of a video starts, negative where it starts before;
    ``holes`` which of its ``frames`` the video does not have, (first, how many) each.
    """

    rate_hz: int
    channels: int
    frames: int
    samples_16k: int
    non_finite: int
    constant: bool
    peak: float
    sha256: str
    encoding: str
    offset_sec: Fraction = Fraction(0)
    holes: tuple[Gap, ...] = ()
    cancelled_db: float = 0.0
    track: str = ""
    notes: tuple[Finding, ...] = ()

    @property
    def recording_id(self) -> str:
        """See :func:`recording_id`."""
        return recording_id(self.sha256, self.track)


ID_LENGTH = 16
"""A recording id begins with this many digits of its file's SHA-256."""


def recording_id(sha256: str, track: str = "") -> str:
    """The identity of a recording: its file's, and which stream and channel of it are meant where that was chosen."""
    return sha256[:ID_LENGTH] + track


class Recording(Closing):
    """An open recording: WAV, FLAC or a NumPy waveform; or, only where asked for, a video's sound. A context manager.

    The sound of a video is placed by timestamps against the first frame shown: what is earlier is cut off, what is missing
    before it or in a gap is silence. It is the only compressed sound that is read, because cutting it out to a file
    beforehand would lose where it belongs. It comes as two channels, however many it has (see ``soundtrack``).

    Args:
        path: the recording.
        npy_rate_hz: the rate of a NumPy waveform, which cannot state its own.
        from_video: it is a video whose sound is meant.
        choice: a stream and a channel of it.

    Raises:
        ValidationError: AUDIO_MISSING, AUDIO_EMPTY, AUDIO_UNREADABLE, AUDIO_UNSUPPORTED, AUDIO_STREAM, AUDIO_CHANNELS, or
            AUDIO_RATE_INVALID where a NumPy waveform comes without a rate, a rate is out of range, or ``npy_rate_hz``
            contradicts the file's own; of a video also VIDEO_UNREADABLE.
    """

    def __init__(
        self, path: Path, npy_rate_hz: int | None = None, from_video: bool = False, choice: SoundChoice | None = None
    ) -> None:
        self.path, self.offset_sec = path, Fraction(0)
        self._placed: SoundSource | None = None
        if from_video:
            refuse_missing(path)
            with VideoSource(path) as video:
                next(video.frames())
                self._origin = video.first_sec
            self._placed = SoundSource(path, choice, npy_rate_hz)
            self.file, self.offset_sec = self._placed.file, self._placed.first_sec - self._origin
        else:
            self.file = SoundFile(path, choice, npy_rate_hz=npy_rate_hz, lossless_only=True)
        self.rate_hz = self.file.rate_hz

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def blocks(self) -> Generator[Float32]:
        """The recording as it is: float32 [n, channels], in blocks of bounded size; full scale is one.

        Raises:
            ValidationError: AUDIO_UNREADABLE where decoding fails on the way.
        """
        decoded = 0
        if self._placed is None:
            blocks: Iterator[Float32] = (block for _, block in self.file.chunks())
        else:
            blocks = (block.T for block in self._placed.blocks(self._origin))
        for block in blocks:
            decoded += len(block)
            yield block
        if stopped := (self._placed or self.file).stopped:
            found = f"decoding failed after {decoded} frames ({stopped})"
            raise ValidationError(Finding(Code.AUDIO_UNREADABLE, self.path, found))

    @property
    def holes(self) -> tuple[Gap, ...]:
        """Which of the frames a video does not have, once all blocks were taken: before its sound begins, and in gaps."""
        if self._placed is None:
            return ()
        lead = lead_samples(self._placed.first_sec, self._origin, self.rate_hz)
        return (*[(0, lead)] * (lead > 0), *self._placed.gaps)


class _Spread:
    """How far the channels of a recording spread about their means, each alone and mixed; in float64, as sums."""

    def __init__(self, channels: int) -> None:
        self._count, self._sums, self._squares = 0, np.zeros(channels + 1), np.zeros(channels + 1)

    def add(self, block: Float32) -> None:
        signals = [np.array(block[:, channel], np.float64) for channel in range(block.shape[1])]
        mix = signals[0].copy()
        for signal in signals[1:]:
            mix += signal
        mix /= len(signals)
        signals.append(mix)
        self._count += len(block)
        self._sums += [signal.sum() for signal in signals]
        self._squares += [np.einsum("i,i->", signal, signal) for signal in signals]  # not `@`: its threads would spin

    @property
    def cancelled_db(self) -> float:
        """How far the mix lies below the channels' mean power; 0 where these are silent as well, or there is but one."""
        if not self._count:
            return 0.0
        power = np.maximum(self._squares / self._count - (self._sums / self._count) ** 2, 0)
        channels, mix = float(power[:-1].mean()), float(power[-1])
        if channels * INT16_SCALE**2 <= 1:
            return 0.0
        return 10 * math.log10(channels / mix) if mix else math.inf


def probe_audio(
    path: Path, npy_rate_hz: int | None = None, from_video: bool = False, choice: SoundChoice | None = None
) -> AudioProbe:
    """Decode a recording once and say what it is; arguments as for :class:`Recording`.

    Raises:
        ValidationError: it cannot be decoded, or is shorter than one sample at 16 kHz (AUDIO_EMPTY). Non-finite values are
            counted and not an error here.
    """
    frames = non_finite = 0
    low, high = np.inf, -np.inf
    with Recording(path, npy_rate_hz, from_video, choice) as source:
        spread = _Spread(2 if from_video else len(source.file.speakers))
        for block in source.blocks():
            frames += len(block)
            non_finite += count_non_finite(block)
            if not non_finite:
                mono = _mixed(block)
                low, high = min(low, float(mono.min())), max(high, float(mono.max()))
                if block.shape[1] > 1:
                    spread.add(block)
    return AudioProbe(
        rate_hz=source.rate_hz,
        channels=source.file.channels,
        frames=frames,
        samples_16k=checked_samples_16k(path, frames, source.rate_hz),
        non_finite=non_finite,
        constant=not non_finite and (high - low) * INT16_SCALE <= 1,
        peak=0.0 if non_finite else max(high, -low),
        sha256=file_sha256(path),
        encoding="VIDEO" if from_video else source.file.encoding,
        offset_sec=source.offset_sec,
        holes=source.holes,
        cancelled_db=0.0 if non_finite else spread.cancelled_db,
        track=source.file.track,
        notes=tuple(source.file.notes),
    )


def native_blocks(path: Path, npy_rate_hz: int | None = None) -> Generator[Float32]:
    """:meth:`Recording.blocks` of a file: float32 [n, channels]."""
    with Recording(path, npy_rate_hz) as source:
        yield from source.blocks()


def mono_16k_blocks(
    path: Path,
    npy_rate_hz: int | None = None,
    stop_sample: int | None = None,
    from_video: bool = False,
    choice: SoundChoice | None = None,
) -> Generator[Float32]:
    """A recording at 16 kHz, mono: float32 [n] blocks whose lengths add up to ``samples_16k`` of its probe.

    Channels are averaged, then the recording is resampled as one signal, so that what comes out depends on no block size.
    16 kHz mono passes untouched. With ``stop_sample`` the first so many samples only, the same ones, and decoding stops there.

    Raises:
        ValidationError: see :class:`Recording` and :func:`mono_blocks`.
    """
    with Recording(path, npy_rate_hz, from_video, choice) as source:
        resampled = resampled_blocks(mono_blocks(source.blocks(), path), source.rate_hz)
        yield from resampled if stop_sample is None else _first(resampled, stop_sample)


def mono_blocks(blocks: Iterator[Float32], path: Path) -> Generator[Float32]:
    """The mean over channels, float32 [n], of float32 [n, channels].

    Raises:
        ValidationError: AUDIO_NON_FINITE, with how many values of the whole recording are: the rest is decoded to count them.
    """
    values = 0
    for block in blocks:
        values += block.size
        non_finite = count_non_finite(block)
        if non_finite:
            for later in blocks:
                values += later.size
                non_finite += count_non_finite(later)
            raise non_finite_error(path, non_finite, values)
        yield _mixed(block)


def resampled_blocks(blocks: Iterator[Float32], rate_hz: int) -> Generator[Float32]:
    """Mono float32 [n] blocks at ``rate_hz`` as float32 [n] blocks at 16 kHz, :func:`samples_16k` in all."""
    if rate_hz == RATE_HZ:
        yield from blocks
        return
    stream = soxr.ResampleStream(rate_hz, RATE_HZ, 1, dtype="float32", quality=RESAMPLER_QUALITY)
    frames = yielded = 0
    for block in blocks:
        frames += len(block)
        resampled: Float32 = stream.resample_chunk(block)
        yielded += len(resampled)
        if len(resampled):
            yield resampled
    # soxr rounds a length that ends in one half up, ours goes to the even one. Its own flush is silence as well: a little
    # more of it changes no value, and makes sure there are enough to cut at the exact length.
    silence = np.zeros(2 + rate_hz // RATE_HZ, np.float32)
    tail: Float32 = stream.resample_chunk(silence, last=True)[: samples_16k(frames, rate_hz) - yielded]
    if len(tail):
        yield tail


def samples_16k(frames: int, rate_hz: int) -> int:
    """How many samples at 16 kHz ``frames`` at ``rate_hz`` become; half rounds to even."""
    return round(Fraction(frames * RATE_HZ, rate_hz))


def checked_samples_16k(path: Path, frames: int, rate_hz: int) -> int:
    """:func:`samples_16k` of a recording that has to have some.

    Raises:
        ValidationError: AUDIO_EMPTY.
    """
    samples = samples_16k(frames, rate_hz)
    if not samples:
        raise ValidationError(Finding(Code.AUDIO_EMPTY, path, f"{frames} frames at {rate_hz} Hz"))
    return samples


def to_int16(samples: Float32) -> tuple[npt.NDArray[np.int16], int]:
    """16-bit integers of float32 [n] samples, and how many had to be clipped.

    Full scale is 32768, half rounds to even: a 16-bit source at 16 kHz, mono, comes out as it went in.

    Raises:
        ValidationError: AUDIO_NON_FINITE; a cast would turn such a sample into just any number.
    """
    non_finite = count_non_finite(samples)
    if non_finite:
        raise non_finite_error("samples", non_finite, samples.size)
    with np.errstate(over="ignore"):
        scaled = np.rint(samples * np.float32(INT16_SCALE))
    low, high = -INT16_SCALE, INT16_SCALE - 1
    clipped = int(np.count_nonzero((scaled < low) | (scaled > high)))
    return scaled.clip(low, high).astype(np.int16), clipped


def count_non_finite(values: Float32) -> int:
    """How many values are NaN or infinite."""
    return values.size - int(np.count_nonzero(np.isfinite(values)))


def non_finite_error(where: Path | str, non_finite: int, values: int) -> ValidationError:
    """The error about samples of which some are NaN or infinite."""
    found = f"{non_finite} of {values} values are NaN, infinite or beyond float32"
    return ValidationError(Finding(Code.AUDIO_NON_FINITE, where, found))


def _mixed(block: Float32) -> Float32:
    # In float64 and column by column: the mean is rounded once, cannot overflow, and is the same for any block size.
    if block.shape[1] == 1:
        return block[:, 0]
    total = block[:, 0].astype(np.float64)
    for channel in range(1, block.shape[1]):
        total += block[:, channel]
    mean: Float32 = (total / block.shape[1]).astype(np.float32)
    return mean


def _first(blocks: Iterator[Float32], count: int) -> Generator[Float32]:
    while count > 0:
        block = next(blocks, None)
        if block is None:
            return
        yield block[:count]
        count -= len(block)
