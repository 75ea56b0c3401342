"""The columns of ``rows.json``, the list of rows that stand encoded: one a field of ``line.StandingRow``, in its order."""

from __future__ import annotations

import pyarrow as pa

from muvap_assets.columns import Column

STANDING_TABLE = (
    Column(name="id", type=pa.string(), description="the sample's name", unique=True),
    Column(
        name="row", type=pa.int64(), description="line or position of the source manifest, from 1", constraints=("> 0",)
    ),
    Column(name="key", type=pa.string(), description="digest of all the row is made from; its name in the row store"),
    Column(name="sha256", type=pa.string(), description="SHA-256 of the row's file"),
    Column(name="bucket", type=pa.string(), description="width, height and frames of its target, as a name"),
    Column(name="text_tokens", type=pa.int64(), description="tokens of the presentation", unit="tokens"),
    Column(name="sequence_length", type=pa.int64(), description="rows of the joint sequence", unit="rows"),
)
