"""What pictures read of a pack: the frames and labels they say they show, and no more than they promise.

The demo's faces spell out their own frame numbers, so that a wrong frame shows.
"""

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muvap_assets.asd.line import make_loudness_index, make_manifest, make_packed_shards
from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.datasets import parse_datasets
from muvap_assets.demo.corpus import read_frame_number, write_demo_corpus
from muvap_assets.layout import Layout
from muvap_assets.pictures import faces
from muvap_assets.pictures.alignment import LONGEST_SEC, alignment_picture, chosen_position, read_strip
from muvap_assets.pictures.canvas import PictureError
from muvap_assets.pictures.faces import faces_picture
from muvap_assets.ref2va.encoder_spec import LatentStatistics, latent_statistics


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    write_demo_corpus(folder / "asd")
    entries = {"corpora": {"train": {"kind": "tsv", "manifest": "asd/train.tsv"}}}
    corpus, layout = parse_datasets(entries, folder / "datasets.yaml").corpus("train"), Layout(folder / "data")
    for make in (make_manifest, make_loudness_index, make_packed_shards):
        assert make(layout, corpus).published
    return PackReader(layout.asd_packed_shards("train").current)


def test_faces_of_the_strip_are_the_native_frames_at_their_times(pack):
    for sample in pack:
        strip, fps = read_strip(sample), Fraction(sample.entry.source_fps_exact)
        numbers = [read_frame_number(face) for face in strip.faces]
        assert numbers == [int(time * float(fps)) for time in strip.face_times]
        assert np.allclose(strip.face_times, [float((number + Fraction(1, 2)) / fps) for number in numbers])
        assert numbers == sorted(set(numbers)) and len(numbers) == min(7, len(sample.labels))


def test_labels_at_25_hertz_are_those_of_the_native_frame_at_each_model_frames_centre(pack):
    for sample in pack:
        strip, fps = read_strip(sample), Fraction(sample.entry.source_fps_exact)
        native = [
            min(int((k + Fraction(1, 2)) / 25 * fps), len(sample.labels) - 1) for k in range(len(strip.model_labels))
        ]
        assert strip.model_labels.tolist() == [int(sample.labels[frame]) for frame in native]
        whole = int(Fraction(len(strip.labels)) / fps * 25)
        assert len(strip.model_labels) == max(1, whole)


def test_the_sound_of_the_strip_is_loudest_where_the_clip_begins_to_speak(pack):
    sample = pack[pack.position_of("talk_1:1")]
    strip = read_strip(sample)
    onsets = np.flatnonzero(np.diff(strip.labels.astype(int)) == 1) + 1
    for onset in onsets:
        centre = round((onset + 0.5) / 24 * 16_000)
        around = np.abs(strip.audio[centre - 40 : centre + 40].astype(int))
        assert around.max() > 0.5 * np.abs(strip.audio.astype(int)).max()


def test_the_clip_with_most_changes_of_label_is_chosen(pack):
    changes = [int(np.abs(np.diff(sample.labels.astype(int))).sum()) for sample in pack]
    assert changes[chosen_position(pack)] == max(changes)
    assert f"Clip {pack.entry(chosen_position(pack)).sample_id}," in alignment_picture(pack).caption


class LongPack:
    """A pack of a thousand clips, all the same one, that counts which are opened."""

    def __init__(self, sample):
        self.sample, self.opened = sample, []

    def __len__(self):
        return 1000

    def __getitem__(self, position):
        self.opened.append(position)
        return self.sample


def test_of_a_large_pack_only_a_bounded_number_of_clips_is_opened(pack):
    many = LongPack(pack[0])
    faces_picture(many)
    assert len(many.opened) == 21 and (min(many.opened), max(many.opened)) == (0, 999)
    many = LongPack(pack[0])
    alignment_picture(many)
    assert len(many.opened) <= 201


def test_a_long_clip_is_shown_for_its_first_seconds(pack):
    sample = pack[pack.position_of("talk_4:2")]
    long = type(sample)(
        sample.entry,
        np.broadcast_to(sample.faces[0], (6000, 112, 112)),
        np.zeros(1_600_000, np.int16),
        np.zeros(6000, np.uint8),
    )
    strip = read_strip(long)
    assert strip.seconds == LONGEST_SEC
    assert (len(strip.labels), len(strip.audio), len(strip.model_labels)) == (480, 128_000, 200)


def test_faces_full_of_noise_are_shown_in_fewer_rows_rather_than_not(pack, monkeypatch):
    tried = []

    def too_large(figure):
        tried.append(figure)
        if len(tried) < 3:
            raise PictureError("too large")
        return b"png"

    monkeypatch.setattr(faces, "encoded", too_large)
    many = LongPack(pack[0])
    assert faces_picture(many).caption.startswith("7 of 1000 clips")
    monkeypatch.setattr(faces, "encoded", lambda figure: (_ for _ in ()).throw(PictureError("too large")))
    with pytest.raises(PictureError):
        faces_picture(many)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=30), st.booleans())
def test_a_tile_shows_a_frame_of_the_wanted_label_where_there_is_one(labels, wanted):
    class Sample:
        entry = type("Entry", (), {"sample_id": "a", "labels_known": True})

    Sample.labels = np.array(labels, np.uint8)
    Sample.faces = np.zeros((len(labels), 2, 2), np.uint8)
    tile = faces._tile(Sample, wanted=wanted)
    assert tile.speaking == bool(labels[tile.frame])
    if int(wanted) in labels:
        assert tile.speaking == wanted


def test_statistics_of_a_checkpoint_come_from_the_config_of_its_vae(tmp_path, tiny_checkpoint):
    config = json.loads((tiny_checkpoint / "vae" / "config.json").read_text())
    found = latent_statistics(tiny_checkpoint)
    assert found == LatentStatistics(tuple(config["latents_mean"]), tuple(config["latents_std"]))
    assert len(found.mean) == 24
    (tmp_path / "vae").mkdir()
    for content in (
        "{",
        "{}",
        '{"latents_mean": [1], "latents_std": [1, 2]}',
        '{"latents_mean": null, "latents_std": 1}',
    ):
        (tmp_path / "vae" / "config.json").write_text(content)
        assert latent_statistics(tmp_path) is None
    assert latent_statistics(tmp_path / "nowhere") is None
