"""The rows of a part that stand encoded in the row store: their list, and every check of it.

Belongs here: ``rows.json`` (:class:`StandingRow`, its columns, its writer and reader), and holding the rows it lists to the
manifest and to their files. Encoding them is ``encode``'s, and keeping them ``row_store``'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from muvap_assets.codes import Code
from muvap_assets.columns import INT, TEXT, Column
from muvap_assets.findings import Finding, Place
from muvap_assets.publish import CheckOutcome, read_findings, write_json
from muvap_assets.readback import reading, typed
from muvap_assets.ref2va.contract import RawSample
from muvap_assets.ref2va.decode_check import DECODE_CHECK, verify_decoded
from muvap_assets.ref2va.encode import EncodedRow
from muvap_assets.ref2va.geometry import bucket_name
from muvap_assets.ref2va.manifest_files import FINDINGS_NAME
from muvap_assets.ref2va.row_store import RowStore
from muvap_assets.ref2va.verify import verify_row_file
from muvap_assets.storage.digests import file_sha256

ROWS_FILE = "rows.json"
ENCODE_CHECKS = (
    "rows_encoded",
    "target_shapes",
    "reference_rows",
    "text_tags",
    "tensors_finite",
    "round_trip",
    DECODE_CHECK,
)
_SUBJECTS = {
    "target_shapes": {Code.TENSOR_SHAPE},
    "reference_rows": {Code.REFERENCE_ROWS_MISMATCH},
    "text_tags": {Code.TAGS_INVALID},
    "tensors_finite": {Code.TENSOR_NON_FINITE},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingRow:
    """One row of a part that stands encoded in the row store: where, under which digest, and what a plan needs of it."""

    id: str
    row: int
    key: str
    sha256: str
    bucket: str
    text_tokens: int
    sequence_length: int


STANDING_TABLE = (
    Column("id", TEXT, "the sample's name", unique=True),
    Column("row", INT, "line or position of the source manifest, from 1", constraints=("> 0",)),
    Column("key", TEXT, "digest of all the row is made from; its name in the row store"),
    Column("sha256", TEXT, "SHA-256 of the row's file"),
    Column("bucket", TEXT, "width, height and frames of its target, as a name"),
    Column("text_tokens", INT, "tokens of the presentation", "tokens"),
    Column("sequence_length", INT, "rows of the joint sequence", "rows"),
)
"""The columns of ``rows.json``: one a field of :class:`StandingRow`, in its order."""


def write_rows(folder: Path, rows: Sequence[EncodedRow], numbers: Mapping[str, int]) -> None:
    """Write the list of standing rows; the mirror of :func:`read_rows`."""
    records = [
        {
            "id": row.sample_id,
            "row": numbers[row.sample_id],
            "key": row.key,
            "sha256": file_sha256(row.path),
            "bucket": bucket_name(row.geometry),
            "text_tokens": row.text_tokens,
            "sequence_length": row.sequence_length,
        }
        for row in rows
    ]
    write_json(folder / ROWS_FILE, records)


def read_rows(folder: Path) -> list[StandingRow]:
    """The rows of one part, in manifest order.

    Raises:
        FormatError: the file is missing or damaged.
    """
    with reading(folder / ROWS_FILE):
        records = json.loads((folder / ROWS_FILE).read_text(encoding="utf-8"))
        if not isinstance(records, list):
            raise TypeError(f"a {type(records).__name__}")
        return [typed(StandingRow, record) for record in records]


def verify_encoded(folder: Path, samples: Sequence[RawSample], store: RowStore) -> list[CheckOutcome]:
    """Every check of one part: each row of the manifest stands, and is read back from the store in full."""
    rows = read_rows(folder)
    findings = list(read_findings(folder / FINDINGS_NAME))
    standing = {row.id for row in rows}
    named = {finding.sample_id for finding in findings}
    missing = [
        Finding(Code.ROW_MISSING, Place(row=sample.row, sample_id=sample.id), "not encoded")
        for sample in samples
        if sample.id not in standing and sample.id not in named
    ]
    found = list(_read_back(rows, store))
    for name, codes in _SUBJECTS.items():
        found.extend((name, finding) for finding in findings if finding.code in codes)

    def of(name: str) -> list[Finding]:
        return [finding for check, finding in found if check == name]

    tokens = sum(row.text_tokens for row in rows)
    return [
        CheckOutcome.of("rows_encoded", [*missing, *findings], rows=len(rows), rows_expected=len(samples)),
        CheckOutcome.of(
            "target_shapes", of("target_shapes"), rows=len(rows), buckets=len({row.bucket for row in rows})
        ),
        CheckOutcome.of("reference_rows", of("reference_rows"), rows=len(rows)),
        CheckOutcome.of("text_tags", of("text_tags"), presentation_tokens=tokens),
        CheckOutcome.of("tensors_finite", of("tensors_finite"), rows=len(rows)),
        CheckOutcome.of(
            "round_trip",
            of("round_trip"),
            rows=len(rows),
            longest_sequence=max((row.sequence_length for row in rows), default=0),
        ),
        verify_decoded(folder, {row.id: row.key for row in rows}),
    ]


def _read_back(rows: Iterable[StandingRow], store: RowStore) -> Iterable[tuple[str, Finding]]:
    """Findings about the rows' files, each with the check it belongs to."""
    for row in rows:
        path = store.row_path(row.key)
        digest = file_sha256(path) if path.is_file() else "nothing"
        if digest != row.sha256:
            place, found = Place(row=row.row, sample_id=row.id), f"its file's digest is {digest[:12]}"
            yield "round_trip", Finding(Code.DIGEST_MISMATCH, place, found, required=row.sha256[:12])
            continue
        for finding in verify_row_file(path):
            checks = [name for name, codes in _SUBJECTS.items() if finding.code in codes]
            placed = finding.placed(sample_id=row.id, row=row.row, source=None)
            yield (checks[0] if checks else "round_trip"), placed
