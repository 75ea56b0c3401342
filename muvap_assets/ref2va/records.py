"""The two Arrow schemas of encoded rows, and the mirror pairs that write and read them.

Belongs here: the layout of a row on disk, once. A tensor takes three columns,

    <name>_bytes  binary       C-order, little-endian
    <name>_shape  list<int64>
    <name>_dtype  string       "float32" in everything published; a reader obeys what is stored

and a file holds one row group a row, zstd without dictionary or statistics, with the schema id in its metadata and in the
``schema_version`` column. The columns of ``sft`` are those the existing training reader takes (facts); ``packed`` has the
clean rows in place of the anchors, and the seed their noise is drawn under.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from muvap_assets.codes import Code
from muvap_assets.columns import plain_schema
from muvap_assets.errors import FormatError, ValidationError
from muvap_assets.findings import Finding, Place
from muvap_assets.readback import STUMBLES, reading, require_plain
from muvap_assets.ref2va.contract import AUDIO_RATE_HZ, FPS, MAX_CELL_BYTES, Format, Geometry, ReferenceGeometry
from muvap_assets.ref2va.record_columns import AUDIO_ROWS, RECORD_TABLES, REFERENCE_TYPE, VISUAL_ROWS, tensor_columns

_SMALL_ROW_BYTES = 64 << 20
_MAX_RATIO = 100
"""Latents and embeddings hardly compress: a larger row group that claims to unpack to so many times its file is a bomb."""

DIGESTS_KEY, SCHEMA_KEY, PROVENANCE_KEY = b"muvap_tensor_sha256", b"schema_version", b"muvap_provenance"
SUMMARIES_KEY = b"muvap_row_summaries"
TARGET_MEDIA_TYPE = "video_with_audio"
COMMON_TENSORS = ("vae_latent", "audio_latent", "text_embedding")


SCHEMAS = {
    format: plain_schema(columns, {SCHEMA_KEY: format.schema_id.encode()}) for format, columns in RECORD_TABLES.items()
}
pyarrow_schema_ref2va = SCHEMAS[Format.PACKED]
pyarrow_schema_ref2va_sft = SCHEMAS[Format.SFT]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row as the training side reads it.

    ``visual_rows`` float32 [N, 96] are clean for ``packed`` and noised to time 0.999 for ``sft``; ``audio_rows`` float32
    [M, 32] are clean in both. ``reference_noise_seed`` is ``None`` for ``sft``. Tags are 0 for vision, 1 for text.
    """

    id: str
    format: Format
    vae_latent: npt.NDArray[np.float32]
    audio_latent: npt.NDArray[np.float32]
    text_embedding: npt.NDArray[np.float32]
    text_token_tags: npt.NDArray[np.int64]
    visual_rows: npt.NDArray[np.float32]
    audio_rows: npt.NDArray[np.float32]
    references: tuple[ReferenceGeometry, ...]
    reference_noise_seed: int | None
    file_name: str
    caption: str
    geometry: Geometry

    @property
    def tensors(self) -> dict[str, npt.NDArray[np.float32]]:
        """Every float tensor under the name its columns have."""
        return {
            "vae_latent": self.vae_latent,
            "audio_latent": self.audio_latent,
            "text_embedding": self.text_embedding,
            VISUAL_ROWS[self.format]: self.visual_rows,
            AUDIO_ROWS[self.format]: self.audio_rows,
        }


def to_row(record: Record) -> dict[str, Any]:
    """The columns of one row.

    Raises:
        ValidationError: a tensor does not fit one Arrow cell.
    """
    row: dict[str, Any] = {"id": record.id, "schema_version": record.format.schema_id}
    for name, values in record.tensors.items():
        if values.size * 4 > MAX_CELL_BYTES:
            place, found = Place(sample_id=record.id, field=name), f"{values.size * 4:,} bytes"
            raise ValidationError(Finding(Code.CELL_TOO_LARGE, place, found, limit=MAX_CELL_BYTES))
        row |= tensor_cells(name, values)
    row["text_token_tags"] = record.text_token_tags.tolist()
    row["references"] = [
        {name: getattr(reference, name) for name in REFERENCE_TYPE.names} for reference in record.references
    ]
    if record.format is Format.PACKED:
        row["reference_noise_seed"] = record.reference_noise_seed
    row |= {
        "file_name": record.file_name,
        "caption": record.caption,
        "media_type": TARGET_MEDIA_TYPE,
        "width": record.geometry.width,
        "height": record.geometry.height,
        "num_frames": record.geometry.num_frames,
        "duration_sec": record.geometry.num_frames / FPS,
        "fps": float(FPS),
        "audio_sample_rate": AUDIO_RATE_HZ,
    }
    return {name: row[name] for name in SCHEMAS[record.format].names}


def from_row(row: Mapping[str, Any]) -> Record:
    """The inverse of :func:`to_row`.

    Raises:
        FormatError: a cell is null, the schema id is of neither format, or a tensor's bytes do not fit its dtype and shape.
        ConfigError: the geometry is off the lattice.
    """
    if missing := sorted(name for name, value in row.items() if _holds_null(value)):
        raise FormatError(Finding(Code.SCHEMA_MISMATCH, _place(row), f"null in {', '.join(missing)}", case="null"))
    formats = {format.schema_id: format for format in Format}
    format = formats.get(row["schema_version"])
    if format is None:
        raise FormatError(Finding(Code.SCHEMA_MISMATCH, _place(row), f"schema_version {row['schema_version']!r}"))
    return Record(
        id=row["id"],
        format=format,
        vae_latent=tensor_of(row, "vae_latent"),
        audio_latent=tensor_of(row, "audio_latent"),
        text_embedding=tensor_of(row, "text_embedding"),
        text_token_tags=np.array(row["text_token_tags"], dtype=np.int64),
        visual_rows=tensor_of(row, VISUAL_ROWS[format]),
        audio_rows=tensor_of(row, AUDIO_ROWS[format]),
        references=tuple(ReferenceGeometry(**reference) for reference in row["references"]),
        reference_noise_seed=row["reference_noise_seed"] if format is Format.PACKED else None,
        file_name=row["file_name"],
        caption=row["caption"],
        geometry=Geometry(row["width"], row["height"], row["num_frames"]),
    )


def _place(row: Mapping[str, Any], field: str | None = None) -> Place:
    return Place(sample_id=str(row.get("id")), field=field)


def _holds_null(cell: Any) -> bool:
    if isinstance(cell, list):
        return any(entry is None or (isinstance(entry, dict) and None in entry.values()) for entry in cell)
    return cell is None


def tensor_cells(name: str, values: npt.NDArray[np.float32], dtype: str = "float32") -> dict[str, Any]:
    """The three cells of one tensor. ``dtype`` float16 and bfloat16 round to the nearest, halves to even.

    Raises:
        FormatError: another dtype.
    """
    if dtype == "float32":
        stored: npt.NDArray[Any] = values.astype("<f4", copy=False)
    elif dtype == "float16":
        stored = values.astype("<f2")
    elif dtype == "bfloat16":
        bits = values.astype("<f4").view("<u4")
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        # Rounding may carry a NaN over to infinity or zero: keep it one.
        stored = np.where(np.isnan(values), 0x7FC0, rounded).astype("<u2")
    else:
        raise _unknown_dtype(name, dtype)
    return {f"{name}_bytes": stored.tobytes(), f"{name}_shape": list(values.shape), f"{name}_dtype": dtype}


def tensor_of(row: Mapping[str, Any], name: str) -> npt.NDArray[np.float32]:
    """One tensor as float32 in its stored shape, its bytes read as its stored dtype. Read-only where nothing converts.

    Raises:
        FormatError: the dtype is unknown, or the bytes are not as many as dtype and shape ask for.
    """
    data, shape, dtype = row[f"{name}_bytes"], tuple(row[f"{name}_shape"] or ()), row[f"{name}_dtype"]
    codes = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}
    if dtype not in codes:
        raise _unknown_dtype(name, dtype)
    sides = [side for side in shape if type(side) is int and 0 <= side <= MAX_CELL_BYTES]
    required = math.prod(sides) * np.dtype(codes[dtype]).itemsize
    if data is None or len(sides) != len(shape) or len(data) != required:
        size = "no" if data is None else len(data)
        needed = f"{required} for {dtype} {list(shape)}"
        raise FormatError(Finding(Code.TENSOR_SHAPE, _place(row, name), f"{size} bytes", required=needed))
    stored = np.frombuffer(data, codes[dtype]).reshape(shape)
    if dtype == "bfloat16":
        return (stored.astype("<u4") << 16).view("<f4").astype(np.float32, copy=False)
    return stored.astype(np.float32, copy=False)


def _unknown_dtype(name: str, dtype: Any) -> FormatError:
    return FormatError(Finding(Code.SCHEMA_MISMATCH, Place(field=name), f"dtype {dtype!r}", case="dtype"))


def tensor_digest(values: npt.NDArray[Any]) -> str:
    """SHA-256 over dtype, shape and bytes of an array."""
    digest = hashlib.sha256(f"{values.dtype.str} {list(values.shape)}\n".encode())
    digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


def record_digests(record: Record) -> dict[str, str]:
    """The digest of every tensor of a record, tags included."""
    named: dict[str, npt.NDArray[Any]] = {**record.tensors, "text_token_tags": record.text_token_tags}
    return {name: tensor_digest(values) for name, values in named.items()}


def row_summary(record: Record) -> dict[str, Any]:
    """What an index needs of a row, for the file's metadata: its shapes as written, so that no column has to be read."""
    return {
        "id": record.id,
        "geometry": [record.geometry.width, record.geometry.height, record.geometry.num_frames],
        "references": [[getattr(reference, name) for name in REFERENCE_TYPE.names] for reference in record.references],
        "shapes": {name: list(values.shape) for name, values in record.tensors.items()},
    }


def write_shard(path: Path, records: Iterable[Record], provenance: Mapping[str, Any] | None = None) -> int:
    """Write a shard, one row group a record; the same records and provenance give the same bytes. Returns the rows.

    Args:
        path: the file; it is not synced, which is the caller's protocol.
        records: at least one, all of one format.
        provenance: plain JSON values for the file's metadata; no clock, host or path.

    Raises:
        ValidationError: a tensor does not fit one Arrow cell.
        FormatError: no record, or records of both formats.
    """
    rows: list[dict[str, Any]] = []
    digests: list[dict[str, str]] = []
    summaries: list[dict[str, Any]] = []
    formats = set()
    writer: pq.ParquetWriter | None = None
    try:
        for record in records:
            formats.add(record.format)
            if len(formats) > 1:
                first = min(formats - {record.format}).schema_id
                raise FormatError(Finding(Code.SCHEMAS_MIXED, path, "records of both formats", schema=first))
            schema = SCHEMAS[record.format]
            if writer is None:
                writer = pq.ParquetWriter(
                    path, schema, compression="zstd", use_dictionary=False, write_statistics=False
                )
            rows = [to_row(record)]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema), row_group_size=1)
            digests.append(record_digests(record))
            summaries.append(row_summary(record))
        if writer is None:
            raise FormatError(Finding(Code.COUNT_MISMATCH, path, "no record", case="groups"))
        # Metadata is written with the footer, when every digest is known.
        writer.add_key_value_metadata(
            {
                DIGESTS_KEY: json.dumps(digests, sort_keys=True).encode(),
                PROVENANCE_KEY: json.dumps(dict(provenance or {}), sort_keys=True, ensure_ascii=False).encode(),
                SUMMARIES_KEY: json.dumps(summaries, sort_keys=True).encode(),
            }
        )
    finally:
        if writer is not None:
            writer.close()
    return len(digests)


def read_shard(path: Path) -> list[Record]:
    """The records of a shard.

    Raises:
        FormatError: it is no readable Parquet file, or of another schema; see also :func:`from_row`.
    """
    with open_shard(path) as shard:
        return [from_row(read_row(shard, index, path)) for index in range(shard.num_row_groups)]


def provenance_of(path: Path) -> dict[str, Any] | None:
    """What a shard says it was made from (see :func:`write_shard`), or ``None`` where it cannot be read or does not say."""
    try:
        metadata = pq.read_metadata(path).metadata or {}
        return dict(json.loads(metadata[PROVENANCE_KEY]))
    except STUMBLES:
        return None


def read_tensors(path: Path, names: Sequence[str]) -> dict[str, npt.NDArray[np.float32]]:
    """Some tensors of a file's first row, by name; the columns of the others are not read.

    Raises:
        FormatError: see :func:`open_shard` and :func:`tensor_of`.
    """
    columns = [column.name for name in names for column in tensor_columns(name)]
    with open_shard(path) as shard:
        row = read_row(shard, 0, path, columns)
    return {name: tensor_of(row, name) for name in names}


def read_row(shard: pq.ParquetFile, index: int, path: Path, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """The row of one row group, or some of its columns.

    Raises:
        FormatError: it does not decode, would take far more memory than the file has bytes, or holds another count of rows.
    """
    with reading(path):
        declared = shard.metadata.row_group(index).total_byte_size
        if declared > max(_SMALL_ROW_BYTES, _MAX_RATIO * path.stat().st_size):
            raise ValueError(f"row group {index} says it unpacks to {declared:,} bytes")
        rows: list[dict[str, Any]] = shard.read_row_group(index, columns=columns).to_pylist()
        if len(rows) != 1:
            raise ValueError(f"{len(rows)} rows in row group {index}")
        return rows[0]


def open_shard(path: Path) -> pq.ParquetFile:
    """A shard whose schema is one of the two.

    Raises:
        FormatError: it is no readable Parquet file, or its schema or schema id is of neither format.
    """
    require_plain(path.parent, path.name)
    try:
        shard = pq.ParquetFile(path)
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: a name that is not UTF-8
        raise FormatError(Finding(Code.SCHEMA_MISMATCH, path, f"not readable as Parquet ({error})")) from error
    declared = (shard.schema_arrow.metadata or {}).get(SCHEMA_KEY, b"").decode(errors="replace")
    for format, schema in SCHEMAS.items():
        if declared == format.schema_id and shard.schema_arrow.equals(schema):
            return shard
    shard.close()
    found = f"schema id {declared!r} with {len(shard.schema_arrow)} columns"
    raise FormatError(Finding(Code.SCHEMA_MISMATCH, path, found))
