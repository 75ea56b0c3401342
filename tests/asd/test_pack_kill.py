"""A pack that is killed at any moment leaves what was published as it was, and nothing in its way."""

from __future__ import annotations

import json
import subprocess
import sys

DRIVER = '''
"""Publishes a first pack, then kills ten runs of a second one at random moments; prints what was seen as JSON."""
import itertools, json, os, random, signal, sys, time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import soundfile

from muvap_assets.asd.contract import Clip, VisualKind
from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.asd.packs.verify import PACK_CHECKS, verify_pack
from muvap_assets.asd.packs.writer import write_pack
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.layout import Layout
from muvap_assets.publish import current_version, run_checked
from muvap_assets.storage.digests import file_sha256

class Levels:
    mean, rms, peak = 0.0, 0.1, 0.5

work = Path(sys.argv[1])
media = work / "media"
media.mkdir()
artifact = Layout(work / "root").asd_packed_shards("tiny")
soundfile.write(media / "a.wav", np.random.default_rng(0).integers(-9000, 9000, 160_000, dtype=np.int16), 16_000)
clips = []
for i in range(4):
    np.save(media / f"{i}.npy", np.random.default_rng(i).integers(0, 256, (200, 112, 112), dtype=np.uint8))
    (media / f"jpegs{i}").mkdir()
    picture = np.random.default_rng(i).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    data = cv2.imencode(".jpg", picture)[1].tobytes()
    for k in range(60):
        (media / f"jpegs{i}" / f"{k}.jpg").write_bytes(data)
    for name, kind, frames in ((f"{i}.npy", VisualKind.NPY, 200), (f"jpegs{i}", VisualKind.JPEG_DIRECTORY, 60)):
        clips.append(Clip(
            row=len(clips) + 2, dataset="tiny", sample_id=name, audio_path="a.wav", visual_path=name, visual_kind=kind,
            source_fps=FrameRate.parse(25), labels=(np.arange(frames) % 2).astype(np.uint8), start_sec=Fraction(i, 2),
            audio_sample_rate=None, recording_id=file_sha256(media / "a.wav")[:16], recording_samples=160_000,
            face_height=112, face_width=112,
        ))

def publish(clips):
    return run_checked(
        artifact,
        build=lambda folder: write_pack(
            folder, clips, media, {clips[0].recording_id: Levels()}, inputs={}, shard_bytes=4_000_000, workers=2
        ),
        check=lambda folder, header: verify_pack(folder, clips),
        declared=PACK_CHECKS,
    )

def in_child(clips, stop_at=None):
    """Run in a fork that halts for good at its ``stop_at``-th system call, and says so; it says how many there were."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    count = itertools.count(1)
    for name in ("pwrite", "preadv", "posix_fallocate", "fsync"):
        def halting(*arguments, call=getattr(os, name)):
            if stop_at is not None and next(count) >= stop_at:
                os.write(writing, b"halted")
                time.sleep(600)
            elif stop_at is None:
                next(count)
            return call(*arguments)
        setattr(os, name, halting)
    try:
        published = publish(clips).published
        os.write(writing, str(next(count) - 1).encode())
        os._exit(0 if published else 2)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)

def files(folder):
    return {p.relative_to(folder).as_posix(): file_sha256(p) for p in sorted(folder.rglob("*")) if p.is_file()}

def run(clips):
    child, reading = in_child(clips)
    told = os.read(reading, 100)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), int(told or 0)

first_code, calls = run(clips)
first = current_version(artifact)
published = files(artifact.folder)
others = [replace(clip, labels=1 - clip.labels) for clip in clips]
seen = []
# The last three calls make the move of a version, of the link and its record durable; before them nothing is to be seen.
for moment in sorted(random.Random(5).sample(range(1, calls - 2), 10)):
    child, reading = in_child(others, moment)
    halted = os.read(reading, 6) == b"halted"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    seen.append({
        "halted": halted,
        "current": current_version(artifact),
        "published": files(artifact.folder) == published,
        "left": sum(path.is_dir() for path in artifact.staging.iterdir()),
    })
second_code, _ = run(others)
print(json.dumps({
    "codes": [first_code, second_code],
    "first": first,
    "seen": seen,
    "current": current_version(artifact),
    "versions": sorted(p.name for p in artifact.folder.iterdir() if p.is_dir() and not p.is_symlink()),
    "first_untouched": {k: v for k, v in files(artifact.folder).items() if k.startswith(first)} ==
        {k: v for k, v in published.items() if k.startswith(first)},
    "left": [path.name for path in artifact.staging.iterdir()],
    "samples": len(PackReader(artifact.current)),
}))
'''


def test_ten_kills_leave_the_published_version_and_no_half_output(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DRIVER, str(tmp_path)], check=True, capture_output=True, text=True
    )
    report = json.loads(done.stdout)
    assert report["codes"] == [0, 0], done.stderr
    assert len(report["seen"]) == 10
    for state in report["seen"]:
        assert state["halted"]
        assert state["published"]
        assert state["current"] == report["first"]
        # Each run removes what the one before it left, so that never more than one private folder stands.
        assert state["left"] == 1
    assert report["current"] != report["first"]
    assert sorted([report["first"], report["current"]]) == report["versions"]
    assert report["first_untouched"]
    assert report["left"] == []
    assert report["samples"] == 8
