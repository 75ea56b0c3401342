"""What lies in a dataset's folder: its shards, and everything that must not be there.

    <root>/bucket=<W>x<H>-<N>f/data_<8 digits>.parquet     the shards, numbered from zero without a gap in each bucket
    <root>/map_style_cache/                                the index

The training side takes up every ``*.parquet`` below the root, reads a shard's shape from the one ``bucket=`` part of its
absolute path, and splits a root at ``,`` and ``:``. Hence the rules here (facts).
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from muvap_assets.codes import Code
from muvap_assets.findings import Finding
from muvap_assets.ref2va.geometry import BUCKET_PATTERN
from muvap_assets.storage.trees import LINK, VersionLink, opened, walk

SHARD_PATTERN = re.compile(rf"({BUCKET_PATTERN.pattern})/data_(\d{{8}})\.parquet", re.ASCII)


@dataclass(frozen=True, slots=True)
class ShardTree:
    """The shards below a root as relative paths with ``/``, sorted, and what is wrong with the folder."""

    shards: tuple[str, ...]
    findings: tuple[Finding, ...]


def shard_name(bucket: str, number: int) -> str:
    """The relative path of a bucket's shard."""
    return f"{bucket}/data_{number:08d}.parquet"


def shard_number(path: str) -> int:
    """The number in a shard's relative path."""
    return int(path[-len("00000000.parquet") : -len(".parquet")])


def check_root(root: Path) -> list[Finding]:
    """What keeps the absolute path of a dataset from being used by the training side."""
    where = str(root)
    found = [
        Finding(Code.ROOT_UNUSABLE, where, f"{character!r} in its path", case="characters")
        for character in ",:"
        if character in where
    ]
    parts = [part for part in root.parts if part.startswith("bucket=")]
    if parts:
        above = f"the folder {parts[0]!r} in its path, above the buckets' own"
        found.append(Finding(Code.ROOT_UNUSABLE, where, above, case="bucket"))
    return found


def read_tree(root: Path) -> ShardTree:
    """List the shards below ``root``; whatever a reader would mistake for one is a finding.

    Raises:
        OSError: the folder cannot be listed.
    """
    shards: list[str] = []
    findings: list[Finding] = []
    try:
        real = opened(root).resolve()
    except VersionLink as error:
        return ShardTree((), (Finding(Code.LINK_FOUND, str(error.path), f"{LINK} in the place of a version"),))
    for path, foreign in walk(root):
        if foreign == LINK:
            findings.append(_link(path, root / path, real))
        elif foreign:
            findings.append(Finding(Code.LINK_FOUND, path, foreign, case="special"))
        elif SHARD_PATTERN.fullmatch(path):
            shards.append(path)
        elif path.endswith(".parquet"):
            found = "a Parquet file that is no shard of this dataset"
            findings.append(Finding(Code.SHARD_STRAY, path, found, case="foreign"))
    shards.sort()
    return ShardTree(tuple(shards), tuple([*findings, *_gaps(shards)]))


def _link(path: str, full: Path, root: Path) -> Finding:
    target = full.resolve()
    place = "inside" if target.is_relative_to(root) else "outside"
    return Finding(Code.LINK_FOUND, path, f"{LINK} to a place {place} the dataset")


def _gaps(shards: list[str]) -> list[Finding]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for path in shards:
        numbers[path.partition("/")[0]].append(shard_number(path))
    found = []
    for bucket, have in numbers.items():
        missing = sorted(set(range(max(have) + 1)) - set(have))
        if missing:
            gap = f"no {', '.join(f'data_{number:08d}' for number in missing[:5])} ({len(missing)} missing)"
            found.append(Finding(Code.SHARD_MISSING, bucket, gap, case="gap", count=max(have) + 1))
    return found
