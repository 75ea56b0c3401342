"""Rows of AVA-style CSV files, ground truth and predictions alike, and the time order of each entity's rows.

    headerless  video_id, frame_timestamp, entity_box_x1, _y1, _x2, _y2, label, entity_id[, score]
    headered    the same by name, in any order; label_id, instance_id and others are passed over

A row is known by its entity and its timestamp, and a timestamp by its exact decimal value: ``2``, ``2.0`` and ``2.00``
are one, ``2.0`` and ``2.0000001`` are two. (The official script compares the text that pandas makes of it.) Text is kept
as it was written.

Source: the column order of the AVA ActiveSpeaker release, and of the combined tables its users train from.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from sys import intern
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from muvap_assets.errors import ValidationError, Violation, ViolationCode
from muvap_assets.text_lines import LineTooLong, WholeLines

COLUMNS = (
    "video_id",
    "frame_timestamp",
    "entity_box_x1",
    "entity_box_y1",
    "entity_box_x2",
    "entity_box_y2",
    "label",
    "entity_id",
)
SCORE_COLUMN = "score"
SPEAKING = "SPEAKING_AUDIBLE"
LABELS: Mapping[str, int] = {
    SPEAKING: 1,
    "SPEAKING_AND_AUDIBLE": 1,
    "SPEAKING_NOT_AUDIBLE": 0,
    "SPEAKING_BUT_NOT_AUDIBLE": 0,
    "NOT_SPEAKING": 0,
}
"""The released spellings and those of the description; speech that is not audible counts as no speech."""

_TIMESTAMP = re.compile(r"[0-9]{1,12}(\.[0-9]{1,18})?([eE]-?[0-9]{1,2})?")
_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?"
_MAX_LINE_CHARACTERS = 1_000_000
_BOX = re.compile(rf"{_NUMBER}(,{_NUMBER}){{3}}")


class AvaRow(NamedTuple):
    """One face in one frame, as text. ``box`` is ``x1,y1,x2,y2``, ``score`` empty where the file has none.

    ``source`` and ``line`` say where the row stands. A plain tuple, since a split has millions of them.
    """

    video_id: str
    timestamp: str
    box: str
    label: str
    entity_id: str
    score: str
    source: str
    line: int

    def violation(self, code: ViolationCode, field: str | None, found: str, required: str, hint: str) -> Violation:
        """A finding about this row."""
        return Violation(
            code=code,
            source=self.source,
            row=self.line,
            sample_id=self.entity_id,
            field=field,
            found=found,
            required=required,
            hint=hint,
        )


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
            ValidationError: rows share their entity and their time.
        """
        rows = tuple(rows)
        times = {text: Decimal(text) for text in {row.timestamp for row in rows}}
        frames_of: defaultdict[str, list[tuple[Decimal, int]]] = defaultdict(list)
        for place, row in enumerate(rows):
            frames_of[row.entity_id].append((times[row.timestamp], place))
        violations = []
        for frames in frames_of.values():
            frames.sort()
            for (earlier, first), (later, second) in pairwise(frames):
                if earlier == later:
                    violations.append(_repeated(rows[second], rows[first]))
        if violations:
            raise ValidationError("rows", violations)
        places = {entity: np.array([place for _, place in frames], np.int64) for entity, frames in frames_of.items()}
        return cls(rows=rows, places=places)

    def of_entity(self, entity_id: str) -> list[AvaRow]:
        """An entity's rows in order of time."""
        return [self.rows[row] for row in self.places[entity_id]]


def read_table(paths: Sequence[Path], *, labels: Collection[str] | None, with_scores: bool) -> AvaTable:
    """Read one or more files as one table.

    Args:
        paths: files in the order their rows are to have.
        labels: the labels a row may carry, or ``None`` for any.
        with_scores: whether the files are predictions, with a score column.

    Raises:
        ValidationError: everything that is wrong with the files, together.
    """
    violations: list[Violation] = []
    columns = (*COLUMNS, SCORE_COLUMN) if with_scores else COLUMNS
    rows: list[AvaRow] = []
    for path in paths:
        for row in _rows(path, columns, violations):
            if fault := _fault(row, labels):
                violations.append(fault)
            else:
                rows.append(row)
    if not rows and not violations:
        violations += [_file_violation(path, ViolationCode.MANIFEST_EMPTY, "no rows", "at least one") for path in paths]
    try:
        table = AvaTable.of(rows)
    except ValidationError as error:
        violations += error.violations
    if violations:
        raise ValidationError(", ".join(path.name for path in paths), violations)
    return table


def parse_timestamp(text: str) -> Decimal | None:
    """The exact value of a timestamp in seconds, or ``None`` where the text is not one."""
    return Decimal(text) if _TIMESTAMP.fullmatch(text) else None


def _rows(path: Path, columns: tuple[str, ...], violations: list[Violation]) -> Iterator[AvaRow]:
    """Rows of one file, their fields by the names in ``columns``; what stops the reading becomes a violation."""
    positions: Sequence[int] | None = None
    width = len(columns)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(WholeLines(stream, _MAX_LINE_CHARACTERS), strict=True)
            for number, fields in enumerate(reader, 1):
                if reader.line_num != number:  # a stray quotation mark would take every row up to the next one with it
                    raise csv.Error(f"row {number} goes on in the next line. Look for an unpaired quotation mark")
                if not fields:
                    continue
                if positions is None and COLUMNS[0] in fields:
                    positions, width = _header(path, fields, columns, violations), len(fields)
                    if positions is None:
                        return
                elif len(fields) != width:
                    violations.append(_width_violation(path, number, len(fields), width))
                else:
                    positions = positions or range(width)
                    yield _row([fields[i] for i in positions], path.name, number)
    except OSError as error:
        found = f"unreadable ({error.strerror or error})"
        violations.append(_file_violation(path, ViolationCode.FILE_UNREADABLE, found, "a CSV file"))
    except UnicodeDecodeError as error:
        violations.append(_file_violation(path, ViolationCode.ENCODING_INVALID, str(error), "UTF-8"))
    except (csv.Error, LineTooLong) as error:
        violations.append(_file_violation(path, ViolationCode.ROW_MALFORMED, str(error), "comma-separated rows"))


def _row(fields: Sequence[str], source: str, line: int) -> AvaRow:
    video, time, *box, label, entity = fields[: len(COLUMNS)]
    score = fields[-1] if len(fields) > len(COLUMNS) else ""
    # Interned, since every track repeats its ids and most tracks repeat each other's timestamps.
    video, time, label, entity = map(intern, (video, time, label, entity))
    return AvaRow(video, time, ",".join(box), label, entity, score, source, line)


def _header(path: Path, row: list[str], columns: tuple[str, ...], violations: list[Violation]) -> list[int] | None:
    if missing := [name for name in columns if name not in row]:
        found = f"no {', '.join(missing)}"
        violations.append(_file_violation(path, ViolationCode.COLUMN_MISSING, found, ", ".join(columns)))
    elif twice := sorted({name for name in columns if row.count(name) > 1}):
        found = f"{', '.join(twice)} more than once"
        violations.append(_file_violation(path, ViolationCode.COLUMN_DUPLICATE, found, "each column once"))
    elif SCORE_COLUMN in row and SCORE_COLUMN not in columns:
        found, required = f"a {SCORE_COLUMN} column, so these are predictions", "ground truth"
        violations.append(_file_violation(path, ViolationCode.COLUMN_UNKNOWN, found, required))
    else:
        return [row.index(name) for name in columns]
    return None


def _width_violation(path: Path, line: int, found: int, required: int) -> Violation:
    return Violation(
        code=ViolationCode.ROW_MALFORMED,
        source=path.name,
        row=line,
        found=f"{found} columns",
        required=f"{required}",
        hint="Official tables have 8 columns, predictions 9; a combined table needs its header.",
    )


def _file_violation(path: Path, code: ViolationCode, found: str, required: str) -> Violation:
    hint = "Give the table with one row a face and frame, not the loader's list of tracks."
    return Violation(code=code, source=path.name, found=found, required=required, hint=hint)


def _fault(row: AvaRow, labels: Collection[str] | None) -> Violation | None:
    hint = "Take the row from the release again."
    if not row.video_id or not row.entity_id:
        found = "no entity_id" if row.video_id else "no video_id"
        return row.violation(ViolationCode.SAMPLE_ID_INVALID, None, found, "both", hint)
    if not _TIMESTAMP.fullmatch(row.timestamp):
        found, required = repr(row.timestamp), "seconds as a decimal"
        return row.violation(ViolationCode.ROW_MALFORMED, "frame_timestamp", found, required, hint)
    if not _BOX.fullmatch(row.box):
        return row.violation(ViolationCode.ROW_MALFORMED, "entity_box", repr(row.box), "four numbers", hint)
    if labels is not None and row.label not in labels:
        required = f"one of {', '.join(labels)}"
        return row.violation(ViolationCode.LABELS_INVALID, "label", repr(row.label), required, hint)
    return None


def _repeated(row: AvaRow, earlier: AvaRow) -> Violation:
    found = f"{row.timestamp}, and {earlier.timestamp} on row {earlier.line} of {earlier.source}"
    required, hint = "one row an entity and timestamp", "Drop one of the two; timestamps compare by value."
    return row.violation(ViolationCode.SAMPLE_ID_DUPLICATE, "frame_timestamp", found, required, hint)
