"""Reading the shards of a dataset into an index: footers and digests, in threads, no column.

Belongs here: what one shard and all of them together must be to be indexed. Comparing with an index is the cache's.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from muvap_assets.codes import Code
from muvap_assets.errors import ConfigError, FormatError, ValidationError
from muvap_assets.findings import Finding, Place
from muvap_assets.ref2va.contract import Format
from muvap_assets.ref2va.index_rows import FORMATS, DatasetIndex, IndexedRow, indexed_row
from muvap_assets.ref2va.shard_footer import parse_footer, read_footer
from muvap_assets.ref2va.shard_tree import check_root, read_tree
from muvap_assets.threads import thread_pool

Watch = Callable[[int, int, str], None]  # done, total, current item
_CHUNK = 64
_QUICK_SEC, _GRACE_SEC = 0.0002, 0.02  # a file that takes longer, the first few aside, is worth a thread
_SMALL_BYTES = 128 * 1024  # read at once; the few calls fewer are most of what such a file costs
R = TypeVar("R")


def scan_shards(
    root: Path, *, place: Path | None = None, workers: int | None = None, watch: Watch | None = None
) -> DatasetIndex:
    """Index the shards below ``root`` from their footers and hash them; no column is read.

    Args:
        root: the dataset, possibly still staged.
        place: the absolute path it will be published at; ``root`` itself by default.
        workers: threads; one a core by default.
        watch: told about progress.

    Raises:
        ValidationError: with everything that is wrong with the folder or a shard.
    """
    tree = read_tree(root)
    findings = [*check_root((place or root).resolve()), *tree.findings]
    if not tree.shards:
        findings.append(Finding(Code.SHARD_MISSING, str(root), "no shard", case="none"))
    results = each_path(lambda path: read_shard_row(root, path), tree.shards, workers, watch)
    read = [result for result in results if not isinstance(result, Finding)]
    findings += [result for result in results if isinstance(result, Finding)]
    findings += [*_mixed_schemas(read), *_double_ids(row for row, _ in read)]
    if findings:
        raise ValidationError(findings, f"dataset {root}")
    return DatasetIndex(format=read[0][1], rows=tuple(row for row, _ in read))


def read_shard_row(root: Path, path: str) -> tuple[IndexedRow, Format] | Finding:
    """The index's row of the shard at ``path`` below ``root``, which must lie in the bucket of its latents' shape."""
    result = index_file(f"{root}/{path}", path)
    bucket = path.partition("/")[0]
    if isinstance(result, Finding) or result[0].bucket == bucket:
        return result
    return Finding(Code.BUCKET_MISMATCH, path, f"latents written for {result[0].bucket}")


def index_file(file: str | Path, path: str) -> tuple[IndexedRow, Format] | Finding:
    """The index's row of one file, under the name ``path``: one open, and one pass over its bytes for the digest."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            size = os.fstat(descriptor).st_size
            if size <= _SMALL_BYTES:
                content = os.pread(descriptor, size, 0)
                footer = parse_footer(content, descriptor, size, str(file))
                digest = hashlib.sha256(content).hexdigest()
            else:
                footer = read_footer(descriptor, size, str(file))
                with os.fdopen(os.dup(descriptor), "rb", buffering=0) as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
        finally:
            os.close(descriptor)
        format = FORMATS.get(footer.schema_id)
        if format is None or len(footer.summaries) != 1:
            found = f"{len(footer.summaries)} rows of schema {footer.schema_id!r}"
            return Finding(Code.SHARD_UNREADABLE, path, found)
        return indexed_row(path, size, digest, format, footer.summaries[0]), format
    except FormatError as error:
        return error.finding.placed(source=path)
    except OSError as error:
        return Finding(Code.SHARD_UNREADABLE, path, f"it cannot be read ({error.strerror})")
    except (ConfigError, LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        return Finding(Code.SHARD_UNREADABLE, path, f"a row summary that does not parse ({error!r})")


def _mixed_schemas(read: Iterable[tuple[IndexedRow, Format]]) -> list[Finding]:
    first: dict[Format, str] = {}
    counts: dict[Format, int] = {}
    for row, format in read:
        first.setdefault(format, row.path)
        counts[format] = counts.get(format, 0) + 1
    if len(counts) < 2:
        return []
    rare = min(counts, key=lambda format: counts[format])
    return [mixture(first[rare], counts, next(format for format in counts if format is not rare))]


def mixture(path: str, counts: Mapping[Format, int], format: Format) -> Finding:
    """The finding that the shard at ``path`` is of another format than its dataset, with how many there are of each."""
    found = ", ".join(f"{count} shard(s) of {each.schema_id}" for each, count in counts.items())
    return Finding(Code.SCHEMAS_MIXED, path, found, schema=format.schema_id)


def _double_ids(rows: Iterable[IndexedRow]) -> list[Finding]:
    seen: dict[str, str] = {}
    found = []
    for row in rows:
        if (other := seen.setdefault(row.id, row.path)) != row.path:
            place = Place(row.path, sample_id=row.id)
            found.append(Finding(Code.SAMPLE_ID_DUPLICATE, place, f"{other} holds that row too", case="shard"))
    return found


def each_path(read: Callable[[str], R], paths: Iterable[str], workers: int | None, watch: Watch | None) -> list[R]:
    """``read`` of every path, in order: in this thread as long as that is quick, then in threads.

    Reading and hashing release the interpreter lock, which pays for large files and slow disks. Small files that lie in
    memory are done sooner by one thread than by several that take turns at the lock.
    """
    paths = list(paths)
    results: list[R] = []
    started = time.perf_counter()
    for path in paths:
        if time.perf_counter() - started > _GRACE_SEC + len(results) * _QUICK_SEC:
            break
        results.append(read(path))
        if watch is not None and (len(results) % _CHUNK == 0 or len(results) == len(paths)):
            watch(len(results), len(paths), path)
    left = paths[len(results) :]
    chunks = [left[start : start + _CHUNK] for start in range(0, len(left), _CHUNK)]
    with thread_pool(workers or os.cpu_count()) as pool:
        for chunk, found in zip(chunks, pool.map(lambda chunk: [read(path) for path in chunk], chunks), strict=True):
            results += found
            if watch is not None:
                watch(len(results), len(paths), chunk[-1])
    return results
