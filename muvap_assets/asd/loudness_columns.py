"""The columns of the loudness index: one a field of :class:`muvap_assets.asd.loudness.LoudnessStats`, in its order."""

from __future__ import annotations

import pyarrow as pa

from muvap_assets.columns import Column

LOUDNESS_TABLE = (
    Column(
        name="recording_id",
        type=pa.string(),
        description="first 16 digits of the recording file's SHA-256",
        unique=True,
    ),
    Column(
        name="audio_path",
        type=pa.string(),
        description="the recording as the manifest first names it, below the corpus root",
    ),
    Column(name="sha256", type=pa.string(), description="SHA-256 of the recording file"),
    Column(name="duration_sec", type=pa.float64(), unit="s", description="decoded frames over their native rate"),
    Column(name="rate_hz", type=pa.int32(), unit="Hz", description="native sample rate", constraints=("> 0",)),
    Column(name="channels", type=pa.int32(), description="native channels", constraints=("> 0",)),
    Column(name="samples_16k", type=pa.int64(), unit="samples", description="length at 16 kHz", constraints=("> 0",)),
    Column(
        name="mean",
        type=pa.float64(),
        unit="full scale",
        description="mean, the DC offset",
        constraints=("-1 to 1",),
    ),
    Column(
        name="rms",
        type=pa.float64(),
        unit="full scale",
        description="root mean square about the mean",
        constraints=("0 to peak",),
    ),
    Column(name="peak", type=pa.float64(), unit="full scale", description="largest distance from the mean"),
    Column(name="dbfs", type=pa.float64(), unit="dBFS", description="20 log10(rms); null where silent", nullable=True),
    Column(
        name="clipped_samples",
        type=pa.int64(),
        unit="samples",
        description="samples at 16 kHz beyond full scale",
        constraints=(">= 0",),
    ),
    Column(
        name="silent",
        type=pa.bool_(),
        description="whether the signal is constant to within one 16-bit step",
    ),
)
"""The columns of ``loudness_index.parquet``."""
