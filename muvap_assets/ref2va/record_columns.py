"""The columns of an encoded row, in each format; the Arrow schemas and the assets' pages are both made from these tables.

A tensor takes three columns: ``<name>_bytes`` in C order and little-endian, ``<name>_shape`` and ``<name>_dtype``.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from muvap_assets.columns import Column
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
        Column(name=f"{name}_bytes", type=pa.binary(), description=f"{description}, C order, little-endian"),
        Column(
            name=f"{name}_shape",
            type=pa.list_(pa.int64()),
            description=f"shape of {name}",
            constraints=(shape,) if shape else (),
        ),
        Column(
            name=f"{name}_dtype",
            type=pa.string(),
            description=f"dtype of {name}",
            constraints=("float32 as published",),
        ),
    )


def _columns(format: Format) -> tuple[Column, ...]:
    noised = "noised to time 0.999" if format is Format.SFT else "clean"
    seed = Column(name="reference_noise_seed", type=pa.int64(), description="seed the references' noise is drawn under")
    return (
        Column(name="id", type=pa.string(), description="the sample's name", unique=True),
        Column(
            name="schema_version",
            type=pa.string(),
            description="which of the two formats this is",
            constraints=(format.schema_id,),
        ),
        *tensor_columns("vae_latent", "normalized latents of the target video", "[24, T, H/16, W/16]"),
        *tensor_columns("audio_latent", "normalized latents of the target's sound, a channel each", "[2, 32, T_audio]"),
        *tensor_columns("text_embedding", "state of the conditioner after layer 50", "[tokens, width]"),
        Column(
            name="text_token_tags",
            type=pa.list_(pa.int64()),
            description="one a presentation token: 0 vision, 1 text",
            constraints=("0 or 1",),
        ),
        *tensor_columns(VISUAL_ROWS[format], f"visual rows of all references, {noised}", "[N, 96]"),
        *tensor_columns(AUDIO_ROWS[format], "audio rows of all references, clean", "[M, 32]"),
        Column(
            name="references", type=pa.list_(REFERENCE_TYPE), description="latent geometry of each reference, in order"
        ),
        *((seed,) if format is Format.PACKED else ()),
        Column(name="file_name", type=pa.string(), description="name of the target video's file"),
        Column(name="caption", type=pa.string(), description="text the target was made for"),
        Column(
            name="media_type", type=pa.string(), description="what the target is", constraints=("video_with_audio",)
        ),
        Column(name="width", type=pa.int64(), description="canvas width", unit="px", constraints=("multiple of 32",)),
        Column(name="height", type=pa.int64(), description="canvas height", unit="px", constraints=("multiple of 32",)),
        Column(
            name="num_frames",
            type=pa.int64(),
            description="frames of the target at 24 fps",
            unit="frames",
            constraints=("17 * n + 5",),
        ),
        Column(name="duration_sec", type=pa.float64(), description="num_frames / 24", unit="s"),
        Column(name="fps", type=pa.float64(), description="rate of the target", unit="Hz", constraints=("24",)),
        Column(
            name="audio_sample_rate",
            type=pa.int64(),
            description="rate of the target's sound",
            unit="Hz",
            constraints=("32000",),
        ),
    )


RECORD_TABLES: Mapping[Format, tuple[Column, ...]] = {format: _columns(format) for format in Format}
"""The columns of a row's file, by format."""
