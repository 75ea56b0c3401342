"""The canonical tab-separated manifest: text to :class:`ClipRow`, every broken row reported, no media opened.

    sample_id  audio_path  visual_path  source_fps  labels  [start_sec] [visual_kind] [audio_sample_rate] [license] [consent]

UTF-8 with or without a byte-order mark, LF or CRLF, fields quoted or not, columns in any order.
Source: the audio-visual data contract, "Required manifest fields".
"""

from __future__ import annotations

import csv
import difflib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.contract import MANIFEST_COLUMNS, OPTIONAL_COLUMNS, ClipRow, ParsedManifest, VisualKind
from muvap_assets.asd.corpora.entry import CorpusEntry
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.errors import ConfigError, Severity, Violation, ViolationCode

MAX_FIELD_CHARACTERS = 64_000_000
"""A label list of ten hours at 100 fps has 11 million characters; more than this is not a label list."""

_DECIMAL = re.compile(r"\d{1,12}(\.\d{1,18})?([eE]-?\d{1,2})?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NOT_A_RECORD = {ViolationCode.ROW_MALFORMED, ViolationCode.ENCODING_INVALID}
_MAX_START_SEC = 10**7
_MAX_SAMPLE_ID_CHARACTERS = 500
_MAX_AUDIO_RATE_HZ = 768_000


class TsvCorpus(CorpusEntry):
    """A corpus in the canonical TSV. ``manifest`` is absolute once parsed."""

    kind: Literal["tsv"]
    manifest: Path

    @property
    def folder(self) -> Path:
        """Where the manifest lies."""
        return self.manifest.parent

    def read(self) -> ParsedManifest:
        """See :func:`read_tsv`."""
        return read_tsv(self.manifest)

    def inputs(self) -> Mapping[str, Path]:
        """The manifest itself."""
        return {"source": self.manifest}


class _FieldError(Exception):
    def __init__(self, code: ViolationCode, field: str, *, found: str, required: str, hint: str) -> None:
        super().__init__(found)
        self.code, self.field, self.found, self.required, self.hint = code, field, found, required, hint


def read_tsv(path: Path) -> ParsedManifest:
    """Read a canonical manifest.

    Never raises for what the file holds: everything wrong is in the result's violations, together.
    """
    findings: list[Violation] = []
    rows: list[ClipRow] = []
    row_count = 0
    try:
        for number, record in _records(path, findings):
            row_count += 1
            row = _parse_row(path.name, number, record, findings)
            if row is not None:
                rows.append(row)
    except OSError as error:
        findings.append(
            _finding(
                path,
                ViolationCode.FILE_UNREADABLE,
                f"cannot be read ({error.strerror})",
                "a readable file",
                "Check the path.",
            )
        )
    row_count += sum(finding.code in _NOT_A_RECORD for finding in findings)
    rows, duplicates = _reject_duplicates(path.name, rows)
    if not row_count and not findings:
        findings.append(
            _finding(
                path,
                ViolationCode.MANIFEST_EMPTY,
                "no rows",
                "at least one row below the header",
                "Was the export cut short?",
            )
        )
    ordered = sorted([*findings, *duplicates], key=lambda finding: finding.row or 0)
    return ParsedManifest(path.name, tuple(rows), tuple(ordered), row_count)


def _records(path: Path, findings: list[Violation]) -> Iterator[tuple[int, dict[str, str]]]:
    """Each row with its line number; rows that are not even a record go to ``findings``."""
    header: list[str] | None = None
    for number, fields in _lines(path, findings):
        if header is None:
            header = [name.strip() for name in fields]
            problems = list(_check_header(path, header))
            findings.extend(problems)
            if any(problem.severity is Severity.ERROR for problem in problems):
                return
        elif len(fields) != len(header):
            findings.append(
                _finding(
                    path,
                    ViolationCode.ROW_MALFORMED,
                    f"{len(fields)} fields",
                    f"{len(header)} as the header has",
                    "Fields are separated by one tab; quote a field that holds one.",
                    number,
                )
            )
        else:
            yield number, dict(zip(header, fields, strict=True))


def _lines(path: Path, findings: list[Violation]) -> Iterator[tuple[int, list[str]]]:
    """Each non-blank line, split and unquoted, with the number of the line it begins on."""
    limit = csv.field_size_limit(MAX_FIELD_CHARACTERS)
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
            reader = csv.reader(stream, delimiter="\t", strict=True)
            while True:
                number = reader.line_num + 1
                try:
                    fields = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    findings.append(
                        _finding(
                            path,
                            ViolationCode.ROW_MALFORMED,
                            f"not a row ({error})",
                            "fields separated by tabs",
                            "Look for an unpaired quotation mark.",
                            number,
                        )
                    )
                    continue
                if any(re.search("[\udc80-\udcff]", field) for field in fields):
                    findings.append(
                        _finding(
                            path,
                            ViolationCode.ENCODING_INVALID,
                            "bytes that are not UTF-8",
                            "UTF-8",
                            "Save the file again as UTF-8.",
                            number,
                        )
                    )
                elif any(field.strip() for field in fields):
                    yield number, fields
    finally:
        csv.field_size_limit(limit)


def _check_header(path: Path, header: list[str]) -> Iterator[Violation]:
    known = (*MANIFEST_COLUMNS, *OPTIONAL_COLUMNS)
    for name in MANIFEST_COLUMNS:
        if name not in header:
            yield _finding(
                path,
                ViolationCode.COLUMN_MISSING,
                f"no column {name!r} in {header}",
                f"the columns {', '.join(MANIFEST_COLUMNS)}",
                "Add it; a header line of column names is needed, separated by tabs.",
                1,
            )
    for name in dict.fromkeys(header):
        if header.count(name) > 1:
            yield _finding(
                path,
                ViolationCode.COLUMN_DUPLICATE,
                f"column {name!r} occurs twice",
                "each column once",
                "Remove one.",
                1,
            )
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean {near[0]!r}?" if near else "Its values go nowhere."
            yield _finding(
                path,
                ViolationCode.COLUMN_UNKNOWN,
                f"column {name!r} is not read",
                f"one of {', '.join(known)}",
                hint,
                1,
                Severity.WARNING,
            )


def _parse_row(source: str, number: int, record: Mapping[str, str], findings: list[Violation]) -> ClipRow | None:
    """The typed row, or ``None`` after adding every finding of its fields to ``findings``."""
    values: dict[str, Any] = {}
    sample_id = _CONTROL.sub("?", record["sample_id"].strip())[:_MAX_SAMPLE_ID_CHARACTERS] or None
    broken = False

    def report(error: _FieldError, severity: Severity = Severity.ERROR) -> None:
        findings.append(
            Violation(
                code=error.code,
                source=source,
                row=number,
                sample_id=sample_id,
                field=error.field,
                found=error.found,
                required=error.required,
                hint=error.hint,
                severity=severity,
            )
        )

    for field, parse in _PARSERS.items():
        try:
            values[field] = parse(record.get(field, ""), record)
        except _FieldError as error:
            report(error)
            broken = True
    if broken:
        return None
    labels, were_floats = values.pop("labels")
    if were_floats:
        report(
            _FieldError(
                ViolationCode.LABELS_FLOAT,
                "labels",
                found="written as 0.0 and 1.0",
                required="0 and 1",
                hint="Accepted; write integers to silence this.",
            ),
            Severity.WARNING,
        )
    return ClipRow(row=number, labels=labels, start_sec_text=record.get("start_sec", "").strip(), **values)


def _sample_id(text: str, record: Mapping[str, str]) -> str:
    text = text.strip()
    if not text or len(text) > _MAX_SAMPLE_ID_CHARACTERS or _CONTROL.search(text):
        raise _FieldError(
            ViolationCode.SAMPLE_ID_INVALID,
            "sample_id",
            found=f"{_short(text)}",
            required=f"1 to {_MAX_SAMPLE_ID_CHARACTERS} printable characters",
            hint="Give each face track a stable, unique name.",
        )
    return text


def _path(field: str, text: str) -> str:
    text = text.strip()
    if not text or _CONTROL.search(text):
        raise _FieldError(
            ViolationCode.PATH_INVALID,
            field,
            found=_short(text),
            required="a path, absolute or relative to the manifest",
            hint="Fill the field.",
        )
    return text


def _source_fps(text: str, record: Mapping[str, str]) -> FrameRate:
    try:
        return FrameRate.parse(text)
    except ConfigError:
        raise _FieldError(
            ViolationCode.SOURCE_FPS_INVALID,
            "source_fps",
            found=_short(text),
            required="the track's own rate, a decimal such as 29.97 or a fraction such as 30000/1001",
            hint="A frame rate is never assumed: read it from the video the faces were cut from.",
        ) from None


def _start_sec(text: str, record: Mapping[str, str]) -> Fraction | None:
    text = text.strip()
    if not text:
        return None
    value = Fraction(text) if _DECIMAL.fullmatch(text) else None
    if value is None or value > _MAX_START_SEC:
        raise _FieldError(
            ViolationCode.START_SEC_INVALID,
            "start_sec",
            found=_short(text),
            required="seconds from the recording's start, zero or more",
            hint="Leave it empty only where the audio is cut to the clip.",
        )
    return value


def _visual_kind(text: str, record: Mapping[str, str]) -> VisualKind:
    text = text.strip() or str(VisualKind.NPY)
    if text not in set(VisualKind):
        raise _FieldError(
            ViolationCode.VISUAL_KIND_INVALID,
            "visual_kind",
            found=_short(text),
            required=f"one of {', '.join(VisualKind)}",
            hint="Leave it empty for NumPy arrays.",
        )
    return VisualKind(text)


def _audio_sample_rate(text: str, record: Mapping[str, str]) -> int | None:
    text = text.strip()
    is_array = record["audio_path"].strip().lower().endswith(".npy")
    if not text and not is_array:
        return None
    if not re.fullmatch(r"\d{1,6}", text) or not 0 < int(text) <= _MAX_AUDIO_RATE_HZ:
        raise _FieldError(
            ViolationCode.AUDIO_RATE_INVALID,
            "audio_sample_rate",
            found=_short(text),
            required=f"whole samples a second, 1 to {_MAX_AUDIO_RATE_HZ}",
            hint="An array does not say its own rate: a .npy waveform needs this column.",
        )
    return int(text)


def _labels(text: str, record: Mapping[str, str]) -> tuple[npt.NDArray[np.uint8], bool]:
    """uint8 [source_frames] of 0 and 1, and whether they were written as 0.0 and 1.0. Nothing is cast unchecked."""

    def fail(found: str) -> NoReturn:
        raise _FieldError(
            ViolationCode.LABELS_INVALID,
            "labels",
            found=found,
            required="a JSON list of 0 and 1, one a face frame",
            hint="Map other vocabularies before writing the manifest.",
        )

    def refuse_constant(name: str) -> NoReturn:
        fail(f"holds {name}")

    try:
        values = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        fail(f"{_short(text)} is not JSON ({error})")
    if not isinstance(values, list):
        fail(f"{_short(text)} is a JSON {type(values).__name__}")
    if not values:
        fail("an empty list")
    types = set(map(type, values))
    if not types <= {int, float} or not all(value in (0, 1) for value in values):
        index = next(i for i, value in enumerate(values) if type(value) not in (int, float) or value not in (0, 1))
        fail(f"entry {index} is {_short(json.dumps(values[index]))}")
    return np.array(values, dtype=np.uint8), float in types


_PARSERS: dict[str, Callable[[str, Mapping[str, str]], Any]] = {
    "sample_id": _sample_id,
    "audio_path": lambda text, record: _path("audio_path", text),
    "visual_path": lambda text, record: _path("visual_path", text),
    "source_fps": _source_fps,
    "labels": _labels,
    "start_sec": _start_sec,
    "visual_kind": _visual_kind,
    "audio_sample_rate": _audio_sample_rate,
    "license": lambda text, record: text.strip() or None,
    "consent": lambda text, record: text.strip() or None,
}


def _reject_duplicates(source: str, rows: list[ClipRow]) -> tuple[list[ClipRow], list[Violation]]:
    """Rows whose id occurs once; the others are all refused, since nobody can say which of them is meant."""
    by_id = defaultdict(list)
    for row in rows:
        by_id[row.sample_id].append(row.row)
    violations = [
        Violation(
            code=ViolationCode.SAMPLE_ID_DUPLICATE,
            source=source,
            row=row.row,
            sample_id=row.sample_id,
            field="sample_id",
            found=f"also in row {', '.join(str(other) for other in by_id[row.sample_id] if other != row.row)}",
            required="an id that occurs once",
            hint="Rename or drop the others.",
        )
        for row in rows
        if len(by_id[row.sample_id]) > 1
    ]
    return [row for row in rows if len(by_id[row.sample_id]) == 1], violations


def _finding(
    path: Path,
    code: ViolationCode,
    found: str,
    required: str,
    hint: str,
    row: int | None = None,
    severity: Severity = Severity.ERROR,
) -> Violation:
    return Violation(code=code, source=path.name, row=row, found=found, required=required, hint=hint, severity=severity)


def _short(text: str) -> str:
    return repr(text) if len(text) <= 60 else f"{text[:57]!r}..."
