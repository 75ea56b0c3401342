"""The writer that ours is measured against, written as the field writes it: one track after another, a shard held in lists.

It reads the same files and writes the same faces, labels and audio (each measurement compares them).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from benchmarks.asd_corpus import read_manifest_rows

SIZE, RATE_HZ = (112, 112), 16_000


def write(manifest: str, out: str, shard_bytes: str) -> int:
    """Pack a canonical TSV of JPEG folders; returns the frames written."""
    root, folder, limit = Path(manifest).parent, Path(out), int(shard_bytes)
    held: list[dict[str, Any]] = []
    shards = frames = size = 0
    for row in read_manifest_rows(Path(manifest)):
        track = read_track(root, row)
        if held and size + track["faces"].nbytes > limit:
            write_shard(folder / f"shard-{shards:06d}", held)
            held, size, shards = [], 0, shards + 1
        held.append(track)
        size += track["faces"].nbytes
        frames += len(track["faces"])
    write_shard(folder / f"shard-{shards:06d}", held)
    return frames


def read_track(root: Path, row: dict[str, str]) -> dict[str, Any]:
    """Decode one track: its faces, its labels, its part of its recording, and the recording's levels."""
    files = sorted((root / row["visual_path"]).iterdir(), key=lambda path: float(path.stem))
    faces = np.stack([cv2.resize(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE), SIZE) for path in files])
    audio = read_recording(root / row["audio_path"])
    first = round(float(row["start_sec"]) * RATE_HZ)
    part = audio[first : first + round(len(faces) / float(row["source_fps"]) * RATE_HZ)]
    centred = audio - audio.mean()
    return {
        "sample_id": row["sample_id"],
        "faces": faces,
        "labels": np.array(json.loads(row["labels"]), np.uint8),
        "audio": np.clip(np.rint(part * 32768), -32768, 32767).astype(np.int16),
        "rms": float(np.sqrt(np.mean(centred**2))),
        "peak": float(np.abs(centred).max()),
    }


def read_recording(path: Path) -> npt.NDArray[np.float32]:
    """A whole recording at 16 kHz mono, float32."""
    audio, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = audio.mean(axis=1)
    return mono if rate == RATE_HZ else soxr.resample(mono, rate, RATE_HZ)


def write_shard(folder: Path, tracks: list[dict[str, Any]]) -> None:
    """Concatenate and save."""
    folder.mkdir(parents=True)
    for name in ("faces", "labels", "audio"):
        np.save(folder / f"{name}.npy", np.concatenate([track[name] for track in tracks]))
    entries = [
        {"sample_id": track["sample_id"], "frames": len(track["faces"]), "rms": track["rms"], "peak": track["peak"]}
        for track in tracks
    ]
    (folder / "index.json").write_text(json.dumps(entries))
