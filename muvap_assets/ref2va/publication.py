"""Putting finished rows together as the dataset a trainer opens, and checking all of it before anyone may.

    rows of the manifest, in its order          each a finished one-row file of the row store
      -> bucket=<W>x<H>-<N>f/data_<8 digits>.parquet     hard links, numbered by manifest order within the bucket
      -> map_style_cache/index.arrow, dataset.json       the same wherever the dataset lies
      -> file_info.pkl, stamps.json, training.yaml       for the place it is published at

All rows or nothing. Belongs here: assembling and checking. Staging and publishing are ``publish``'s.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from muvap_assets.codes import Code
from muvap_assets.errors import ConfigError, PublishError, ValidationError
from muvap_assets.exports import clear_exports, export_place
from muvap_assets.findings import Finding, Place
from muvap_assets.layout import Artifact, Layout
from muvap_assets.publish import (
    Outcome,
    content_version,
    fsync_tree,
    run_checked,
    tree_files,
    write_json,
)
from muvap_assets.ref2va.cache import PICKLE_NAME, STAMPS_NAME, place_index, read_index, write_index
from muvap_assets.ref2va.capacities import overlong, propose
from muvap_assets.ref2va.contract import DEFAULT_PRESENTATION_TOKENS, Format
from muvap_assets.ref2va.devices import DEVICE_FILE, write_devices
from muvap_assets.ref2va.handover import TRAINING_NAME, moved_training, read_training, training_section, write_training
from muvap_assets.ref2va.index_rows import DatasetIndex, IndexedRow
from muvap_assets.ref2va.publication_checks import PUBLICATION_CHECKS, verify_dataset
from muvap_assets.ref2va.shard_scan import Watch, each_path, index_file
from muvap_assets.ref2va.shard_tree import check_root, shard_name
from muvap_assets.storage.files import fsync
from muvap_assets.storage.root import make_folder

DATASET_NAME = "dataset.json"
LOCATION_DEPENDENT = (PICKLE_NAME, STAMPS_NAME, TRAINING_NAME, DEVICE_FILE)
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRow:
    """A row of the manifest and the file it became.

    Attributes:
        sample_id: its id.
        path: its file in the row store; ``None``, or a path where nothing stands, if it is not finished.
        row: where the manifest has it, for messages.
        reason: why it is not finished, where that is known.
        sha256: of its file as it was read back when it was finished, where that is known.
    """

    sample_id: str
    path: Path | None
    row: int | None = None
    reason: str | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationOptions:
    """What a published dataset says about itself.

    ``max_presentation_tokens`` is the limit its rows were admitted under; ``capacities`` how many are proposed.
    ``provenance`` are plain JSON values: versions of inputs, parameters, code version, the encoder's fingerprint; no clock,
    host or path. ``devices`` are those its rows were made on, with the number of rows.
    """

    format: Format
    max_presentation_tokens: int = DEFAULT_PRESENTATION_TOKENS
    capacities: int = 4
    provenance: Mapping[str, Any] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assembled:
    """A staged dataset, and the place everything in it was written for."""

    index: DatasetIndex
    place: Path


def publish_dataset(
    artifact: Artifact,
    rows: Sequence[FinishedRow],
    options: PublicationOptions,
    *,
    workers: int | None = None,
    watch: Watch | None = None,
) -> Outcome[Assembled]:
    """Stage, check and publish a dataset as a version of ``artifact``; see :func:`assemble` and ``publish.run_checked``.

    Raises:
        ValidationError: a row is not finished; nothing was published.
        PublishError: the disk is full, or something else stands where the version would go.
    """
    return run_checked(
        artifact,
        build=lambda folder: assemble(folder, rows, options, place=artifact.version, workers=workers, watch=watch),
        check=lambda folder, made: verify_dataset(folder, rows=rows_in_store(rows), place=made.place, workers=workers),
        declared=PUBLICATION_CHECKS,
        location_dependent=LOCATION_DEPENDENT,
    )


def assemble(
    folder: Path,
    rows: Sequence[FinishedRow],
    options: PublicationOptions,
    *,
    place: Callable[[str], Path],
    workers: int | None = None,
    watch: Watch | None = None,
) -> Assembled:
    """Write a dataset of all ``rows`` into ``folder``.

    Args:
        folder: empty, staged.
        rows: every row of the manifest, in its order.
        options: what the dataset says about itself.
        place: the path the dataset will be published at, given its version.
        workers: threads; one a core by default.
        watch: told about progress.

    Raises:
        ValidationError: there is no row, or some are not finished, damaged, of the other format or listed twice; it names
            every one of them, and ``folder`` is left empty.
        OSError: the folder cannot be written.
    """
    indexed = _read_rows(rows, options, workers, watch)
    numbers = Counter[str]()
    placed = []
    for source, row in indexed:
        path = shard_name(row.bucket, numbers[row.bucket])
        numbers[row.bucket] += 1
        link(source, folder / path)
        placed.append(replace(row, path=path))
    index = DatasetIndex(format=options.format, rows=tuple(sorted(placed, key=lambda row: row.path)))
    write_index(folder, index)
    capacities = propose(index.lengths, options.capacities)
    write_json(
        folder / DATASET_NAME,
        {
            "schema_version": index.format.schema_id,
            "format": str(index.format),
            "rows": len(index.rows),
            "bytes": sum(row.bytes for row in index.rows),
            "buckets": dict(index.buckets),
            "max_presentation_tokens": options.max_presentation_tokens,
            "capacities": asdict(capacities),
            "provenance": dict(options.provenance),
        },
    )
    write_devices(folder, options.devices)
    # Only now is everything there that the version is a digest of, and with it the place.
    target = place(content_version(folder, LOCATION_DEPENDENT)).resolve()
    if found := check_root(target):
        raise ValidationError(found, f"dataset {target}")
    place_index(folder, index, target)
    section = training_section(target, index.format, options.max_presentation_tokens, capacities.capacities)
    write_training(folder / TRAINING_NAME, section)
    return Assembled(index, target)


def rows_in_store(rows: Sequence[FinishedRow]) -> list[tuple[str, Path]]:
    """Id and file of every row; all of them have one once :func:`assemble` accepted them.

    Raises:
        ConfigError: a row has no file.
    """
    pairs = [(row.sample_id, row.path) for row in rows if row.path is not None]
    if len(pairs) != len(rows):
        raise ConfigError("rows: some have no file, required are finished rows. Assemble them first.")
    return pairs


def link(source: Path, target: Path) -> None:
    """Make ``target`` a hard link to ``source``, or a copy where the file system has none between the two.

    Raises:
        OSError: neither works, such as on a full disk.
    """
    make_folder(target.parent)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        shutil.copyfile(source, target)


def _read_rows(
    rows: Sequence[FinishedRow], options: PublicationOptions, workers: int | None, watch: Watch | None
) -> list[tuple[Path, IndexedRow]]:
    """Every row's file and what it holds, by the shapes written; all or a ValidationError."""
    findings = [*_listed_twice(rows)]
    if not rows:
        findings.append(Finding(Code.MANIFEST_EMPTY, None, "no row"))
    standing = [(row, row.path) for row in rows if row.path is not None and row.path.is_file()]
    findings += [_missing(row) for row in rows if row.path is None or not row.path.is_file()]
    by_id = {row.sample_id: path for row, path in standing}
    results = each_path(lambda sample_id: index_file(by_id[sample_id], sample_id), list(by_id), workers, watch)
    known = dict(zip(by_id, results, strict=True))
    indexed = []
    for row, path in standing:
        result = known[row.sample_id]
        wrong = _wrong_with(row, result, options)
        if wrong is not None:
            findings.append(wrong)
        elif not isinstance(result, Finding):
            indexed.append((path, result[0]))
    if findings:
        raise ValidationError(sorted(findings, key=lambda found: found.row or 0), f"dataset of {len(rows)} rows")
    return indexed


def _wrong_with(
    row: FinishedRow, result: tuple[IndexedRow, Format] | Finding, options: PublicationOptions
) -> Finding | None:
    place = Place(row=row.row, sample_id=row.sample_id)
    if isinstance(result, Finding):
        return result.placed(source=None, row=row.row, sample_id=row.sample_id)
    indexed, format = result
    if format is not options.format:
        found = f"a row of {format.schema_id}"
        return Finding(Code.SCHEMAS_MIXED, place, found, schema=options.format.schema_id)
    if row.sha256 is not None and indexed.sha256 != row.sha256:
        found, required = f"its file's digest is {indexed.sha256[:12]}", f"{row.sha256[:12]}, as when it was finished"
        return Finding(Code.DIGEST_MISMATCH, place, found, required=required)
    if indexed.id != row.sample_id:
        return Finding(Code.SAMPLE_ID_INVALID, place, f"its file holds the row {indexed.id!r}", case="stored")
    too_long = overlong([indexed], options.max_presentation_tokens)
    return too_long[0].placed(source=None, row=row.row) if too_long else None


def _missing(row: FinishedRow) -> Finding:
    found = f"no finished row{f': {row.reason}' if row.reason else ''}"
    return Finding(Code.ROW_MISSING, Place(row=row.row, sample_id=row.sample_id), found)


def _listed_twice(rows: Sequence[FinishedRow]) -> list[Finding]:
    counts = Counter(row.sample_id for row in rows)
    return [
        Finding(Code.SAMPLE_ID_DUPLICATE, Place(sample_id=sample_id), f"listed {count} times")
        for sample_id, count in counts.items()
        if count > 1
    ]


def export_dataset(layout: Layout, published: Path, target: Path, *, workers: int | None = None) -> DatasetIndex:
    """Put a published dataset at another place: the same shards, an index of that place, there at once or not at all.

    Args:
        layout: the data root that remembers the export until it is over.
        published: a version of the dataset.
        target: absent or an empty folder (contract: a nonempty output directory is refused).

    Raises:
        PublishError: something stands at ``target``.
        ValidationError: a dataset cannot lie at ``target``, or what was written there does not verify.
    """
    place = target.resolve()
    clear_exports(layout, place)
    require_free(place)
    if found := check_root(place):
        raise ValidationError(found, f"dataset {place}")
    index = read_index(published)
    with export_place(layout, place) as scratch:
        for path in tree_files(published):
            name = path.relative_to(published).as_posix()
            if name not in LOCATION_DEPENDENT or name == DEVICE_FILE:
                link(path, scratch / name)
        place_index(scratch, index, place)
        section = moved_training(read_training(published / TRAINING_NAME), place)
        write_training(scratch / TRAINING_NAME, section)
        checks = verify_dataset(scratch, place=place, workers=workers)
        if broken := [finding for check in checks for finding in check.findings]:
            raise ValidationError(broken, f"dataset {place}")
        fsync_tree(scratch)
        _move(scratch, place)
    return index


def require_free(target: Path) -> None:
    """Refuse a place where something stands.

    Raises:
        PublishError: ``target`` is a file or a folder that is not empty.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise PublishError(
            f"{target}: not empty; required: a fresh directory, since shards of two runs are never mixed. Name another one."
        )


def require_places(target: Path, work: Path) -> None:
    """Refuse places that a dataset could not be exported to, before anything is encoded for it.

    Args:
        target: where the dataset will lie, resolved.
        work: the data root it is made below, resolved.

    Raises:
        PublishError: something stands at ``target``, it cannot be made there, or one place lies in the other.
        ValidationError: a dataset cannot lie at one of them.
    """
    for what, place in (("output", target), ("work", work)):
        if found := check_root(place):
            raise ValidationError(found, f"{what} directory {place}")
    require_free(target)
    standing = next(folder for folder in target.parents if folder.exists())
    if not standing.is_dir() or not os.access(standing, os.W_OK | os.X_OK):
        raise PublishError(
            f"{target}: {standing} is no folder that may be written; required: one to make it in. Name another place."
        )
    if target.is_relative_to(work) or work.is_relative_to(target):
        raise PublishError(
            f"{target}: the work directory {work} lies in it, around it or at the same place; required: two places apart, since "
            "what is published holds the dataset alone. Name another one."
        )


def _move(scratch: Path, place: Path) -> None:
    try:
        scratch.rename(place)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            require_free(place)
        raise
    fsync(place.parent)
