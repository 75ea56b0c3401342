"""What counts as a change of AVA, WASD and MSDWild, and that a video of theirs leaves everything that stands."""

import json

import pytest
from loader_miniature import Miniature as LoaderMiniature
from loader_miniature import Track
from msdwild_miniature import Miniature

from muvap_assets.asd import line
from muvap_assets.datasets import load_datasets
from muvap_assets.layout import Layout
from muvap_assets.sources import fingerprint, source_of
from muvap_assets.storage.digests import file_sha256
from muvap_assets.takedown import Takedown, purge

VIDEO = "HV0H6oc4Kvs"
TRACKS = [Track(f"{VIDEO}_0960_1020:{number}", VIDEO) for number in (1, 2)]
STEPS = (line.make_manifest, line.make_loudness_index, line.make_packed_shards)


class Place:
    """One entry of a datasets.yaml, and the cache its digests are remembered in."""

    def __init__(self, folder, **entry):
        self.layout, self.file = Layout(folder / "data"), folder / "datasets.yaml"
        self.entry = entry

    @property
    def datasets(self):
        self.file.write_text(json.dumps({"corpora": {"c": self.entry}}))
        return load_datasets(self.file)

    def look(self):
        return fingerprint(source_of(self.datasets, "asd", "c"), self.layout)

    def run(self):
        for step in STEPS:
            assert step(self.layout, self.datasets.corpus("c")).published


@pytest.fixture(params=["ava", "wasd"])
def crops(request, tmp_path):
    corpus = LoaderMiniature(tmp_path / "corpus", TRACKS).write()
    return corpus, Place(tmp_path, kind=request.param, root=str(corpus.root), split=corpus.split)


@pytest.fixture
def wild(tmp_path):
    mini = Miniature(tmp_path / "wild")
    for name in ("00001", "00002"):
        mini.video(name, 50, at=[int(name) / 4])
        mini.boxes(name, 50)
        for speaker in "01":
            mini.speaks(name, speaker, 0, 1)
    mini.write()
    return mini, Place(tmp_path, kind="msdwild", root=str(mini.root), window_sec=1, overlap_sec="0.4")


def test_a_crop_a_clip_and_the_original_annotations_count(crops):
    corpus, place = crops
    digests = [place.look().digest]
    assert place.look().digest == digests[0]
    next(corpus.crops(TRACKS[0]).iterdir()).write_bytes(b"x")
    digests.append(place.look().digest)
    corpus.wav(TRACKS[1]).write_bytes(b"x")
    digests.append(place.look().digest)
    corpus.write_original()
    digests.append(place.look().digest)
    assert len(set(digests)) == 4


def test_crops_that_come_later_under_another_name_are_looked_at(crops):
    corpus, place = crops
    folder = corpus.crops(TRACKS[0])
    alias = folder.with_name(folder.name.replace(":", "_"))
    aside = corpus.root / "aside"
    folder.rename(aside)
    without = place.look()
    aside.rename(alias)
    there = place.look()
    assert there.missing == without.missing - 1
    next(alias.iterdir()).write_bytes(b"x")
    assert len({without.digest, there.digest, place.look().digest}) == 3


def test_boxes_turns_and_videos_count(wild):
    mini, place = wild
    digests = [place.look().digest]
    assert place.look().digest == digests[0]
    mini.boxes("00001", 50, missing={(0, 3)})
    digests.append(place.look().digest)
    mini.speaks("00002", "0", "1.2", "0.3")
    mini.write()
    digests.append(place.look().digest)
    path = mini.media / "00002.mp4"
    path.write_bytes(path.read_bytes() + b"x")
    digests.append(place.look().digest)
    assert len(set(digests)) == 4


def test_a_video_that_is_missing_or_broken_is_looked_at(wild):
    mini, place = wild
    path = mini.media / "00002.mp4"
    whole, content = place.look(), path.read_bytes()
    path.unlink()
    without = place.look()
    path.write_bytes(b"broken")
    broken = place.look()
    path.write_bytes(content)
    assert (whole.missing, without.missing, broken.missing) == (0, 1, 0)
    assert len({whole.digest, without.digest, broken.digest}) == 3
    assert place.look().digest == whole.digest


def test_a_video_leaves_everything_that_stands(wild):
    mini, place = wild
    digest = file_sha256(mini.media / "00002.mp4")
    place.run()
    mini.turns = [turn for turn in mini.turns if "00002" not in turn]
    mini.write()
    (mini.media / "00002.csv").unlink()
    place.run()
    report = purge(place.layout, Takedown(media=frozenset({digest})))
    assert report.samples - {digest[:16]} == {f"00002_{face}_{first:06d}" for face in (0, 1) for first in (0, 15)}
    traces = [
        path
        for path in place.layout.root.rglob("*")
        if path.is_file() and any(needle in path.read_bytes() for needle in (b"00002_", digest[:16].encode()))
    ]
    assert traces == []
