"""What is in a pack, in numbers, from its index alone: no array is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from muvap_assets.asd.contract import AUDIO_RATE_HZ
from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.asd.packs.set_aside import read_set_aside


@dataclass(frozen=True, slots=True, kw_only=True)
class PackSummary:
    """The numbers of a pack.

    ``frame_rates`` counts samples by frame rate as given, the most frequent first. ``speaking_share`` is over the frames
    whose labels are known, ``None`` where none are. ``padded_samples`` and ``clipped_samples`` are audio samples;
    ``padded_clips`` and ``clipped_clips`` how many clips have any. ``rejected`` are tracks of the manifest that were left
    out because their pictures do not decode; ``violations.jsonl`` of the pack lists them.
    """

    samples: int
    rejected: int
    frames: int
    audio_samples: int
    hours: float
    size_bytes: int
    shards: int
    recordings: int
    face_shape: tuple[int, int]
    frame_rates: Mapping[str, int]
    speaking_share: float | None
    padded_samples: int
    padded_clips: int
    clipped_samples: int
    clipped_clips: int
    provenance: Mapping[str, Any]


def summarize_pack(folder: Path) -> PackSummary:
    """Count what is in a pack.

    Raises:
        FormatError: it is not a pack that can be opened.
    """
    reader = PackReader(folder)
    frames, padded, clipped = (reader.column(name) for name in ("source_frames", "padded_samples", "clipped_samples"))
    audio_samples = int(reader.column("audio_samples").sum())
    known = reader.column("labels_known").astype(bool)
    known_frames = int(frames[known].sum())
    speaking = float(np.rint(reader.column("speaking_ratio")[known] * frames[known]).sum())
    rates = pc.value_counts(reader.text_column("source_fps_exact")).to_pylist()
    return PackSummary(
        samples=len(reader),
        rejected=len(read_set_aside(reader.path)),
        frames=int(frames.sum()),
        audio_samples=audio_samples,
        hours=audio_samples / AUDIO_RATE_HZ / 3600,
        size_bytes=sum(path.stat().st_size for path in reader.path.rglob("*") if path.is_file()),
        shards=reader.header.shards,
        recordings=int(pc.count_distinct(reader.text_column("recording_id")).as_py()),
        face_shape=reader.header.face_shape,
        frame_rates={rate["values"]: rate["counts"] for rate in sorted(rates, key=lambda rate: -rate["counts"])},
        speaking_share=speaking / known_frames if known_frames else None,
        padded_samples=int(padded.sum()),
        padded_clips=int(np.count_nonzero(padded)),
        clipped_samples=int(clipped.sum()),
        clipped_clips=int(np.count_nonzero(clipped)),
        provenance=reader.header.provenance,
    )
