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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from muvap_assets.errors import ValidationError, Violation, ViolationCode

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

_VIDEO, _TIME, _LABEL, _ENTITY = map(COLUMNS.index, ("video_id", "frame_timestamp", "label", "entity_id"))
_BOX = slice(_TIME + 1, _LABEL)
_TIMESTAMP = re.compile(r"[0-9]{1,12}(\.[0-9]{1,18})?([eE]-?[0-9]{1,2})?")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AvaRows:
    """Rows in the order of the files, column by column, as text.

    ``boxes`` are the four coordinates of each row, ``scores`` are empty where the files have none. ``places`` gives each
    entity's rows, int64 [frames], in order of time.
    """

    video_ids: tuple[str, ...]
    timestamps: tuple[str, ...]
    boxes: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]
    entity_ids: tuple[str, ...]
    scores: tuple[str, ...]
    places: Mapping[str, npt.NDArray[np.int64]]

    def __len__(self) -> int:
        return len(self.entity_ids)

    def times_of(self, entity_id: str) -> list[Decimal]:
        """Exact timestamps of an entity's rows in seconds, ascending."""
        return [Decimal(self.timestamps[row]) for row in self.places[entity_id]]


@dataclass(frozen=True, slots=True)
class _Record:
    source: str
    line: int
    fields: tuple[str, ...]

    def violation(self, code: ViolationCode, field: str | None, found: str, required: str, hint: str) -> Violation:
        return Violation(
            code=code,
            source=self.source,
            row=self.line,
            sample_id=self.fields[_ENTITY],
            field=field,
            found=found,
            required=required,
            hint=hint,
        )


def read_rows(paths: Sequence[Path], *, labels: Collection[str] | None, with_scores: bool) -> AvaRows:
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
    records: list[_Record] = []
    for path in paths:
        for record in _records(path, columns, violations):
            if fault := _fault(record, labels):
                violations.append(fault)
            else:
                records.append(record)
    places = _places(records, violations)
    if not records and not violations:
        violations += [_file_violation(path, ViolationCode.MANIFEST_EMPTY, "no rows", "at least one") for path in paths]
    if violations:
        raise ValidationError(", ".join(path.name for path in paths), violations)
    return AvaRows(
        video_ids=tuple(record.fields[_VIDEO] for record in records),
        timestamps=tuple(record.fields[_TIME] for record in records),
        boxes=tuple(record.fields[_BOX] for record in records),
        labels=tuple(record.fields[_LABEL] for record in records),
        entity_ids=tuple(record.fields[_ENTITY] for record in records),
        scores=tuple(record.fields[-1] for record in records) if with_scores else (),
        places=places,
    )


def parse_timestamp(text: str) -> Decimal | None:
    """The exact value of a timestamp in seconds, or ``None`` where the text is not one."""
    return Decimal(text) if _TIMESTAMP.fullmatch(text) else None


def _records(path: Path, columns: tuple[str, ...], violations: list[Violation]) -> Iterator[_Record]:
    """Rows of one file with their fields in the order of ``columns``; what stops the reading becomes a violation."""
    positions: Sequence[int] | None = None
    width = len(columns)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            for row in filter(None, reader):
                if positions is None and COLUMNS[0] in row:
                    positions, width = _header(path, row, columns, violations), len(row)
                    if positions is None:
                        return
                elif len(row) != width:
                    violations.append(_width_violation(path, reader.line_num, len(row), width))
                else:
                    positions = positions or range(width)
                    yield _Record(path.name, reader.line_num, tuple(row[i] for i in positions))
    except OSError as error:
        found = f"unreadable ({error.strerror or error})"
        violations.append(_file_violation(path, ViolationCode.FILE_UNREADABLE, found, "a CSV file"))
    except UnicodeDecodeError as error:
        violations.append(_file_violation(path, ViolationCode.ENCODING_INVALID, str(error), "UTF-8"))
    except csv.Error as error:
        violations.append(_file_violation(path, ViolationCode.ROW_MALFORMED, str(error), "comma-separated rows"))


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


def _fault(record: _Record, labels: Collection[str] | None) -> Violation | None:
    video, time, *box, label, entity = record.fields[: len(COLUMNS)]
    hint = "Take the row from the release again."
    if not video or not entity:
        found = "no video_id" if not video else "no entity_id"
        return record.violation(ViolationCode.SAMPLE_ID_INVALID, None, found, "both", hint)
    if not _TIMESTAMP.fullmatch(time):
        return record.violation(ViolationCode.ROW_MALFORMED, COLUMNS[1], repr(time), "seconds as a decimal", hint)
    if wrong := [value for value in box if not _NUMBER.fullmatch(value)]:
        return record.violation(ViolationCode.ROW_MALFORMED, "entity_box", repr(wrong[0]), "four numbers", hint)
    if labels is not None and label not in labels:
        required = f"one of {', '.join(labels)}"
        return record.violation(ViolationCode.LABELS_INVALID, "label", repr(label), required, hint)
    return None


def _places(records: Sequence[_Record], violations: list[Violation]) -> Mapping[str, npt.NDArray[np.int64]]:
    """Rows of each entity in order of time; two rows of one entity and time become a violation."""
    rows_of: defaultdict[str, list[tuple[Decimal, int]]] = defaultdict(list)
    for row, record in enumerate(records):
        rows_of[record.fields[_ENTITY]].append((Decimal(record.fields[_TIME]), row))
    for timed in rows_of.values():
        timed.sort()
        for (earlier, first), (later, second) in pairwise(timed):
            if earlier == later:
                seen, record = records[first], records[second]
                found = f"{record.fields[_TIME]}, and {seen.fields[_TIME]} on row {seen.line} of {seen.source}"
                hint = "Drop one of the two; timestamps are compared by value."
                code = ViolationCode.SAMPLE_ID_DUPLICATE
                violations.append(
                    record.violation(code, COLUMNS[_TIME], found, "one row an entity and timestamp", hint)
                )
    return {entity: np.array([row for _, row in timed], np.int64) for entity, timed in rows_of.items()}
