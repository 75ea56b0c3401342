"""What two splits of a corpus share, so that a test on one would be a test on what was trained on.

Splits are the partitions of one ``dataset``, or of one folder; each is compared with what is published of the others when
its manifest is made. Ids are compared, and digests of media that validation made anyway: nothing is opened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from muvap_assets.asd.manifest_files import MANIFEST_FILE
from muvap_assets.codes import Code
from muvap_assets.findings import Finding, Place
from muvap_assets.media.audio import ID_LENGTH
from muvap_assets.readback import reading

LEAKAGE_FILE = "leakage.jsonl"
_COLUMNS = ("sample_id", "recording_id", "video_id", "faces_fingerprint")
_KINDS = {
    "recording_id": (Code.SHARED_RECORDING, "the same recording, byte for byte"),
    "video_id": (Code.SHARED_VIDEO, "the same video id"),
    "faces_fingerprint": (Code.SHARED_MEDIA, "the same face files"),
}
_IDS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class SplitContent:
    """The clips of a split, in order, by what they may share: each value leads to the clips that have it."""

    name: str
    clips_by: Mapping[str, Mapping[str, Sequence[str]]]


def read_split(name: str, folder: Path) -> SplitContent:
    """What a published manifest holds. Manifests of older versions lack columns; these are not compared.

    Raises:
        FormatError: the file is missing or damaged.
    """
    path = folder / MANIFEST_FILE
    with reading(path):
        columns = [column for column in _COLUMNS if column in pq.read_schema(path).names]
        table = pq.read_table(path, columns=columns).to_pydict()
    clips_by: dict[str, dict[str, list[str]]] = {}
    for column in columns[1:]:
        groups = clips_by[column] = defaultdict(list)
        for value, sample_id in zip(table[column], table["sample_id"], strict=True):
            if value:  # of a recording the file's digest, whichever stream or channel of it is heard
                groups[value[:ID_LENGTH] if column == "recording_id" else value].append(sample_id)
    return SplitContent(name, clips_by)


def find_leakage(split: SplitContent, others: Sequence[SplitContent]) -> list[Finding]:
    """One finding for each recording, video or set of face files that another split has too, with the clips of both.

    What follows from another is not told twice: face files and recordings of a shared video are not listed by themselves.
    """
    return [finding for other in others for finding in _shared(split, other)]


def _shared(split: SplitContent, other: SplitContent) -> Iterator[Finding]:
    told: set[tuple[str, str]] = set()
    for column in ("video_id", "recording_id", "faces_fingerprint"):
        mine, theirs = split.clips_by.get(column, {}), other.clips_by.get(column, {})
        code, what = _KINDS[column]
        for value in sorted(mine.keys() & theirs.keys()):
            pairs = (
                {(first, second) for first in mine[value] for second in theirs[value]}
                if _small(mine, theirs, value)
                else set()
            )
            if pairs and pairs <= told:
                continue
            told |= pairs
            place = Place(split.name, sample_id=mine[value][0], field=column)
            found = f"{what} ({value}): {_listed(mine[value])} here and {_listed(theirs[value])} of {other.name}"
            yield Finding(code, place, found)


def _small(mine: Mapping[str, Sequence[str]], theirs: Mapping[str, Sequence[str]], value: str) -> bool:
    return len(mine[value]) * len(theirs[value]) <= 10_000


def _listed(sample_ids: Sequence[str]) -> str:
    more = f" and {len(sample_ids) - _IDS_SHOWN} more" if len(sample_ids) > _IDS_SHOWN else ""
    return ", ".join(map(repr, sample_ids[:_IDS_SHOWN])) + more
