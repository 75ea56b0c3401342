"""Raw manifests as files: JSON (an array, one object, or ``{"data": [...]}``) and JSON Lines, read whole and judged whole.

Every finding of the file is collected; reading stops at none. Standard JSON only: no comments, no NaN, each key once.
A byte order mark and blank lines are passed over and reported.
"""

from __future__ import annotations

import codecs
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from muvap_assets.codes import Code
from muvap_assets.findings import Finding
from muvap_assets.ref2va.contract import DatasetOptions, RawSample
from muvap_assets.ref2va.findings import Findings
from muvap_assets.ref2va.raw_rows import DuplicateKeys, id_of, json_object, parse_row, printable
from muvap_assets.text_lines import folded

MAX_MANIFEST_BYTES = 512 << 20
MAX_DOCUMENT_BYTES = 64 << 20
"""Of one JSON value, which takes twenty times as much memory at worst; a file of JSON Lines takes that a row."""

MAX_ROW_BYTES = 4 << 20
"""A presentation of 65,536 tokens is a tenth of it."""

_DATA = "data"
_ROWS_RULE = "a list of rows, each an object of the raw schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawManifest:
    """What a manifest's text holds.

    ``samples`` are the rows that parse, paths as :func:`parse_row` gives them; ``rows_total`` counts every row, those that do
    not parse too; ``base`` is the folder paths are relative to; ``sha256`` of the file's bytes.
    """

    path: Path
    sha256: str
    samples: tuple[RawSample, ...]
    rows_total: int
    findings: tuple[Finding, ...]

    @property
    def base(self) -> Path:
        """The folder its paths are relative to."""
        return self.path.parent


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A row that is no JSON; the finding about it stands already."""


@dataclass(frozen=True, slots=True)
class _NonFinite:
    """``NaN`` or ``Infinity``, which Python's JSON reader would let through."""

    name: str

    def __repr__(self) -> str:
        return self.name


def read_raw_manifest(path: Path, options: DatasetOptions) -> RawManifest:
    """Read a manifest and collect everything that is wrong with its text. Opens no media, but looks whether it is there.

    Args:
        path: the file.
        options: the dataset's: limits, format, whether paths may leave the folder.
    """
    findings = Findings(path.name)
    try:
        content = read_bounded(path)
    except (OSError, ValueError) as error:
        reason = f"cannot be read ({getattr(error, 'strerror', None) or error})"
        finding = Finding(Code.FILE_UNREADABLE, path, reason, case="large").placed(source=path.name)
        return RawManifest(path=path, sha256="", samples=(), rows_total=0, findings=(finding,))
    values = list(_values(content, findings))
    if not values:
        findings.add(Code.MANIFEST_EMPTY, None, "no row")
    samples: list[RawSample] = []
    for row, value in values:
        if isinstance(value, _Unreadable):
            continue
        sample, found = parse_row(value, row=row, base=path.parent, options=options, source=path.name)
        findings.found += found
        samples += [] if sample is None else [sample]
    findings.found += _duplicate_ids(values, path.name)
    return RawManifest(
        path=path,
        sha256=hashlib.sha256(content).hexdigest(),
        samples=tuple(samples),
        rows_total=len(values),
        findings=tuple(sorted(findings.found, key=lambda finding: finding.row or 0)),
    )


def read_bounded(path: Path) -> bytes:
    """The bytes of a manifest.

    Raises:
        OSError: it cannot be read.
        ValueError: it is over :data:`MAX_MANIFEST_BYTES`.
    """
    with path.open("rb") as stream:
        told = os.fstat(stream.fileno()).st_size
        content = stream.read(MAX_MANIFEST_BYTES + 1) if told <= MAX_MANIFEST_BYTES else b""
    if max(told, len(content)) > MAX_MANIFEST_BYTES:
        raise ValueError(f"over {MAX_MANIFEST_BYTES >> 20} MiB")
    return content


def _values(content: bytes, findings: Findings) -> Iterator[tuple[int, Any]]:
    """Every row as (number, JSON value), whichever of the forms the file has."""
    if content.startswith(codecs.BOM_UTF8):
        content = content[len(codecs.BOM_UTF8) :]
        findings.add(Code.BYTE_ORDER_MARK, None, "a UTF-8 byte order mark")
    try:
        if len(content) > MAX_DOCUMENT_BYTES:
            raise ValueError(f"over {MAX_DOCUMENT_BYTES >> 20} MiB in one JSON value; write JSON Lines")
        document = _parse(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        if not content.strip() or _looks_like_lines(content):
            yield from _lines(content, findings)
        elif isinstance(error, UnicodeDecodeError):
            yield _refuse_encoding(findings, 1, error)
        else:
            yield _refuse_text(findings, 1, str(error) or type(error).__name__)
    else:
        yield from enumerate(_rows_of(document, findings), start=1)


def _looks_like_lines(content: bytes) -> bool:
    """Whether text that is no JSON document is meant as JSON Lines.

    It is where its first line is a whole row, whatever follows; or where a row or a comment is on its second line and it is no
    array. The second line of a broken, pretty-printed object begins with a key.
    """
    lines = re.finditer(rb"^[^\S\n]*(\S)", content, re.MULTILINE)
    first, second = next(lines), next(lines, None)
    if first[1] == b"[":
        return False
    return first[1] == b"#" or second is None or second[1] in (b"{", b"#") or _is_row(content, first.start())


def _is_row(content: bytes, start: int) -> bool:
    """Whether the line at ``start`` is an object by itself, and none that holds the rows of a document."""
    stop = content.find(b"\n", start, start + MAX_ROW_BYTES)
    try:
        row = _parse(content[start : max(stop, start)].decode("utf-8"))
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and _DATA not in row


def _lines(content: bytes, findings: Findings) -> Iterator[tuple[int, Any]]:
    stop, end = -1, len(content.rstrip())
    for row in itertools.count(1):
        start, stop = stop + 1, content.find(b"\n", stop + 1)
        stop = len(content) if stop < 0 else stop
        if start >= len(content):
            return
        if stop - start > MAX_ROW_BYTES:
            yield _refuse_text(findings, row, f"over {MAX_ROW_BYTES >> 20} MiB in one row")
            continue
        text = content[start:stop].strip()
        if not text:
            if start < end:
                _at(findings, row).add(Code.LINE_IGNORED, None, "a blank line")
            continue
        try:
            yield row, _parse(text.decode("utf-8"))
        except UnicodeDecodeError as error:
            yield _refuse_encoding(findings, row, error)
        except (ValueError, RecursionError) as error:
            comment = "a comment, which JSON does not have" if text.startswith(b"#") else ""
            yield _refuse_text(findings, row, comment or str(error) or type(error).__name__)


def _rows_of(document: Any, findings: Findings) -> Sequence[Any]:
    if isinstance(document, list):
        return document
    if not isinstance(document, dict) or _DATA not in document:
        return [document]
    for code, names, found in (
        (Code.KEY_UNKNOWN, sorted(set(document) - {_DATA}), "an unknown key"),
        (Code.KEY_DUPLICATE, document.repeated if isinstance(document, DuplicateKeys) else (), "given twice"),
    ):
        for name in names:
            findings.add(code, name, found, keys=f"{_DATA!r} alone around the rows")
    rows = document[_DATA]
    if isinstance(rows, list):
        return rows
    findings.add(Code.VALUE_INVALID, _DATA, type(rows).__name__, required=_ROWS_RULE)
    return [_Unreadable()]


def _parse(text: str) -> Any:
    return json.loads(text, object_pairs_hook=json_object, parse_constant=_NonFinite)


def _duplicate_ids(values: Sequence[tuple[int, Any]], source: str) -> list[Finding]:
    found: list[Finding] = []
    first: dict[str, int] = {}
    alike: dict[str, str] = {}
    for row, value in values:
        sample_id = id_of(value)
        if sample_id is None:
            continue
        findings = Findings(source, row, printable(sample_id))
        if sample_id not in first:
            first[sample_id] = row
            other = alike.setdefault(folded(sample_id), sample_id)
            if other != sample_id:
                alike_to = f"{sample_id!a} differs from {other!a} in row {first[other]} only by case or Unicode form"
                findings.add(Code.SAMPLE_ID_ALIKE, "id", alike_to)
                found += findings.found
            continue
        findings.add(Code.SAMPLE_ID_DUPLICATE, "id", f"also in row {first[sample_id]}")
        found += findings.found
    return found


def _refuse_encoding(findings: Findings, row: int, error: UnicodeDecodeError) -> tuple[int, _Unreadable]:
    found = f"byte 0x{error.object[error.start]:02x} at {error.start} is not UTF-8"
    _at(findings, row).add(Code.ENCODING_INVALID, None, found)
    return row, _Unreadable()


def _refuse_text(findings: Findings, row: int, found: str) -> tuple[int, _Unreadable]:
    _at(findings, row).add(Code.ROW_MALFORMED, None, found, case="json")
    return row, _Unreadable()


def _at(findings: Findings, row: int) -> Findings:
    """The same collection, at another row."""
    return replace(findings, row=row, found=findings.found)
