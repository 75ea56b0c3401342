"""The Parquet cache index of a published dataset: built from footers, verified against the disk, opened by the dataset.

    <root>/map_style_cache/index.arrow      what our reader uses; relative, part of the version
    <root>/map_style_cache/file_info.pkl    what the training side reads: absolute real paths, row counts
    <root>/map_style_cache/stamps.json      when each shard's bytes were last hashed: {path: mtime in ns}

The last two say something about one place on one machine; they are written for the place a dataset is published at, and
``rebuild_index`` writes them again where it was moved. A file whose size is the index's and whose time is its stamp is taken
for unchanged and not read; ``full`` reads everything.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path

from muvap_assets.codes import Code
from muvap_assets.errors import FormatError, ValidationError
from muvap_assets.findings import Finding
from muvap_assets.layout import CURRENT
from muvap_assets.readback import require_plain
from muvap_assets.ref2va.contract import Format
from muvap_assets.ref2va.file_info import file_info_bytes, read_file_info, write_file_info
from muvap_assets.ref2va.handover import TRAINING_NAME, moved_training, read_training, write_training
from muvap_assets.ref2va.index_rows import DatasetIndex, IndexedRow, read_index_file, write_index_file
from muvap_assets.ref2va.shard_scan import Watch, each_path, mixture, read_shard_row, scan_shards
from muvap_assets.ref2va.shard_tree import check_root, read_tree
from muvap_assets.storage.files import read_lossy_json, replacing

CACHE_FOLDER = "map_style_cache"
INDEX_NAME, PICKLE_NAME, STAMPS_NAME = (
    f"{CACHE_FOLDER}/{name}" for name in ("index.arrow", "file_info.pkl", "stamps.json")
)


class Depth(Enum):
    """How much of a dataset a verification reads."""

    LISTING = "listing"  # names, sizes and the index's own files
    CHANGED = "changed"  # and the bytes of every shard whose time is not its stamp
    FULL = "full"  # and the bytes of every shard


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexVerdict:
    """What a verification found. The shards in ``read`` were hashed, ``unchanged`` taken for unchanged by size and time."""

    findings: tuple[Finding, ...]
    shards: int
    total_bytes: int
    read: tuple[str, ...]
    unchanged: int


def write_index(root: Path, index: DatasetIndex) -> None:
    """Write ``index.arrow``, in one step."""
    with replacing(root / INDEX_NAME) as partial:
        write_index_file(partial, index)


def place_index(root: Path, index: DatasetIndex, place: Path | None = None) -> None:
    """Write what depends on the place: the pickle for ``place``, and the stamps of the shards as they lie below ``root``."""
    files = _absolute_paths(index, place or root)
    with replacing(root / PICKLE_NAME) as partial:
        write_file_info(partial, files, [row.rows for row in index.rows])
    stamps = {row.path: (root / row.path).stat().st_mtime_ns for row in index.rows}
    with replacing(root / STAMPS_NAME) as partial:
        partial.write_text(json.dumps(stamps, indent=0) + "\n", encoding="utf-8")


def rebuild_index(root: Path, *, workers: int | None = None, watch: Watch | None = None) -> DatasetIndex:
    """Index a dataset anew where it lies: after moving it, after changing it, or where an index is missing.

    Raises:
        ValidationError: see :func:`scan_shards`; the old index is left as it is.
        FormatError: no dataset can be there (:class:`FormatError`), or nothing can be written there.
    """
    _require_dataset(root)
    index = scan_shards(root, workers=workers, watch=watch)
    try:
        write_index(root, index)
        place_index(root, index)
        training = root / TRAINING_NAME
        if training.is_file():
            section = moved_training(read_training(training), root.resolve())
            with replacing(training) as partial:
                write_training(partial, section)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        found = f"its index cannot be written ({error.strerror})"
        raise FormatError(Finding(Code.ROOT_UNUSABLE, root, found, case="read only")) from error
    return index


def open_index(root: Path, *, require_existing: bool = False) -> DatasetIndex:
    """The index of a dataset, if it fits what lies there by names and sizes; no shard is read.

    A missing index is built, unless ``require_existing``. One that does not fit is never repaired in silence.

    Raises:
        FormatError: there is no such folder, or it is the one that holds a dataset's versions.
        ValidationError: the index is missing though required, damaged, planted, of another place, or not what lies there.
    """
    _require_dataset(root)
    missing = [name for name in (INDEX_NAME, PICKLE_NAME) if not (root / name).is_file()]
    if missing and not require_existing:
        return rebuild_index(root)
    verdict = verify_index(root, depth=Depth.LISTING)
    if verdict.findings:
        raise ValidationError(verdict.findings, f"index of {root}")
    return read_index(root)


def _require_dataset(root: Path) -> None:
    """Tell a folder of versions before its shards are taken for strays, which would have the reader move them out."""
    current = root / CURRENT
    if not root.is_dir():
        raise FormatError(Finding(Code.ROOT_UNUSABLE, root, "no such folder"))
    if current.is_dir() and not (root / INDEX_NAME).is_file():
        found = "the folder of a dataset's versions"
        raise FormatError(Finding(Code.ROOT_UNUSABLE, root, found, case="versions", current=current))


def read_index(root: Path) -> DatasetIndex:
    """The index as it is written, not compared with anything.

    Raises:
        FormatError: it is missing or damaged.
    """
    require_plain(root, INDEX_NAME)
    return read_index_file(root / INDEX_NAME)


def verify_index(
    root: Path,
    *,
    place: Path | None = None,
    depth: Depth = Depth.CHANGED,
    workers: int | None = None,
    watch: Watch | None = None,
) -> IndexVerdict:
    """Compare a dataset with its index: file set, sizes, counts, digests, one schema, paths inside the root.

    Args:
        root: the dataset, possibly still staged.
        place: the path its pickle is written for; ``root`` itself by default.
        depth: how much is read.
        workers: threads; one a core by default.
        watch: told about progress.
    """
    tree = read_tree(root)
    place = (place or root).resolve()
    findings = [*check_root(place), *tree.findings]
    missing = [name for name in (INDEX_NAME, PICKLE_NAME) if not (root / name).is_file()]
    findings += [Finding(Code.INDEX_MISSING, name, "it is not there", root=root) for name in missing]
    index = None
    if INDEX_NAME not in missing:
        try:
            index = read_index(root)
        except FormatError as error:
            findings.append(error.finding.placed(source=INDEX_NAME))
    if index is None:
        return IndexVerdict(
            findings=tuple(findings), shards=len(tree.shards), total_bytes=0, read=tree.shards, unchanged=0
        )
    if PICKLE_NAME not in missing:
        findings += _compare_pickle(root, index, place, len(tree.shards))
    findings += _compare_names(root, index, tree.shards)
    known = {row.path: row for row in index.rows}
    stamps = _read_stamps(root) if depth is Depth.CHANGED else {}
    doubtful = []
    for path in (path for path in tree.shards if path in known):
        status = (root / path).stat()
        if status.st_size != known[path].bytes:
            required = f"{known[path].bytes:,}"
            findings.append(Finding(Code.SHARD_CHANGED, path, f"{status.st_size:,} bytes", required=required))
        elif depth is Depth.FULL or (depth is Depth.CHANGED and stamps.get(path) != status.st_mtime_ns):
            doubtful.append(path)
    for found in each_path(lambda path: _compare_shard(root, known[path], index.format), doubtful, workers, watch):
        findings += found
    return IndexVerdict(
        findings=tuple(findings),
        shards=len(tree.shards),
        total_bytes=sum(row.bytes for row in index.rows),
        read=tuple(doubtful),
        unchanged=len(tree.shards) - len(doubtful) if depth is Depth.CHANGED else 0,
    )


def _compare_shard(root: Path, known: IndexedRow, format: Format) -> list[Finding]:
    result = read_shard_row(root, known.path)
    if isinstance(result, Finding):
        return [result]
    row, found = result
    if found is not format:
        return [mixture(known.path, {found: 1}, format)]
    if row.sha256 != known.sha256:
        required = f"{known.sha256[:12]}... as published"
        return [Finding(Code.DIGEST_MISMATCH, known.path, f"sha256 {row.sha256[:12]}...", required=required)]
    return [
        Finding(
            Code.SHARD_CHANGED,
            known.path,
            f"{field.name} {getattr(row, field.name)}",
            required=getattr(known, field.name),
        )
        for field in fields(IndexedRow)
        if getattr(row, field.name) != getattr(known, field.name)
    ]


def _compare_names(root: Path, index: DatasetIndex, shards: Iterable[str]) -> list[Finding]:
    listed, lying = {row.path for row in index.rows}, set(shards)
    missing, stray = sorted(listed - lying), sorted(lying - listed)
    return [
        *(Finding(Code.SHARD_MISSING, path, "it is not there", root=root) for path in missing),
        *(Finding(Code.SHARD_STRAY, path, "a shard the index does not list", root=root) for path in stray),
    ]


def _compare_pickle(root: Path, index: DatasetIndex, place: Path, shards: int) -> list[Finding]:
    required, path = _absolute_paths(index, place), root / PICKLE_NAME
    content = file_info_bytes(required, [row.rows for row in index.rows])
    try:
        if path.stat().st_size == len(content) and path.read_bytes() == content:
            return []
        files, counts = read_file_info(path, shards)
    except FormatError as error:
        return [error.finding.placed(source=PICKLE_NAME)]
    if counts != tuple(row.rows for row in index.rows):
        found = f"row counts of {len(counts)} files that are not the index's"
        return [Finding(Code.INDEX_INVALID, PICKLE_NAME, found, root=root)]
    if files == required:
        return []
    other = files[0].removesuffix(f"/{index.rows[0].path}") if files else ""
    if other and files == tuple(f"{other}/{row.path}" for row in index.rows):
        return [Finding(Code.INDEX_MOVED, PICKLE_NAME, f"written for {other}", place=place, root=root)]
    found = f"paths of {len(files)} files that are not the index's"
    return [Finding(Code.INDEX_INVALID, PICKLE_NAME, found, root=root)]


def _absolute_paths(index: DatasetIndex, place: Path) -> tuple[str, ...]:
    real = str(place.resolve())
    return tuple(f"{real}/{row.path}" for row in index.rows)


def _read_stamps(root: Path) -> dict[str, int]:
    stamps = read_lossy_json(root / STAMPS_NAME)  # without stamps everything is read, which is right and only slower
    return stamps if isinstance(stamps, dict) else {}
