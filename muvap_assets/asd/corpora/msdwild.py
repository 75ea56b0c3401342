"""MSDWild as it is shipped: videos, their face boxes and their speaker turns, cut into windows of face tracks.

    <root>/msdwild_boundingbox_labels/<id>.mp4    videos
    <root>/msdwild_boundingbox_labels/<id>.csv    face boxes, see media/face_boxes.py
    <root>/rttms/<split>.rttm                     speaker turns; they name the videos of the split

    frames      0 . . . . . . . . . . . . . . . . . . . . . . .
    faces           ####################################            any face, from the first frame with one
    windows         |──── window 0 ────|──── window 1 ────|──|      the last one is incomplete: kept from ``min_window_sec`` on

**Labels** come from the turns alone. Time zero is the video's first frame; frame ``j`` has its centre at ``(j + 1/2) / fps``
and is 1 where a turn of the speaker of the same name holds it. A face is the speaker whose name is its id, exactly.

Source: the layout of the release; the audio-visual data contract, "Dataset policy".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from muvap_assets.asd.contract import ClipRow, ParsedManifest, TrackBoxes, VisualKind
from muvap_assets.asd.corpora.entry import CorpusEntry, EntryPath
from muvap_assets.asd.corpora.rttm import Rttm, Turn, labels_at_centres, read_rttm
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.codes import Code, Severity
from muvap_assets.errors import ConfigError, ValidationError
from muvap_assets.findings import Finding, Place
from muvap_assets.media.face_boxes import FaceBoxes, read_face_boxes
from muvap_assets.media.video_faces import declared_rate
from muvap_assets.threads import watched

MEDIA_FOLDER = "msdwild_boundingbox_labels"
RTTM_FOLDER = "rttms"
MAX_WINDOWS = 100_000
"""Of one video, which takes three weeks of it by default; one mistyped frame id asks for more."""

_NAME = re.compile(r"-?[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_Seconds = Annotated[Decimal, Field(gt=0, le=3600)]
_FaceShare = Annotated[Decimal, Field(gt=0, le=1)]


class UnmatchedFaces(StrEnum):
    """What becomes of a face whose id no speaker has: refused, or labelled as never speaking."""

    REJECT = "reject"
    NEGATIVE = "negative"


class MsdwildCorpus(CorpusEntry):
    """A split of MSDWild. Folders and files default to the published layout below ``root``; each may be given instead.

    ``audio`` is a folder of ``<id>.wav`` that begin with the video's first frame; without it a video's own sound is used.
    Windows begin ``window_sec - overlap_sec`` apart; the last one of a video is kept where it has ``min_window_sec`` or
    more, and ``min_window_sec`` equal to ``window_sec`` keeps complete windows only. ``min_face_share`` is the share of a
    window's frames a face needs a box on. ``unmatched_faces`` says what becomes of faces whose id no speaker has.
    """

    kind: Literal["msdwild"]
    root: EntryPath
    split: Literal["all", "few.train", "few.val", "many.val"] = "all"
    videos: EntryPath | None = None
    boxes: EntryPath | None = None
    rttm: EntryPath | None = None
    audio: EntryPath | None = None
    window_sec: _Seconds = Decimal(30)
    overlap_sec: Annotated[Decimal, Field(ge=0, le=3600)] = Decimal(0)
    min_window_sec: _Seconds = Decimal(2)
    min_face_share: _FaceShare = Decimal("0.9")
    unmatched_faces: UnmatchedFaces = UnmatchedFaces.REJECT

    @model_validator(mode="after")
    def _windows_move_on(self) -> Self:
        if self.overlap_sec >= self.window_sec:
            raise ValueError(f"overlap_sec {self.overlap_sec} has to be below window_sec {self.window_sec}")
        if "min_window_sec" in self.model_fields_set and self.min_window_sec > self.window_sec:
            raise ValueError(f"min_window_sec {self.min_window_sec} has to be at most window_sec {self.window_sec}")
        return self

    @property
    def folder(self) -> Path:
        """The root of the corpus."""
        return self.root

    @property
    def shortest_sec(self) -> Decimal:
        """The shortest window that is kept, in seconds: the default of ``min_window_sec`` may be above ``window_sec``."""
        return min(self.min_window_sec, self.window_sec)

    @property
    def rttm_file(self) -> Path:
        """Where the speaker turns are."""
        return self.rttm or self.root / RTTM_FOLDER / f"{self.split}.rttm"

    def video_file(self, name: str) -> Path:
        """The video of that id."""
        return (self.videos or self.root / MEDIA_FOLDER) / f"{name}.mp4"

    def boxes_file(self, name: str) -> Path:
        """The face boxes of that id."""
        return (self.boxes or self.root / MEDIA_FOLDER) / f"{name}.csv"

    def portable(self, path: Path) -> str:
        """A path as rows write it: relative to the root wherever it lies below it."""
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)

    def read(self) -> ParsedManifest:
        """See :func:`read_msdwild`."""
        return read_msdwild(self)

    def inputs(self) -> Mapping[str, Path]:
        """The turns, and the boxes of each video."""
        names = _names(self, read_rttm(self.rttm_file))
        return {"rttm": self.rttm_file, **{f"boxes/{name}": self.boxes_file(name) for name in names}}

    def media(self) -> Iterator[str]:
        """Each video, also one that is missing or cannot be read, and its WAV where those are heard instead."""
        for name in _names(self, read_rttm(self.rttm_file)):
            if _NAME.fullmatch(name):
                yield self.portable(self.video_file(name))
                if self.audio is not None:
                    yield self.portable(self.audio / f"{name}.wav")


def read_msdwild(corpus: MsdwildCorpus) -> ParsedManifest:
    """The face tracks of a split of MSDWild, a row a face a window. Reads text and video headers; decodes nothing.

    Never raises for what the files hold: everything wrong is in the result's findings, together. A video that is refused
    as a whole counts as one row. Rows are numbered in the order of videos, windows and faces.
    """
    source = f"msdwild {corpus.split}"
    rttm = read_rttm(corpus.rttm_file)
    reading = _Reading(corpus, rttm, source, findings=list(rttm.findings))
    if rttm.turns:
        for name in _names(corpus, rttm):
            reading.add_video(name)
        reading.skip_negative(_names(corpus, rttm, negative=True))
    notes = {
        "split": corpus.split,
        "window_sec": str(corpus.window_sec),
        "overlap_sec": str(corpus.overlap_sec),
        "min_window_sec": str(corpus.shortest_sec),
        "min_face_share": str(corpus.min_face_share),
        "unmatched_faces": str(corpus.unmatched_faces),
        "counts": {name: reading.counts[name] for name in _COUNTS},
        "negative_ids": _names(corpus, rttm, negative=True),
    }
    return ParsedManifest(source, tuple(reading.rows), tuple(reading.findings), reading.row_count, notes)


_COUNTS = (
    *("videos", "windows", "final_windows_left_out", "faces", "tracks_below_min_face_share"),
    *("faces_without_speaker", "speakers_without_face"),
)


def _names(corpus: MsdwildCorpus, rttm: Rttm, negative: bool = False) -> list[str]:
    """The videos of the split: those its turns name and, where the split is all there is, those with boxes."""
    names = {*rttm.turns, *rttm.broken}
    if corpus.split == "all":
        folder = corpus.boxes_file("any").parent
        names |= {path.stem for path in folder.iterdir() if path.suffix == ".csv"} if folder.is_dir() else set()
    return sorted(name for name in names if name and name.startswith("-") == negative)


def _seen(windows: Sequence[tuple[int, int]], faces: Sequence[int], boxes: FaceBoxes) -> list[tuple[int, int, int]]:
    """(window, face, frames with a box) wherever there is one, by window, then by face."""
    firsts = np.array([first for first, _ in windows], np.int64)
    stops = firsts + np.array([count for _, count in windows], np.int64)
    found = []
    for face in faces:
        frames = boxes.frames_of(face)
        present = np.searchsorted(frames, stops) - np.searchsorted(frames, firsts)
        found += [(int(window), face, int(present[window])) for window in np.flatnonzero(present)]
    return sorted(found)


@dataclass(slots=True)
class _Reading:
    """What was read so far, a video at a time."""

    corpus: MsdwildCorpus
    rttm: Rttm
    source: str
    rows: list[ClipRow] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    row_count: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def add_video(self, name: str) -> None:
        """Add the rows of a video, or why it has none."""
        self.counts["videos"] += 1
        turns = self.rttm.turns.get(name, {})
        wrong = self._wrong_text(name, turns)
        if wrong is not None:
            return self._refuse([wrong])
        listing = read_face_boxes(self.corpus.boxes_file(name))
        found = [finding.placed(source=f"{name}.csv", sample_id=name) for finding in listing.findings]
        try:
            fps = FrameRate.parse(watched(lambda: declared_rate(self.corpus.video_file(name))))
        except ValidationError as error:
            found.append(error.finding.placed(source=f"{name}.mp4", sample_id=name))
        except ConfigError as error:
            found.append(Finding(Code.SOURCE_FPS_INVALID, self._place(name), str(error), case="video"))
        if found:
            return self._refuse(found)
        return self._add_tracks(name, fps, listing.boxes, turns)

    def skip_negative(self, names: list[str]) -> None:
        """List the videos that are left out for their names, as the corpus's maintainers ask."""
        if names:
            found = f"{len(names)} videos: {', '.join(names)}"
            self.findings.append(Finding(Code.ID_NEGATIVE, self.source, found))

    def _place(self, name: str) -> Place:
        return Place(self.source, sample_id=name)

    def _refuse(self, findings: list[Finding]) -> None:
        self.row_count += 1
        self.findings.extend(findings)

    def _wrong_text(self, name: str, turns: Mapping[str, tuple[Turn, ...]]) -> Finding | None:
        place = self._place(name)
        if not _NAME.fullmatch(name):
            return Finding(Code.RTTM_INVALID, place, f"the video id {name!r}", case="id")
        if name in self.rttm.broken:
            return Finding(Code.RTTM_INVALID, place, "lines of its turns cannot be read")
        if not turns:
            file = self.corpus.rttm_file.name
            return Finding(Code.RTTM_MISSING, place, f"no turn of video {name}", case="video", file=file)
        return None

    def _add_tracks(self, name: str, fps: FrameRate, boxes: FaceBoxes, turns: Mapping[str, tuple[Turn, ...]]) -> None:
        faces = [int(face) for face in np.unique(boxes.face_ids)]
        self.counts["faces"] += len(faces)
        if boxes.negative_ids:
            found = f"faces {', '.join(map(str, boxes.negative_ids))}"
            self.findings.append(Finding(Code.ID_NEGATIVE, self._place(name), found))
        tracks: Counter[int] = Counter()
        windows = self._windows(name, fps, boxes)
        for window, face, present in _seen(windows, faces, boxes):
            first, count = windows[window]
            if present < Fraction(self.corpus.min_face_share) * count:
                self.counts["tracks_below_min_face_share"] += 1
                continue
            tracks[face] += 1
            self.row_count += 1
            speaker = turns.get(str(face))
            if speaker is not None or self.corpus.unmatched_faces is UnmatchedFaces.NEGATIVE:
                self.rows.append(self._row(name, TrackBoxes("", face, first), count, fps, speaker or ()))
        self._match(name, faces, tracks, turns)

    def _windows(self, name: str, fps: FrameRate, boxes: FaceBoxes) -> list[tuple[int, int]]:
        """(first frame, frames) of the windows of a video; lengths round half to even."""
        corpus = self.corpus
        length, shortest = (
            max(1, round(Fraction(seconds) * fps.value)) for seconds in (corpus.window_sec, corpus.shortest_sec)
        )
        step = (Fraction(corpus.window_sec) - Fraction(corpus.overlap_sec)) * fps.value
        begin, stop = (int(boxes.frames.min()), int(boxes.frames.max()) + 1) if len(boxes.frames) else (0, 0)
        if (stop - begin) > max(step, Fraction(1)) * MAX_WINDOWS:
            found = f"boxes from frame {begin} to {stop - 1}, which is over {MAX_WINDOWS:,} windows"
            self._refuse([Finding(Code.BOX_INVALID, self._place(name), found, case="windows")])
            return []
        windows, first = list[tuple[int, int]](), begin
        while first < stop:
            count = min(length, stop - first)
            if count >= shortest:
                windows.append((first, count))
            else:
                self.counts["final_windows_left_out"] += 1
            if first + length >= stop:
                break
            first = max(first + 1, begin + round(step * len(windows)))
        self.counts["windows"] += len(windows)
        if not windows:
            found = f"faces on {stop - begin} frames, {float((stop - begin) / fps.value):.3f} s"
            finding = Finding(Code.VIDEO_WITHOUT_WINDOW, self._place(name), found, seconds=corpus.shortest_sec)
            self.findings.append(finding)
        return windows

    def _row(self, name: str, track: TrackBoxes, count: int, fps: FrameRate, turns: tuple[Turn, ...]) -> ClipRow:
        corpus = self.corpus
        video = corpus.portable(corpus.video_file(name))
        return ClipRow(
            row=self.row_count,
            sample_id=f"{name}_{track.face_id}_{track.first_frame:06d}",
            audio_path=video if corpus.audio is None else corpus.portable(corpus.audio / f"{name}.wav"),
            visual_path=video,
            visual_kind=VisualKind.VIDEO_BOXES,
            source_fps=fps,
            labels=labels_at_centres(turns, track.first_frame, count, fps),
            start_sec=track.first_frame / fps.value,
            video_id=name,
            boxes=TrackBoxes(corpus.portable(corpus.boxes_file(name)), track.face_id, track.first_frame),
        )

    def _match(
        self, name: str, faces: list[int], tracks: Mapping[int, int], turns: Mapping[str, tuple[Turn, ...]]
    ) -> None:
        """Tell, in both directions, which faces and speakers of a video have no counterpart."""
        for face in faces:
            if str(face) in turns:
                continue
            self.counts["faces_without_speaker"] += 1
            found = f"face {face}, of {tracks[face]} tracks, has no speaker among {', '.join(map(repr, sorted(turns)))}"
            refused = tracks[face] > 0 and self.corpus.unmatched_faces is UnmatchedFaces.REJECT
            self.findings.append(
                Finding(
                    Code.FACE_WITHOUT_SPEAKER,
                    self._place(f"{name}_{face}"),
                    found,
                    case="" if refused else "negative" if tracks[face] else "no track",
                    severity=Severity.ERROR if refused else Severity.WARNING,
                )
            )
        for speaker in sorted(set(turns) - set(map(str, faces))):
            self.counts["speakers_without_face"] += 1
            found = f"speaker {speaker!r}, of {len(turns[speaker])} turns, has no face"
            self.findings.append(Finding(Code.SPEAKER_WITHOUT_FACE, self._place(name), found))
