"""CPU time of packing a 1,000-track corpus again after one row changed, against packing all of it."""

from __future__ import annotations

import csv
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import soundfile

from benchmarks.measure import run_fresh

TRACKS, RECORDINGS, RATE_HZ = 1000, 50, 16_000
MEDIAN_FRAMES, FPS = 64, 25


def write_corpus(root: Path) -> Path:
    """1,000 tracks of lognormal length on 50 recordings, each a folder of colour JPEGs of about 10 kB."""
    draw = np.random.default_rng(5)
    lengths = np.clip(draw.lognormal(np.log(MEDIAN_FRAMES), 0.6, TRACKS), 8, 400).astype(int)
    for i in range(RECORDINGS):
        soundfile.write(root / f"{i}.wav", draw.normal(0, 0.1, RATE_HZ * 60), RATE_HZ, subtype="PCM_16")
    crops = [_crop(draw) for _ in range(64)]
    rows = []
    for track, frames in enumerate(lengths):
        folder = root / f"track{track:04d}"
        folder.mkdir()
        for frame in range(frames):
            (folder / f"{frame / FPS:.2f}.jpg").write_bytes(crops[int(draw.integers(len(crops)))])
        rows.append(
            {
                "sample_id": folder.name,
                "audio_path": f"{track % RECORDINGS}.wav",
                "visual_path": folder.name,
                "visual_kind": "jpeg_directory",
                "source_fps": str(FPS),
                "labels": json.dumps([int(i) for i in draw.integers(0, 2, frames)]),
                "start_sec": f"{draw.uniform(0, 40):.2f}",
            }
        )
    return _write_manifest(root / "train.tsv", rows)


def _crop(draw: np.random.Generator) -> bytes:
    """A smooth picture with some grain: 8 to 15 kB as a JPEG, as face crops are."""
    size = int(draw.integers(130, 190))
    picture = cv2.resize(draw.integers(0, 255, (9, 9, 3), dtype=np.uint8), (size, size), interpolation=cv2.INTER_CUBIC)
    grain = draw.normal(0, 6, picture.shape)
    return bytes(cv2.imencode(".jpg", np.clip(picture + grain, 0, 255).astype(np.uint8))[1])


def _write_manifest(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def change_one_row(manifest: Path) -> None:
    """One track's faces are extracted anew, and its labels with them."""
    with manifest.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    row = rows[TRACKS // 2]
    folder = manifest.parent / row["visual_path"]
    row["labels"] = json.dumps([1 - label for label in json.loads(row["labels"])])
    for path in folder.iterdir():
        path.write_bytes(_crop(np.random.default_rng(9)))
    _write_manifest(manifest, rows)


def prepare(manifest: str, root: str) -> None:
    """What a pack is made from: the manifest and the loudness index."""
    from muvap_assets.asd import line

    for make in (line.make_manifest, line.make_loudness_index):
        if make(*_line(manifest, root)).published is None:
            raise SystemExit("the corpus was refused")


def pack(manifest: str, root: str) -> str:
    """Pack, verify and publish; the version."""
    from muvap_assets.asd import line

    outcome = line.make_packed_shards(*_line(manifest, root))
    if outcome.published is None:
        raise SystemExit("the pack was refused")
    return outcome.published.version


def _line(manifest: str, root: str):  # noqa: ANN202 - imported where it runs, so that the parent stays small
    from muvap_assets.asd.contract import Corpus
    from muvap_assets.asd.corpora.tsv import TsvCorpus
    from muvap_assets.layout import Layout

    source = TsvCorpus(kind="tsv", manifest=Path(manifest))
    return Layout(Path(root)), Corpus(name="c", source=source, dataset="c", shard_bytes=250_000_000)


def measure(scratch: Path) -> Iterator[dict[str, object]]:
    """Full pack, then one row changed: the same packed with the first pack at hand, and without."""
    corpus, root = scratch / "corpus", scratch / "root"
    corpus.mkdir()
    manifest = write_corpus(corpus)
    time.sleep(3)  # what was written a moment ago is read again, which is not what is measured here
    run_fresh("benchmarks.asd_repack:prepare", str(manifest), str(root))
    run_fresh("benchmarks.asd_repack:pack", str(manifest), str(root))
    change_one_row(manifest)
    run_fresh("benchmarks.asd_repack:prepare", str(manifest), str(root))
    again = run_fresh("benchmarks.asd_repack:pack", str(manifest), str(root))
    report = json.loads((root / "reports/asd/packed_shards/c/reuse.json").read_text())
    shutil.rmtree(root / "cache")
    full = run_fresh("benchmarks.asd_repack:pack", str(manifest), str(root))
    yield {
        "name": f"repack after one of {TRACKS} rows changed",
        "ratio": again.cpu_sec / full.cpu_sec,
        "max_ratio": 0.15,
        "cpu_sec": again.cpu_sec,
        "full_cpu_sec": full.cpu_sec,
        "wall_sec": again.wall_sec,
        "full_wall_sec": full.wall_sec,
        "peak_mb": again.peak_mb,
        "faces_copied": report["faces_copied"],
        "same_version": str(again.value == full.value),
    }
    shutil.rmtree(corpus)
    shutil.rmtree(root)
