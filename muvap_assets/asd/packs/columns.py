"""The columns of a pack's index: one a field of :class:`muvap_assets.asd.packs.layout.PackEntry`, in its order.

``index.arrow`` and the asset's page are both made from this table. Offsets count within the sample's shard.
"""

from __future__ import annotations

import pyarrow as pa

from muvap_assets.columns import Column

_NOT_NEGATIVE = (">= 0",)


def _offset(name: str, unit: str, array: str) -> Column:
    return Column(
        name=name,
        type=pa.int64(),
        unit=unit,
        description=f"where the sample begins in {array} of its shard",
        constraints=_NOT_NEGATIVE,
    )


def _crc(name: str, array: str) -> Column:
    return Column(name=name, type=pa.uint32(), description=f"CRC-32 (zlib) of the sample's bytes in {array}")


PACK_TABLE = (
    Column(name="shard", type=pa.int32(), description="number of the shard folder", constraints=_NOT_NEGATIVE),
    Column(name="dataset", type=pa.string(), description="corpus the sample is from"),
    Column(name="sample_id", type=pa.string(), description="stable, unique name of the face track", unique=True),
    Column(
        name="source_fps",
        type=pa.float64(),
        unit="Hz",
        description="native rate of faces and labels, rounded",
        constraints=("> 0",),
    ),
    Column(
        name="source_frames",
        type=pa.int64(),
        unit="frames",
        description="native frames, of faces and of labels",
        constraints=("> 0",),
    ),
    Column(name="start_sec", type=pa.float64(), unit="s", description="start on the recording, rounded"),
    Column(
        name="model_frames",
        type=pa.int64(),
        unit="frames",
        description="complete intervals at 25 Hz, at least one; for other readers",
        constraints=("> 0",),
    ),
    _offset("face_offset", "frames", "faces.npy"),
    _offset("audio_offset", "samples", "audio.npy"),
    Column(
        name="audio_samples",
        type=pa.int64(),
        unit="samples",
        description="samples at 16 kHz",
        constraints=("round(source_frames / source_fps * 16000)",),
    ),
    _offset("label_offset", "frames", "labels.npy"),
    Column(name="audio_mean", type=pa.float64(), unit="full scale", description="mean of the whole recording"),
    Column(
        name="audio_rms",
        type=pa.float64(),
        unit="full scale",
        description="root mean square of the whole recording about its mean",
    ),
    Column(
        name="audio_peak",
        type=pa.float64(),
        unit="full scale",
        description="largest distance of the whole recording from its mean",
    ),
    Column(
        name="speaking_ratio",
        type=pa.float64(),
        description="share of the frames labelled as speech",
        constraints=("0 to 1",),
    ),
    Column(name="recording_id", type=pa.string(), description="first 16 digits of the recording file's SHA-256"),
    Column(
        name="padded_samples",
        type=pa.int64(),
        unit="samples",
        description="silence at the end, past the recording's own end",
        constraints=_NOT_NEGATIVE,
    ),
    Column(
        name="clipped_samples",
        type=pa.int64(),
        unit="samples",
        description="samples that were beyond full scale",
        constraints=_NOT_NEGATIVE,
    ),
    Column(name="source_fps_exact", type=pa.string(), description="the native rate as given"),
    Column(name="start_sec_exact", type=pa.string(), description="the start on the recording as a fraction"),
    Column(name="labels_known", type=pa.bool_(), description="false where the labels are filler"),
    _crc("faces_crc32", "faces.npy"),
    _crc("audio_crc32", "audio.npy"),
    _crc("labels_crc32", "labels.npy"),
)
