"""Peak memory of packing two gigabytes of faces, and of indexing an eight-hour recording."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile
import soxr

from benchmarks.measure import run_fresh

TRACKS, FRAMES, SIZE = 80, 2000, 112  # 80 * 2000 * 112 * 112 bytes = 2.0 GB
HOURS, RATE_HZ = 8, 44_100


def pack(manifest: str, out: str, shard_bytes: str) -> int:
    """``muvap pack`` in this process; returns the bytes published."""
    from muvap_assets.cli.main import main

    with contextlib.redirect_stdout(io.StringIO()):
        main(["pack", manifest, "-o", out, "--shard-bytes", shard_bytes], standalone_mode=False)
    return sum(path.stat().st_size for path in Path(out).rglob("*") if path.is_file())


def index_recording(path: str) -> float:
    """Measure one recording; returns its length in seconds."""
    from muvap_assets.asd.loudness import measure_recording

    return float(measure_recording(Path(path)).duration_sec)


def write_big_corpus(folder: Path) -> Path:
    """Two gigabytes of NumPy faces on short recordings."""
    noise = np.random.default_rng(0).integers(0, 256, (FRAMES, SIZE, SIZE), dtype=np.uint8)
    signal = np.random.default_rng(1).normal(0, 0.1, FRAMES * 640)
    soundfile.write(folder / "audio.wav", signal, 16_000, subtype="PCM_16")
    labels = f"[{','.join('01'[i // 25 % 2] for i in range(FRAMES))}]"
    lines = ["sample_id\taudio_path\tvisual_path\tsource_fps\tlabels\tstart_sec"]
    for track in range(TRACKS):
        np.save(folder / f"{track}.npy", noise)
        lines.append(f"track_{track:03d}\taudio.wav\t{track}.npy\t25\t{labels}\t0")
    manifest = folder / "big.tsv"
    manifest.write_text("\n".join(lines) + "\n")
    return manifest


def read_recording_whole(path: str) -> float:
    """The straightforward way: decode all of it, resample all of it; returns its length in seconds."""
    audio, rate = soundfile.read(path, dtype="float32")
    mono = soxr.resample(audio.mean(axis=1), rate, 16_000)
    centred = mono - mono.mean()
    if not (np.sqrt(np.mean(centred**2)) > 0 and np.abs(centred).max() > 0):
        raise SystemExit("the recording is silent")
    return len(audio) / rate


def write_long_recording(path: Path, hours: int) -> None:
    """Hours of stereo noise, written a minute at a time."""
    minute = np.random.default_rng(2).normal(0, 0.1, (60 * RATE_HZ, 2)).astype(np.float32)
    with soundfile.SoundFile(path, "w", RATE_HZ, 2, "PCM_16", format="RF64") as stream:
        for _ in range(hours * 60):
            stream.write(minute)


def measure(scratch: Path) -> Iterator[dict[str, object]]:
    """Each figure with its target; see the issue that set it."""
    corpus = scratch / "corpus"
    corpus.mkdir()
    manifest = write_big_corpus(corpus)
    peaks = []
    for shard_bytes in (250_000_000, 1_000_000_000):
        out = scratch / "out"
        cost = run_fresh("benchmarks.asd_memory:pack", str(manifest), str(out), str(shard_bytes))
        shutil.rmtree(out)
        peaks.append(cost.peak_mb)
        name = f"muvap pack, 2 GB of faces, {shard_bytes / 1e9:.2f} GB shards"
        yield {
            "name": name,
            "peak_mb": cost.peak_mb,
            "wall_sec": cost.wall_sec,
            "cpu_sec": cost.cpu_sec,
            "max_peak_mb": 200,
        }
    yield {"name": "the same for both shard sizes", "ratio": max(peaks) / min(peaks), "max_ratio": 1.1}
    shutil.rmtree(corpus)
    recording = scratch / "long.wav"
    write_long_recording(recording, HOURS)
    cost = run_fresh("benchmarks.asd_memory:index_recording", str(recording))
    yield {
        "name": f"loudness of an {HOURS}-hour stereo recording at 44.1 kHz",
        "peak_mb": cost.peak_mb,
        "wall_sec": cost.wall_sec,
        "cpu_sec": cost.cpu_sec,
        "max_peak_mb": 300,
    }
    write_long_recording(recording, 1)
    ours, theirs = (
        run_fresh(f"benchmarks.asd_memory:{name}", str(recording))
        for name in ("index_recording", "read_recording_whole")
    )
    recording.unlink()
    yield {
        "name": "loudness of a one-hour recording, against reading it whole",
        "ratio": ours.wall_sec / theirs.wall_sec,
        "wall_sec": ours.wall_sec,
        "cpu_sec": ours.cpu_sec,
        "peak_mb": ours.peak_mb,
        "whole_wall_sec": theirs.wall_sec,
        "whole_cpu_sec": theirs.cpu_sec,
        "whole_peak_mb": theirs.peak_mb,
    }
