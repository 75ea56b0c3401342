"""The corpus that packing is measured on: face tracks of lognormal length, as folders of colour JPEGs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import cv2
import numpy as np
import soundfile

MEDIAN_FRAMES, FPS, RATE_HZ = 64, 25, 16_000


def write_corpus(root: Path, tracks: int, recordings: int) -> Path:
    """``tracks`` tracks on ``recordings`` recordings of a minute, each a folder of JPEGs of about 10 kB."""
    draw = np.random.default_rng(5)
    lengths = np.clip(draw.lognormal(np.log(MEDIAN_FRAMES), 0.6, tracks), 8, 400).astype(int)
    for i in range(recordings):
        soundfile.write(root / f"{i}.wav", draw.normal(0, 0.1, RATE_HZ * 60), RATE_HZ, subtype="PCM_16")
    crops = [face_crop(draw) for _ in range(64)]
    rows = []
    for track, frames in enumerate(lengths):
        folder = root / f"track{track:04d}"
        folder.mkdir()
        for frame in range(frames):
            (folder / f"{frame / FPS:.2f}.jpg").write_bytes(crops[int(draw.integers(len(crops)))])
        rows.append(
            {
                "sample_id": folder.name,
                "audio_path": f"{track % recordings}.wav",
                "visual_path": folder.name,
                "visual_kind": "jpeg_directory",
                "source_fps": str(FPS),
                "labels": json.dumps([int(i) for i in draw.integers(0, 2, frames)]),
                "start_sec": f"{draw.uniform(0, 40):.2f}",
            }
        )
    return write_manifest(root / "train.tsv", rows)


def face_crop(draw: np.random.Generator) -> bytes:
    """A smooth picture with some grain: 8 to 15 kB as a JPEG, as face crops are."""
    size = int(draw.integers(130, 190))
    picture = cv2.resize(draw.integers(0, 255, (9, 9, 3), dtype=np.uint8), (size, size), interpolation=cv2.INTER_CUBIC)
    grain = draw.normal(0, 6, picture.shape)
    return bytes(cv2.imencode(".jpg", np.clip(picture + grain, 0, 255).astype(np.uint8))[1])


def write_manifest(path: Path, rows: list[dict[str, str]]) -> Path:
    """Canonical TSV."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def read_manifest_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a canonical TSV as text."""
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def prepare(manifest: str, root: str) -> None:
    """What a pack is made from: the manifest and the loudness index."""
    from muvap_assets.asd import line

    for make in (line.make_manifest, line.make_loudness_index):
        if make(*corpus_line(manifest, root)).published is None:
            raise SystemExit("the corpus was refused")


def corpus_line(manifest: str, root: str):  # noqa: ANN201 - imported where it runs, so that the parent stays small
    """The arguments of the asd line's functions."""
    from muvap_assets.asd.contract import Corpus
    from muvap_assets.asd.corpora.tsv import TsvCorpus
    from muvap_assets.layout import Layout

    source = TsvCorpus(kind="tsv", manifest=Path(manifest))
    return Layout(Path(root)), Corpus(name="c", source=source, dataset="c", shard_bytes=250_000_000)
