"""Packs written from small media and read back, against references that use none of the package's reading code."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import zlib
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from muvap_assets.asd.contract import Clip, VisualKind
from muvap_assets.asd.packs import audio_writer
from muvap_assets.asd.packs import reader as reader_module
from muvap_assets.asd.packs.layout import ARROW_SCHEMA, PackEntry, crc32_join, crc32_zeros, map_index
from muvap_assets.asd.packs.plan import plan_shards
from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.asd.packs.summary import summarize_pack
from muvap_assets.asd.packs.verify import PACK_CHECKS, verify_pack
from muvap_assets.asd.packs.writer import write_pack
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.codes import Code
from muvap_assets.errors import ConfigError, FormatError, ValidationError
from muvap_assets.storage.digests import file_sha256

REQUIRED_KEYS = [
    "dataset", "sample_id", "source_fps", "source_frames", "start_sec", "model_frames", "face_offset", "audio_offset",
    "audio_samples", "label_offset", "audio_mean", "audio_rms", "audio_peak", "speaking_ratio",
]  # fmt: skip


@dataclass(frozen=True)
class Levels:
    mean: float = 0.001
    rms: float = 0.1
    peak: float = 0.5


@dataclass
class Corpus:
    """Media on disk and the clips that a manifest would have made of it."""

    root: Path
    clips: list[Clip]

    @property
    def loudness(self) -> dict[str, Levels]:
        return {clip.recording_id: Levels() for clip in self.clips}

    def recording(self, name: str, samples: np.ndarray, rate: int = 16_000) -> Path:
        path = self.root / name
        soundfile.write(path, samples, rate, subtype="PCM_16")
        return path

    def add(
        self,
        sample_id: str,
        faces: np.ndarray,
        audio: Path,
        *,
        fps: str = "25",
        start: Fraction = Fraction(0),
        jpeg: bool = False,
        samples: int | None = None,
    ) -> Clip:
        """One clip; ``samples`` is the recording's length at 16 kHz where that is not the file's own."""
        visual = self.root / (f"{sample_id}_faces" if jpeg else f"{sample_id}.npy")
        if jpeg:
            visual.mkdir()
            for i, face in enumerate(faces):
                (visual / f"{i / 100 + 9.9:.2f}.jpg").write_bytes(cv2.imencode(".jpg", face)[1].tobytes())
        else:
            np.save(visual, faces)
        frames = len(faces)
        clip = Clip(
            row=len(self.clips) + 2,
            dataset="tiny",
            sample_id=sample_id,
            audio_path=audio.name,
            visual_path=visual.name,
            visual_kind=VisualKind.JPEG_DIRECTORY if jpeg else VisualKind.NPY,
            source_fps=FrameRate.parse(fps),
            labels=(np.arange(frames) % 3 == 0).astype(np.uint8),
            start_sec=start,
            audio_sample_rate=None,
            recording_id=file_sha256(audio)[:16],
            recording_samples=soundfile.info(audio).frames if samples is None else samples,
            face_height=112 if jpeg else faces.shape[1],
            face_width=112 if jpeg else faces.shape[2],
        )
        self.clips.append(clip)
        return clip

    def pack(self, folder: Path, **options):
        folder.mkdir(parents=True)
        return write_pack(folder, self.clips, self.root, self.loudness, inputs={"asd/manifest": "0" * 16}, **options)


def numbered(frames: int, start: int = 0, height: int = 112, width: int = 112) -> np.ndarray:
    """Faces that carry their frame number in every pixel."""
    return np.broadcast_to(
        ((np.arange(frames) + start) % 256).astype(np.uint8)[:, None, None], (frames, height, width)
    ).copy()


def sound(samples: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-32768, 32768, samples, dtype=np.int16)


@pytest.fixture
def corpus(tmp_path):
    root = tmp_path / "media"
    root.mkdir()
    return Corpus(root, [])


@pytest.fixture
def mixed(corpus):
    """Seven clips of three recordings at five frame rates, two of them JPEG folders; three overlap, one is padded."""
    long, short, other = (corpus.recording(f"{i}.wav", sound(n, i)) for i, n in enumerate((64_000, 16_000, 48_001)))
    corpus.add("clip:1", numbered(50), long, start=Fraction("0.5"))
    corpus.add("clip:2", numbered(31, 50), long, fps="29.97", start=Fraction("1.2345"))
    corpus.add("clip é", numbered(24, 100), short, fps="24")
    corpus.add("clip 4", numbered(40), long, fps="30000/1001", start=Fraction("2.9"))  # past the recording's end
    corpus.add("jpegs", numbered(100), other, fps="60", jpeg=True)
    corpus.add("early", numbered(13), long, fps="12.5", start=Fraction("0.1"))
    corpus.add("more jpegs", numbered(7), other, fps="25", start=Fraction(2), jpeg=True)
    return corpus


def read_plain(folder: Path) -> list[dict]:
    """A pack as others read it: plain JSON and np.load, nothing of ours."""
    header, rows = json.loads((folder / "dataset.json").read_text()), []
    for shard in range(header["shards"]):
        place = folder / f"shard-{shard:06d}"
        faces, audio, labels = (
            np.load(place / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ("faces", "audio", "labels")
        )
        for row in json.loads((place / "index.json").read_text()):
            span = slice(row["face_offset"], row["face_offset"] + row["source_frames"])
            sound_span = slice(row["audio_offset"], row["audio_offset"] + row["audio_samples"])
            rows.append(
                {**row, "shard": shard, "faces": faces[span], "audio": audio[sound_span], "labels": labels[span]}
            )
    return rows


def expected_audio(corpus: Corpus, clip: Clip) -> np.ndarray:
    whole = soundfile.read(corpus.root / clip.audio_path, dtype="int16")[0]
    start = round(clip.start_sec * 16_000)
    length = round(len(clip.labels) / clip.source_fps.value * 16_000)
    part = whole[start : start + length]
    return np.concatenate([part, np.zeros(length - len(part), np.int16)])


def expected_faces(corpus: Corpus, clip: Clip) -> np.ndarray:
    path = corpus.root / clip.visual_path
    if path.is_file():
        return np.load(path)
    files = sorted(path.iterdir(), key=lambda file: float(file.stem))
    read = (cv2.imread(str(file), cv2.IMREAD_GRAYSCALE) for file in files)
    return np.stack([cv2.resize(face, (112, 112), interpolation=cv2.INTER_LINEAR) for face in read])


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def failed(folder: Path, clips=None) -> dict[str, list]:
    return {check.name: list(check.findings) for check in verify_pack(folder, clips) if not check.passed}


# --- what a pack is ---


@pytest.mark.parametrize("shard_bytes", [1_000_000_000, 1_200_000, 1])
def test_a_pack_opens_with_numpy_and_json_alone_and_holds_the_media(mixed, tmp_path, shard_bytes):
    mixed.pack(tmp_path / "pack", shard_bytes=shard_bytes)
    rows = read_plain(tmp_path / "pack")
    assert [row["sample_id"] for row in rows] == [clip.sample_id for clip in mixed.clips]
    for row, clip in zip(rows, mixed.clips, strict=True):
        np.testing.assert_array_equal(row["faces"], expected_faces(mixed, clip))
        np.testing.assert_array_equal(row["audio"], expected_audio(mixed, clip))
        np.testing.assert_array_equal(row["labels"], clip.labels)
        assert row["faces"].dtype == row["labels"].dtype == np.uint8
        assert row["audio"].dtype == np.int16
        assert len(row["faces"]) == len(row["labels"]) == row["source_frames"]
        assert row["label_offset"] == row["face_offset"]
        assert row["speaking_ratio"] == np.mean(clip.labels)
        assert row["start_sec"] == float(clip.start_sec)
        assert FrameRate.parse(row["source_fps_exact"]) == clip.source_fps
        assert row["source_fps"] == float(clip.source_fps.value)
        assert (row["audio_mean"], row["audio_rms"], row["audio_peak"]) == (0.001, 0.1, 0.5)
        assert row["padded_samples"] == clip.padded_samples
        for name in ("faces", "audio", "labels"):
            assert row[f"{name}_crc32"] == zlib.crc32(np.ascontiguousarray(row[name]))
    assert rows[3]["padded_samples"] > 0
    assert [check.name for check in verify_pack(tmp_path / "pack", mixed.clips)] == list(PACK_CHECKS)
    assert failed(tmp_path / "pack", mixed.clips) == failed(tmp_path / "pack") == {}


def test_the_header_and_the_index_have_the_keys_other_readers_expect(mixed, tmp_path):
    header = mixed.pack(tmp_path / "pack", shard_bytes=1_200_000)
    written = json.loads((tmp_path / "pack" / "dataset.json").read_text())
    promised = {
        "format": "muvap-asd-mmap", "version": 4, "timeline": "native", "audio_sample_rate": 16000,
        "audio_normalization": None, "face_shape": [112, 112], "face_color": "grayscale", "face_dtype": "uint8",
        "audio_dtype": "int16", "label_dtype": "uint8", "shards": header.shards, "samples": 7,
    }  # fmt: skip
    assert {key: written[key] for key in promised} == promised
    assert header.shards == len(list((tmp_path / "pack").glob("shard-*"))) > 1
    assert "IMREAD_GRAYSCALE" in written["face_conversion"]
    assert written["provenance"] == {
        "artifact": "asd/packed_shards",
        "inputs": {"asd/manifest": "0" * 16},
        "parameters": {"shard_bytes": 1_200_000},
        "code_version": "1",
    }
    row = json.loads((tmp_path / "pack" / "shard-000000" / "index.json").read_text())[0]
    assert list(row)[: len(REQUIRED_KEYS)] == REQUIRED_KEYS
    assert row["model_frames"] == 50
    text = b"".join(content for name, content in tree(tmp_path / "pack").items() if not name.endswith("npy"))
    assert str(tmp_path).encode() not in text


def test_the_bytes_depend_neither_on_the_workers_nor_on_the_run(mixed, tmp_path):
    mixed.pack(tmp_path / "one", workers=1, shard_bytes=1_200_000)
    mixed.pack(tmp_path / "two", workers=2, shard_bytes=1_200_000)
    mixed.pack(tmp_path / "five", workers=5, shard_bytes=1_200_000)
    assert tree(tmp_path / "one") == tree(tmp_path / "two") == tree(tmp_path / "five")


def test_a_clip_of_many_blocks_is_joined_in_order(corpus, tmp_path):
    audio = corpus.recording("a.wav", sound(160_000))
    corpus.add("long", numbered(250), audio, jpeg=True)
    corpus.add("array", np.random.default_rng(0).integers(0, 256, (240, 112, 112), dtype=np.uint8), audio)
    corpus.pack(tmp_path / "pack", workers=4)
    assert failed(tmp_path / "pack", corpus.clips) == {}
    for row, clip in zip(read_plain(tmp_path / "pack"), corpus.clips, strict=True):
        np.testing.assert_array_equal(row["faces"], expected_faces(corpus, clip))


def test_frames_named_by_time_keep_their_order_over_a_power_of_ten(corpus, tmp_path):
    audio = corpus.recording("a.wav", sound(16_000))
    clip = corpus.add("a", numbered(5), audio, jpeg=True)
    names = ["999.88.jpg", "999.92.jpg", "999.96.jpg", "1000.00.jpg", "1000.04.jpg"]
    for old, name in zip(sorted((corpus.root / clip.visual_path).iterdir()), names, strict=True):
        level = names.index(name) * 50
        old.unlink()
        cv2.imwrite(str(old.with_name(name)), np.full((20, 20), level, np.uint8))
    corpus.pack(tmp_path / "pack")
    assert read_plain(tmp_path / "pack")[0]["faces"][:, 50, 50].tolist() == [0, 50, 100, 150, 200]


@pytest.mark.parametrize("name", ["dir[1]", "a*b?", "with space é"])
def test_a_folder_of_frames_may_be_called_anything(corpus, tmp_path, name):
    audio = corpus.recording("a.wav", sound(16_000))
    clip = corpus.add("a", numbered(5), audio, jpeg=True)
    (corpus.root / clip.visual_path).rename(corpus.root / name)
    corpus.clips = [replace(clip, visual_path=name)]
    corpus.pack(tmp_path / "pack")
    assert failed(tmp_path / "pack", corpus.clips) == {}


def test_progress_is_told_after_each_sample(mixed, tmp_path):
    calls = []
    mixed.pack(tmp_path / "pack", progress=lambda done, total, item: calls.append((done, total, item)))
    assert [(done, total) for done, total, _ in calls] == [(i + 1, 7) for i in range(7)]
    assert {item for *_, item in calls} == {clip.sample_id for clip in mixed.clips}


# --- audio ---


def test_a_recording_is_decoded_once_however_many_clips_share_it(corpus, tmp_path, monkeypatch):
    audio = corpus.recording("a.wav", sound(320_000))
    for i in range(30):
        corpus.add(f"clip {i}", numbered(20 + i, 0, 8, 8), audio, start=Fraction((i * 7) % 15, 2))
    decoded = []

    def counting(path, rate=None, stop_sample=None, *options):
        decoded.append((path.name, stop_sample))
        return original(path, rate, stop_sample, *options)

    original = audio_writer.mono_16k_blocks
    monkeypatch.setattr(audio_writer, "mono_16k_blocks", counting)
    corpus.pack(tmp_path / "pack", shard_bytes=20_000)
    last = max(clip.start_sample + clip.audio_samples for clip in corpus.clips)
    assert decoded == [("a.wav", last)]
    assert last < 320_000
    for row, clip in zip(read_plain(tmp_path / "pack"), corpus.clips, strict=True):
        np.testing.assert_array_equal(row["audio"], expected_audio(corpus, clip))


def test_a_clip_begins_at_the_sample_its_start_rounds_to_and_half_rounds_to_even(corpus, tmp_path):
    audio = corpus.recording("a.wav", np.arange(16_000, dtype=np.int16))
    for i, (start, first) in enumerate(((Fraction(1, 32000), 0), (Fraction(3, 32000), 2), (Fraction(5, 32000), 2))):
        corpus.add(f"clip {i}", numbered(2, 0, 4, 4), audio, start=start)
        corpus.clips[-1] = replace(corpus.clips[-1], license=str(first))
    # 3 frames at 64/3 * 1000/... would hide it: at 640 fps one frame is 25 samples, at 1000/3 fps 48.
    corpus.add("half", numbered(1, 0, 4, 4), audio, fps="32000/77")  # 38.5 samples
    corpus.pack(tmp_path / "pack")
    rows = read_plain(tmp_path / "pack")
    assert [int(row["audio"][0]) for row in rows[:3]] == [0, 2, 2]
    assert rows[3]["audio_samples"] == 38


def test_audio_that_ends_early_is_padded_with_silence_and_counted(corpus, tmp_path):
    audio = corpus.recording("a.wav", np.full(16_000, 1000, np.int16))
    corpus.add("short", numbered(26, 0, 4, 4), audio)
    corpus.add("almost past", numbered(5, 0, 4, 4), audio, start=Fraction(15_999, 16_000))
    corpus.add("all past", numbered(5, 0, 4, 4), audio, start=Fraction(3))
    corpus.pack(tmp_path / "pack")
    rows = read_plain(tmp_path / "pack")
    assert [row["padded_samples"] for row in rows] == [640, 3199, 3200]
    assert [int(np.count_nonzero(row["audio"])) for row in rows] == [16_000, 1, 0]
    assert failed(tmp_path / "pack", corpus.clips) == {}


def test_clipped_samples_are_counted_for_each_clip(corpus, tmp_path):
    path = corpus.root / "loud.wav"
    loud = np.zeros(16_000, np.float32)
    loud[[10, 700, 701]] = 1.5, -1.5, 1.0
    soundfile.write(path, loud, 16_000, subtype="FLOAT")
    corpus.add("first", numbered(1, 0, 4, 4), path)
    corpus.add("both", numbered(2, 0, 4, 4), path)
    corpus.add("none", numbered(2, 0, 4, 4), path, start=Fraction(1, 2))
    corpus.pack(tmp_path / "pack")
    rows = read_plain(tmp_path / "pack")
    assert [row["clipped_samples"] for row in rows] == [1, 3, 0]
    assert rows[1]["audio"][[10, 700, 701]].tolist() == [32767, -32768, 32767]


def test_npy_audio_is_resampled_from_the_rate_the_manifest_gives(corpus, tmp_path):
    tone = (np.sin(np.arange(8_000) * 2 * np.pi * 200 / 8_000) * 16_000).astype(np.int16)
    np.save(corpus.root / "wave.npy", tone)
    digest = file_sha256(corpus.root / "wave.npy")[:16]
    audio = corpus.recording("a.wav", sound(10))
    clip = corpus.add("tone", numbered(25, 0, 4, 4), audio)
    corpus.clips = [
        replace(clip, audio_path="wave.npy", audio_sample_rate=8_000, recording_id=digest, recording_samples=16_000)
    ]
    corpus.pack(tmp_path / "pack")
    expected = np.sin(np.arange(16_000) * 2 * np.pi * 200 / 16_000) * 16_000
    np.testing.assert_allclose(read_plain(tmp_path / "pack")[0]["audio"][500:-500], expected[500:-500], atol=20)


# --- what is refused ---


def test_every_bad_sample_is_named_at_once(mixed, tmp_path):
    root, clips = mixed.root, mixed.clips
    np.save(root / clips[0].visual_path, numbered(49))
    np.save(root / clips[1].visual_path, numbered(31, 0, 50, 112))
    (root / clips[3].visual_path).unlink()
    jpegs = sorted((root / clips[4].visual_path).iterdir(), key=lambda path: float(path.stem))
    jpegs[3].write_bytes(b"<html>404</html>")
    jpegs[90].write_bytes(jpegs[90].read_bytes()[:-40])
    sorted((root / clips[6].visual_path).iterdir(), key=lambda path: float(path.stem))[3].unlink()
    soundfile.write(root / clips[2].audio_path, sound(16_000, 99), 16_000)
    with pytest.raises(ValidationError) as caught:
        mixed.pack(tmp_path / "pack", workers=2)
    found = {finding.sample_id: finding for finding in caught.value.findings}
    assert [finding.row for finding in caught.value.findings] == [2, 3, 4, 5, 6, 8]
    assert {sample_id: finding.code.name for sample_id, finding in found.items()} == {
        "clip:1": "LABEL_COUNT_MISMATCH",
        "clip:2": "FACE_SHAPE_MISMATCH",
        "clip é": "AUDIO_CHANGED",
        "clip 4": "FACES_MISSING",
        "jpegs": "FACES_UNREADABLE",
        "more jpegs": "LABEL_COUNT_MISMATCH",
    }
    array, folder = root / clips[0].visual_path, root / clips[4].visual_path
    named = f"{clips[0].visual_path}: labels has 50 entries, faces has 49 frames ({array}); required: "
    assert named in found["clip:1"].message()
    named = f"9.93.jpg: no JPEG, it begins with b'<html>40' (and 1 more frames) ({folder / '9.93.jpg'}); required: "
    assert f"{clips[4].visual_path}: {named}" in found["jpegs"].message()
    assert not any(str(root) in str(finding.to_dict()) for finding in caught.value.findings)
    assert "faces has 6 frames (missing between '9.92.jpg' and '9.94.jpg')" in found["more jpegs"].message()
    assert not (tmp_path / "pack" / "dataset.json").exists()


@pytest.mark.parametrize("damage", ["zero bytes", "half"])
def test_a_jpeg_left_by_a_killed_run_is_an_error_and_not_half_a_picture(corpus, tmp_path, damage):
    audio = corpus.recording("a.wav", sound(16_000))
    noise = np.random.default_rng(0).integers(0, 256, (5, 60, 60), dtype=np.uint8)
    clip = corpus.add("a", noise, audio, jpeg=True)
    victim = sorted((corpus.root / clip.visual_path).iterdir())[2]
    data = victim.read_bytes()
    victim.write_bytes(data[: len(data) // 2] if damage == "half" else b"")
    match = f"{victim.name}.*(without end marker|0 bytes)"
    with pytest.raises(ValidationError, match=match):
        corpus.pack(tmp_path / "pack")


WRONG_FACES = {
    "objects": (np.array([np.zeros(3), np.zeros(2)], dtype=object), r"object array: frames of unequal shape\?"),
    "floats": (np.zeros((5, 4, 4), np.float32), "multiply by 255"),
    "colour": (np.zeros((5, 4, 4, 3), np.uint8), "colour"),
    "Fortran": (np.asfortranarray(np.zeros((5, 4, 4), np.uint8)), "Fortran"),
    "none": (np.zeros((0, 4, 4), np.uint8), "at least one frame"),
    "time last": (np.zeros((4, 4, 5), np.uint8), "labels has 5 entries, faces has 4 frames"),
}


@pytest.mark.parametrize("name", WRONG_FACES)
def test_faces_replaced_by_another_kind_are_refused_by_name(corpus, tmp_path, name):
    audio = corpus.recording("a.wav", sound(16_000))
    clip = corpus.add("a", numbered(5, 0, 4, 4), audio)
    np.save(corpus.root / clip.visual_path, WRONG_FACES[name][0], allow_pickle=True)
    with pytest.raises(ValidationError, match=WRONG_FACES[name][1]):
        corpus.pack(tmp_path / "pack")


def test_a_missing_recording_and_one_of_another_length_name_each_of_their_samples(corpus, tmp_path):
    gone, longer = corpus.recording("gone.wav", sound(16_000, 1)), corpus.recording("longer.wav", sound(16_000, 2))
    corpus.add("gone 1", numbered(5, 0, 4, 4), gone)
    corpus.add("gone 2", numbered(5, 0, 4, 4), gone)
    corpus.add("length", numbered(30, 0, 4, 4), longer, samples=15_999)
    gone.unlink()
    with pytest.raises(ValidationError) as caught:
        corpus.pack(tmp_path / "pack")
    assert [(finding.sample_id, finding.code) for finding in caught.value.findings] == [
        ("gone 1", Code.AUDIO_MISSING),
        ("gone 2", Code.AUDIO_MISSING),
        ("length", Code.AUDIO_CHANGED),
    ]
    assert f"longer.wav: decodes to 16000 samples at 16 kHz ({longer}); required: 15999" in str(caught.value)
    assert f"gone.wav: No such file or directory ({gone}); required: " in str(caught.value)


def test_what_can_be_refused_before_decoding_is(corpus, tmp_path):
    audio = corpus.recording("a.wav", sound(16_000))
    for i in range(3):
        corpus.add(f"clip {i}", numbered(5, 0, 4, 4), audio)
    odd, twin = corpus.add("odd", numbered(5, 0, 4, 5), audio), replace(corpus.clips[0], row=9)
    unmeasured = replace(corpus.clips[1], sample_id="unmeasured", recording_id="f" * 16)
    clips = [*corpus.clips, twin, unmeasured]
    (tmp_path / "pack").mkdir()
    with pytest.raises(ValidationError) as caught:
        write_pack(tmp_path / "pack", clips, corpus.root, {odd.recording_id: Levels()}, inputs={})
    assert [(v.sample_id, v.code.name) for v in caught.value.findings] == [
        ("clip 0", "SAMPLE_ID_DUPLICATE"),
        ("unmeasured", "LEVEL_INVALID"),
        ("odd", "FACE_SHAPE_MISMATCH"),
        ("clip 0", "SAMPLE_ID_DUPLICATE"),
    ]
    with pytest.raises(ValidationError, match="RMS nan"):
        write_pack(tmp_path / "pack", clips[:1], corpus.root, {odd.recording_id: Levels(rms=float("nan"))}, inputs={})
    with pytest.raises(ValidationError, match=r"no clip; required: at least one\. See what was left out"):
        write_pack(tmp_path / "pack", [], corpus.root, {}, inputs={})
    with pytest.raises(ConfigError, match="workers 0"):
        write_pack(tmp_path / "pack", clips[:1], corpus.root, corpus.loudness, inputs={}, workers=0)
    assert list((tmp_path / "pack").iterdir()) == []


def test_a_full_disk_is_found_out_before_anything_is_decoded(mixed, tmp_path, monkeypatch):
    def full(descriptor, offset, length):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        mixed.pack(tmp_path / "pack")


# --- the plan ---


clip_lengths = st.lists(st.integers(1, 400), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(
    lengths=clip_lengths,
    rates=st.lists(st.sampled_from(["12.5", "23.976", "25", "30000/1001", "60"]), min_size=1, max_size=3),
    shard_bytes=st.integers(1, 200_000),
)
def test_a_plan_places_every_clip_once_in_order_and_without_a_gap(lengths, rates, shard_bytes):
    clips = [planned(length, rates[i % len(rates)]) for i, length in enumerate(lengths)]
    shards = plan_shards(clips, (6, 5), shard_bytes)
    placed = [sample for shard in shards for sample in shard.samples]
    assert [sample.clip for sample in placed] == clips
    assert [sample.position for sample in placed] == list(range(len(clips)))
    for number, shard in enumerate(shards):
        frames = samples = 0
        for sample in shard.samples:
            assert (sample.shard, sample.face_offset, sample.audio_offset) == (number, frames, samples)
            frames, samples = frames + sample.clip.source_frames, samples + sample.clip.audio_samples
        assert (shard.frames, shard.audio_samples) == (frames, samples)
        assert frames * 31 + samples * 2 <= shard_bytes or len(shard.samples) == 1
    for shard, following in pairwise(shards):
        first = following.samples[0].clip
        together = (shard.frames + first.source_frames) * 31 + (shard.audio_samples + first.audio_samples) * 2
        assert together > shard_bytes


def planned(frames: int, fps: str) -> Clip:
    return Clip(
        row=1, dataset="d", sample_id="s", audio_path="a", visual_path="v", visual_kind=VisualKind.NPY,
        source_fps=FrameRate.parse(fps), labels=np.zeros(frames, np.uint8), start_sec=Fraction(0), audio_sample_rate=None,
        recording_id="0" * 16, recording_samples=10**9, face_height=6, face_width=5,
    )  # fmt: skip


def test_a_shard_without_room_is_a_wrong_setting():
    with pytest.raises(ConfigError, match="shard_bytes 0; required: a positive size"):
        plan_shards([], (1, 1), 0)


@given(first=st.binary(max_size=300), second=st.binary(max_size=300))
def test_joined_checksums_are_the_checksum_of_the_whole(first, second):
    assert crc32_join(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)
    assert crc32_zeros(len(first), zlib.crc32(second)) == zlib.crc32(second + bytes(len(first)))


def test_each_field_of_an_entry_is_a_column():
    assert ARROW_SCHEMA.names == [field.name for field in fields(PackEntry)]


# --- reading ---


@pytest.fixture
def packed(mixed, tmp_path):
    mixed.pack(tmp_path / "pack", shard_bytes=1_200_000)
    return tmp_path / "pack"


def test_a_reader_gives_views_of_mapped_files(mixed, packed):
    reader = PackReader(packed)
    assert len(reader) == 7
    for sample, clip, row in zip(reader, mixed.clips, read_plain(packed), strict=True):
        np.testing.assert_array_equal(sample.faces, row["faces"])
        np.testing.assert_array_equal(sample.audio, row["audio"])
        np.testing.assert_array_equal(sample.labels, row["labels"])
        assert (sample.source_fps, sample.start_sec) == (clip.source_fps, clip.start_sec)
        assert not sample.faces.flags.writeable
        assert not sample.faces.flags.owndata
        json_row = {f.name: getattr(sample.entry, f.name) for f in fields(PackEntry) if f.name != "shard"}
        assert json_row == {key: row[key] for key in json_row}
    assert reader[reader.position_of("clip é")].entry.sample_id == "clip é"
    assert reader[-1].entry.sample_id == "more jpegs"
    assert reader.column("source_frames").tolist() == [50, 31, 24, 40, 100, 13, 7]
    with pytest.raises(IndexError, match="sample 7; required: one of 7"):
        reader[7]
    with pytest.raises(KeyError):
        reader.position_of("nobody")


def child_sum(reader: PackReader) -> int:
    return int(sum(int(sample.faces.sum()) + int(np.abs(sample.audio.astype(int)).sum()) for sample in reader))


def test_a_reader_is_pickled_by_its_path_and_opens_again(packed):
    reader = PackReader(packed)
    expected = child_sum(reader)
    data = pickle.dumps(reader)
    assert len(data) < 500
    assert child_sum(pickle.loads(data)) == expected
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(child_sum, (reader,)) == expected
        pool.close()  # terminating it hangs where this process ignores SIGTERM, as in the background of a shell
        pool.join()


def test_a_reader_stays_with_the_version_it_opened_when_the_link_moves(mixed, packed, tmp_path):
    mixed.clips = mixed.clips[::-1]
    mixed.pack(tmp_path / "newer")
    link = tmp_path / "current"
    link.symlink_to(packed.name)
    reader = PackReader(link)
    link.unlink()
    link.symlink_to("newer")
    assert child_sum(reader) == child_sum(PackReader(packed))
    assert reader[0].entry.sample_id == "clip:1"
    np.testing.assert_array_equal(reader[0].faces, numbered(50))


def test_a_forked_reader_reads_the_same_in_parent_and_child(packed):
    code = f"""
import os, sys
from muvap_assets.asd.packs.reader import PackReader
def total(reader):
    return sum(int(s.faces.sum()) + int(s.audio.astype(int).sum()) + len(s.entry.sample_id) for s in reader)
reader = PackReader({str(packed)!r})
first = reader[0].faces.sum()
child = os.fork()
if child == 0:
    os._exit(0 if total(reader) == total(PackReader({str(packed)!r})) else 1)
mine = total(reader)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or (mine != total(PackReader({str(packed)!r}))))
"""
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False).returncode == 0


def test_a_pack_of_more_shards_than_files_may_be_open_is_read_whole(corpus, tmp_path):
    count = 150  # three arrays each
    faces, audio = numbered(25, height=8, width=8), sound(16_000)
    clip = corpus.add("a", faces, corpus.recording("a.wav", audio))
    corpus.clips = [replace(clip, sample_id=f"clip {i}", row=i + 2) for i in range(count)]
    folder = tmp_path / "many"
    assert corpus.pack(folder, shard_bytes=1).shards == count
    code = f"""
import os, pickle, resource, sys
from muvap_assets.asd.packs.reader import PackReader
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
reader = PackReader({str(folder)!r})
def total(samples):
    return sum(int(s.faces.sum()) + int(s.audio.astype(int).sum()) + int(s.labels.sum()) for s in samples)
samples = list(reader)
expected, open_files = total(samples), len(os.listdir("/proc/self/fd"))
again = pickle.loads(pickle.dumps(reader))
child = os.fork()
if child == 0:
    os._exit(total(samples) != expected or total(reader) != expected)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert total(again) == expected
del reader
assert total(samples) == expected
print(expected, open_files)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    total, open_files = map(int, done.stdout.split())
    assert total == count * (int(faces.sum()) + int(audio.astype(int).sum()) + int(clip.labels.sum()))
    assert open_files < 16


def test_only_so_many_shards_are_mapped_at_a_time_and_views_outlive_their_turn(mixed, packed, monkeypatch):
    monkeypatch.setattr(reader_module, "MAPPED_SHARDS", 1)
    reader = PackReader(packed)
    assert reader.header.shards > 2
    for sample, row in zip(list(reader), read_plain(packed), strict=True):
        np.testing.assert_array_equal(sample.faces, row["faces"])
    assert reader.arrays(0) is reader.arrays(0)
    first = reader.arrays(0)
    reader.arrays(1)
    assert reader.arrays(0) is not first


def test_an_array_that_was_cut_short_after_the_pack_was_opened_is_refused_when_it_is_mapped(packed):
    reader = PackReader(packed)
    path = packed / "shard-000001" / "faces.npy"
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(FormatError, match="shard-000001: not what it was when the pack was opened"):
        reader.arrays(1)


def test_a_million_samples_open_in_little_memory(packed, tmp_path):
    """One sample of the pack's index a million times over: opening looks at every row and copies none."""
    batch = map_index(packed)
    million = batch.take(pa.array(np.zeros(1_000_000, np.int64)))
    big = tmp_path / "big"
    shutil.copytree(packed, big)
    with pa.OSFile(str(big / "index.arrow"), "wb") as sink, pa.ipc.new_file(sink, million.schema) as writer:
        writer.write_batch(million)
    header = json.loads((big / "dataset.json").read_text())
    (big / "dataset.json").write_text(json.dumps({**header, "samples": 1_000_000}))
    code = f"""
import pathlib, re
from muvap_assets.asd.packs.reader import PackReader
reader = PackReader({str(big)!r})
assert len(reader) == 1_000_000 and reader[999_999].faces.shape == (50, 112, 112)
# Not ru_maxrss: a child begins with its parent's.
print(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    peak_kib = int(done.stdout)
    assert peak_kib * 1024 < 300e6, peak_kib


def test_packs_are_imported_without_torch_dagster_and_cv2():
    code = (
        "import sys, muvap_assets.asd.packs; sys.exit(bool({'torch', 'dagster', 'cv2', 'pandas'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- damage ---


def edit_header(**values):
    def edit(pack: Path) -> None:
        header = json.loads((pack / "dataset.json").read_text())
        (pack / "dataset.json").write_text(json.dumps({**header, **values}))

    return edit


def edit_index(**values):
    """Change the first row of index.arrow."""

    def edit(pack: Path) -> None:
        rows = map_index(pack).to_pylist()
        rows[0].update(values)
        batch = pa.RecordBatch.from_pylist(rows, schema=ARROW_SCHEMA)
        (pack / "index.arrow").unlink()
        with pa.OSFile(str(pack / "index.arrow"), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)

    return edit


def cut(name: str, size: int = 10):
    def edit(pack: Path) -> None:
        (pack / name).write_bytes((pack / name).read_bytes()[:-size])

    return edit


def write(name: str, data: bytes):
    return lambda pack: (pack / name).write_bytes(data)


def drop(name: str):
    return lambda pack: shutil.rmtree(pack / name) if (pack / name).is_dir() else (pack / name).unlink()


def resave(name: str, change):
    def edit(pack: Path) -> None:
        array = change(np.load(pack / name))
        (pack / name).unlink()
        np.save(pack / name, array)

    return edit


UNOPENABLE = {
    "no header": (drop("dataset.json"), "dataset.json: missing"),
    "garbage header": (write("dataset.json", b"{not json"), "dataset.json: unreadable"),
    "binary header": (write("dataset.json", b"\xff\xfe\x00"), "dataset.json: unreadable"),
    "a list as header": (write("dataset.json", b"[]"), r"a JSON list \(.*\); required: a JSON object"),
    "bottomless header": (write("dataset.json", b"[" * 100_000), "dataset.json: unreadable"),
    "another format": (edit_header(format="other"), r"format is 'other' \(.*\); required: 'muvap-asd-mmap'"),
    "another version": (edit_header(version=3), r"version is 3 \(.*\); required: 4"),
    "another unit": (edit_header(audio_sample_rate=8000), "audio_sample_rate is 8000"),
    "a negative count": (edit_header(samples=-1), "-1 is no count"),
    "a text as shape": (edit_header(face_shape="112"), "face_shape"),
    "no index": (drop("index.arrow"), "index.arrow: missing"),
    "garbage index": (write("index.arrow", b"ARROW1\0\0garbage"), "index.arrow: unreadable"),
    "half an index": (cut("index.arrow", 900), "index.arrow: unreadable"),
}

DAMAGED = {
    "fewer samples": (edit_header(samples=6), {"shapes"}),
    "more shards": (edit_header(shards=9), {"shapes", "labels_binary", "audio_spans_faces", "round_trip"}),
    "no shard": (drop("shard-000001"), {"shapes", "labels_binary", "audio_spans_faces", "round_trip"}),
    "cut faces": (cut("shard-000000/faces.npy"), {"shapes", "labels_binary", "audio_spans_faces", "round_trip"}),
    "another dtype": (
        resave("shard-000000/audio.npy", lambda a: a.astype(np.int32)),
        {"shapes", "labels_binary", "audio_spans_faces", "round_trip"},
    ),
    "another shape": (
        resave("shard-000000/faces.npy", lambda a: a.reshape(len(a), 56, 224)),
        {"shapes", "labels_binary", "audio_spans_faces", "round_trip"},
    ),
    "one label less": (
        resave("shard-000000/labels.npy", lambda a: a[:-1]),
        {"shapes", "labels_binary", "audio_spans_faces", "round_trip"},
    ),
    "an offset outside": (edit_index(face_offset=10**9), {"offsets_contiguous", "round_trip"}),
    "an offset that overflows": (edit_index(audio_offset=2**63 - 1), {"offsets_contiguous", "round_trip"}),
    "a negative offset": (edit_index(label_offset=-1), {"offsets_contiguous", "round_trip"}),
    "a shard outside": (edit_index(shard=99), {"offsets_contiguous", "round_trip"}),
}

WRONG_CONTENT = {
    "a pixel": (
        resave("shard-000000/faces.npy", lambda a: a ^ (np.arange(a.size).reshape(a.shape) == 7)),
        {"round_trip"},
    ),
    "audio": (
        resave("shard-000000/audio.npy", lambda a: a + (np.arange(a.size) == 7).astype(np.int16)),
        {"round_trip"},
    ),
    "label 2": (resave("shard-000000/labels.npy", lambda a: a * 2), {"labels_binary", "round_trip"}),
    "a flipped label": (resave("shard-000000/labels.npy", lambda a: 1 - a), {"labels_binary", "round_trip"}),
    "sound in the padding": (
        lambda pack: resave(f"{last_padded(pack)}/audio.npy", lambda a: np.maximum(a, 1))(pack),
        {"audio_spans_faces", "round_trip"},
    ),
    "audio of another length": (edit_index(source_fps_exact="26"), {"audio_spans_faces", "round_trip"}),
    "no frame rate": (edit_index(source_fps_exact="fast"), {"audio_spans_faces", "round_trip"}),
    "padding beyond": (edit_index(padded_samples=10**9), {"audio_spans_faces", "round_trip"}),
    "no level": (edit_index(audio_rms=float("nan")), {"levels_finite", "round_trip"}),
    "RMS above the peak": (edit_index(audio_rms=0.9), {"levels_finite", "round_trip"}),
    "two levels of one recording": (edit_index(audio_peak=0.6), {"levels_finite", "round_trip"}),
    "another id twice": (edit_index(sample_id="clip:2"), {"shapes", "round_trip"}),
    "a garbage JSON index": (write("shard-000000/index.json", b"\xff{"), {"round_trip"}),
    "a JSON index of another kind": (write("shard-000000/index.json", b"[1, 2]"), {"round_trip"}),
    "no JSON index": (drop("shard-000000/index.json"), {"round_trip"}),
    "an empty JSON index": (write("shard-000000/index.json", b"[]"), {"round_trip"}),
    "a stray file": (write("notes.txt", b"x"), {"shapes"}),
    "a stray file in a shard": (write("shard-000000/faces.npy.bak", b"x"), {"shapes"}),
}


def last_padded(pack: Path) -> str:
    return next(f"shard-{row['shard']:06d}" for row in read_plain(pack) if row["padded_samples"])


@pytest.mark.parametrize("name", UNOPENABLE)
def test_a_pack_that_cannot_be_opened_is_reported_and_refused(packed, name):
    damage, match = UNOPENABLE[name]
    damage(packed)
    with pytest.raises(FormatError, match=match) as caught:
        PackReader(packed)
    pickle.loads(pickle.dumps(caught.value))
    checks = verify_pack(packed)
    assert [(check.name, check.passed) for check in checks] == [(check, False) for check in PACK_CHECKS]
    assert {check.findings[0].code for check in checks[1:]} == {Code.CHECK_NOT_RUN}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_pack_is_reported_and_refused(packed, name):
    damage, checks = DAMAGED[name]
    damage(packed)
    assert set(failed(packed)) == checks
    with pytest.raises(FormatError):
        PackReader(packed)


@pytest.mark.parametrize("name", WRONG_CONTENT)
def test_wrong_content_is_reported_by_the_check_it_concerns(packed, name):
    damage, checks = WRONG_CONTENT[name]
    damage(packed)
    assert set(failed(packed)) == checks


def test_the_first_offender_is_named_with_what_was_found(packed):
    resave("shard-000000/labels.npy", lambda a: np.where(np.arange(len(a)) == 3, 7, a).astype(np.uint8))(packed)
    message = failed(packed)["labels_binary"][0].message()
    assert message.startswith("shard-000000 (clip:1): 1 labels above 1; required: 0 or 1 for each frame")


def test_a_pack_of_another_manifest_is_reported(mixed, packed):
    others = [replace(clip, start_sec=clip.start_sec + 1) if i == 2 else clip for i, clip in enumerate(mixed.clips)]
    assert set(failed(packed, others)) == {"round_trip"}
    assert (
        "start_sec_exact '0'; required: '1', as the manifest has" in failed(packed, others)["round_trip"][0].message()
    )
    assert set(failed(packed, mixed.clips[:-1])) == {"shapes"}
    flipped = [replace(mixed.clips[0], labels=1 - mixed.clips[0].labels), *mixed.clips[1:]]
    assert set(failed(packed, flipped)) == {"round_trip"}


def test_checks_carry_numbers(mixed, packed):
    numbers = {check.name: check.numbers for check in verify_pack(packed, mixed.clips)}
    assert numbers["shapes"]["samples"] == 7
    assert numbers["shapes"]["frames"] == 265
    assert numbers["labels_binary"]["speaking_frames"] == sum(int(clip.labels.sum()) for clip in mixed.clips)
    assert numbers["audio_spans_faces"]["padded_clips"] == 1
    assert numbers["levels_finite"]["recordings"] == 3
    assert numbers["round_trip"]["samples"] == 7
    json.dumps([dict(values) for values in numbers.values()], allow_nan=False)


def test_a_summary_says_what_is_in_a_pack(mixed, packed):
    summary = summarize_pack(packed)
    assert (summary.samples, summary.frames, summary.recordings, summary.face_shape) == (7, 265, 3, (112, 112))
    assert summary.shards == len(list(packed.glob("shard-*")))
    assert summary.hours == sum(clip.audio_samples for clip in mixed.clips) / 16_000 / 3600
    assert summary.size_bytes == sum(len(content) for content in tree(packed).values())
    assert summary.frame_rates == {"25": 2, "29.97": 1, "24": 1, "30000/1001": 1, "60": 1, "12.5": 1}
    assert summary.speaking_share == sum(int(clip.labels.sum()) for clip in mixed.clips) / 265
    assert (summary.padded_clips, summary.padded_samples) == (1, mixed.clips[3].padded_samples)
    assert summary.provenance["inputs"] == {"asd/manifest": "0" * 16}


def test_labels_that_are_not_known_have_no_speaking_share(corpus, tmp_path):
    audio = corpus.recording("a.wav", sound(16_000))
    corpus.clips = [replace(corpus.add("a", numbered(5, 0, 4, 4), audio), labels_known=False)]
    corpus.pack(tmp_path / "pack")
    assert summarize_pack(tmp_path / "pack").speaking_share is None
    assert read_plain(tmp_path / "pack")[0]["labels_known"] is False


@pytest.mark.parametrize("lie", [50_331_653, 2**31 - 1, -5])
def test_a_text_of_the_index_that_leads_out_of_the_map_is_refused_at_opening(packed, lie):
    """Asking for it would end the process by a signal."""
    path = packed / "index.arrow"
    content = bytearray(path.read_bytes())
    with pa.memory_map(str(path)) as source:
        batch = pa.ipc.open_file(source).get_batch(0)
        offsets = np.frombuffer(batch.column("sample_id").buffers()[1], np.int32, batch.num_rows + 1).tobytes()
        del batch
    place = content.index(offsets)
    content[place + 4 : place + 8] = lie.to_bytes(4, "little", signed=True)
    path.write_bytes(content)
    with pytest.raises(
        FormatError, match=r"index\.arrow: unreadable .* required: an Arrow IPC file of one whole record batch"
    ):
        PackReader(packed)
