"""Packing 600 tracks of JPEG faces, against the straightforward writer, and with one worker against all."""

from __future__ import annotations

import filecmp
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.asd_corpus import corpus_line, write_corpus
from benchmarks.measure import Cost, run_fresh

TRACKS, SHARD_BYTES = 600, 250_000_000


def write(manifest: str, root: str, out: str, workers: str) -> dict[str, float]:
    """Write the shards, as the asset does before it verifies and publishes them; the frames written, and the seconds alone."""
    from muvap_assets.asd.loudness import read_loudness_index
    from muvap_assets.asd.manifest_files import read_manifest
    from muvap_assets.asd.packs.writer import write_pack

    layout, corpus = corpus_line(manifest, root)
    clips = read_manifest(layout.asd_manifest("c").current)
    levels = read_loudness_index(layout.asd_loudness_index("c").current)
    started = time.perf_counter()
    header = write_pack(
        Path(out),
        clips,
        corpus.root,
        levels,
        inputs={},
        shard_bytes=SHARD_BYTES,
        workers=int(workers),
    )
    return {"frames": header.source_frames, "sec": time.perf_counter() - started}


def same_arrays(ours: Path, theirs: Path) -> bool:
    """Whether both writers wrote the same faces, labels and audio, wherever they cut their shards."""
    for name in ("faces", "labels", "audio"):
        first, second = (
            np.concatenate(
                [np.load(path, mmap_mode="r").ravel() for path in sorted(folder.glob(f"shard-*/{name}.npy"))]
            )
            for folder in (ours, theirs)
        )
        if not np.array_equal(first, second):
            return False
    return True


def same_files(first: Path, second: Path) -> bool:
    """Whether two packs are the same, byte for byte."""
    names = sorted(str(path.relative_to(first)) for path in first.rglob("*") if path.is_file())
    return filecmp.cmpfiles(first, second, names, shallow=False)[0] == names


def measure(scratch: Path) -> Iterator[dict[str, object]]:
    """All cores against the straightforward writer, and against one."""
    corpus, root = scratch / "corpus", scratch / "root"
    corpus.mkdir()
    manifest = write_corpus(corpus, TRACKS, TRACKS // 20)
    time.sleep(3)  # what was written a moment ago is hashed again, which is not what is measured here
    run_fresh("benchmarks.asd_corpus:prepare", str(manifest), str(root))
    cores = os.cpu_count() or 1

    def ours(workers: int) -> Cost:
        out = scratch / f"ours-{workers}"
        out.mkdir()
        return run_fresh("benchmarks.asd_packing:write", str(manifest), str(root), str(out), str(workers))

    theirs = run_fresh(
        "benchmarks.asd_straightforward_writer:write", str(manifest), str(scratch / "theirs"), str(SHARD_BYTES)
    )
    all_cores, one = ours(cores), ours(1)
    if not same_arrays(scratch / f"ours-{cores}", scratch / "theirs"):
        raise SystemExit("the two writers wrote different arrays: their speeds cannot be compared")
    if not same_files(scratch / f"ours-{cores}", scratch / "ours-1"):
        raise SystemExit(f"{cores} workers and one wrote different bytes")
    yield {
        "name": f"packing {TRACKS} tracks of JPEG faces, against the straightforward writer",
        "speedup": theirs.wall_sec / all_cores.wall_sec,
        "min_speedup": 2.3,
        "frames_per_sec": all_cores.value["frames"] / all_cores.value["sec"],
        "wall_sec": all_cores.wall_sec,
        "cpu_sec": all_cores.cpu_sec,
        "peak_mb": all_cores.peak_mb,
        "max_peak_mb": 150,
        "straightforward_wall_sec": theirs.wall_sec,
        "straightforward_cpu_sec": theirs.cpu_sec,
        "straightforward_peak_mb": theirs.peak_mb,
    }
    yield {
        "name": f"packing with {cores} workers against one, without starting the process",
        "speedup": one.value["sec"] / all_cores.value["sec"],
        "min_speedup": 0.85 * cores,
        "wall_sec": all_cores.value["sec"],
        "one_worker_wall_sec": one.value["sec"],
    }
    for folder in (corpus, root, scratch / "theirs", scratch / f"ours-{cores}", scratch / "ours-1"):
        shutil.rmtree(folder)
