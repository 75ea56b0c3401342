"""Tracks that are boxes of a video, packed with an earlier pack at hand: a video is decoded only where a track of it needs it."""

import os
import shutil
from dataclasses import replace

import pytest
from msdwild_miniature import Miniature

from muvap_assets.asd import line
from muvap_assets.asd.packs import video_writer
from muvap_assets.asd.packs.reuse import Reuse
from muvap_assets.asd.packs.writer import write_pack
from muvap_assets.datasets import parse_datasets
from muvap_assets.layout import Layout
from muvap_assets.storage import digests

STEPS = (line.make_manifest, line.make_loudness_index, line.make_packed_shards)


class Levels:
    mean, rms, peak = 0.0, 0.1, 0.5


class Videos:
    """Two videos of two faces, four windows each, and the packs made of them."""

    def __init__(self, tmp_path):
        self.mini, self.tmp_path, self.packs = Miniature(tmp_path / "wild"), tmp_path, 0
        for name in ("00001", "00002"):
            self.mini.video(name, 50, at=[int(name) / 4])
            self.mini.boxes(name, 50)
            for speaker in "01":
                self.mini.speaks(name, speaker, 0, 1)

    def corpus(self, **options):
        self.mini.write()
        entry = {"kind": "msdwild", "root": str(self.mini.root), "window_sec": 1, "overlap_sec": "0.4", **options}
        return parse_datasets({"corpora": {"wild": entry}}, self.tmp_path / "datasets.yaml").corpus("wild")

    def clips(self, **options):
        return line.validate_corpus(self.corpus(**options)).clips

    def pack(self, clips, earlier=None):
        folder = self.tmp_path / f"pack{self.packs}"
        self.packs += 1
        folder.mkdir()
        reuse = Reuse.of(earlier, earlier and earlier.with_suffix(".json"))
        levels = dict.fromkeys({clip.recording_id for clip in clips}, Levels())
        write_pack(folder, clips, self.mini.root, levels, inputs={}, workers=2, reuse=reuse)
        reuse.save(folder.with_suffix(".json"))
        return folder, reuse.report


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def videos(tmp_path, monkeypatch):
    monkeypatch.setattr(digests, "SETTLED_SEC", -1.0)
    return Videos(tmp_path)


@pytest.fixture
def opened(monkeypatch):
    """The videos whose pictures were decoded."""
    seen, real = [], video_writer.open_video
    monkeypatch.setattr(video_writer, "open_video", lambda path: (seen.append(path.name), real(path))[1])
    return seen


def test_unchanged_videos_are_copied_without_being_read(videos, opened, monkeypatch):
    clips = videos.clips()
    earlier, _ = videos.pack(clips)
    assert sorted(opened) == ["00001.mp4", "00002.mp4"]  # threads open them in either order
    opened.clear()
    monkeypatch.setattr("muvap_assets.storage.digests.file_sha256", None)
    again, report = videos.pack(clips, earlier)
    assert (report.faces_copied, report.audio_copied, report.recognized_by_time) == (8, 8, 8)
    assert opened == []
    assert tree(again) == tree(earlier)


def test_a_video_copied_over_itself_is_recognized_by_its_bytes(videos, opened):
    clips = videos.clips()
    earlier, _ = videos.pack(clips)
    opened.clear()
    for path in videos.mini.media.iterdir():
        shutil.copyfile(path, path.with_suffix(".copy"))
        os.replace(path.with_suffix(".copy"), path)  # noqa: PTH105 - the rename is what is tested
    again, report = videos.pack(clips, earlier)
    assert (report.faces_copied, report.recognized_by_content, opened) == (8, 8, [])
    assert tree(again) == tree(earlier)


@pytest.mark.parametrize("settled", [True, False])
def test_only_the_video_whose_boxes_changed_is_decoded_and_its_sound_copied(videos, opened, monkeypatch, settled):
    monkeypatch.setattr(digests, "SETTLED_SEC", -1.0 if settled else 1000.0)
    earlier, _ = videos.pack(videos.clips())
    videos.mini.boxes("00002", 50, missing={(0, 3)})
    clips = videos.clips()
    full, _ = videos.pack(clips)
    opened.clear()
    again, report = videos.pack(clips, earlier)
    assert (report.faces_copied, report.audio_copied, opened) == (4, 8, ["00002.mp4"])
    assert tree(again) == tree(full)
    assert tree(again) != tree(earlier)


def test_another_window_of_the_same_video_is_decoded_and_the_others_copied(videos, opened):
    clips = videos.clips()
    earlier, _ = videos.pack(clips)
    first = clips[0]
    moved = replace(first, boxes=replace(first.boxes, first_frame=first.boxes.first_frame + 1))
    changed = (moved, *clips[1:])
    full, _ = videos.pack(changed)
    opened.clear()
    again, report = videos.pack(changed, earlier)
    assert (report.faces_copied, opened) == (7, ["00001.mp4"])
    assert tree(again) == tree(full)


def test_a_video_written_to_while_it_was_decoded_is_not_recognized_by_its_bytes(videos, opened, monkeypatch):
    clips = videos.clips()
    real = video_writer.file_sha256

    def touched(path):
        digest = real(path)
        os.utime(path)
        return digest

    monkeypatch.setattr(video_writer, "file_sha256", touched)
    earlier, _ = videos.pack(clips)
    monkeypatch.setattr(video_writer, "file_sha256", real)
    opened.clear()
    again, report = videos.pack(clips, earlier)
    assert (report.faces_copied, sorted(opened)) == (0, ["00001.mp4", "00002.mp4"])
    assert tree(again) == tree(earlier)


def test_the_line_publishes_the_same_version_from_copies(videos, opened, tmp_path):
    versions = {}
    for root, rounds in (("copied", 2), ("full", 1)):
        layout = Layout(tmp_path / root)
        if root == "copied":
            for step in STEPS:
                step(layout, videos.corpus())
            videos.mini.speaks("00002", "0", "1.2", "0.5")
            opened.clear()
        outcomes = [step(layout, videos.corpus()) for step in STEPS]
        versions[root] = outcomes[-1].published.version
        if rounds == 2:
            assert opened == []
    assert versions["copied"] == versions["full"]
