"""The byte layout of ``muvap-asd-mmap`` version 4: what the writer writes and the reader reads, side by side.

    dataset.json            PackHeader: format, versions, units, counts, provenance
    index.arrow             PackEntry, one row a sample: uncompressed Arrow IPC file of one record batch, to be mapped
    shard-000000/
      faces.npy             uint8 [frames, H, W]    native frames of all samples of the shard, one after another
      labels.npy            uint8 [frames]          0 or 1, at the same places as the faces
      audio.npy             int16 [samples]         16 kHz mono at the recording's own gain, full scale 32768
      index.json            PackEntry, a list of objects, for readers that know JSON only
    shard-000001/
      ...
    violations.jsonl        tracks of the manifest that were set aside; only where there are some

            sample 0             sample 1          sample 2
    faces   |0 ............... n0|n0 ........ n0+n1|...             face_offset = label_offset, in frames
    labels  |0 ............... n0|n0 ........ n0+n1|...
    audio   |0 ........... m0|pad|m0+pad ........  |...             audio_offset, in samples

Samples keep the manifest's order, within and over shards; nothing lies between two of them. Offsets count within the
shard. Native frame rates throughout: model_frames is for other readers and is read by nothing here.
``*_crc32`` is the CRC-32 (zlib) of the sample's bytes in that array.

Source: the audio-visual data contract, and format version 4 as other readers open it; the keys from ``recording_id``
on, ``index.arrow`` and the header's keys from ``source_frames`` on are ours, and others ignore them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from muvap_assets.asd.contract import AUDIO_RATE_HZ
from muvap_assets.asd.packs.columns import PACK_TABLE
from muvap_assets.codes import Code
from muvap_assets.errors import FormatError
from muvap_assets.findings import Finding
from muvap_assets.layout import CURRENT
from muvap_assets.media.faces import FACE_CONVERSION
from muvap_assets.publish import write_json
from muvap_assets.readback import require_plain, unreadable

FORMAT = "muvap-asd-mmap"
FORMAT_VERSION = 4
PACK_CODE_VERSION = "1"
ARTIFACT = "asd/packed_shards"
HEADER_FILE, ARROW_FILE, JSON_FILE = "dataset.json", "index.arrow", "index.json"
FACES_FILE, AUDIO_FILE, LABELS_FILE = "faces.npy", "audio.npy", "labels.npy"
SHARD_FILES = (FACES_FILE, AUDIO_FILE, LABELS_FILE, JSON_FILE)
FACES_DTYPE, AUDIO_DTYPE, LABELS_DTYPE = np.dtype("u1"), np.dtype("<i2"), np.dtype("u1")
_ZEROS = bytes(1 << 20)

_PROMISED: Mapping[str, Any] = {
    "format": FORMAT,
    "version": FORMAT_VERSION,
    "timeline": "native",
    "audio_sample_rate": AUDIO_RATE_HZ,
    "audio_normalization": None,
    "face_color": "grayscale",
    "face_dtype": "uint8",
    "audio_dtype": "int16",
    "label_dtype": "uint8",
}
_COUNTS = ("shards", "samples", "source_frames", "audio_samples")


def shard_name(shard: int) -> str:
    """The folder of a shard."""
    return f"shard-{shard:06d}"


# --- dataset.json -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PackHeader:
    """What ``dataset.json`` says: the face shape [H, W], the counts, and what the pack was made from."""

    face_shape: tuple[int, int]
    shards: int
    samples: int
    source_frames: int
    audio_samples: int
    provenance: Mapping[str, Any]


def write_header(folder: Path, header: PackHeader) -> None:
    """Write ``dataset.json``; the mirror of :func:`read_header`."""
    counts = {key: getattr(header, key) for key in _COUNTS}
    write_json(
        folder / HEADER_FILE,
        {
            **_PROMISED,
            "face_shape": list(header.face_shape),
            **counts,
            "face_conversion": FACE_CONVERSION,
            "provenance": header.provenance,
        },
    )


def read_header(folder: Path) -> PackHeader:
    """Read ``dataset.json``; the mirror of :func:`write_header`.

    Raises:
        FormatError: it is missing or no JSON object, or the pack is of another format, version or unit.
    """
    path = folder / HEADER_FILE
    require_plain(folder, HEADER_FILE)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise _no_pack(folder) from error
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, unreadable(error, path)) from error
    if not isinstance(values, dict):
        raise damaged(path, f"a JSON {type(values).__name__}")
    for key, promised in _PROMISED.items():
        if key not in values or values[key] != promised:
            found = repr(values[key]) if key in values else "nothing"
            raise damaged(path, f"{key} is {found}", repr(promised))
    try:
        height, width = (_count(length) for length in values["face_shape"])
        counts = {key: _count(values[key]) for key in _COUNTS}
        provenance = dict(values["provenance"])
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, f"{type(error).__name__} {error}") from error
    return PackHeader(face_shape=(height, width), provenance=provenance, **counts)


def _no_pack(folder: Path) -> FormatError:
    if not folder.is_dir():
        return FormatError(Finding(Code.ARTIFACT_INVALID, folder, "no such folder", case="no_pack"))
    if (folder / CURRENT).is_dir():
        return FormatError(Finding(Code.ARTIFACT_INVALID, folder, "the folder of a pack's versions", case="no_pack"))
    return damaged(folder / HEADER_FILE, "missing")


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


# --- index.arrow and index.json -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PackEntry:
    """One sample of the index. Offsets and lengths are frames of ``faces``/``labels`` and samples of ``audio``.

    ``audio_mean``, ``audio_rms`` and ``audio_peak`` are the whole recording's, after its mean was removed, full scale 1.
    ``padded_samples`` at the end of the audio lie past the recording's end and are silence.
    """

    shard: int
    dataset: str
    sample_id: str
    source_fps: float
    source_frames: int
    start_sec: float
    model_frames: int
    face_offset: int
    audio_offset: int
    audio_samples: int
    label_offset: int
    audio_mean: float
    audio_rms: float
    audio_peak: float
    speaking_ratio: float
    recording_id: str
    padded_samples: int
    clipped_samples: int
    source_fps_exact: str
    start_sec_exact: str
    labels_known: bool
    faces_crc32: int
    audio_crc32: int
    labels_crc32: int


_JSON_FIELDS = tuple(field.name for field in fields(PackEntry) if field.name != "shard")
ARROW_SCHEMA = pa.schema([pa.field(column.name, column.type, nullable=False) for column in PACK_TABLE])
"""One column a field of :class:`PackEntry`, none with nulls."""


def write_index(folder: Path, shards: Sequence[Sequence[PackEntry]]) -> None:
    """Write each shard's ``index.json`` and the pack's ``index.arrow``; the mirror of the two readers below."""
    for shard, entries in enumerate(shards):
        write_json(folder / shard_name(shard) / JSON_FILE, [_json_row(entry) for entry in entries])
    columns = [
        pa.array([getattr(entry, field.name) for entry in chain.from_iterable(shards)], type=field.type)
        for field in ARROW_SCHEMA
    ]
    # One batch, so that every column is one buffer that a reader maps as an array.
    batch = pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)
    with pa.OSFile(str(folder / ARROW_FILE), "wb") as sink, pa.ipc.new_file(sink, ARROW_SCHEMA) as writer:
        writer.write_batch(batch)


def _json_row(entry: PackEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in _JSON_FIELDS}


def map_index(folder: Path) -> pa.RecordBatch:
    """Map ``index.arrow``: columns as :data:`ARROW_SCHEMA` has them, nothing copied, every text within its bounds.

    Raises:
        FormatError: it is missing, no Arrow file, or holds other columns.
    """
    path = folder / ARROW_FILE
    require_plain(folder, ARROW_FILE)
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path), "r"))
        batch = reader.get_batch(0) if reader.num_record_batches == 1 else None
        columns = list(map(str, reader.schema))
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: a name that is not UTF-8
        raise damaged(path, unreadable(error, path)) from error
    if batch is None:
        raise damaged(path, f"{reader.num_record_batches} record batches")
    if not batch.schema.equals(ARROW_SCHEMA):
        wrong = sorted(set(columns) ^ set(map(str, ARROW_SCHEMA)))
        raise damaged(path, f"other columns ({', '.join(wrong) or 'in another order'})")
    try:
        # In full: a text whose offsets lie leads out of the map, and asking for it would end the process. 60 ms a million rows.
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise damaged(path, unreadable(error, path)) from error
    if nulls := [name for name in batch.schema.names if batch.column(name).null_count]:
        raise damaged(path, f"nulls in {', '.join(nulls)}")
    return batch


def read_json_index(folder: Path, shard: int) -> list[dict[str, Any]]:
    """The objects of a shard's ``index.json``.

    Raises:
        FormatError: it is missing, or no JSON list of objects.
    """
    path = folder / shard_name(shard) / JSON_FILE
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, unreadable(error, path)) from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise damaged(path, "something else")
    return rows


def entry_at(batch: pa.RecordBatch, row: int) -> PackEntry:
    """One row of a mapped index."""
    return PackEntry(**{name: batch.column(i)[row].as_py() for i, name in enumerate(batch.schema.names)})


def damaged(path: Path, found: str, required: str = "") -> FormatError:
    """The error about a file of a pack that breaks the format; the file is named by its place in the pack."""
    case = "" if required else "array" if path.suffix == ".npy" else path.name
    finding = Finding(Code.ARTIFACT_INVALID, path, found, case=case, required=required)
    shard = f"{path.parent.name}/" if path.parent.name.startswith("shard-") else ""
    return FormatError(finding.placed(source=f"{shard}{path.name}"))


# --- checksums ------------------------------------------------------------------------------------------------------------


def crc32_zeros(count: int, crc: int = 0) -> int:
    """CRC-32 of what ``crc`` covers, followed by ``count`` zero bytes."""
    while count > 0:
        crc = zlib.crc32(_ZEROS[:count] if count < len(_ZEROS) else _ZEROS, crc)
        count -= len(_ZEROS)
    return crc


def crc32_join(first: int, second: int, second_bytes: int) -> int:
    """CRC-32 of two pieces in a row from that of each, so that pieces may be read in any order.

    The register moves linearly: what ``first`` leaves behind is carried over zeros of the second piece's length, without
    what those zeros alone would leave.
    """
    return crc32_zeros(second_bytes, first) ^ _crc32_of_zeros(second_bytes) ^ second


@lru_cache(maxsize=64)
def _crc32_of_zeros(count: int) -> int:
    return crc32_zeros(count)
