"""The reader that ours is measured against, written as the field writes it: an index of dicts, float32, stacked tensors.

Each item recomputes the frame indices and the targets of its whole track and takes its own part; a batch is stacked out of
tensors of its own. It reads the same packs and gives the same values (the tests hold it to that).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

BIN_FRAMES = (20, 15, 10, 5, 5, 10)
HISTORY_BINS = 4


class StraightforwardDataset(Dataset[dict[str, torch.Tensor]]):
    """One item a chunk of a track, as float32 tensors."""

    def __init__(self, pack: Path, window: int | None, context: int) -> None:
        """Read the JSON index of every shard and list the chunks."""
        self.entries: list[dict[str, Any]] = []
        self.shards = []
        for folder in sorted(pack.glob("shard-*")):
            self.shards.append(
                [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("faces", "audio", "labels")]
            )
            for entry in json.loads((folder / "index.json").read_text()):
                self.entries.append({**entry, "shard": len(self.shards) - 1})
        self.chunks = []
        for track, entry in enumerate(self.entries):
            frames = entry["model_frames"]
            pieces = -(-frames // window) if window else 1
            for piece in range(pieces):
                start, stop = piece * frames // pieces, (piece + 1) * frames // pieces
                self.chunks.append((track, max(start - context, 0), start, stop))

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        track, first, start, stop = self.chunks[item]
        entry = self.entries[track]
        faces, audio, labels = self.shards[entry["shard"]]
        times = (np.arange(entry["model_frames"]) + 0.5) * entry["source_fps"] / 25
        indices = np.minimum(np.floor(times).astype(np.int64), entry["source_frames"] - 1)
        aligned = torch.from_numpy(labels[entry["label_offset"] + indices]).float()
        samples = audio[entry["audio_offset"] :][first * 640 : stop * 640].astype(np.float32) / 32768
        gain = min(10 ** (-25 / 20) / entry["audio_rms"], 10.0, 0.99 / entry["audio_peak"])
        return {
            "audio": torch.from_numpy((samples - np.float32(entry["audio_mean"])) * np.float32(gain)),
            "faces": torch.from_numpy(faces[entry["face_offset"] + indices[first:stop]]).float(),
            "labels": aligned[first:stop],
            "targets": projection(aligned)[first:stop],
            "scored": torch.arange(first, stop) >= start,
        }

    def loader(self, batches: list[list[int]], workers: int, *, crop: bool) -> DataLoader[dict[str, torch.Tensor]]:
        """These batches through torch's DataLoader."""
        return DataLoader(
            self,
            batch_sampler=batches,
            collate_fn=crop_and_stack if crop else pad_and_stack,
            num_workers=workers,
            persistent_workers=workers > 0,
        )


def projection(labels: torch.Tensor) -> torch.Tensor:
    """Projection-window bins [T, 6] of labels [T]: windows unfolded, the mean of each bin, 1 from one half on."""
    history, future = sum(BIN_FRAMES[:HISTORY_BINS]), sum(BIN_FRAMES[HISTORY_BINS:])
    windows = torch.nn.functional.pad(labels, (history - 1, future)).unfold(0, history + future, 1)
    bins = torch.split(windows, BIN_FRAMES, dim=1)
    return torch.stack([(frames.mean(dim=1) >= 0.5).float() for frames in bins], dim=1)


def crop_and_stack(items: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Crop to the shortest: of history first, then at the end."""
    frames = min(len(item["labels"]) for item in items)
    for item in items:
        surplus = len(item["labels"]) - frames
        begin = min(surplus, int((~item["scored"]).sum()))
        for key, value in item.items():
            scale = 640 if key == "audio" else 1
            item[key] = value[begin * scale : (begin + frames) * scale]
    return {key: torch.stack([item[key] for item in items]) for key in items[0]}


def pad_and_stack(items: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Pad to the longest at the end."""
    return {key: torch.nn.utils.rnn.pad_sequence([item[key] for item in items], batch_first=True) for key in items[0]}
