"""Shared fixtures: the real media folder, and a builder of small corpora."""

import csv
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, settings
from skipping import skip_or_fail

# How fast an example runs depends on the machine and on what else it does: speed is measured by benchmarks, not here.
settings.register_profile("muvap", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("muvap")


@pytest.fixture
def real_media() -> Path:
    """The folder of real media."""
    folder = os.environ.get("MUVAP_REAL_MEDIA")
    if not folder:
        skip_or_fail("MUVAP_REAL_MEDIA is not set: real media are not at hand")
    if not Path(folder, "sample.wav").is_file():
        pytest.fail(f"MUVAP_REAL_MEDIA={folder} holds no sample.wav")
    return Path(folder).resolve()


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

    def faces(self, name: str, frames: int = 25, shape: tuple[int, int] = (8, 8)) -> str:
        """Write a face array whose every pixel is its frame's number."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        grey = (np.arange(frames) % 256).astype(np.uint8)
        np.save(path, np.broadcast_to(grey[:, None, None], (frames, *shape)).copy(), allow_pickle=False)
        return name

    def row(self, sample_id: str, **fields: object) -> None:
        """Add a row of 25 frames at 25 fps on a second of its own audio, except for ``fields``."""
        defaults: Mapping[str, Callable[[], str]] = {
            "audio_path": lambda: self.wav(f"{sample_id}.wav"),
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


@pytest.fixture
def corpus(tmp_path: Path) -> CorpusBuilder:
    """An empty corpus below the test's own folder."""
    root = tmp_path / "corpus"
    root.mkdir()
    return CorpusBuilder(root)


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny checkpoint, written once a session."""
    from muvap_assets.ref2va.tiny import write_tiny_checkpoint

    return write_tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "checkpoint")
