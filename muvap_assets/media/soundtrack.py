"""Sound of a file as stereo float32 blocks at its own rate, placed by its own timestamps.

What belongs here: the downmix, gaps, and counting. What does not: decoding, which is ``sound.py``'s, and any model's rate.

    clock    ...|-- origin (a video's first frame) ----------------------------------|
    sound       ....|== block ==|== block ==|      |== block ==|        (pts of each block)
    here        0000============================0000============        zeros where the file has no sound

**Downmix**, fixed: mono is doubled; more than two channels go by ITU-R BS.775 (front 1, centre and surrounds 1/sqrt(2), a
single back centre 1/2, no low-frequency channel), divided by the largest sum of a side, so that no input in full scale
can leave full scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding
from muvap_assets.media.closing import Closing
from muvap_assets.media.sound import SoundFile
from muvap_assets.media.sound_files import SoundChoice

PROBE = f"sound 2, av {version('av')}"
BLOCK_SAMPLES = 1 << 16
MAX_SILENCE_SAMPLES = 1 << 28
"""Of gaps and of the time before the sound, together: an hour and a half at 48 kHz. A timestamp may claim millennia."""

SLACK = Fraction(1, 100)  # containers round timestamps to milliseconds; only a jump beyond this is a gap or an overlap
_SIDE = float(np.sqrt(0.5))
_DOWNMIX: Mapping[str, tuple[float, float]] = {
    "FL": (1.0, 0.0),
    "FR": (0.0, 1.0),
    "FC": (_SIDE, _SIDE),
    "FLC": (1.0, 0.0),
    "FRC": (0.0, 1.0),
    "BL": (_SIDE, 0.0),
    "BR": (0.0, _SIDE),
    "SL": (_SIDE, 0.0),
    "SR": (0.0, _SIDE),
    "BC": (0.5, 0.5),
    "LFE": (0.0, 0.0),
}

Gap = tuple[int, int]  # its first sample, and how many


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundFacts:
    """What decoding a whole file's sound found.

    ``samples`` counts from the first sample to the last at ``rate_hz``, gaps filled; ``first_sec`` is the first sample's
    time on the container's own clock, 0 for a plain sound file; ``peak`` the largest magnitude after the downmix;
    ``gaps`` which of ``samples`` the file does not have, in order; ``stopped`` why decoding ended early, empty where it did
    not; ``notes`` what else is odd about the file.
    """

    rate_hz: int
    channels: int
    samples: int
    first_sec: Fraction
    peak: float
    gaps: tuple[Gap, ...]  # no default: counts that were remembered without them are made anew
    notes: tuple[Finding, ...] = ()
    non_finite: int = 0
    stopped: str = ""

    def samples_from(self, origin: Fraction) -> int:
        """Samples from ``origin`` on, silence before the first sample included: what ``blocks(origin)`` yields."""
        return max(0, self.samples + lead_samples(self.first_sec, origin, self.rate_hz))

    def gaps_within(self, origin: Fraction | None, samples: int, *, with_lead: bool = False) -> list[Gap]:
        """The gaps, or what of them lies, among the first ``samples`` of ``blocks(origin)``.

        The silence before a sound that starts later is one of them only ``with_lead``.
        """
        lead = 0 if origin is None else lead_samples(self.first_sec, origin, self.rate_hz)
        gaps = [(-lead, lead), *self.gaps] if with_lead else self.gaps
        spans = [(max(0, lead + first), min(samples, lead + first + count)) for first, count in gaps]
        return [(start, stop - start) for start, stop in spans if stop > start]


class SoundSource(Closing):
    """The open sound of a file, or what of it is chosen. Use as a context manager; :meth:`blocks` may be called once.

    Raises:
        ValidationError: as :class:`SoundFile`, or a channel layout without a rule.
    """

    def __init__(self, path: Path, choice: SoundChoice | None = None, declared_hz: int | None = None) -> None:
        self.path = path
        self._stopped = ""
        self.gaps: list[Gap] = []
        self.file = SoundFile(path, choice, npy_rate_hz=declared_hz)
        try:
            self._open()
        except BaseException:
            self.file.close()
            raise

    def _open(self) -> None:
        self.rate_hz, self.channels = self.file.rate_hz, self.file.channels
        self._mix = downmix_matrix(self.file.speakers, self.path)
        chunks = self.file.chunks(BLOCK_SAMPLES)
        first = next(chunks, None)
        if first is None:
            raise ValidationError(Finding(Code.AUDIO_EMPTY, self.path, "no sample decodes"))
        self.first_sec = first[0] or Fraction(0)
        self._chunks = chain([first], chunks)

    @property
    def stopped(self) -> str:
        """Why the sound ended early; empty where it did not."""
        return self._stopped or self.file.stopped

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def blocks(self, origin: Fraction | None = None) -> Iterator[NDArray[np.float32]]:
        """float32 [2, n] blocks at ``rate_hz``, the first sample at ``origin`` on the container's clock.

        What lies before ``origin`` is cut off; silence stands before a sound that starts later, and in gaps, which are noted
        in ``gaps``. Without an origin the first sample is the file's own first.
        """
        lead = 0 if origin is None else lead_samples(self.first_sec, origin, self.rate_hz)
        return placed(self._positioned(lead), round(SLACK * self.rate_hz), self.gaps)

    def _positioned(self, lead: int) -> Iterator[tuple[int | None, NDArray[np.float32]]]:
        stop = silence = 0
        for seconds, chunk in self._chunks:
            position = None if seconds is None else lead + round((seconds - self.first_sec) * self.rate_hz)
            silence += max(0, position - stop) if position is not None else 0
            if silence > MAX_SILENCE_SAMPLES:
                self._stopped = f"timestamps that leave over {MAX_SILENCE_SAMPLES // self.rate_hz} s without sound"
                return
            stop = max(stop, stop if position is None else position) + len(chunk)
            yield position, stereo(np.ascontiguousarray(chunk.T), self._mix)


def count_sound(path: Path, choice: SoundChoice | None = None) -> SoundFacts:
    """Decode the whole sound of a file, or what of it is chosen, and count.

    Raises:
        ValidationError: as :class:`SoundSource`.
    """
    samples, non_finite, peak = 0, 0, 0.0
    with SoundSource(path, choice) as source:
        for block in source.blocks():
            finite = np.isfinite(block)
            samples += block.shape[1]
            non_finite += int(block.size - np.count_nonzero(finite))
            peak = max(peak, float(np.abs(block).max(initial=0.0, where=finite)))
        return SoundFacts(
            rate_hz=source.rate_hz,
            channels=source.channels,
            samples=samples,
            first_sec=source.first_sec,
            peak=peak,
            gaps=tuple(source.gaps),
            non_finite=non_finite,
            stopped=source.stopped,
            notes=tuple(source.file.notes),
        )


def lead_samples(first_sec: Fraction, origin: Fraction, rate_hz: int) -> int:
    """Samples of silence before a sound that starts after ``origin``; negative where it starts before."""
    return round((first_sec - origin) * rate_hz)


def placed(
    chunks: Iterable[tuple[int | None, NDArray[np.float32]]], slack: int, gaps: list[Gap] | None = None
) -> Iterator[NDArray[np.float32]]:
    """Chunks [c, n] put at their positions from 0 on: zeros in gaps, cut where they overlap or lie before 0.

    A position within ``slack`` samples of where the chunk before ended, or none, means: right after it. What is filled
    between chunks is added to ``gaps``.
    """
    cursor, expected = 0, None
    for position, chunk in chunks:
        start = position
        if expected is not None and (start is None or abs(start - expected) <= slack):
            start = expected
        start = start or 0
        if gaps is not None and expected is not None and start > cursor:
            gaps.append((cursor, start - cursor))
        expected = start + chunk.shape[1]
        for offset in range(cursor, start, BLOCK_SAMPLES):
            yield np.zeros((chunk.shape[0], min(BLOCK_SAMPLES, start - offset)), np.float32)
        cursor = max(cursor, start)
        if expected > cursor:
            yield chunk[:, cursor - start :]
            cursor = expected


def downmix_matrix(names: Sequence[str], path: Path) -> NDArray[np.float32] | None:
    """float32 [2, channels], or ``None`` where mono is doubled or stereo kept.

    Raises:
        ValidationError: more than two channels of which one has no place in the rule.
    """
    if len(names) <= 2:
        return None
    unknown = sorted({name for name in names if name not in _DOWNMIX})
    if unknown:
        found = f"{len(names)} channels, of which {unknown} have no stated place"
        raise ValidationError(Finding(Code.AUDIO_CHANNELS, path, found, places=sorted(_DOWNMIX)))
    matrix = np.array([_DOWNMIX[name] for name in names]).T
    scaled: NDArray[np.float32] = (matrix / matrix.sum(axis=1).max()).astype(np.float32)
    return scaled


def stereo(chunk: NDArray[np.float32], mix: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """float32 [channels, n] -> [2, n]."""
    if mix is None:
        return chunk if chunk.shape[0] == 2 else np.repeat(chunk, 2, axis=0)
    mixed = np.zeros((2, chunk.shape[1]), np.float32)
    for channel, weights in zip(chunk, mix.T, strict=True):  # one by one: a matrix product's bytes depend on threads
        mixed += weights[:, None] * channel
    return mixed
