"""The columns of a pack's index: one a field of :class:`muvap_assets.asd.packs.layout.PackEntry`, in its order.

``index.arrow`` and the asset's page are both made from this table. Offsets count within the sample's shard.
"""

from __future__ import annotations

import pyarrow as pa

from muvap_assets.columns import BOOL, FLOAT, INT, TEXT, Column

_NOT_NEGATIVE = (">= 0",)


def _offset(name: str, unit: str, array: str) -> Column:
    return Column(name, INT, f"where the sample begins in {array} of its shard", unit, _NOT_NEGATIVE)


def _crc(name: str, array: str) -> Column:
    return Column(name, pa.uint32(), f"CRC-32 (zlib) of the sample's bytes in {array}")


PACK_TABLE = (
    Column("shard", pa.int32(), "number of the shard folder", constraints=_NOT_NEGATIVE),
    Column("dataset", TEXT, "corpus the sample is from"),
    Column("sample_id", TEXT, "stable, unique name of the face track", unique=True),
    Column("source_fps", FLOAT, "native rate of faces and labels, rounded", "Hz", ("> 0",)),
    Column("source_frames", INT, "native frames, of faces and of labels", "frames", ("> 0",)),
    Column("start_sec", FLOAT, "start on the recording, rounded", "s"),
    Column("model_frames", INT, "complete intervals at 25 Hz, at least one; for other readers", "frames", ("> 0",)),
    _offset("face_offset", "frames", "faces.npy"),
    _offset("audio_offset", "samples", "audio.npy"),
    Column("audio_samples", INT, "samples at 16 kHz", "samples", ("round(source_frames / source_fps * 16000)",)),
    _offset("label_offset", "frames", "labels.npy"),
    Column("audio_mean", FLOAT, "mean of the whole recording", "full scale"),
    Column("audio_rms", FLOAT, "root mean square of the whole recording about its mean", "full scale"),
    Column("audio_peak", FLOAT, "largest distance of the whole recording from its mean", "full scale"),
    Column("speaking_ratio", FLOAT, "share of the frames labelled as speech", constraints=("0 to 1",)),
    Column("recording_id", TEXT, "first 16 digits of the recording file's SHA-256"),
    Column("padded_samples", INT, "silence at the end, past the recording's own end", "samples", _NOT_NEGATIVE),
    Column("clipped_samples", INT, "samples that were beyond full scale", "samples", _NOT_NEGATIVE),
    Column("source_fps_exact", TEXT, "the native rate as given"),
    Column("start_sec_exact", TEXT, "the start on the recording as a fraction"),
    Column("labels_known", BOOL, "false where the labels are filler"),
    _crc("faces_crc32", "faces.npy"),
    _crc("audio_crc32", "audio.npy"),
    _crc("labels_crc32", "labels.npy"),
)
