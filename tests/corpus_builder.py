"""A builder of small canonical corpora."""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import soundfile


class CorpusBuilder:
    """Writes a canonical corpus row by row; a test overrides the one thing it is about."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rows: list[dict[str, str]] = []

    def wav(self, name: str, samples: int | np.ndarray = 16_000, rate: int = 16_000, **options: object) -> str:
        """Write a recording; a number of samples stands for quiet noise."""
        if isinstance(samples, int):
            samples = np.random.default_rng(samples).normal(0, 0.05, samples)
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, samples, rate, **{"subtype": "PCM_16", **options})
        return name

    @staticmethod
    def noise(sample_id: str) -> np.ndarray:
        """A second of quiet noise that no other id has, since rows of the same faces and sound are a finding."""
        return np.random.default_rng(list(sample_id.encode())).normal(0, 0.05, 16_000)

    def faces(self, name: str, frames: int = 25, shape: tuple[int, int] = (8, 8), first: int = 0) -> str:
        """Write a face array whose every pixel is its frame's number, counted from ``first``."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        grey = (np.arange(first, first + frames) % 256).astype(np.uint8)
        np.save(path, np.broadcast_to(grey[:, None, None], (frames, *shape)).copy(), allow_pickle=False)
        return name

    def row(self, sample_id: str, **fields: object) -> None:
        """Add a row of 25 frames at 25 fps on a second of its own audio, except for ``fields``."""
        defaults: Mapping[str, Callable[[], str]] = {
            "audio_path": lambda: self.wav(f"{sample_id}.wav", self.noise(sample_id)),
            "visual_path": lambda: self.faces(f"{sample_id}.npy"),
            "source_fps": lambda: "25",
            "labels": lambda: str([i // 5 % 2 for i in range(25)]),
            "start_sec": lambda: "",
        }
        row = {"sample_id": sample_id, **{name: str(value) for name, value in fields.items()}}
        self.rows.append({**row, **{name: make() for name, make in defaults.items() if name not in row}})

    def write(self, name: str = "train.tsv") -> Path:
        """Write the manifest and return its path."""
        columns = list(dict.fromkeys(column for row in self.rows for column in row))
        path = self.root / name
        with path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, columns, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
            writer.writeheader()
            writer.writerows(self.rows)
        return path
