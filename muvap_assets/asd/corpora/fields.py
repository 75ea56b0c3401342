"""Fields and lines that more than one corpus reader parses: delimited text, ids, rates, label lists; nothing is cast unchecked."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.timeline import FrameRate
from muvap_assets.codes import Code
from muvap_assets.errors import ConfigError, ValidationError
from muvap_assets.findings import Finding, Place
from muvap_assets.text_lines import LineTooLong, WholeLines, folded

MAX_FIELD_CHARACTERS = 16_000_000
"""A label list of ten hours at 100 fps has 11 million characters; more than this is not a label list."""

MAX_ROW_CHARACTERS = 2 * MAX_FIELD_CHARACTERS
"""All fields of a row together; a file that goes on beyond it is read no further."""

MAX_SAMPLE_ID_CHARACTERS = 500
_FIRST_BYTES = 4096
_ROWS_SHOWN = 5
DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?")
"""A decimal of zero or more, such as a time in seconds."""

CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NOT_A_RECORD = frozenset({Code.ROW_MALFORMED, Code.ENCODING_INVALID})
_NAMES = {"\t": "tabs", ",": "commas"}
_FIELD_LIMIT = Lock()
_MARKS = (
    *((mark, "UTF-32") for mark in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)),
    *((mark, "UTF-16") for mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)),
)  # in this order: a mark of UTF-32 begins as one of UTF-16


def read_lines(
    path: Path, findings: list[Finding], delimiter: str = "\t", limit: int | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Each non-blank line, split and unquoted, with its number; those that are no row go to ``findings``, one a line.

    After a line of more than ``limit`` characters, :data:`MAX_ROW_CHARACTERS` where it is not given, nothing is read. A file
    in UTF-16 or UTF-32 is one finding, and no line of it is read.

    A row is a line: a field in quotes does not go on in the next one. Read across lines, a stray quotation mark would take
    every row up to the next stray one with it.

    Raises:
        OSError: the file cannot be read.
    """
    if (encoding := _wide_encoding(path)) is not None:
        findings.append(Finding(Code.ENCODING_INVALID, path.name, f"this is {encoding}", case="wide"))
        return
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        lines = enumerate(WholeLines(stream, limit or MAX_ROW_CHARACTERS), 1)
        number = 0
        while True:
            try:
                number, line = next(lines)
                fields = _split(line, delimiter)
            except StopIteration:
                return
            except LineTooLong as error:
                found = f"line {number + 1} is {error}; nothing after it was read"
                findings.append(Finding(Code.FILE_UNREADABLE, path.name, found, case="endless"))
                return
            except csv.Error as error:
                place, found = Place(path.name, number), f"not a row ({error})"
                separator = _NAMES[delimiter]
                findings.append(Finding(Code.ROW_MALFORMED, place, found, case="quote", separator=separator))
                continue
            if not line.isascii() and re.search("[\udc80-\udcff]", line):
                place = Place(path.name, number)
                findings.append(Finding(Code.ENCODING_INVALID, place, "bytes that are not UTF-8"))
            elif line.strip():
                yield number, fields


def _wide_encoding(path: Path) -> str | None:
    """UTF-16 or UTF-32, by the file's mark or, without one, by the zero bytes of its first line."""
    with path.open("rb") as stream:
        line = stream.readline(_FIRST_BYTES)
    marked = next((name for mark, name in _MARKS if line.startswith(mark)), None)
    return marked or ("UTF-16, or damaged (zero bytes in its first line)" if b"\0" in line else None)


def is_no_record(finding: Finding) -> bool:
    """Whether it is about a line that is not even a row of fields."""
    return finding.code in _NOT_A_RECORD and finding.row is not None


def _split(line: str, delimiter: str) -> list[str]:
    if '"' not in line and len(line) <= csv.field_size_limit():
        return line.rstrip("\r\n").split(delimiter)  # as the module does, in a fraction of its time
    with _FIELD_LIMIT:
        # The module's limit is one for the whole process, and below that of a long label list.
        before = csv.field_size_limit(MAX_FIELD_CHARACTERS) if len(line) > csv.field_size_limit() else None
        try:
            return next(csv.reader([line], delimiter=delimiter, strict=True, skipinitialspace=delimiter == ","))
        finally:
            if before is not None:
                csv.field_size_limit(before)


def parse_sample_id(text: str, field: str = "sample_id") -> str:
    """A stable name of a face track, as written less surrounding blanks.

    Raises:
        ValidationError: it is empty, too long, or holds control characters.
    """
    text = text.strip()
    if not is_sample_id(text):
        place = Place(field=field)
        raise ValidationError(Finding(Code.SAMPLE_ID_INVALID, place, short(text), longest=MAX_SAMPLE_ID_CHARACTERS))
    return text


def is_sample_id(text: str) -> bool:
    """Whether it is neither empty nor too long, and without control characters."""
    return 0 < len(text) <= MAX_SAMPLE_ID_CHARACTERS and not CONTROL_CHARACTER.search(text)


def id_in_findings(text: str) -> str | None:
    """What a finding about a row calls its sample, whether or not that is a name."""
    return CONTROL_CHARACTER.sub("?", text.strip()[:MAX_SAMPLE_ID_CHARACTERS]) or None


def parse_frame_rate(text: str, field: str = "source_fps") -> FrameRate:
    """The exact rate of a track.

    Raises:
        ValidationError: it is not a rate.
    """
    try:
        return _frame_rate(text)
    except ConfigError:
        raise ValidationError(Finding(Code.SOURCE_FPS_INVALID, Place(field=field), short(text))) from None


@lru_cache(maxsize=1024)
def _frame_rate(text: str) -> FrameRate:
    return FrameRate.parse(text)


def parse_labels(text: str, allowed: Sequence[int] = (0, 1)) -> tuple[npt.NDArray[np.uint8], bool]:
    """uint8 [source_frames] of the ``allowed`` values, and whether some were written as 0.0 and 1.0.

    Raises:
        ValidationError: it is not a JSON list of them; the first other entry is named.
    """

    def fail(found: str) -> NoReturn:
        values = " and ".join(map(str, allowed))
        raise ValidationError(Finding(Code.LABELS_INVALID, Place(field="labels"), found, values=values))

    def refuse_constant(name: str) -> NoReturn:
        fail(f"holds {name}")

    try:
        values = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        fail(f"{short(text)} is not JSON ({error})")
    if not isinstance(values, list):
        fail(f"{short(text)} is a JSON {type(values).__name__}")
    if not values:
        fail("an empty list")
    types = set(map(type, values))
    if not types <= {int, float} or not all(value in allowed for value in values):
        index = next(i for i, value in enumerate(values) if type(value) not in (int, float) or value not in allowed)
        fail(f"entry {index} is {short(json.dumps(values[index]))}")
    return np.array(values, dtype=np.uint8), float in types


def check_ids(source: str, ids: Iterable[tuple[int, str]]) -> tuple[frozenset[str], list[Finding]]:
    """Which ids occur more than once, and the findings about ids.

    Rows of one id are all refused, since nobody can say which of them is meant. An id that differs from an earlier one only
    by case or by Unicode form is a warning: file systems and tables may take the two for one.

    Args:
        source: the name of the file.
        ids: row and id of each row, also of rows with which something else is wrong; text that is no id is passed over.
    """
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, text in ids:
        if is_sample_id(text):
            rows_of[text].append(row)
    findings = [
        Finding(
            Code.SAMPLE_ID_DUPLICATE,
            Place(source, row, sample_id, "sample_id"),
            f"also in row {_others(rows, row)}",
        )
        for sample_id, rows in rows_of.items()
        if len(rows) > 1
        for row in rows
    ]
    first_of: dict[str, str] = {}
    for sample_id, rows in rows_of.items():
        first = first_of.setdefault(folded(sample_id), sample_id)
        if first != sample_id:
            found = f"{sample_id!a} differs from {first!a} in row {rows_of[first][0]} only by case or Unicode form"
            findings.append(Finding(Code.SAMPLE_ID_ALIKE, Place(source, rows[0], sample_id, "sample_id"), found))
    return frozenset(sample_id for sample_id, rows in rows_of.items() if len(rows) > 1), findings


def _others(rows: Sequence[int], row: int) -> str:
    others = [str(other) for other in rows[: _ROWS_SHOWN + 1] if other != row][:_ROWS_SHOWN]
    more = f" and {len(rows) - 1 - len(others)} more" if len(rows) - 1 > len(others) else ""
    return ", ".join(others) + more


def short(text: str) -> str:
    """``text`` as messages quote it."""
    return repr(text) if len(text) <= 60 else f"{text[:57]!r}..."
