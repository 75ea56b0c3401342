"""What the index knows of a shard, and the Arrow file it is kept in.

``index.arrow`` is an Arrow IPC file, one row a shard, sorted by path:

    path string, rows int64, bucket string, bytes int64, sha256 string, id string, num_frames int64, latent_frames int64,
    text_tokens int64, joint_length int64, audio_latents int64, references list<struct of ReferenceGeometry>

with the shards' schema id in its metadata. Paths are relative to the dataset's root, with ``/``: the file is the same
wherever the dataset lies. It is no Parquet file, so that no reader sweeps it in as a shard.
"""

from __future__ import annotations

import functools
import hashlib
from contextlib import suppress
from dataclasses import astuple, dataclass, fields, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from muvap_assets.codes import Code
from muvap_assets.columns import INT, TEXT, Column, plain_schema
from muvap_assets.errors import ConfigError, FormatError
from muvap_assets.findings import Finding, Place
from muvap_assets.layout import VERSION_LENGTH
from muvap_assets.ref2va.contract import (
    AUDIO_CHANNELS,
    AUDIO_ROW_WIDTH,
    SPATIAL_FACTOR,
    VIDEO_CHANNELS,
    VISUAL_ROW_WIDTH,
    Format,
    Geometry,
    ReferenceGeometry,
)
from muvap_assets.ref2va.geometry import (
    bucket_name,
    frames_of_latents,
    joint_sequence_length,
    parse_bucket_name,
    target_audio_latents,
)
from muvap_assets.ref2va.record_columns import AUDIO_ROWS, REFERENCE_TYPE, VISUAL_ROWS
from muvap_assets.ref2va.records import SCHEMA_KEY
from muvap_assets.ref2va.shard_tree import SHARD_PATTERN

FORMATS = {format.schema_id: format for format in Format}
_REFERENCE_FIELDS = tuple(field.name for field in fields(ReferenceGeometry))
_MOST = 1 << 40  # far more than any count, length or size of a shard
_SHOWN = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedRow:
    """One shard of one row.

    ``bytes`` is the file's size, ``sha256`` of its bytes; ``num_frames`` are pixels' frames at 24 fps, ``latent_frames`` and
    ``audio_latents`` the target's; ``text_tokens`` the presentation's; ``joint_length`` rows of the joint sequence.
    """

    path: str
    rows: int
    bucket: str
    bytes: int
    sha256: str
    id: str
    num_frames: int
    latent_frames: int
    text_tokens: int
    joint_length: int
    audio_latents: int
    references: tuple[ReferenceGeometry, ...]

    @property
    def place(self) -> Place:
        """Where a finding about this row is."""
        return Place(self.path, sample_id=self.id)

    @property
    def geometry(self) -> Geometry:
        """The canvas and frame count its bucket names."""
        return parse_bucket_name(self.bucket)

    def cropped_length(self, num_frames: int | None) -> int:
        """Rows of the joint sequence with the target cut to ``num_frames``; ``None`` leaves it whole."""
        if num_frames is None:
            return self.joint_length
        cropped = replace(self.geometry, num_frames=num_frames)
        return joint_sequence_length(self.text_tokens, self.references, cropped)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetIndex:
    """The rows of a dataset, sorted by path, all of one format."""

    format: Format
    rows: tuple[IndexedRow, ...]

    @property
    def buckets(self) -> tuple[tuple[str, int], ...]:
        """Names and row counts of the buckets, in the order of their rows."""
        return tuple((name, len(list(rows))) for name, rows in groupby(row.bucket for row in self.rows))

    @property
    def version(self) -> str:
        """A digest of the shards' names and bytes: the same wherever the dataset lies."""
        lines = (f"{row.path}\0{row.sha256}\n" for row in self.rows)
        return hashlib.sha256("".join(lines).encode()).hexdigest()[:VERSION_LENGTH]

    @property
    def lengths(self) -> list[int]:
        """Joint sequence length of every row."""
        return [row.joint_length for row in self.rows]


INDEX_TABLE = (
    Column("path", TEXT, "the shard, below the dataset's root", unique=True),
    Column("rows", INT, "rows it holds", "rows", ("1",)),
    Column("bucket", TEXT, "width, height and frames of its target, as a name"),
    Column("bytes", INT, "size of the file", "bytes", ("> 0",)),
    Column("sha256", TEXT, "SHA-256 of the file"),
    Column("id", TEXT, "the sample's name", unique=True),
    Column("num_frames", INT, "frames of the target at 24 fps", "frames", ("17 * n + 5",)),
    Column("latent_frames", INT, "latent frames of the target", "frames"),
    Column("text_tokens", INT, "tokens of the presentation", "tokens"),
    Column("joint_length", INT, "rows of the joint sequence", "rows"),
    Column("audio_latents", INT, "audio latents of the target, a channel"),
    Column("references", pa.list_(REFERENCE_TYPE), "latent geometry of each reference, in order"),
)
"""The columns of ``index.arrow``: one a field of :class:`IndexedRow`."""

_SCHEMA = plain_schema(INDEX_TABLE)


@functools.lru_cache(maxsize=4096)  # a dataset has few shapes, and many rows of each
def written_geometry(shape: tuple[int, ...]) -> Geometry:
    """The target's geometry by the shape [24, T, H/16, W/16] its latents were written in: the only source of a bucket.

    Raises:
        FormatError: no geometry gives that shape.
    """
    if len(shape) == 4 and shape[0] == VIDEO_CHANNELS:
        frames = frames_of_latents(shape[1])
        if frames is not None:
            width, height = shape[3] * SPATIAL_FACTOR, shape[2] * SPATIAL_FACTOR
            with suppress(ConfigError):
                return Geometry(width, height, frames)
    required = f"[{VIDEO_CHANNELS}, 5 * n + 2, H/16, W/16] of a valid geometry, H and W multiples of 32"
    raise _wrong_shape(f"vae_latent of shape {list(shape)}", required)


def indexed_row(path: str, size: int, sha256: str, format: Format, summary: dict[str, Any]) -> IndexedRow:
    """The index's row of a shard, from the summary in its footer.

    Raises:
        FormatError: the summary's tensors do not fit one another.
        KeyError, TypeError, ValueError: it is no summary.
    """
    shapes = {name: tuple(map(int, shape)) for name, shape in summary["shapes"].items()}
    geometry = written_geometry(shapes["vae_latent"])
    references = tuple(
        ReferenceGeometry(**dict(zip(_REFERENCE_FIELDS, values, strict=True))) for values in summary["references"]
    )
    required = {
        "audio_latent": (AUDIO_CHANNELS, AUDIO_ROW_WIDTH, target_audio_latents(geometry.num_frames)),
        VISUAL_ROWS[format]: (sum(reference.visual_rows for reference in references), VISUAL_ROW_WIDTH),
        AUDIO_ROWS[format]: (sum(reference.audio_rows for reference in references), AUDIO_ROW_WIDTH),
    }
    for name, shape in required.items():
        if shapes[name] != shape:
            raise _wrong_shape(f"{name} of shape {list(shapes[name])}", f"{list(shape)}")
    if summary["geometry"] != [geometry.width, geometry.height, geometry.num_frames]:
        written = bucket_name(geometry)
        said = bucket_name(Geometry(*summary["geometry"]))
        raise _wrong_shape(f"columns that say {said}", f"{written}, as the latents were written")
    tokens = shapes["text_embedding"][0]
    return IndexedRow(
        path=path,
        rows=1,
        bucket=bucket_name(geometry),
        bytes=size,
        sha256=sha256,
        id=str(summary["id"]),
        num_frames=geometry.num_frames,
        latent_frames=shapes["vae_latent"][1],
        text_tokens=tokens,
        joint_length=joint_sequence_length(tokens, references, geometry),
        audio_latents=shapes["audio_latent"][2],
        references=references,
    )


def write_index_file(path: Path, index: DatasetIndex) -> None:
    """Write ``index.arrow``; the same rows give the same bytes."""
    columns = {name: [getattr(row, name) for row in index.rows] for name in _SCHEMA.names if name != "references"}
    columns["references"] = [
        [dict(zip(_REFERENCE_FIELDS, astuple(reference), strict=True)) for reference in row.references]
        for row in index.rows
    ]
    table = pa.table(columns, schema=_SCHEMA.with_metadata({SCHEMA_KEY: index.format.schema_id.encode()}))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def read_index_file(path: Path) -> DatasetIndex:
    """What ``index.arrow`` holds.

    Raises:
        FormatError: it is damaged, or of another schema.
    """
    try:
        with pa.OSFile(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)
        names = table.schema.names
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: a name that is not UTF-8
        raise _index_error(path, f"it is not readable as Arrow ({error})") from error
    schema_id = (table.schema.metadata or {}).get(SCHEMA_KEY, b"").decode(errors="replace")
    if not table.schema.equals(_SCHEMA) or schema_id not in FORMATS:
        raise _index_error(path, f"columns {names} for schema {schema_id!r}")
    if wrong := _wrong_values(table):
        raise _index_error(path, wrong)
    rows = table.to_pylist()
    for row in rows:
        row["references"] = tuple(ReferenceGeometry(**reference) for reference in row["references"])
    return DatasetIndex(format=FORMATS[schema_id], rows=tuple(IndexedRow(**row) for row in rows))


def _wrong_values(table: pa.Table) -> str | None:
    """What no index written here holds: a null, a count below zero or out of all measure, a path that is no shard's."""
    references = table.column("references").combine_chunks()
    columns = {name: table.column(name) for name in table.schema.names}
    columns |= dict(
        zip((f"references.{name}" for name in _REFERENCE_FIELDS), references.flatten().flatten(), strict=True)
    )
    columns["an entry of references"] = references.flatten()
    if not table.num_rows:
        return "no row"
    for name, column in columns.items():
        if column.null_count:
            return f"a null in {name}"
        if pa.types.is_int64(column.type) and len(column):
            least, most = pc.min(column).as_py(), pc.max(column).as_py()
            if least < 0 or most > _MOST:
                return f"{name} from {least} to {most}"
    paths, buckets = (columns[name].to_pylist() for name in ("path", "bucket"))
    for path, bucket in zip(paths, buckets, strict=True):
        if not SHARD_PATTERN.fullmatch(path) or path.partition("/")[0] != bucket:
            return f"{path[:_SHOWN]!r} for a shard of {bucket[:_SHOWN]!r}"
    if any(earlier >= later for earlier, later in pairwise(paths)):
        return "paths out of order, or twice"
    return None


def _wrong_shape(found: str, required: str) -> FormatError:
    return FormatError(Finding(Code.TENSOR_SHAPE, None, found, required=required))


def _index_error(path: Path, found: str) -> FormatError:
    return FormatError(Finding(Code.INDEX_INVALID, path, found, root=path.parent.parent))
