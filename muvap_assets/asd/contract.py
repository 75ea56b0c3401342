"""What a row of an active-speaker corpus is, the limits it is held to, and the vocabulary of the line.

Every corpus reader yields :class:`ClipRow`; validation turns those it accepts into :class:`Clip`, which everything after
it works on. Source: the audio-visual data contract, "Required manifest fields", "Audio" and "Dataset policy".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.timeline import FrameRate

AUDIO_RATE_HZ = 16_000
"""Rate of packed audio: what the CPC stack reads, 640 samples a model frame."""

FACE_SIZE = 112
"""Height and width JPEG crops are resized to; arrays keep their own."""

CLIP_LOCAL_TOLERANCE_SEC = Fraction(1, 50)
"""Audio of a row without ``start_sec`` may outlast its faces by one frame and this much, and no more."""

MANIFEST_COLUMNS = ("sample_id", "audio_path", "visual_path", "source_fps", "labels")
OPTIONAL_COLUMNS = ("start_sec", "visual_kind", "audio_sample_rate", "license", "consent")


class VisualKind(StrEnum):
    """Where the faces of a clip come from."""

    NPY = "npy"
    JPEG_DIRECTORY = "jpeg_directory"


class OnViolation(StrEnum):
    """What becomes of a manifest with bad rows."""

    FAIL = "fail"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How strictly a corpus is held to the contract. Shares are fractions of one.

    ``max_missing_audio_share``: a clip's audio may end this much of the clip early; the rest is silence and reported.
    ``max_rejected_share``: with ``quarantine``, more rejected rows than this fail the manifest all the same.
    ``max_silent_share``: more silent recordings than this fail the loudness index.
    """

    on_violation: OnViolation = OnViolation.FAIL
    max_missing_audio_share: float = 0.1
    max_rejected_share: float = 0.05
    max_silent_share: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """One corpus as the line sees it: its partition key, where its rows come from, how strictly they are held.

    ``manifest`` is the source file; relative paths in it are meant from its folder. ``dataset`` names it inside packs.
    """

    name: str
    manifest: Path
    dataset: str
    policy: Policy = field(default_factory=Policy)
    shard_bytes: int = 1_000_000_000

    @property
    def root(self) -> Path:
        """The folder that relative paths of the rows are meant from."""
        return self.manifest.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipRow:
    """One row as a corpus reader yields it: parsed and typed, its media not opened yet.

    ``audio_path`` and ``visual_path`` are as written, absolute or relative to the corpus root. ``labels`` is uint8
    [source_frames] of 0 and 1. ``start_sec`` is ``None`` where the source did not give one.
    """

    row: int
    sample_id: str
    audio_path: str
    visual_path: str
    visual_kind: VisualKind
    source_fps: FrameRate
    labels: npt.NDArray[np.uint8]
    start_sec: Fraction | None
    start_sec_text: str = ""
    audio_sample_rate: int | None = None
    labels_known: bool = True
    license: str | None = None
    consent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """One accepted row: a face track on its recording.

    The track covers ``[start_sec, start_sec + source_frames / source_fps)`` of the recording. ``recording_id`` is a digest
    of the recording's bytes, so that tracks of one recording share it whatever path they name it by.
    ``recording_samples`` is the recording's length at 16 kHz, as decoding it gave.
    """

    row: int
    dataset: str
    sample_id: str
    audio_path: str
    visual_path: str
    visual_kind: VisualKind
    source_fps: FrameRate
    labels: npt.NDArray[np.uint8]
    start_sec: Fraction
    audio_sample_rate: int | None
    recording_id: str
    recording_samples: int
    face_height: int
    face_width: int
    labels_known: bool = True
    license: str | None = None
    consent: str | None = None

    @property
    def source_frames(self) -> int:
        """Native frames of the track: faces and labels alike."""
        return len(self.labels)

    @property
    def audio_samples(self) -> int:
        """Samples at 16 kHz that the faces cover; half rounds to even."""
        rate = self.source_fps.value
        return _rounded(self.source_frames * rate.denominator * AUDIO_RATE_HZ, rate.numerator)

    @property
    def start_sample(self) -> int:
        """First sample of the clip on the recording at 16 kHz; half rounds to even."""
        return _rounded(self.start_sec.numerator * AUDIO_RATE_HZ, self.start_sec.denominator)

    @property
    def padded_samples(self) -> int:
        """How many of :attr:`audio_samples` lie past the recording's end and are silence."""
        available = min(max(self.recording_samples - self.start_sample, 0), self.audio_samples)
        return self.audio_samples - available

    def audio_file(self, root: Path) -> Path:
        """The recording's file; ``root`` is the folder relative paths are meant from."""
        return root / self.audio_path

    def visual_file(self, root: Path) -> Path:
        """The faces' file or folder; ``root`` is the folder relative paths are meant from."""
        return root / self.visual_path


def _rounded(numerator: int, denominator: int) -> int:
    """The nearest integer, half to even, of a fraction with a positive denominator.

    What ``round`` makes of a ``Fraction``, without reducing one: every clip is asked many times.
    """
    whole, rest = divmod(numerator, denominator)
    return whole + (2 * rest > denominator or (2 * rest == denominator and whole % 2 == 1))
