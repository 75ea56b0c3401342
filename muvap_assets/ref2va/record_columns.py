"""The columns of an encoded row, in each format; the Arrow schemas and the assets' pages are both made from these tables.

A tensor takes three columns: ``<name>_bytes`` in C order and little-endian, ``<name>_shape`` and ``<name>_dtype``.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from muvap_assets.columns import FLOAT, INT, TEXT, Column
from muvap_assets.ref2va.contract import Format

# The reference rows of each format: one name for clean rows, one for noised ones, so that neither is taken for the other.
VISUAL_ROWS = {Format.PACKED: "ref_visual_rows", Format.SFT: "ref_visual_anchor"}
AUDIO_ROWS = {Format.PACKED: "ref_audio_rows", Format.SFT: "ref_audio_anchor"}
REFERENCE_TYPE = pa.struct(
    [
        pa.field("media_type", pa.string()),
        pa.field("has_audio", pa.bool_()),
        pa.field("num_latent_frames", pa.int64()),
        pa.field("latent_height", pa.int64()),
        pa.field("latent_width", pa.int64()),
        pa.field("num_audio_latents", pa.int64()),
    ]
)


def tensor_columns(name: str, description: str = "", shape: str = "") -> tuple[Column, Column, Column]:
    """The three columns of one tensor."""
    return (
        Column(f"{name}_bytes", pa.binary(), f"{description}, C order, little-endian"),
        Column(f"{name}_shape", pa.list_(pa.int64()), f"shape of {name}", constraints=(shape,) if shape else ()),
        Column(f"{name}_dtype", TEXT, f"dtype of {name}", constraints=("float32 as published",)),
    )


def _columns(format: Format) -> tuple[Column, ...]:
    noised = "noised to time 0.999" if format is Format.SFT else "clean"
    seed = Column("reference_noise_seed", INT, "seed the references' noise is drawn under")
    return (
        Column("id", TEXT, "the sample's name", unique=True),
        Column("schema_version", TEXT, "which of the two formats this is", constraints=(format.schema_id,)),
        *tensor_columns("vae_latent", "normalized latents of the target video", "[24, T, H/16, W/16]"),
        *tensor_columns("audio_latent", "normalized latents of the target's sound, a channel each", "[2, 32, T_audio]"),
        *tensor_columns("text_embedding", "state of the conditioner after layer 50", "[tokens, width]"),
        Column(
            "text_token_tags",
            pa.list_(pa.int64()),
            "one a presentation token: 0 vision, 1 text",
            constraints=("0 or 1",),
        ),
        *tensor_columns(VISUAL_ROWS[format], f"visual rows of all references, {noised}", "[N, 96]"),
        *tensor_columns(AUDIO_ROWS[format], "audio rows of all references, clean", "[M, 32]"),
        Column("references", pa.list_(REFERENCE_TYPE), "latent geometry of each reference, in order"),
        *((seed,) if format is Format.PACKED else ()),
        Column("file_name", TEXT, "name of the target video's file"),
        Column("caption", TEXT, "text the target was made for"),
        Column("media_type", TEXT, "what the target is", constraints=("video_with_audio",)),
        Column("width", INT, "canvas width", "px", ("multiple of 32",)),
        Column("height", INT, "canvas height", "px", ("multiple of 32",)),
        Column("num_frames", INT, "frames of the target at 24 fps", "frames", ("17 * n + 5",)),
        Column("duration_sec", FLOAT, "num_frames / 24", "s"),
        Column("fps", FLOAT, "rate of the target", "Hz", ("24",)),
        Column("audio_sample_rate", INT, "rate of the target's sound", "Hz", ("32000",)),
    )


RECORD_TABLES: Mapping[Format, tuple[Column, ...]] = {format: _columns(format) for format in Format}
"""The columns of a row's file, by format."""
