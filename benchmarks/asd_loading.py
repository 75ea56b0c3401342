"""Throughput of reading a pack: an epoch of evaluation and of training, against a straightforward reader of the same pack.

The straightforward reader (:mod:`benchmarks.asd_straightforward`) is what the field uses today. Both sides read the same batches
of the same pack, which lies in the page cache, in turn, with the same workers, one thread for torch and the same allocator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import run_fresh

TRACKS, SIZE, MEDIAN_FRAMES, SIGMA = 300, 112, 64, 0.8
RATES = ("25", "24", "29.97", "30", "23.976")
WINDOW, CONTEXT = 250, 50
ROUNDS, ENOUGH_SEC = (2, 5), 12


def write_pack_of_noise(folder: str) -> int:
    """An AVA-like pack of :data:`TRACKS` tracks, lognormal in length; returns its native frames."""
    import soundfile

    from muvap_assets.asd.contract import Clip, VisualKind
    from muvap_assets.asd.packs.writer import write_pack
    from muvap_assets.asd.timeline import FrameRate

    rng, root = np.random.default_rng(0), Path(folder)
    lengths = np.clip(rng.lognormal(np.log(MEDIAN_FRAMES), SIGMA, TRACKS), 4, 1000).astype(int)
    noise = rng.integers(0, 256, (int(lengths.max()), SIZE, SIZE), dtype=np.uint8)
    soundfile.write(root / "audio.wav", rng.normal(0, 0.1, 16_000 * 60), 16_000, subtype="PCM_16")
    clips = []
    for track, frames in enumerate(lengths.tolist()):
        path = root / f"{track}.npy"
        np.save(path, np.roll(noise, track, axis=0)[:frames])
        clips.append(
            Clip(
                row=track + 2,
                dataset="noise",
                sample_id=f"track_{track:04d}",
                audio_path="audio.wav",
                visual_path=path.name,
                visual_kind=VisualKind.NPY,
                source_fps=FrameRate.parse(RATES[track % len(RATES)]),
                labels=(np.arange(frames) // 20 % 2).astype(np.uint8),
                start_sec=FrameRate.parse(f"{track % 20 + 1}").value,
                audio_sample_rate=None,
                recording_id=_digest(root / "audio.wav"),
                recording_samples=16_000 * 60,
                face_height=SIZE,
                face_width=SIZE,
            )
        )
    (root / "pack").mkdir()
    levels = _Levels()
    write_pack(root / "pack", clips, root, {clips[0].recording_id: levels}, inputs={}, shard_bytes=150_000_000)
    for path in root.glob("*.npy"):
        path.unlink()
    return int(lengths.sum())


class _Levels:
    mean, rms, peak = 0.0, 0.1, 0.6


def _digest(path: Path) -> str:
    from muvap_assets.storage.digests import file_sha256

    return file_sha256(path)[:16]


def epoch_seconds(loader: Iterable[Any]) -> float:
    """Wall seconds of one pass."""
    started = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - started


def training(pack: str, workers: str) -> dict[str, Any]:
    """Both readers over the same training batches, in turn: seconds an epoch of each, and model frames read."""
    from benchmarks.asd_straightforward import StraightforwardDataset
    from muvap_assets.asd.batch_sampler import FrameBudgetBatchSampler
    from muvap_assets.asd.loader import PackedASDDataset, data_loader
    from muvap_assets.asd.prefetch import PrefetchLoader
    from muvap_assets.asd.targets import independent

    count = int(workers)
    dataset = PackedASDDataset(pack, window=WINDOW, context=CONTEXT, targets=independent, blocks=4)
    sampler = FrameBudgetBatchSampler(dataset)
    plain = StraightforwardDataset(Path(pack), window=WINDOW, context=CONTEXT)
    sides: dict[str, Iterable[Any]] = {
        "straightforward": plain.loader(list(sampler), count, crop=True),
        "ours": data_loader(dataset, sampler, num_workers=count, persistent_workers=count > 0),
    }
    if count == 2:
        sides["one thread"] = PrefetchLoader(dataset, sampler, threads=1)
        sides["two threads"] = PrefetchLoader(dataset, sampler, threads=2)
    return _in_turn(sides, sum(map(int, dataset.lengths())))


def evaluation(pack: str, workers: str) -> dict[str, Any]:
    """The same for whole tracks, padded."""
    from benchmarks.asd_straightforward import StraightforwardDataset
    from muvap_assets.asd.batch_sampler import FrameBudgetBatchSampler
    from muvap_assets.asd.loader import PackedASDDataset, data_loader
    from muvap_assets.asd.targets import independent

    count = int(workers)
    dataset = PackedASDDataset(pack, targets=independent, fit="pad", blocks=4)
    sampler = FrameBudgetBatchSampler.for_evaluation(dataset)
    plain = StraightforwardDataset(Path(pack), window=None, context=0)
    sides: dict[str, Iterable[Any]] = {
        "straightforward": plain.loader(list(sampler), count, crop=False),
        "ours": data_loader(dataset, sampler, num_workers=count, persistent_workers=count > 0),
    }
    return _in_turn(sides, sum(map(int, dataset.lengths())))


def _in_turn(sides: Mapping[str, Iterable[Any]], frames: int) -> dict[str, Any]:
    """The best of a few passes each, since other work on the machine only ever adds to one.

    One before them is not counted: it starts workers and maps files.
    """
    import torch

    torch.set_num_threads(1)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    fewest, most = ROUNDS
    began = time.perf_counter()
    for turn in range(most + 1):
        for name, loader in sides.items():
            seconds[name].append(epoch_seconds(loader))
        if turn >= fewest and time.perf_counter() - began > ENOUGH_SEC:
            break
    return {"frames": frames, **{name: min(values[1:]) for name, values in seconds.items()}}


def measure(scratch: Path) -> Iterator[dict[str, object]]:
    """Each figure with its target; see ``Loading`` in the performance notes of the project."""
    folder = scratch / "loading"
    folder.mkdir()
    run_fresh("benchmarks.asd_loading:write_pack_of_noise", str(folder))
    pack = str(folder / "pack")
    targets: dict[Callable[..., Any], dict[int, float]] = {evaluation: {0: 8.0}, training: {0: 10.0, 2: 4.0}}
    best = 0.0
    for run, least in targets.items():
        for workers in (0, 1, 2):
            found = run_fresh(f"benchmarks.asd_loading:{run.__name__}", pack, str(workers)).value
            frames = found.pop("frames")
            speeds = {name: frames / seconds for name, seconds in found.items()}
            plain = speeds.pop("straightforward")
            best = max(best, plain) if run is training else best
            record: dict[str, object] = {
                "name": f"{run.__name__}, {workers} workers",
                "ratio": speeds["ours"] / plain,
                "frames_per_sec": speeds.pop("ours"),
                "straightforward_frames_per_sec": plain,
            }
            yield {**record, "min_ratio": least[workers]} if workers in least else record
            for name, speed in speeds.items():
                yield {
                    "name": f"training, {name} against the straightforward reader's best",
                    "ratio": speed / best,
                    "frames_per_sec": speed,
                    "straightforward_frames_per_sec": best,
                    # The target is prefetch threads', as many as there are cores here.
                    **({"min_ratio": 10.0} if name == "two threads" else {}),
                }
