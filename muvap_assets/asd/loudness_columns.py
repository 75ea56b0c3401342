"""The columns of the loudness index: one a field of :class:`muvap_assets.asd.loudness.LoudnessStats`, in its order."""

from __future__ import annotations

import pyarrow as pa

from muvap_assets.columns import BOOL, FLOAT, INT, TEXT, Column

LOUDNESS_TABLE = (
    Column("recording_id", TEXT, "first 16 digits of the recording file's SHA-256", unique=True),
    Column("audio_path", TEXT, "the recording as the manifest first names it, below the corpus root"),
    Column("sha256", TEXT, "SHA-256 of the recording file"),
    Column("duration_sec", FLOAT, "decoded frames over their native rate", "s"),
    Column("rate_hz", pa.int32(), "native sample rate", "Hz", ("> 0",)),
    Column("channels", pa.int32(), "native channels", constraints=("> 0",)),
    Column("samples_16k", INT, "length at 16 kHz", "samples", ("> 0",)),
    Column("mean", FLOAT, "mean, the DC offset", "full scale", ("-1 to 1",)),
    Column("rms", FLOAT, "root mean square about the mean", "full scale", ("0 to peak",)),
    Column("peak", FLOAT, "largest distance from the mean", "full scale"),
    Column("dbfs", FLOAT, "20 log10(rms); null where silent", "dBFS", nullable=True),
    Column("clipped_samples", INT, "samples at 16 kHz beyond full scale", "samples", (">= 0",)),
    Column("silent", BOOL, "whether the signal is constant to within one 16-bit step"),
)
"""The columns of ``loudness_index.parquet``."""
