"""The manifest artifact on disk: its schema, its writer and its reader, side by side.

``manifest.parquet``  accepted rows, typed; paths as written, absolute or relative to the corpus root
``manifest.tsv``      the same rows in the canonical form, its paths relative to where it lies
``violations.jsonl``  every finding, errors and warnings
``provenance.json``   inputs, parameters and counts
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from muvap_assets.asd.contract import BOX_COLUMNS, MANIFEST_COLUMNS, Clip, TrackBoxes, VisualKind
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.columns import BOOL, FLOAT, INT, TEXT, Column, described_field
from muvap_assets.readback import reading

MANIFEST_FILE = "manifest.parquet"
TSV_FILE = "manifest.tsv"
FINDINGS_FILE = "violations.jsonl"
PROVENANCE_FILE = "provenance.json"
LOCATION_DEPENDENT = (TSV_FILE,)


MANIFEST_TABLE = (
    Column("row", INT, "line of the source manifest", constraints=("> 0",), unique=True),
    Column("dataset", TEXT, "corpus name inside packs"),
    Column("sample_id", TEXT, "stable, unique name of the face track", unique=True),
    Column("recording_id", TEXT, "first 16 digits of the recording file's SHA-256"),
    Column("audio_path", TEXT, "recording; absolute, or relative to the corpus root"),
    Column("audio_sample_rate", pa.int32(), "rate of a .npy waveform", "Hz", nullable=True),
    Column("visual_path", TEXT, "faces; absolute, or relative to the corpus root"),
    Column("visual_kind", TEXT, "npy, jpeg_directory or video_boxes", constraints=(f"one of {', '.join(VisualKind)}",)),
    Column("boxes_path", TEXT, "face boxes of a video; as visual_path", nullable=True),
    Column("face_id", INT, "whose boxes", nullable=True),
    Column("first_frame", INT, "frame of the video the clip starts at, from 0", constraints=(">= 0",), nullable=True),
    Column("face_height", pa.int32(), "rows of a face", "px", ("> 0",)),
    Column("face_width", pa.int32(), "columns of a face", "px", ("> 0",)),
    Column("source_fps", FLOAT, "native rate of faces and labels, rounded", "Hz", ("> 0",)),
    Column("source_fps_exact", TEXT, "the same as given"),
    Column("source_frames", INT, "faces found in the media", "frames", ("as many as labels",)),
    Column(
        "labels",
        pa.large_list(pa.field("item", pa.uint8(), False)),
        "1 where the face speaks, one a native frame",
        constraints=("0 or 1",),
    ),
    Column("labels_known", BOOL, "false where the source holds filler"),
    Column("video_id", TEXT, "video the clip was cut from, where the corpus names it", nullable=True),
    Column("faces_fingerprint", TEXT, "the same for the same face files", nullable=True),
    Column("start_sec", FLOAT, "start on the recording, rounded", "s", (">= 0",)),
    Column("start_sec_exact", TEXT, "the same as a fraction"),
    Column("recording_samples", INT, "length of the recording at 16 kHz", "samples"),
    Column("audio_samples", INT, "samples at 16 kHz the faces cover", "samples"),
    Column("padded_samples", INT, "of these, past the recording's end", "samples"),
    Column("license", TEXT, "as given", nullable=True),
    Column("consent", TEXT, "as given", nullable=True),
)
"""The columns of ``manifest.parquet``."""

CHOICE_TABLE = (
    Column(name="audio_stream", type=pa.string(), description="audio stream, by number or language", nullable=True),
    Column(name="audio_channel", type=pa.int32(), description="channel of it, from 0", nullable=True),
)
"""Further columns, where a row chooses what of its recording's file is meant: manifests without such rows have none."""

_METADATA = {"muvap_format": "muvap-asd-manifest", "muvap_version": "1"}
MANIFEST_SCHEMA = pa.schema([described_field(column) for column in MANIFEST_TABLE], metadata=_METADATA)


def write_rows(path: Path, clips: Sequence[Clip]) -> None:
    """Write accepted rows as Parquet."""
    pq.write_table(_table(clips), path, compression="zstd")


def _table(clips: Sequence[Clip]) -> pa.Table:
    offsets = np.concatenate([[0], np.cumsum([clip.source_frames for clip in clips], dtype=np.int64)])
    labels = np.concatenate([clip.labels for clip in clips]) if clips else np.empty(0, np.uint8)
    special = {
        "labels": pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(labels)).cast(
            MANIFEST_SCHEMA.field("labels").type
        ),
        "visual_kind": pa.array([str(clip.visual_kind) for clip in clips], pa.string()),
        "boxes_path": pa.array([clip.boxes and clip.boxes.boxes_path for clip in clips], pa.string()),
        "face_id": pa.array([clip.boxes and clip.boxes.face_id for clip in clips], pa.int64()),
        "first_frame": pa.array([clip.boxes and clip.boxes.first_frame for clip in clips], pa.int64()),
        "source_fps": pa.array([float(clip.source_fps) for clip in clips], pa.float64()),
        "source_fps_exact": pa.array([clip.source_fps.text for clip in clips], pa.string()),
        "start_sec": pa.array([float(clip.start_sec) for clip in clips], pa.float64()),
        "start_sec_exact": pa.array([str(clip.start_sec) for clip in clips], pa.string()),
    }
    chosen = [described_field(column) for column in CHOICE_TABLE] if _chosen(clips) else []
    schema = pa.schema([*MANIFEST_SCHEMA, *chosen], metadata=_METADATA)
    columns = [
        special[field.name]
        if field.name in special
        else pa.array([getattr(clip, field.name) for clip in clips], field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _chosen(clips: Sequence[Clip]) -> list[str]:
    """The columns of :data:`CHOICE_TABLE` that some clip fills."""
    names = [column.name for column in CHOICE_TABLE]
    return [name for name in names if any(getattr(clip, name) is not None for clip in clips)]


def read_manifest(folder: Path) -> list[Clip]:
    """The accepted rows of a manifest artifact, in manifest order.

    Raises:
        FormatError: the file is missing or damaged.
    """
    with reading(folder / MANIFEST_FILE):
        return _read_clips(folder / MANIFEST_FILE)


def _read_clips(path: Path) -> list[Clip]:
    table = pq.read_table(path, memory_map=False).combine_chunks()
    labels = table.column("labels").combine_chunks()
    offsets, values = labels.offsets.to_numpy(), labels.values.to_numpy(zero_copy_only=False)
    clips = []
    for i, record in enumerate(table.drop_columns(["labels"]).to_pylist()):
        clips.append(
            Clip(
                labels=values[offsets[i] : offsets[i + 1]],
                source_fps=FrameRate.parse(record["source_fps_exact"]),
                start_sec=Fraction(record["start_sec_exact"]),
                visual_kind=VisualKind(record["visual_kind"]),
                boxes=TrackBoxes(*(record[name] for name in BOX_COLUMNS)) if record["boxes_path"] else None,
                **{name: record[name] for name in _PLAIN_FIELDS},
                **{column.name: record.get(column.name) for column in CHOICE_TABLE},
            )
        )
    return clips


_PLAIN_FIELDS = (
    *("row", "dataset", "sample_id", "audio_path", "visual_path", "audio_sample_rate", "recording_id"),
    *(
        "recording_samples",
        "face_height",
        "face_width",
        "labels_known",
        "video_id",
        "faces_fingerprint",
        "license",
        "consent",
    ),
)


def read_notes(folder: Path) -> dict[str, Any]:
    """What the manifest's reader noted about the corpus; nothing for a canonical TSV.

    Raises:
        FormatError: the file is missing or damaged.
    """
    with reading(folder / PROVENANCE_FILE):
        provenance = json.loads((folder / PROVENANCE_FILE).read_text(encoding="utf-8"))
        return dict(provenance.get("corpus", {}))


def read_row_count(folder: Path) -> int:
    """How many rows the source of a manifest has, accepted or not.

    Raises:
        FormatError: the file is missing or damaged.
    """
    with reading(folder / PROVENANCE_FILE):
        return int(json.loads((folder / PROVENANCE_FILE).read_text(encoding="utf-8"))["rows"])


def write_tsv(path: Path, clips: Sequence[Clip], root: Path, published: Path) -> None:
    """Write accepted rows in the canonical form; relative paths lead from ``published`` to the media below ``root``."""
    optional = [name for name in ("license", "consent", "video_id") if any(getattr(clip, name) for clip in clips)]
    # Filler must not become truth where the file is read again.
    unknown = ["labels_known"] if any(not clip.labels_known for clip in clips) else []
    boxed, chosen = any(clip.boxes for clip in clips), _chosen(clips)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
        writer.writerow(
            [
                *MANIFEST_COLUMNS,
                "start_sec",
                "visual_kind",
                "audio_sample_rate",
                *chosen,
                *(BOX_COLUMNS if boxed else ()),
                *optional,
                *unknown,
            ]
        )
        for clip in clips:
            writer.writerow(
                [
                    clip.sample_id,
                    _relative(clip.audio_path, root, published),
                    _relative(clip.visual_path, root, published),
                    clip.source_fps.text,
                    f"[{','.join(map(str, clip.labels.tolist()))}]",
                    _exact(clip.start_sec),
                    str(clip.visual_kind),
                    clip.audio_sample_rate or "",
                    *("" if getattr(clip, name) is None else getattr(clip, name) for name in chosen),
                    *(_box_fields(clip, root, published) if boxed else ()),
                    *(getattr(clip, name) or "" for name in optional),
                    *(str(clip.labels_known).lower() for _ in unknown),
                ]
            )


def _relative(path: str, root: Path, published: Path) -> str:
    return path if os.path.isabs(path) else Path(os.path.relpath(root / path, published)).as_posix()  # noqa: PTH117


def _box_fields(clip: Clip, root: Path, published: Path) -> tuple[str | int, ...]:
    if clip.boxes is None:
        return "", "", ""
    return _relative(clip.boxes.boxes_path, root, published), clip.boxes.face_id, clip.boxes.first_frame


def _exact(value: Fraction) -> str:
    """A decimal where that is exact, else a fraction: frames of a video seldom start at a decimal."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    digits = 0
    while (value * 10**digits).denominator != 1:
        digits += 1
    scaled = str(int(value * 10**digits)).rjust(digits + 1, "0")
    return f"{scaled[:-digits]}.{scaled[-digits:]}" if digits else scaled
