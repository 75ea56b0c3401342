"""Peak memory and speed of packing MSDWild at 720p: minutes of video, several faces, windows of 30 s."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.measure import run_fresh

if TYPE_CHECKING:
    from muvap_assets.asd.contract import Corpus
    from muvap_assets.layout import Layout

VIDEOS, SECONDS, FPS, SIZE = 2, 70, 25, (1280, 720)
FACES, SIDE, RATE_HZ = 4, 240, 44_100


def validate(root: str, out: str) -> int:
    """``asd/manifest`` and ``asd/loudness_index``; returns the tracks."""
    from muvap_assets.asd import line

    layout, corpus = _line(root, out)
    manifest = line.make_manifest(layout, corpus)
    index = line.make_loudness_index(layout, corpus)
    if manifest.published is None or index.published is None:
        raise SystemExit("the corpus of the benchmark was refused")
    return len(manifest.value.clips)


def pack(root: str, out: str, workers: str) -> int:
    """The faces and audio of the manifest ``validate`` left; returns the bytes written."""
    from muvap_assets.asd.loudness import read_loudness_index
    from muvap_assets.asd.manifest_files import read_manifest
    from muvap_assets.asd.packs.writer import write_pack

    layout, corpus = _line(root, out)
    clips = read_manifest(layout.asd_manifest("wild").current)
    levels = read_loudness_index(layout.asd_loudness_index("wild").current)
    folder = Path(out) / f"pack_{workers}"
    folder.mkdir()
    write_pack(folder, clips, corpus.root, levels, inputs={}, workers=int(workers))
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _line(root: str, out: str) -> tuple[Layout, Corpus]:
    from muvap_assets.datasets import parse_datasets
    from muvap_assets.layout import Layout

    entry = {"kind": "msdwild", "root": root}
    corpus = parse_datasets({"corpora": {"wild": entry}}, Path(root) / "datasets.yaml").corpus("wild")
    return Layout(Path(out)), corpus


def write_corpus(root: Path) -> None:
    """Videos of moving noise with as many faces as :data:`FACES`, their boxes and turns, and stereo sound."""
    media = root / "msdwild_boundingbox_labels"
    media.mkdir(parents=True)
    (root / "rttms").mkdir()
    turns = []
    for number in range(VIDEOS):
        name = f"{number:05d}"
        _write_video(media / f"{name}.mp4", number)
        boxes = [
            f"{frame},face,{face},{x},{y},{x + SIDE},{y + SIDE},0"
            for frame in range(SECONDS * FPS)
            for face in range(FACES)
            for x, y in [(300 * face + frame % 60, 200 + frame % 90)]
        ]
        (media / f"{name}.csv").write_text("\n".join(boxes) + "\n")
        turns += [f"SPEAKER {name} 1 {5 * face} 9.5 <NA> <NA> {face} <NA> <NA>" for face in range(FACES)]
    (root / "rttms" / "all.rttm").write_text("\n".join(turns) + "\n")


def _write_video(path: Path, seed: int) -> None:
    import av

    noise = np.random.default_rng(seed).integers(40, 216, (SIZE[1] // 8, SIZE[0] // 8), dtype=np.uint8)
    picture = noise.repeat(8, axis=0).repeat(8, axis=1)
    sound = np.random.default_rng(seed).normal(0, 0.1, (2, RATE_HZ)).astype(np.float32)
    with av.open(str(path), "w") as container:
        video, voice = container.add_stream("libx264", rate=FPS), container.add_stream("aac", rate=RATE_HZ)
        video.width, video.height = SIZE
        video.pix_fmt, video.options = "yuv420p", {"preset": "ultrafast", "crf": "23"}
        voice.layout = "stereo"
        for frame in range(SECONDS * FPS):
            image = av.VideoFrame.from_ndarray(np.roll(picture, 2 * frame, axis=1), format="gray")
            image.pts, image.time_base = frame, Fraction(1, FPS)
            container.mux(video.encode(image.reformat(format="yuv420p")))
        container.mux(video.encode(None))
        for second in range(SECONDS):
            for at in range(0, RATE_HZ, 1024):
                chunk = av.AudioFrame.from_ndarray(
                    np.ascontiguousarray(sound[:, at : at + 1024]), format="fltp", layout="stereo"
                )
                chunk.sample_rate, chunk.pts, chunk.time_base = RATE_HZ, second * RATE_HZ + at, Fraction(1, RATE_HZ)
                container.mux(voice.encode(chunk))
        container.mux(voice.encode(None))


def measure(scratch: Path) -> Iterator[dict[str, object]]:
    """Each figure with its target; see the issue that set it."""
    root, out = scratch / "msdwild", scratch / "wild_out"
    write_corpus(root)
    checked = run_fresh("benchmarks.asd_msdwild:validate", str(root), str(out))
    yield {
        "name": f"MSDWild manifest and loudness, {VIDEOS} videos of {SECONDS} s at 720p, {checked.value} tracks",
        "peak_mb": checked.peak_mb,
        "wall_sec": checked.wall_sec,
        "cpu_sec": checked.cpu_sec,
        "max_peak_mb": 500,
    }
    walls = {}
    for workers in (1, 2):
        cost = run_fresh("benchmarks.asd_msdwild:pack", str(root), str(out), str(workers))
        walls[workers] = cost.wall_sec
        yield {
            "name": f"MSDWild pack, {workers} at a time, {cost.value / 1e6:.0f} MB",
            "peak_mb": cost.peak_mb,
            "wall_sec": cost.wall_sec,
            "cpu_sec": cost.cpu_sec,
            "frames_per_sec": VIDEOS * SECONDS * FPS / cost.wall_sec,
            "max_peak_mb": 500,
        }
    yield {"name": "MSDWild pack, speed of two at a time against one", "ratio": walls[1] / walls[2]}
    shutil.rmtree(root)
    shutil.rmtree(out)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        for record in measure(Path(folder)):
            print(json.dumps(record))
