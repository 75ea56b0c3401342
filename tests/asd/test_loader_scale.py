"""A loader CSV at the size of a corpus, validated from names, sizes and clips of sound alone."""

import json
import subprocess
import sys

import cv2
import pytest
from loader_crowd import FRAMES, write_crowd

from muvap_assets.asd import line
from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora import crop_tree
from muvap_assets.asd.corpora.ava import AvaCorpus
from muvap_assets.layout import Layout
from muvap_assets.media import faces

MEASURED = """
import json, resource, sys, time
from pathlib import Path
from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.ava import AvaCorpus
from muvap_assets.asd.line import make_manifest
from muvap_assets.layout import Layout

source = AvaCorpus(kind="ava", root=Path(sys.argv[1]), split="train")
wall = time.perf_counter()
outcome = make_manifest(Layout(Path(sys.argv[2])), Corpus(name="c", source=source, dataset="d"))
print(json.dumps({
    "wall": time.perf_counter() - wall,
    "cpu": time.process_time(),
    "peak_mb": int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024,
    "clips": len(outcome.value.clips),
    "published": outcome.published is not None,
    "heavy": sorted({"torch", "cv2", "av"} & set(sys.modules)),
}))
"""


def test_each_folder_is_listed_once_and_no_picture_opened(tmp_path, monkeypatch):
    write_crowd(tmp_path / "ava", 400)
    listed, scanned = [], []
    listdir, scan = crop_tree.os.listdir, faces._scan
    monkeypatch.setattr(crop_tree.os, "listdir", lambda path: listed.append(path) or listdir(path))
    monkeypatch.setattr(faces, "_scan", lambda path: scanned.append(path) or scan(path))
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("a picture was decoded"))
    monkeypatch.setattr(faces, "read_jpeg", lambda path: pytest.fail(f"{path} was read"))
    source = AvaCorpus(kind="ava", root=tmp_path / "ava", split="train")
    outcome = line.make_manifest(Layout(tmp_path / "data"), Corpus(name="c", source=source, dataset="d"))
    assert outcome.published
    assert sum(clip.source_frames for clip in outcome.value.clips) == 400 * FRAMES
    assert len(listed) == len(set(listed)) == 2 * (1 + 3)
    assert len(scanned) == len(set(scanned)) == 400


@pytest.mark.slow
def test_forty_thousand_tracks_are_validated_within_a_minute_and_500_mb(tmp_path):
    write_crowd(tmp_path / "ava", 40_000)
    command = [sys.executable, "-c", MEASURED, tmp_path / "ava", tmp_path / "data"]
    measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert (measured["clips"], measured["published"], measured["heavy"]) == (40_000, True, [])
    assert measured["cpu"] < 60  # of both cores together, so that neighbours do not count
    assert measured["peak_mb"] < 500
