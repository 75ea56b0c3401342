"""Every check of a dataset, staged or published, on what lies on disk: what the gate runs and ``muvap verify`` prints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from muvap_assets.codes import Code
from muvap_assets.errors import FormatError
from muvap_assets.findings import Finding, Place
from muvap_assets.publish import CheckOutcome
from muvap_assets.readback import require_plain
from muvap_assets.ref2va.cache import Depth, IndexVerdict, read_index, verify_index
from muvap_assets.ref2va.capacities import overlong
from muvap_assets.ref2va.handover import TRAINING_NAME, read_training
from muvap_assets.ref2va.index_rows import DatasetIndex
from muvap_assets.ref2va.shard_scan import Watch, each_path
from muvap_assets.ref2va.shard_tree import shard_name
from muvap_assets.ref2va.verify import verify_row_file
from muvap_assets.storage.digests import file_sha256

PUBLICATION_CHECKS = (
    "rows_complete",
    "shards_whole",
    "buckets_match_latents",
    "one_schema",
    "presentations_fit",
    "index_matches",
)
_BUCKET_CODES = (Code.BUCKET_MISMATCH,)
_SCHEMA_CODES = (Code.SCHEMAS_MIXED, Code.SCHEMA_MISMATCH)
_SHARD_CODES = (Code.SHARD_UNREADABLE, Code.DIGEST_MISMATCH)


def verify_dataset(
    root: Path,
    *,
    rows: Sequence[tuple[str, Path]] | None = None,
    place: Path | None = None,
    depth: Depth = Depth.FULL,
    workers: int | None = None,
    watch: Watch | None = None,
) -> list[CheckOutcome]:
    """Run :data:`PUBLICATION_CHECKS` on a dataset.

    Args:
        root: the dataset, possibly still staged.
        rows: id and row store file of every row of the manifest, in its order, where they are known.
        place: the path it is or will be published at; ``root`` itself by default.
        depth: FULL reads every shard back, CHANGED those that may have changed since they were indexed.
        workers: threads; one a core by default.
        watch: told about progress.
    """
    verdict = verify_index(root, place=place, depth=depth, workers=workers, watch=watch)
    try:
        index = read_index(root)
        require_plain(root, "dataset.json")
        facts = json.loads((root / "dataset.json").read_text(encoding="utf-8"))
        rows_declared, limit = facts["rows"], facts["max_presentation_tokens"]
        if type(rows_declared) is not int or type(limit) is not int:
            raise ValueError(f"rows {rows_declared!r:.20}, max_presentation_tokens {limit!r:.20}")
    except (FormatError, OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        return _without_facts(root, verdict, error)
    of_shards = [
        found for each in each_path(lambda path: _read_back(root, path), verdict.read, workers, None) for found in each
    ]
    schemas = _only(verdict.findings, _SCHEMA_CODES) + _only(of_shards, _SCHEMA_CODES)
    return [
        CheckOutcome.of("rows_complete", _check_rows(root, index, rows, rows_declared), rows=len(index.rows)),
        CheckOutcome.of(
            "shards_whole",
            _only(verdict.findings, _SHARD_CODES) + _without(of_shards, _SCHEMA_CODES),
            read=len(verdict.read),
            unchanged=verdict.unchanged,
        ),
        CheckOutcome.of("buckets_match_latents", _only(verdict.findings, _BUCKET_CODES), buckets=len(index.buckets)),
        CheckOutcome.of("one_schema", schemas, schema=index.format.schema_id),
        CheckOutcome.of(
            "presentations_fit", overlong(index.rows, limit), longest=max(row.text_tokens for row in index.rows)
        ),
        CheckOutcome.of(
            "index_matches",
            [
                *_without(verdict.findings, (*_SHARD_CODES, *_BUCKET_CODES, *_SCHEMA_CODES)),
                *_check_training(root, place or root),
            ],
            shards=verdict.shards,
            bytes=verdict.total_bytes,
        ),
    ]


def _without_facts(root: Path, verdict: IndexVerdict, error: Exception) -> list[CheckOutcome]:
    """Nothing can be told without the index and ``dataset.json``; checks left out count as failed."""
    found = f"{type(error).__name__}: {error}"
    invalid = Finding(Code.ARTIFACT_INVALID, str(root), found, case="no_index", root=root)
    return [CheckOutcome.of("index_matches", [*verdict.findings, invalid], shards=verdict.shards)]


def _read_back(root: Path, path: str) -> list[Finding]:
    return [finding.placed(source=path) for finding in verify_row_file(root / path)]


def _check_rows(
    root: Path, index: DatasetIndex, rows: Sequence[tuple[str, Path]] | None, declared: int
) -> list[Finding]:
    found = []
    if len(index.rows) != declared:
        required = f"the {len(index.rows)} indexed"
        found.append(Finding(Code.COUNT_MISMATCH, "dataset.json", f"{declared} rows declared", required=required))
    if rows is None:
        return found
    by_id = {row.id: row for row in index.rows}
    numbers = Counter[str]()
    for sample_id, source in rows:
        row = by_id.pop(sample_id, None)
        if row is None:
            found.append(Finding(Code.ROW_MISSING, Place(sample_id=sample_id), "no shard holds it"))
            continue
        required = shard_name(row.bucket, numbers[row.bucket])
        numbers[row.bucket] += 1
        if row.path != required:
            found.append(_row_finding(sample_id, f"it lies in {row.path}", f"{required} by the manifest's order"))
        elif not (root / row.path).samefile(source) and file_sha256(source) != row.sha256:
            found.append(_row_finding(sample_id, "bytes other than the finished row's", "the very same"))
    return found + [_row_finding(sample_id, "the manifest has no such row", "exactly its rows") for sample_id in by_id]


def _row_finding(sample_id: str, found: str, required: str) -> Finding:
    return Finding(Code.COUNT_MISMATCH, Place(sample_id=sample_id), found, required=required)


def _check_training(root: Path, place: Path) -> list[Finding]:
    try:
        path = read_training(root / TRAINING_NAME)["training"]["data"]["data_path"]
    except FormatError as error:
        return [error.finding.placed(source=TRAINING_NAME)]
    if path == str(place.resolve()):
        return []
    return [Finding(Code.INDEX_MOVED, TRAINING_NAME, f"data_path {path}", place=place.resolve(), root=root)]


def _only(findings: Iterable[Finding], codes: Sequence[Code]) -> list[Finding]:
    return [finding for finding in findings if finding.code in codes]


def _without(findings: Iterable[Finding], codes: Sequence[Code]) -> list[Finding]:
    return [finding for finding in findings if finding.code not in codes]
