"""A validated manifest as files, writer and reader side by side.

    manifest.parquet   one row a parsed row: the sample as written, what was counted, what will be encoded
    violations.jsonl   every finding, refused rows and warnings
    report.json        totals, buckets, options; states whether token counts are missing (``partial``)

Paths are relative to the manifest's folder unless they lead out of it and were given absolute, so the files can move.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from muvap_assets.codes import Code
from muvap_assets.columns import BOOL, FLOAT, INT, TEXT, Column, plain_schema
from muvap_assets.errors import FormatError
from muvap_assets.findings import Finding, count_by_code
from muvap_assets.options import NOT_CONTENT
from muvap_assets.publish import read_findings, write_findings, write_json
from muvap_assets.readback import reading, require_plain
from muvap_assets.ref2va.contract import Geometry, RawSample, Reference, ReferenceKind
from muvap_assets.ref2va.geometry import required_audio_samples
from muvap_assets.ref2va.manifest import ManifestReport, RowReport

MANIFEST_NAME, FINDINGS_NAME, REPORT_NAME = "manifest.parquet", "violations.jsonl", "report.json"
MANIFEST_FORMAT = "muvap_ref2va_manifest_v1"
MEDIA_COLUMN = "media_sha256"


def _list(of: pa.DataType) -> pa.DataType:
    """A list as Parquet reads it back, so that schemas compare equal."""
    return pa.list_(pa.field("element", of))


_REFERENCE = pa.struct(
    [
        ("type", pa.string()),
        ("image", pa.string()),
        ("video", pa.string()),
        ("audio", pa.string()),
        ("fps", pa.string()),  # exact, as a ratio
        ("sample_rate_hz", pa.int64()),
    ]
)
_GEOMETRY = pa.struct([("width", pa.int64()), ("height", pa.int64()), ("num_frames", pa.int64())])
_LATENTS = pa.struct(
    [
        ("media_type", pa.string()),
        ("has_audio", pa.bool_()),
        ("num_latent_frames", pa.int64()),
        ("latent_height", pa.int64()),
        ("latent_width", pa.int64()),
        ("num_audio_latents", pa.int64()),
    ]
)


def _count(name: str, description: str, unit: str = "", constraint: str = ">= 0", nullable: bool = True) -> Column:
    limits = (constraint,) if constraint else ()
    return Column(name, INT, description, unit, limits, nullable=nullable)


MANIFEST_TABLE = (
    _count("row", "line or position of the source manifest, from 1", constraint="> 0", nullable=False),
    Column("id", TEXT, "the sample's name"),
    Column("admitted", BOOL, "whether the row will be encoded"),
    Column("target_video", TEXT, "target video, as the source manifest has it"),
    Column("caption", TEXT, "text the target was made for"),
    Column("references", _list(_REFERENCE), "references in their order, as written"),
    Column("target_geometry", _GEOMETRY, "canvas and frames the row asks for itself", nullable=True),
    Column(
        "geometry",
        _GEOMETRY,
        "canvas in pixels and frames at 24 fps, as the row will be encoded",
        constraints=("sides multiples of 32, num_frames 17 * n + 5",),
        nullable=True,
    ),
    Column("bucket", TEXT, "the geometry's name", nullable=True),
    _count("source_frames", "frames of the target video that decode", "frames"),
    Column("source_fps", TEXT, "its declared rate, exactly", "Hz", nullable=True),
    _count("source_width", "its width as displayed", "px"),
    _count("source_height", "its height as displayed", "px"),
    _count("source_quarter_turns", "quarter turns its container asks for", constraint="0 to 3"),
    Column("source_duration_sec", FLOAT, "its duration", "s", nullable=True),
    _count("frames_at_24", "frames it fills at 24 fps", "frames"),
    _count("longest_valid_frames", "the longest 17 * n + 5 of these", "frames"),
    Column("audio_present", BOOL, "whether it has sound"),
    _count("audio_rate_hz", "native rate of its sound", "Hz", "> 0"),
    _count("audio_channels", "native channels of its sound", constraint="> 0"),
    Column("audio_offset_sec", FLOAT, "how much later than the first frame its sound starts", "s", nullable=True),
    _count("audio_samples", "its samples at 32 kHz, from the first frame on", "samples"),
    _count("audio_samples_required", "samples at 32 kHz that its geometry needs", "samples"),
    Column("reference_latents", _list(_LATENTS), "latent geometry of each reference", nullable=True),
    _count("presentation_tokens", "tokens the conditioner is shown", "tokens"),
    Column("reference_tokens", _list(pa.int64()), "of these, the tokens of each reference", "tokens", nullable=True),
    _count("sequence_length", "rows of the joint sequence", "rows"),
    _count("capacity", "the sequence length padded to a multiple of 256", "rows", "multiple of 256"),
    _count("estimated_bytes", "about what the row's tensors take on disk", "bytes"),
    _count("vae_pixels", "pixels the video VAE encodes", "px"),
    Column(MEDIA_COLUMN, _list(pa.string()), "SHA-256 of each file it names, sorted, as far as they could be read"),
)
"""The columns of ``manifest.parquet``."""

STREAM_COLUMN = Column(
    name="target_audio_stream", type=pa.string(), description="audio stream, by number or language", nullable=True
)
"""A further column, where a row chooses an audio stream; its references then have ``audio_stream`` as well."""

SCHEMA = plain_schema(MANIFEST_TABLE, {b"format": MANIFEST_FORMAT.encode()})


def _with_streams(schema: pa.Schema = SCHEMA) -> pa.Schema:
    reference = pa.struct([*_REFERENCE, ("audio_stream", pa.string())])
    place = schema.get_field_index("references")
    schema = schema.set(place, pa.field("references", _list(reference)))
    return schema.append(pa.field(STREAM_COLUMN.name, STREAM_COLUMN.type))


def _known_schemas() -> tuple[pa.Schema, ...]:
    """With and without a chosen stream, and those of earlier releases, which did not write down the media's digests."""
    earlier = SCHEMA.remove(SCHEMA.get_field_index(MEDIA_COLUMN))
    return SCHEMA, _with_streams(), earlier, _with_streams(earlier)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFiles:
    """A written manifest, read back. ``samples`` are the admitted rows; ``table`` has every column of every row."""

    samples: tuple[RawSample, ...]
    table: pa.Table
    findings: tuple[Finding, ...]
    report: Mapping[str, Any]


def write_manifest(folder: Path, report: ManifestReport) -> None:
    """Write the three files into an existing folder."""
    admitted = {row.sample.row for row in report.admitted}
    records = [_to_record(row, row.sample.row in admitted) for row in report.rows]
    samples = [row.sample for row in report.rows]
    chosen = any(s.audio_stream or any(reference.audio_stream for reference in s.references) for s in samples)
    table = pa.Table.from_pylist(records, schema=_with_streams() if chosen else SCHEMA)
    pq.write_table(table, folder / MANIFEST_NAME, compression="zstd")
    write_findings(folder / FINDINGS_NAME, report.findings)
    write_json(folder / REPORT_NAME, report_values(report))


def read_manifest(folder: Path) -> ManifestFiles:
    """The inverse of :func:`write_manifest`.

    Raises:
        FormatError: a file is missing or is not what it should be.
    """
    require_plain(folder)
    with reading(folder / MANIFEST_NAME):
        table = pq.read_table(folder / MANIFEST_NAME)
    with reading(folder / FINDINGS_NAME):
        findings = tuple(read_findings(folder / FINDINGS_NAME))
    with reading(folder / REPORT_NAME):
        report = dict(json.loads((folder / REPORT_NAME).read_text(encoding="utf-8")))
    if not any(table.schema.equals(schema, check_metadata=True) for schema in _known_schemas()):
        found = f"columns that are not those of {MANIFEST_FORMAT}"
        raise FormatError(Finding(Code.ARTIFACT_INVALID, folder / MANIFEST_NAME, found, case="columns"))
    with reading(folder / MANIFEST_NAME):
        samples = tuple(_from_record(record) for record in table.to_pylist() if record["admitted"])
    return ManifestFiles(samples=samples, table=table, findings=findings, report=report)


def report_values(report: ManifestReport) -> dict[str, Any]:
    """The report as plain JSON values. Names no path of a machine and no time."""
    options = report.options
    return {
        "format": MANIFEST_FORMAT,
        "manifest": report.manifest.path.name,
        "manifest_sha256": report.manifest.sha256,
        "partial": report.is_partial,
        "valid": report.is_valid,
        "rows_total": report.rows_total,
        "rows_admitted": len(report.admitted),
        "rows_refused": report.rows_total - len(report.admitted),
        "violations": count_by_code(report.findings),
        "buckets": [asdict(bucket) for bucket in report.buckets],
        "estimated_bytes": sum(row.estimated_bytes for row in report.admitted),
        "vae_pixels": sum(row.vae_pixels for row in report.admitted),
        "audio_samples": sum(row.audio_samples for row in report.admitted),
        "presentation_tokens": sum(row.tokens.total for row in report.admitted if row.tokens),
        "options": {
            name: value
            for name, value in {**asdict(options), "format": str(options.format)}.items()
            if name not in NOT_CONTENT
        },
    }


def _to_record(row: RowReport, admitted: bool) -> dict[str, Any]:
    sample, plan = row.sample, row.plan
    return {
        "row": sample.row,
        "id": sample.id,
        "admitted": admitted,
        "target_video": sample.target_video.as_posix(),
        STREAM_COLUMN.name: sample.audio_stream,
        "caption": sample.caption,
        "references": [_reference_record(reference) for reference in sample.references],
        "target_geometry": None if sample.geometry is None else asdict(sample.geometry),
        "geometry": None if plan is None else asdict(plan.geometry),
        "bucket": row.bucket,
        "audio_samples_required": None if plan is None else required_audio_samples(plan.geometry.num_frames),
        "reference_latents": None if plan is None else [asdict(reference.geometry) for reference in plan.references],
        "presentation_tokens": None if row.tokens is None else row.tokens.total,
        "reference_tokens": None if row.tokens is None else list(row.tokens.reference_tokens),
        "sequence_length": row.sequence_length,
        "capacity": row.capacity,
        "estimated_bytes": row.estimated_bytes,
        "vae_pixels": row.vae_pixels,
        MEDIA_COLUMN: list(row.media),
        **_target_record(row),
    }


def _target_record(row: RowReport) -> dict[str, Any]:
    video, sound = row.target.video, row.target.sound
    record: dict[str, Any] = {"audio_present": sound is not None, "audio_samples": row.target.audio_samples}
    if video is not None:
        record |= {
            "source_frames": video.frames,
            "source_fps": None if video.rate is None else str(video.rate),
            "source_width": video.width,
            "source_height": video.height,
            "source_quarter_turns": video.quarter_turns,
            "source_duration_sec": float(video.duration_sec),
            "frames_at_24": row.target.frames_at_24,
            "longest_valid_frames": row.target.longest_valid_frames,
        }
    if sound is not None:
        record |= {"audio_rate_hz": sound.rate_hz, "audio_channels": sound.channels}
    if sound is not None and video is not None:
        record["audio_offset_sec"] = float(sound.first_sec - video.first_sec)
    return record


def _reference_record(reference: Reference) -> dict[str, Any]:
    paths = {name: getattr(reference, name) for name in ("image", "video", "audio")}
    return {
        "type": str(reference.kind),
        **{name: None if path is None else path.as_posix() for name, path in paths.items()},
        "fps": None if reference.fps is None else str(reference.fps),
        "sample_rate_hz": reference.sample_rate_hz,
        "audio_stream": reference.audio_stream,
    }


def _from_record(record: Mapping[str, Any]) -> RawSample:
    geometry = record["target_geometry"]
    return RawSample(
        id=record["id"],
        row=record["row"],
        target_video=Path(record["target_video"]),
        caption=record["caption"],
        references=tuple(_from_reference_record(reference) for reference in record["references"]),
        geometry=None if geometry is None else Geometry(**geometry),
        audio_stream=record.get(STREAM_COLUMN.name),
    )


def _from_reference_record(record: Mapping[str, Any]) -> Reference:
    paths = {name: None if record[name] is None else Path(record[name]) for name in ("image", "video", "audio")}
    return Reference(
        kind=ReferenceKind(record["type"]),
        **paths,
        fps=None if record["fps"] is None else Fraction(record["fps"]),
        sample_rate_hz=record["sample_rate_hz"],
        audio_stream=record.get("audio_stream"),
    )
