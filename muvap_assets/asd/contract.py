"""What a row of an active-speaker corpus is, the limits it is held to, and the vocabulary of the line.

Every corpus reader yields :class:`ClipRow`; validation turns those it accepts into :class:`Clip`, which everything after
it works on. Source: the audio-visual data contract, "Required manifest fields", "Audio" and "Dataset policy".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.policy import SHARD_BYTES, Policy, ShardBytes
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.codes import Code
from muvap_assets.findings import Finding, Place
from muvap_assets.media.sound_files import SoundChoice

AUDIO_RATE_HZ = 16_000
"""Rate of packed audio: what the CPC stack reads, 640 samples a model frame."""

FACE_SIZE = 112
"""Height and width JPEG crops are resized to; arrays keep their own."""

CLIP_LOCAL_TOLERANCE_SEC = Fraction(1, 50)
"""Audio of a row without ``start_sec`` may outlast its faces by one frame and this much, and no more."""

NAME_ROUNDING_SEC = Fraction(1, 100)
"""Crops and the cuts of their audio are placed by times of two decimals: between two of them as much as this is lost."""

MANIFEST_COLUMNS = ("sample_id", "audio_path", "visual_path", "source_fps", "labels")
BOX_COLUMNS = ("boxes_path", "face_id", "first_frame")
OPTIONAL_COLUMNS = (
    "start_sec",
    "visual_kind",
    "audio_sample_rate",
    "audio_stream",
    "audio_channel",
    *BOX_COLUMNS,
    "license",
    "consent",
    "labels_known",
    "video_id",
)


class VisualKind(StrEnum):
    """Where the faces of a clip come from."""

    NPY = "npy"
    JPEG_DIRECTORY = "jpeg_directory"
    VIDEO_BOXES = "video_boxes"


@dataclass(frozen=True, slots=True)
class FrameTimes:
    """Says that the frame files of a row are named by seconds, and which seconds, where the corpus tells.

    ``annotated_usec`` is int64 [source_frames] in microseconds, increasing, or ``None`` where only the rate is known.
    """

    annotated_usec: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class TrackBoxes:
    """Which boxes of a video are the faces of a clip, where ``visual_path`` is a video (``video_boxes``).

    Face ``i`` of the clip is the box of ``face_id`` on frame ``first_frame + i``, counted from 0 as the video decodes.
    ``boxes_path`` is a CSV as :mod:`muvap_assets.media.face_boxes` reads it, absolute or relative to the corpus root.
    """

    boxes_path: str
    face_id: int
    first_frame: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Track:
    """What a row says of its face track, and what is kept of it in a manifest.

    ``audio_path`` and ``visual_path`` are as written, absolute or relative to the corpus root. ``labels`` is uint8
    [source_frames] of 0 and 1. ``video_id`` names the video the clip was cut from, where the corpus has such names.
    ``audio_stream`` and ``audio_channel`` choose what of the recording's file is meant: see
    :class:`muvap_assets.media.sound.SoundChoice`.
    """

    row: int
    sample_id: str
    audio_path: str
    visual_path: str
    visual_kind: VisualKind
    source_fps: FrameRate
    labels: npt.NDArray[np.uint8]
    audio_sample_rate: int | None = None
    labels_known: bool = True
    video_id: str | None = None
    boxes: TrackBoxes | None = None
    license: str | None = None
    consent: str | None = None
    audio_stream: str | None = None
    audio_channel: int | None = None

    def place(self, field: str | None = None, source: str | None = None) -> Place:
        """Where a finding about this row is; ``source`` is the manifest's file."""
        return Place(source, self.row, self.sample_id, field)

    @property
    def audio_from_video(self) -> bool:
        """See :func:`hears_its_video`."""
        return hears_its_video(self.visual_kind, self.visual_path, self.audio_path)

    @property
    def sound_choice(self) -> SoundChoice:
        """Which stream and channel of the recording's file is meant."""
        return SoundChoice(self.audio_stream, self.audio_channel)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipRow(_Track):
    """One row as a corpus reader yields it: parsed and typed, its media not opened yet.

    ``start_sec`` is ``None`` where the source did not give one. ``known_defect`` is what is known to be wrong with this row as
    the corpus is shipped; it is part of the message where its faces are refused.
    """

    start_sec: Fraction | None
    start_sec_text: str = ""
    frame_times: FrameTimes | None = None
    known_defect: str = ""


@dataclass(frozen=True, slots=True)
class ParsedManifest:
    """What the text of a corpus holds: well-formed rows, findings, and how many rows there were in all.

    ``notes`` are facts about the corpus worth keeping with its manifest, in plain JSON values.
    """

    source: str
    rows: tuple[ClipRow, ...]
    findings: tuple[Finding, ...]
    row_count: int
    notes: Mapping[str, Any] = field(default_factory=dict)


class CorpusSource(Protocol):
    """Where the rows of a corpus come from; each kind of corpus has one, beside its reader."""

    @property
    def folder(self) -> Path:
        """The folder that relative paths of the rows are meant from."""

    def read(self) -> ParsedManifest:
        """Every row of the corpus, its media not opened yet. Never raises for what the files hold."""

    def inputs(self) -> Mapping[str, Path]:
        """The text files the rows are made from, by the name their digests are recorded under."""

    def media(self) -> Iterable[str]:
        """Every media path that rows name or would name, whether or not it is there, as rows write it."""

    def listings(self) -> tuple[Path, ...]:
        """Folders whose entries, two levels deep, decide beside the texts which paths the rows name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """One corpus as the line sees it: its partition key, where its rows come from, how strictly they are held.

    ``dataset`` names it inside packs. ``siblings`` are the partition keys of the other splits of the same corpus.
    """

    name: str
    source: CorpusSource
    dataset: str
    policy: Policy = field(default_factory=Policy)
    shard_bytes: ShardBytes = SHARD_BYTES
    siblings: tuple[str, ...] = ()

    @property
    def root(self) -> Path:
        """The folder that relative paths of the rows are meant from."""
        return self.source.folder


def no_clip(source: str | None = None) -> Finding:
    """The finding that a corpus holds no clip: nothing is made of it."""
    return Finding(Code.MANIFEST_EMPTY, source, "no clip", case="left out")


def _rounded(numerator: int, denominator: int) -> int:
    """``round(Fraction(numerator, denominator))`` for a positive denominator, without making the fraction."""
    whole, rest = divmod(numerator, denominator)
    return whole + (2 * rest > denominator or (2 * rest == denominator and whole % 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip(_Track):
    """One accepted row: a face track on its recording.

    The track covers ``[start_sec, start_sec + source_frames / source_fps)`` of the recording. ``recording_id`` is a digest
    of the recording's bytes, with the stream and channel where these were chosen, so that tracks of one recording share it
    whatever path they name it by. ``faces_fingerprint``
    is the same for the same face files; ``None`` where the faces are boxes of a video, whose bytes the recording's are.
    ``recording_samples`` is the recording's length at 16 kHz, as decoding it gave.
    """

    dataset: str
    start_sec: Fraction
    recording_id: str
    recording_samples: int
    face_height: int
    face_width: int
    faces_fingerprint: str | None = None

    @property
    def source_frames(self) -> int:
        """Native frames of the track: faces and labels alike."""
        return len(self.labels)

    @property
    def audio_samples(self) -> int:
        """Samples at 16 kHz that the faces cover; half rounds to even."""
        rate = self.source_fps.value
        return _rounded(self.source_frames * AUDIO_RATE_HZ * rate.denominator, rate.numerator)

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


def hears_its_video(visual_kind: VisualKind, visual_path: str, audio_path: str) -> bool:
    """Whether a clip's recording is the sound of the video its faces are cut from: ``audio_path`` is that video.

    The recording's time zero is then the video's first frame. No other clip may name a video as its audio.
    """
    return visual_kind is VisualKind.VIDEO_BOXES and audio_path == visual_path
