"""The original annotation CSV of AVA and WASD: times, boxes and the three-way vocabulary, one row a face and frame.

    video_id, frame_timestamp, entity_box_x1, entity_box_y1, entity_box_x2, entity_box_y2, label, entity_id
    [, label_id, instance_id]

Eight columns as the authors publish it, ten as the training tools extend it; with or without a header; one file, or a
folder of one a video. Three classes become two: speech that is heard is 1; silence, and speech that is not heard, are 0.

Source: the AVA-ActiveSpeaker download page and its evaluation code, which spell the vocabulary differently.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.corpora.fields import file_finding, read_lines, short
from muvap_assets.errors import Severity, Violation, ViolationCode

COLUMNS = (
    *("video_id", "frame_timestamp", "entity_box_x1", "entity_box_y1", "entity_box_x2", "entity_box_y2"),
    *("label", "entity_id"),
)
EXTENDED_COLUMNS = (*COLUMNS, "label_id", "instance_id")

LABEL_OF = {
    "SPEAKING_AUDIBLE": 1,
    "SPEAKING_AND_AUDIBLE": 1,
    "NOT_SPEAKING": 0,
    "SPEAKING_NOT_AUDIBLE": 0,
    "SPEAKING_BUT_NOT_AUDIBLE": 0,
}
"""Every spelling in circulation, and the class it becomes."""

INAUDIBLE = frozenset({"SPEAKING_NOT_AUDIBLE", "SPEAKING_BUT_NOT_AUDIBLE"})
_LABEL_OF_ID = {"0": 0, "1": 1, "2": 0}
_TIME = re.compile(r"\d{1,9}(\.\d{1,12})?", re.ASCII)
_WRITERS = (
    "The authors' download has 8 columns; the training tools (ASC, TalkNet, Light-ASD) add label_id and instance_id in "
    "their *_orig.csv and derive *_loader.csv from it."
)


@dataclass(frozen=True, slots=True)
class Annotation:
    """What the original CSV says of one entity, in the order of time.

    ``times_usec`` is int64 [source_frames], ``labels`` uint8 [source_frames] of 0 and 1.
    """

    video_id: str
    times_usec: npt.NDArray[np.int64]
    labels: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class OriginalCsv:
    """All entities of an original CSV, and everything wrong with it.

    ``broken`` are entities with a row that cannot be used. ``spellings`` counts rows by label as written.
    """

    entities: Mapping[str, Annotation]
    broken: frozenset[str]
    spellings: Mapping[str, int]
    violations: tuple[Violation, ...]


@dataclass(slots=True)
class _Entity:
    video_id: str
    row: int
    times: array[int] = field(default_factory=lambda: array("q"))
    labels: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True, slots=True)
class _Fault:
    code: ViolationCode
    field: str
    found: str
    required: str
    hint: str
    severity: Severity = Severity.ERROR


def read_original(path: Path) -> OriginalCsv:
    """Read a CSV, or every CSV of a folder. Never raises for what it holds; findings are one a kind and entity."""
    return _Reader(path).read()


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.findings: list[Violation] = []
        self.entities: dict[str, _Entity] = {}
        self.spellings: Counter[str] = Counter()
        self.faults: dict[tuple[str, _Fault], list[int]] = {}

    def read(self) -> OriginalCsv:
        files = sorted(self.path.glob("*.csv")) if self.path.is_dir() else [self.path]
        for file in files:
            try:
                self._read_file(file)
            except OSError as error:
                found, hint = f"cannot be read ({error.strerror})", "Check the path."
                self.findings.append(file_finding(file, ViolationCode.FILE_UNREADABLE, found, "a readable file", hint))
        if not self.entities and not self.findings and not self.faults:
            found, hint = "no rows", "Was the download cut short?"
            self.findings.append(file_finding(self.path, ViolationCode.ORIGINAL_FORMAT, found, "annotations", hint))
        annotations = {name: self._annotation(name, entity) for name, entity in self.entities.items()}
        broken = {name for name, fault in self.faults if fault.severity is Severity.ERROR}
        return OriginalCsv(
            {name: value for name, value in annotations.items() if name not in broken},
            frozenset(broken),
            dict(self.spellings.most_common()),
            (*self.findings, *self._told()),
        )

    def _read_file(self, file: Path) -> None:
        order: Sequence[int] | None = None
        width = 0
        for number, fields in read_lines(file, self.findings, ","):
            if order is None:
                headed = fields[0].strip().lower() == "video_id"
                order = self._order(file, fields, headed)
                width = len(fields)
                if order is None:
                    return
                if headed:
                    continue
            if len(fields) != width:
                found = f"{len(fields)} columns"
                self.findings.append(
                    file_finding(
                        file, ViolationCode.ROW_MALFORMED, found, f"{width} as the first line has", _WRITERS, number
                    )
                )
                continue
            self._add(number, [fields[at].strip() for at in order])

    def _order(self, file: Path, fields: Sequence[str], headed: bool) -> Sequence[int] | None:
        """Where the columns stand; ``label_id`` is the last of nine where the file has it."""
        names = [name.strip().lower() for name in fields] if headed else list(EXTENDED_COLUMNS[: len(fields)])
        missing = [name for name in COLUMNS if name not in names]
        if not missing and (headed or len(fields) in (len(COLUMNS), len(EXTENDED_COLUMNS))):
            wanted = [*COLUMNS, "label_id"] if "label_id" in names else COLUMNS
            return [names.index(name) for name in wanted]
        found = f"{len(fields)} columns" + (f", without {', '.join(missing)}" if missing else "")
        if len(fields) == 1 and "\t" in fields[0]:
            found = "columns separated by tabs, as in a loader CSV"
        required = f"the 8 columns {', '.join(COLUMNS)}, or these and label_id, instance_id, separated by commas"
        self.findings.append(file_finding(file, ViolationCode.ORIGINAL_FORMAT, found, required, _WRITERS, 1))
        return None

    def _add(self, number: int, row: Sequence[str]) -> None:
        video_id, time, x1, y1, x2, y2, label, name = row[:8]
        entity = self.entities.get(name)
        if entity is None:
            entity = self.entities[name] = _Entity(video_id, number)
        if entity.video_id != video_id:
            self._fault(name, number, _other_video(entity.video_id, video_id))
        if not _TIME.fullmatch(time):
            self._fault(name, number, _bad_time(time))
            return
        value = LABEL_OF.get(label)
        self.spellings[label] += 1
        if value is None:
            self._fault(name, number, _unknown_label(label))
            return
        if len(row) > 8 and _LABEL_OF_ID.get(row[8].removesuffix(".0")) != value:
            self._fault(name, number, _other_label_id(label, row[8]))
        try:
            left, top, right, bottom = float(x1), float(y1), float(x2), float(y2)
            inside = 0 <= left < right <= 1 and 0 <= top < bottom <= 1
        except ValueError:
            left = top = right = bottom = math.nan
            inside = False
        if not inside:
            self._fault(name, number, _bad_box(time, (left, top, right, bottom)))
        entity.times.append(round(float(time) * 1_000_000))
        entity.labels.append(value)

    def _fault(self, name: str, number: int, fault: _Fault) -> None:
        self.faults.setdefault((name, fault), []).append(number)

    def _annotation(self, name: str, entity: _Entity) -> Annotation:
        times, labels = np.array(entity.times, np.int64), np.frombuffer(bytes(entity.labels), np.uint8)
        order = np.argsort(times, kind="stable")
        times, labels = times[order], labels[order]
        for at in np.flatnonzero(np.diff(times) == 0)[:1]:
            found = f"time {times[at] / 1_000_000:.6g} more than once"
            fault = _Fault(
                ViolationCode.FRAME_TIMES_INVALID, "original", found, "one row a face and frame", "Keep the true row."
            )
            self._fault(name, entity.row, fault)
        return Annotation(entity.video_id, times, labels)

    def _told(self) -> Iterator[Violation]:
        for (name, fault), rows in self.faults.items():
            more = f" (in {len(rows)} rows of {self.path.name}, the first is {rows[0]})"
            yield Violation(
                code=fault.code,
                source=self.path.name,
                sample_id=name,
                field=fault.field,
                found=fault.found + more,
                required=fault.required,
                hint=fault.hint,
                severity=fault.severity,
            )


def _other_video(first: str, other: str) -> _Fault:
    found = f"video ids {first!r} and {other!r} for one entity"
    return _Fault(ViolationCode.VIDEO_ID_UNKNOWN, "original", found, "one video an entity", "Rename one entity.")


def _bad_time(text: str) -> _Fault:
    return _Fault(
        ViolationCode.FRAME_TIMES_INVALID,
        "original",
        f"frame_timestamp {short(text)}",
        "seconds from the start of the video",
        "Download the annotations again.",
    )


def _unknown_label(label: str) -> _Fault:
    return _Fault(
        ViolationCode.LABEL_UNKNOWN,
        "original",
        f"label {short(label)}",
        f"one of {', '.join(LABEL_OF)}",
        "Only these are known; inaudible speech counts as not speaking.",
    )


def _other_label_id(label: str, label_id: str) -> _Fault:
    return _Fault(
        ViolationCode.LABELS_DISAGREE,
        "original",
        f"label {label} with label_id {short(label_id)}",
        "label_id 1 where speech is heard, 0 or 2 elsewhere",
        "Make the file again from the 8-column one.",
    )


def _bad_box(time: str, box: tuple[float, float, float, float]) -> _Fault:
    left, top, right, bottom = box
    if left < right and top < bottom and all(map(math.isfinite, box)):
        return _Fault(
            ViolationCode.BOX_OUTSIDE,
            "original",
            "boxes that reach outside the picture",
            "0 <= x1 < x2 <= 1, and y alike",
            "Accepted: crops are made from the part inside.",
            Severity.WARNING,
        )
    return _Fault(
        ViolationCode.BOX_EMPTY,
        "original",
        f"an empty box at {time} s",
        "0 <= x1 < x2 <= 1, and y alike",
        "No crop can be made of it: drop the track, or correct the box.",
    )
