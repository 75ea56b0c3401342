"""CPU time of packing a 1,000-track corpus again after one row changed, against packing all of it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.asd_corpus import corpus_line, face_crop, read_manifest_rows, write_corpus, write_manifest
from benchmarks.measure import run_fresh

TRACKS, RECORDINGS = 1000, 50


def change_one_row(manifest: Path) -> None:
    """One track's faces are extracted anew, and its labels with them."""
    rows = read_manifest_rows(manifest)
    row = rows[TRACKS // 2]
    folder = manifest.parent / row["visual_path"]
    row["labels"] = json.dumps([1 - label for label in json.loads(row["labels"])])
    for path in folder.iterdir():
        path.write_bytes(face_crop(np.random.default_rng(9)))
    write_manifest(manifest, rows)


def pack(manifest: str, root: str) -> str:
    """Pack, verify and publish; the version."""
    from muvap_assets.asd import line

    outcome = line.make_packed_shards(*corpus_line(manifest, root))
    if outcome.published is None:
        raise SystemExit("the pack was refused")
    return outcome.published.version


def measure(scratch: Path) -> Iterator[dict[str, object]]:
    """Full pack, then one row changed: the same packed with the first pack at hand, and without."""
    corpus, root = scratch / "corpus", scratch / "root"
    corpus.mkdir()
    manifest = write_corpus(corpus, TRACKS, RECORDINGS)
    time.sleep(3)  # what was written a moment ago is read again, which is not what is measured here
    run_fresh("benchmarks.asd_corpus:prepare", str(manifest), str(root))
    run_fresh("benchmarks.asd_repack:pack", str(manifest), str(root))
    change_one_row(manifest)
    run_fresh("benchmarks.asd_corpus:prepare", str(manifest), str(root))
    again = run_fresh("benchmarks.asd_repack:pack", str(manifest), str(root))
    report = json.loads((root / "reports/asd/packed_shards/c/reuse.json").read_text())
    shutil.rmtree(root / "cache")
    full = run_fresh("benchmarks.asd_repack:pack", str(manifest), str(root))
    if again.value != full.value:
        raise SystemExit("what was copied and what was packed anew differ")
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
    }
    shutil.rmtree(corpus)
    shutil.rmtree(root)
