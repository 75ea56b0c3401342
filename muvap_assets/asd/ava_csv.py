"""AVA-style CSV, one row a face and frame: annotations of a corpus, ground truth and predictions are all read here.

    video_id, frame_timestamp, entity_box_x1, entity_box_y1, entity_box_x2, entity_box_y2, label, entity_id
    [, label_id, instance_id] [, score]

Eight columns as the authors publish it, ten as the training tools extend it, and a score behind them in predictions. With a
header the columns are found by name, whatever their order and case, and other columns are not used; without one they have
this order. A leading column of row numbers, as pandas writes it, is not used. Blanks around a field are not part of it, and a
number may have an exponent (``4e-2``). One file, or a folder of one a video.

A row is known by its entity and its timestamp, and a timestamp by its exact decimal value: ``2``, ``2.0`` and ``2.00`` are
one. Three classes become two: speech that is heard is 1; silence, and speech that is not heard, are 0.

Source: the AVA-ActiveSpeaker download page and its evaluation code, which spell the vocabulary differently.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from sys import intern
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.corpora.fields import (
    DECIMAL,
    MAX_SAMPLE_ID_CHARACTERS,
    is_sample_id,
    read_lines,
    short,
)
from muvap_assets.codes import Code, Severity
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding, Place, errors_of

COLUMNS = (
    *("video_id", "frame_timestamp", "entity_box_x1", "entity_box_y1", "entity_box_x2", "entity_box_y2"),
    *("label", "entity_id"),
)
EXTENDED_COLUMNS = (*COLUMNS, "label_id", "instance_id")
SCORE_COLUMN = "score"
SPEAKING = "SPEAKING_AUDIBLE"
LABELS: Mapping[str, int] = {
    SPEAKING: 1,
    "SPEAKING_AND_AUDIBLE": 1,
    "NOT_SPEAKING": 0,
    "SPEAKING_NOT_AUDIBLE": 0,
    "SPEAKING_BUT_NOT_AUDIBLE": 0,
}
"""Every spelling in circulation, and the class it becomes."""

INAUDIBLE = frozenset({"SPEAKING_NOT_AUDIBLE", "SPEAKING_BUT_NOT_AUDIBLE"})
_CLASS_OF_ID = {"0": 0, "1": 1, "2": 0}
_LABEL_AT = COLUMNS.index("label")
_MAX_TIME_SEC = 10**9
_MAX_LINE_CHARACTERS = 1_000_000
_NUMBER_PATTERN = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?"
_NUMBER = re.compile(_NUMBER_PATTERN)
_BOX = re.compile(rf"{_NUMBER_PATTERN}(,{_NUMBER_PATTERN}){{3}}")
_NAMES_A_SECOND = 100
"""How many frames of a second two decimals can name."""


class AvaRow(NamedTuple):
    """One face in one frame, as text. ``box`` is ``x1,y1,x2,y2``, ``score`` empty where the file has none.

    ``source`` and ``line`` are the file's name and the line in it. A plain tuple, since a split has millions of them.
    """

    video_id: str
    timestamp: str
    box: str
    label: str
    entity_id: str
    score: str
    source: str
    line: int

    def place(self, field: str) -> Place:
        """Where a finding about a field of this row is."""
        return Place(self.source, self.line, self.entity_id, field)


class AvaReader:
    """Reads the rows of files, and collects what is wrong with them: a finding for each kind, value and entity.

    Args:
        labels: the labels a row may have; ``None`` where they are filler, and not looked at.
        with_scores: whether the files are predictions, with a score column.
    """

    def __init__(self, labels: Collection[str] | None, *, with_scores: bool = False) -> None:
        self.labels, self.scores = labels, ((SCORE_COLUMN,) if with_scores else ())
        self.spellings: Counter[str] = Counter()
        self._files: list[Finding] = []
        self._rows: dict[tuple[object, ...], tuple[Finding, int]] = {}
        self._ids: set[str] = set()
        self._count = 0

    def rows(self, path: Path) -> Iterator[AvaRow]:
        """Each well-formed row of one file."""
        places: Sequence[int] | None = None
        width = 0
        try:
            for number, fields in read_lines(path, self._files, ",", _MAX_LINE_CHARACTERS):
                if places is None:
                    names = self._names(path, fields)
                    if names is None:
                        return
                    places, width = [names.index(name) for name in self._wanted(names)], len(fields)
                    if names == _plain(fields):
                        continue
                self._count += 1
                if len(fields) != width:
                    place, found = Place(path.name, number), f"{len(fields)} columns"
                    self.report(Finding(Code.ROW_MALFORMED, place, found, case="ava", count=width))
                    continue
                row, label_id = self._row([fields[at].strip() for at in places], path.name, number)
                finding = self._wrong_with(row, label_id)
                if finding is None:
                    yield row
                else:
                    self.report(finding)
        except OSError as error:
            found = f"cannot be read ({error.strerror or error})"
            self._files.append(Finding(Code.FILE_UNREADABLE, path, found).placed(source=path.name))

    def report(self, finding: Finding) -> None:
        """Collect a finding; those of one entity that say the same become one, with how many rows it is about."""
        key = (finding.source, finding.sample_id, finding.code, finding.field, finding.found)
        first, count = self._rows.get(key, (finding, 0))
        self._rows[key] = (first, count + 1)

    def broken(self) -> frozenset[str]:
        """Entities with a row that cannot be used."""
        return frozenset(found.sample_id for found in errors_of(self._told()) if found.sample_id is not None)

    def findings(self, path: Path) -> list[Finding]:
        """Everything that was found; about ``path`` that there was no row at all."""
        found = [*self._files, *self._told()]
        if not found and not self._count:
            found = [Finding(Code.ORIGINAL_FORMAT, path.name, "no rows", case="empty")]
        return found

    def _told(self) -> Iterator[Finding]:
        for first, count in self._rows.values():
            more = f" (and in {count - 1} more rows)" if count > 1 else ""
            yield first.placed(found=first.found + more)

    def _names(self, path: Path, fields: Sequence[str]) -> list[str] | None:
        """The names of the columns by a file's first line, or ``None`` after reporting what is wrong with them."""
        names = _plain(fields)
        headed = len(set(names) & set(COLUMNS)) > 1
        if not headed:
            # Where the box goes on in the place of the label, a row number leads the line: it is no file of predictions.
            boxed = len(fields) > _LABEL_AT and _NUMBER.fullmatch(names[_LABEL_AT]) is not None
            known = [
                [*leading, *columns, *self.scores]
                for leading in ([], [""] if boxed else [])
                for columns in (COLUMNS, EXTENDED_COLUMNS)
            ]
            names = next((names for names in known if len(names) == len(fields)), [])
        if finding := self._wrong_header(Place(path.name, 1), names, fields, headed=headed):
            self._files.append(finding)
            return None
        return names

    def _wrong_header(
        self, place: Place, names: Sequence[str], fields: Sequence[str], *, headed: bool
    ) -> Finding | None:
        wanted = (*COLUMNS, *self.scores)
        known = names if headed else EXTENDED_COLUMNS[: len(fields)]
        if missing := [name for name in wanted if name not in names]:
            found = f"{len(fields)} columns"
            absent = [name for name in missing if name not in known]
            found += f", without {', '.join(absent)}" if absent else ""
            if len(fields) == 1 and "\t" in fields[0]:
                found = "columns separated by tabs, as in a loader CSV"
            scores = ", and a score behind them" if self.scores else ""
            return Finding(Code.ORIGINAL_FORMAT, place, found, columns=", ".join(COLUMNS), scores=scores)
        if twice := [name for name in self._wanted(names) if names.count(name) > 1]:
            return Finding(Code.COLUMN_DUPLICATE, place, f"{', '.join(twice)} more than once")
        if SCORE_COLUMN in names and not self.scores:
            found = f"a {SCORE_COLUMN} column, so these are predictions"
            return Finding(Code.COLUMN_UNKNOWN, place, found, case="predictions")
        return None

    def _wanted(self, names: Sequence[str]) -> list[str]:
        """Which columns are read, in the order of :meth:`_row`."""
        return [*COLUMNS, *self.scores, *(["label_id"] if "label_id" in names else [])]

    def _row(self, fields: Sequence[str], source: str, line: int) -> tuple[AvaRow, str | None]:
        # Interned, since every track repeats its ids and most tracks repeat each other's timestamps.
        video, time, *box, label, entity = fields[: len(COLUMNS)]
        score = fields[len(COLUMNS)] if self.scores else ""
        label_id = fields[-1] if len(fields) > len(COLUMNS) + len(self.scores) else None
        return AvaRow(
            intern(video), intern(time), ",".join(box), intern(label), intern(entity), score, source, line
        ), label_id

    def _wrong_with(self, row: AvaRow, label_id: str | None) -> Finding | None:
        for name, text in (("video_id", row.video_id), ("entity_id", row.entity_id)):
            if text in self._ids:
                continue
            if not is_sample_id(text):
                longest = MAX_SAMPLE_ID_CHARACTERS
                wrong = Finding(Code.SAMPLE_ID_INVALID, row.place(name), short(text), case="ava", longest=longest)
                return wrong if is_sample_id(row.entity_id) else wrong.placed(sample_id=None)
            self._ids.add(text)
        if parse_timestamp(row.timestamp) is None:
            return Finding(Code.FRAME_TIMES_INVALID, row.place("frame_timestamp"), short(row.timestamp))
        self.spellings[row.label] += 1
        if not _BOX.fullmatch(row.box):
            return Finding(Code.BOX_INVALID, row.place("entity_box"), short(row.box), case="ava")
        if self.scores and not (_NUMBER.fullmatch(row.score) and math.isfinite(float(row.score))):
            return Finding(Code.ROW_MALFORMED, row.place(SCORE_COLUMN), short(row.score), case="score")
        return self._wrong_label(row, label_id)

    def _wrong_label(self, row: AvaRow, label_id: str | None) -> Finding | None:
        if self.labels is None:
            return None
        if row.label not in self.labels:
            labels, case = ", ".join(self.labels), "prediction" if self.scores else ""
            return Finding(Code.LABEL_UNKNOWN, row.place("label"), short(row.label), case=case, labels=labels)
        if label_id is None or self.scores or _CLASS_OF_ID.get(label_id.removesuffix(".0")) == LABELS[row.label]:
            return None
        found = f"label {row.label} with label_id {short(label_id)}"
        return Finding(Code.LABELS_DISAGREE, row.place("label_id"), found, case="label_id")


def _plain(fields: Sequence[str]) -> list[str]:
    return [name.strip().lower() for name in fields]


def csv_files(path: Path) -> list[Path]:
    """The file itself, or each CSV of a folder in the order of names."""
    return sorted(path.glob("*.csv")) if path.is_dir() else [path]


@lru_cache(maxsize=65_536)  # tracks repeat each other's timestamps
def parse_timestamp(text: str) -> Decimal | None:
    """The exact value of a timestamp in seconds, or ``None`` where the text is not one."""
    value = Decimal(text) if DECIMAL.fullmatch(text) else None
    return value if value is not None and value < _MAX_TIME_SEC else None


@lru_cache(maxsize=65_536)
def _usec(timestamp: str) -> int:
    return int(Decimal(timestamp).scaleb(6).to_integral_value())


# --- the annotations of a corpus ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Annotation:
    """What an original CSV says of one entity, in the order of time.

    ``times_usec`` is int64 [source_frames], timestamps to the nearest microsecond; ``labels`` uint8 [source_frames] of 0 and 1.
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
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class _Entity:
    first: AvaRow
    times: array[int] = field(default_factory=lambda: array("q"))
    lines: array[int] = field(default_factory=lambda: array("I"))
    labels: bytearray = field(default_factory=bytearray)


def read_original(path: Path, *, labels_known: bool = True) -> OriginalCsv:
    """The annotations of a corpus: a CSV, or every CSV of a folder. Never raises for what the files hold.

    Args:
        path: the file or folder.
        labels_known: false where the labels are filler; they are not looked at then, and those outside the vocabulary are 0.
    """
    reader = AvaReader(LABELS if labels_known else None)
    entities: dict[str, _Entity] = {}
    for file in csv_files(path):
        for row in reader.rows(file):
            entity = entities.get(row.entity_id)
            if entity is None:
                entity = entities[row.entity_id] = _Entity(row)
            for finding in (_other_video(row, entity.first), _wrong_box(row)):
                if finding is not None:
                    reader.report(finding)
            entity.times.append(_usec(row.timestamp))
            entity.lines.append(row.line)
            entity.labels.append(LABELS.get(row.label, 0))
    annotations = {name: _annotation(entity, reader) for name, entity in entities.items()}
    broken = reader.broken()
    return OriginalCsv(
        {name: value for name, value in annotations.items() if name not in broken},
        broken,
        dict(reader.spellings.most_common()),
        tuple(reader.findings(path)),
    )


def _annotation(entity: _Entity, reader: AvaReader) -> Annotation:
    times, labels = np.array(entity.times, np.int64), np.frombuffer(bytes(entity.labels), np.uint8)
    order = np.argsort(times, kind="stable")
    times, labels = times[order], labels[order]
    if (repeated := np.flatnonzero(np.diff(times) == 0)).size:
        first, second = (entity.lines[order[i]] for i in (repeated[0], repeated[0] + 1))
        row = entity.first._replace(timestamp=f"{times[repeated[0]] / 1e6:.12g}", line=second)
        reader.report(_repeated(row, row._replace(line=first), (times / 1e6).tolist()))
    return Annotation(entity.first.video_id, times, labels)


def _other_video(row: AvaRow, first: AvaRow) -> Finding | None:
    if row.video_id == first.video_id:
        return None
    found = f"video ids {first.video_id!r} and {row.video_id!r} for one entity"
    return Finding(Code.VIDEO_ID_UNKNOWN, row.place("video_id"), found, case="two")


def _repeated(row: AvaRow, earlier: AvaRow, times_sec: Sequence[float]) -> Finding:
    """The first timestamp that an entity has twice; ``times_sec`` are all of its times, in order."""
    span, steps, distinct = times_sec[-1] - times_sec[0], len(times_sec) - 1, len(set(times_sec)) - 1
    more = f" (and {steps - distinct - 1} more such rows)" if steps - distinct > 1 else ""
    found = f"{float(row.timestamp):.12g}, and so on row {earlier.line} of {earlier.source}{more}"
    coarse = distinct and min(1.05 * distinct, steps / 1.05) > _NAMES_A_SECOND * span
    return Finding(
        Code.FRAME_TIMES_INVALID,
        row.place("frame_timestamp"),
        found,
        case="coarse" if coarse else "twice",
        limit=_NAMES_A_SECOND,
        rows=steps + 1,
        seconds=f"{span:.2f}",
    )


def _wrong_box(row: AvaRow) -> Finding | None:
    left, top, right, bottom = map(float, row.box.split(","))
    if 0 <= left < right <= 1 and 0 <= top < bottom <= 1:
        return None
    if left < right and top < bottom and all(map(math.isfinite, (left, top, right, bottom))):
        found = "boxes that reach outside the picture"
        return Finding(Code.BOX_OUTSIDE, row.place("entity_box"), found, case="ava", severity=Severity.WARNING)
    return Finding(Code.BOX_EMPTY, row.place("entity_box"), f"an empty box at {row.timestamp} s", case="ava")


# --- ground truth and predictions -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AvaTable:
    """Rows in the order of their files. ``places`` gives each entity's rows, int64 [frames], in order of time."""

    rows: tuple[AvaRow, ...]
    places: Mapping[str, npt.NDArray[np.int64]]

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, rows: Iterable[AvaRow]) -> AvaTable:
        """A table of well-formed rows.

        Raises:
            ValidationError: rows share their entity and their time, or an entity has two videos.
        """
        rows = tuple(rows)
        times = {text: Decimal(text) for text in {row.timestamp for row in rows}}
        frames_of: defaultdict[str, list[tuple[Decimal, int]]] = defaultdict(list)
        for place, row in enumerate(rows):
            frames_of[row.entity_id].append((times[row.timestamp], place))
        findings = []
        for frames in frames_of.values():
            first = rows[frames[0][1]]
            findings += [wrong for _, place in frames if (wrong := _other_video(rows[place], first))][:1]
            frames.sort()
            repeated = next(((a[1], b[1]) for a, b in pairwise(frames) if a[0] == b[0]), None)
            if repeated:
                earlier, later = map(rows.__getitem__, repeated)
                findings.append(_repeated(later, earlier, [float(time) for time, _ in frames]))
        if findings:
            raise ValidationError(findings, "rows")
        places = {entity: np.array(list(map(itemgetter(1), frames)), np.int64) for entity, frames in frames_of.items()}
        return cls(rows=rows, places=places)

    def of_entity(self, entity_id: str) -> list[AvaRow]:
        """An entity's rows in order of time."""
        return [self.rows[row] for row in self.places[entity_id]]


def read_table(paths: Sequence[Path], *, labels: Collection[str] | None, with_scores: bool) -> AvaTable:
    """Read one or more files, or folders of files, as one table.

    Args:
        paths: files in the order their rows are to have.
        labels: the labels a row may have, or ``None`` for any.
        with_scores: whether the files are predictions, with a score column.

    Raises:
        ValidationError: everything that is wrong with the files, together.
    """
    reader = AvaReader(labels, with_scores=with_scores)
    rows = [row for path in paths for file in csv_files(path) for row in reader.rows(file)]
    findings = reader.findings(paths[0]) if paths else []
    try:
        table = AvaTable.of(rows)
    except ValidationError as error:
        findings += error.findings
    if findings:
        raise ValidationError(findings, ", ".join(path.name for path in paths))
    return table
