"""What differs between two versions: rows added, rows removed, rows changed and in which field, rows made on another device.

A row is what the artifact has one of: a clip, a recording, a sample. Where a row lies (shard, offsets, path, line number) is
no difference, since one added row moves all after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from muvap_assets.asd import loudness, manifest_files
from muvap_assets.asd.packs.layout import ARROW_FILE, map_index
from muvap_assets.errors import ConfigError
from muvap_assets.layout import Layout
from muvap_assets.readback import reading, require_plain
from muvap_assets.ref2va.cache import INDEX_NAME, read_index
from muvap_assets.ref2va.devices import Difference, largest_difference, read_devices
from muvap_assets.ref2va.records import provenance_of
from muvap_assets.ref2va.row_store import UNKNOWN_DEVICE, row_file
from muvap_assets.ref2va.standing_rows import ROWS_FILE
from muvap_assets.ref2va.standing_rows import read_rows as standing_rows
from muvap_assets.storage.digests import file_sha256

Row = Mapping[str, Any]
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field of one row: what it was and what it is."""

    field: str
    before: Any
    after: Any

    def text(self) -> str:
        """``labels: 3 of 25 differ``, or the two values."""
        if isinstance(self.before, list) and isinstance(self.after, list) and len(self.before) == len(self.after):
            differ = sum(a != b for a, b in zip(self.before, self.after, strict=True))
            return f"{self.field}: {differ} of {len(self.before)} differ"
        return f"{self.field}: {_short(self.before)} -> {_short(self.after)}"


@dataclass(frozen=True, slots=True)
class VersionDiff:
    """Ids of rows, in the order of the version they are in; ``changed`` with what changed of each.

    ``recomputed`` are rows of ref2va made from the same inputs whose tensors differ, with the largest difference (``None``: the
    tensors of one version are no longer stored), and ``devices`` those that both versions name.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: Mapping[str, tuple[FieldChange, ...]]
    unchanged: int
    recomputed: Mapping[str, Difference | None] = field(default_factory=dict)
    devices: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    @property
    def recomputed_text(self) -> str:
        """How many rows were computed again, where, and how far they are apart."""
        before, after = (", ".join(names) or UNKNOWN_DEVICE for names in self.devices)
        if not all(names and UNKNOWN_DEVICE not in names for names in self.devices):
            device = f"devices unknown ({before} -> {after})"
        else:
            device = f"the same device ({after})" if before == after else f"another device ({before} -> {after})"
        known = [difference for difference in self.recomputed.values() if difference is not None]
        largest = max(known, key=lambda difference: difference.largest, default=None)
        found = (
            f"{largest.largest:.3g} ({largest.tensor})"
            if largest
            else "unknown: the tensors of one are no longer stored"
        )
        return f"{len(self.recomputed)} rows: same inputs, {device}; largest difference {found}"


def diff_versions(before: Path, after: Path) -> VersionDiff:
    """Compare two versions of one kind of artifact, row by row.

    Raises:
        ConfigError: one is no version of an artifact that has rows, or they are of two kinds.
        FormatError: one cannot be read.
    """
    kinds = kind_of(before), kind_of(after)
    if kinds[0] != kinds[1]:
        raise ConfigError(
            f"{before} is {kinds[0]} and {after} is {kinds[1]}; required: two versions of one kind. Name two of the same."
        )
    old, new = (read_rows(folder) for folder in (before, after))
    common = [key for key in new if key in old]
    changed = {key: changes for key in common if (changes := _changes(old[key], new[key]))}
    recomputed = _recomputed(kinds[0], (before, after), changed)
    return VersionDiff(
        added=tuple(key for key in new if key not in old),
        removed=tuple(key for key in old if key not in new),
        changed={key: changes for key, changes in changed.items() if key not in recomputed},
        unchanged=len(common) - len(changed),
        recomputed=recomputed,
        devices=(tuple(read_devices(before)), tuple(read_devices(after))),
    )


def kind_of(folder: Path) -> str:
    """Which artifact a version is of, by the file that holds its rows.

    Raises:
        ConfigError: none that has rows.
        FormatError: that file cannot be read.
    """
    for kind, (file, key, _) in _READERS.items():
        if (folder / file).is_file() and (not key or _has_column(folder / file, key)):
            return kind
    raise ConfigError(
        f"{folder}: no version of an artifact; required: one of {', '.join(_READERS)}. `muvap versions` lists what stands."
    )


def read_rows(folder: Path) -> Mapping[str, Row]:
    """The rows of a version by id, in its order.

    Raises:
        ConfigError: it is no version of an artifact that has rows.
        FormatError: it cannot be read.
    """
    require_plain(folder)
    file, _, read = _READERS[kind_of(folder)]
    with reading(folder / file):
        return read(folder)


def row_files(folder: Path) -> dict[str, Path]:
    """The file of each row of a ref2va version by id: in the row store, or a shard of the dataset; of others, nothing.

    Raises:
        ConfigError: it is no version of an artifact that has rows.
        FormatError: it cannot be read.
    """
    kind = kind_of(folder)
    with reading(folder, folder=True):
        if kind == "ref2va/encoded_latents":
            return {row.id: row_file(_store_of(folder), row.key) for row in standing_rows(folder)}
        return {row.id: folder / row.path for row in read_index(folder).rows} if kind in _TENSORS else {}


def _changes(before: Row, after: Row) -> tuple[FieldChange, ...]:
    names = dict.fromkeys([*before, *after])
    return tuple(
        FieldChange(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    )


def _recomputed(kind: str, folders: tuple[Path, Path], changed: Collection[str]) -> dict[str, Difference | None]:
    """Of the rows that changed, those that both versions have under one key: a digest of all that a row is made from."""
    if kind not in _TENSORS or not changed:
        return {}
    old, new = (_TENSORS[kind](folder, changed) for folder in folders)
    found: dict[str, Difference | None] = {}
    for row_id in changed:
        (key, before), (same_key, after) = old[row_id], new[row_id]
        if key is None or key != same_key:
            continue
        if before is None or after is None:
            found[row_id] = None
        elif (difference := largest_difference(before, after)) is not None and difference.largest:
            found[row_id] = difference
    return found


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


# --- the rows of each artifact ------------------------------------------------------------------------------------------


def _keyed(records: list[dict[str, Any]], key: str, leave_out: frozenset[str] = frozenset()) -> dict[str, Row]:
    return {
        str(record[key]): {name: value for name, value in record.items() if name not in leave_out} for record in records
    }


def _clips(folder: Path) -> dict[str, Row]:
    return _keyed(pq.read_table(folder / manifest_files.MANIFEST_FILE).to_pylist(), "sample_id", frozenset({"row"}))


def _recordings(folder: Path) -> dict[str, Row]:
    return _keyed(pq.read_table(folder / loudness.INDEX_FILE).to_pylist(), "recording_id")


def _packed(folder: Path) -> dict[str, Row]:
    places = frozenset({"shard", "face_offset", "audio_offset", "label_offset"})
    return _keyed(map_index(folder).to_pylist(), "sample_id", places)


def _samples(folder: Path) -> dict[str, Row]:
    return _keyed(pq.read_table(folder / "manifest.parquet").to_pylist(), "id", frozenset({"row"}))


def _encoded(folder: Path) -> dict[str, Row]:
    records = json.loads((folder / ROWS_FILE).read_text(encoding="utf-8"))
    return _keyed(records, "id", frozenset({"row"}))


def _shards(folder: Path) -> dict[str, Row]:
    names = ("bucket", "bytes", "sha256", "num_frames", "text_tokens", "joint_length", "audio_latents")
    return {row.id: {name: getattr(row, name) for name in names} for row in read_index(folder).rows}


# Key and file of each row named, to tell rows that were computed again; no file where it no longer stands.
_Places = dict[str, tuple[str | None, Path | None]]


def _store_of(folder: Path) -> Path:
    return Layout(folder.joinpath(*[".."] * 4).resolve()).row_store


def _in_store(folder: Path, ids: Collection[str]) -> _Places:
    """Rows of a part: in the row store of the data root that the version lies below."""
    places: _Places = {}
    store = _store_of(folder)
    with reading(folder / ROWS_FILE):
        for row in standing_rows(folder):
            if row.id in ids:
                path = row_file(store, row.key)
                places[row.id] = (row.key, path if path.is_file() and file_sha256(path) == row.sha256 else None)
    return places


def _in_dataset(folder: Path, ids: Collection[str]) -> _Places:
    """Rows of a dataset: in its shards, which name their keys."""
    paths = {row.id: folder / row.path for row in read_index(folder).rows if row.id in ids}
    return {row_id: ((provenance_of(path) or {}).get("row_key"), path) for row_id, path in paths.items()}


_TENSORS: Mapping[str, Callable[[Path, Collection[str]], _Places]] = {
    "ref2va/encoded_latents": _in_store,
    "ref2va/parquet_cache_index": _in_dataset,
}


def _has_column(path: Path, name: str) -> bool:
    with reading(path):
        return name in pq.read_schema(path).names


# The file that holds the rows, a column by which one of that name is told from another artifact's, and how they are read.
_READERS: Mapping[str, tuple[str, str, Callable[[Path], Mapping[str, Row]]]] = {
    "asd/manifest": (manifest_files.MANIFEST_FILE, "sample_id", _clips),
    "asd/loudness_index": (loudness.INDEX_FILE, "", _recordings),
    "asd/packed_shards": (ARROW_FILE, "", _packed),
    "ref2va/manifest": ("manifest.parquet", "id", _samples),
    "ref2va/encoded_latents": (ROWS_FILE, "", _encoded),
    "ref2va/parquet_cache_index": (INDEX_NAME, "", _shards),
}
