"""The asd line from a source file to packed bytes, against an independent decode of the same source."""

import json
from dataclasses import replace
from fractions import Fraction
from math import floor

import numpy as np
import pytest
import soundfile
import soxr

from muvap_assets.asd import line
from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.tsv import TsvCorpus
from muvap_assets.demo import corpus as demo
from muvap_assets.layout import Layout


def packed(manifest, tmp_path, **options):
    """Run the whole line and open the pack with NumPy and JSON alone: sample id -> (index entry, faces, audio, labels)."""
    layout = Layout(tmp_path / "data")
    corpus = Corpus(name="c", source=TsvCorpus(kind="tsv", manifest=manifest), dataset="test", **options)
    for make in (line.make_manifest, line.make_loudness_index, line.make_packed_shards):
        outcome = make(layout, corpus)
        assert outcome.published, [v.message() for check in outcome.blocking for v in check.findings]
    folder = layout.asd_packed_shards("c").current
    samples = {}
    for shard in sorted(folder.glob("shard-*")):
        faces, audio, labels = (
            np.load(shard / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ("faces", "audio", "labels")
        )
        for entry in json.loads((shard / "index.json").read_text()):
            frames = slice(entry["face_offset"], entry["face_offset"] + entry["source_frames"])
            sounds = slice(entry["audio_offset"], entry["audio_offset"] + entry["audio_samples"])
            assert entry["label_offset"] == entry["face_offset"]
            samples[entry["sample_id"]] = (entry, faces[frames], audio[sounds], labels[frames])
    return folder, samples


def independent_int16(path, rate=None):
    """Decode, mean, one-shot soxr, round: the obvious way."""
    if path.suffix == ".npy":
        raw = np.load(path)
        signal = raw.astype(np.float64) / 2.0 ** (8 * raw.itemsize - 1)
    else:
        signal, rate = soundfile.read(path, dtype="float64", always_2d=True)
    if signal.ndim == 2:
        signal = signal.mean(axis=1)
    if rate != 16_000:
        signal = soxr.resample(signal, rate, 16_000, quality="HQ")
    return np.clip(np.rint(signal * 32768), -32768, 32767).astype(np.int64)


def test_the_demo_holds_no_time_of_writing(tmp_path):
    demo.write_demo_corpus(tmp_path / "demo")
    content = (tmp_path / "demo/audio/float.wav").read_bytes()
    at = content.index(b"PEAK")  # then the size, a version, and seconds since 1970
    assert content[at + 8 : at + 16] == b"\x01\0\0\0" + bytes(4)


@pytest.mark.parametrize("shard_bytes", [1_000_000_000, 1_000_000])
def test_the_demo_is_packed_as_its_ground_truth_says_at_every_frame_rate(tmp_path, shard_bytes):
    demo.write_demo_corpus(tmp_path / "demo")
    folder, samples = packed(tmp_path / "demo" / "train.tsv", tmp_path, shard_bytes=shard_bytes)
    header = json.loads((folder / "dataset.json").read_text())
    assert (header["format"], header["version"], header["timeline"]) == ("muvap-asd-mmap", 4, "native")
    assert header["samples"] == len(samples) == len(demo.TRAIN)
    assert header["shards"] == len(list(folder.glob("shard-*")))
    for clip in demo.TRAIN:
        entry, faces, audio, labels = samples[clip.sample_id]
        fps, start = Fraction(clip.fps), Fraction(clip.start_sec or 0)
        assert [demo.read_frame_number(face) for face in faces] == list(range(clip.frames))
        assert labels.tolist() == clip.labels.tolist()
        assert entry["audio_samples"] == round(clip.frames / fps * 16_000)
        assert entry["source_fps_exact"] == clip.fps
        for onset, at in zip(demo.onset_frames(clip), demo.click_times(clip), strict=True):
            expected = (at - start) * 16_000
            if expected > entry["audio_samples"] - entry["padded_samples"] - 20:
                continue
            window = range(max(0, floor(expected) - 40), min(len(audio), floor(expected) + 41))
            loudest = max(window, key=lambda sample: abs(int(audio[sample])))
            assert abs(loudest - expected) <= 1.5, (clip.sample_id, onset)
            assert floor(Fraction(2 * loudest + 1, 32_000) * fps) in (onset, onset - 1, onset + 1)
            assert abs(int(audio[loudest])) > 10_000


def test_every_source_format_packs_as_an_independent_decode_gives(corpus, tmp_path):
    rng = np.random.default_rng(7)
    wide = rng.normal(0, 0.1, (66_150, 2))
    corpus.wav("pcm16.wav", rng.normal(0, 0.1, 24_000))
    corpus.wav("stereo24.wav", wide, 44_100, subtype="PCM_24")
    corpus.wav("int32.wav", wide[:, 0], 22_050, subtype="PCM_32")
    corpus.wav("float.wav", wide[:, 0] * 0.5, 48_000, subtype="FLOAT")
    corpus.wav("extensible.wav", wide, 48_000, subtype="PCM_24", format="WAVEX")
    corpus.wav("lossless.flac", wide, 32_000, subtype="PCM_16")
    np.save(corpus.root / "array.npy", np.rint(wide * 20_000).astype(np.int16))
    np.save(corpus.root / "planar.npy", np.rint(wide.T * 2e9).astype(np.int32))
    rates = {"array.npy": 44_100, "planar.npy": 8_000}
    names = ["pcm16.wav", "stereo24.wav", "int32.wav", "float.wav", "extensible.wav", "lossless.flac", *rates]
    for name in names:
        corpus.row(name, audio_path=name, start_sec="0.1", audio_sample_rate=rates.get(name, ""))
    _, samples = packed(corpus.write(), tmp_path)
    for name in names:
        path = corpus.root / name
        if name == "planar.npy":
            np.save(tmp_path / "planar.npy", np.load(path).T)
            path = tmp_path / "planar.npy"
        expected = independent_int16(path, rates.get(name))[1600 : 1600 + 16_000]
        audio = samples[name][2].astype(np.int64)
        assert len(audio) == 16_000
        assert np.abs(audio[: len(expected)] - expected).max() <= (0 if name == "pcm16.wav" else 1), name


def test_a_16_khz_mono_recording_passes_bit_exactly(corpus, tmp_path):
    signal = np.random.default_rng(3).integers(-32768, 32768, 20_000).astype(np.int16)
    corpus.row("a", audio_path=corpus.wav("a.wav", signal), start_sec="0.125")
    _, samples = packed(corpus.write(), tmp_path)
    assert samples["a"][2].tolist() == signal[2000:18_000].tolist()


def test_a_speaker_a_channel_is_packed_with_the_sound_and_levels_of_that_channel(corpus, tmp_path):
    pair = np.random.default_rng(5).integers(-9000, 9000, (20_000, 2)).astype(np.int16) // [1, 7]
    recording = corpus.wav("pair.wav", pair.astype(np.int16))
    for channel in (0, 1):
        corpus.row(f"speaker{channel}", audio_path=recording, start_sec="0.125", audio_channel=channel)
    _, samples = packed(corpus.write(), tmp_path)
    for channel in (0, 1):
        entry, _, audio, _ = samples[f"speaker{channel}"]
        assert audio.tolist() == pair[2000:18_000, channel].tolist()
        assert entry["audio_rms"] == pytest.approx(pair[:, channel].std() / 32768, rel=1e-9)


def test_levels_are_the_whole_recordings_and_the_same_for_all_its_tracks(corpus, tmp_path):
    signal = np.concatenate([np.full(32_000, 300), np.random.default_rng(1).integers(-9000, 9000, 32_000)]).astype(
        np.int16
    )
    rec = corpus.wav("rec.wav", signal)
    for i in range(3):
        corpus.row(f"t{i}", audio_path=rec, start_sec=i)
    _, samples = packed(corpus.write(), tmp_path)
    whole = signal.astype(np.float64) / 32768
    centred = whole - whole.mean()
    for entry, *_ in samples.values():
        assert entry["audio_mean"] == pytest.approx(whole.mean(), rel=1e-12)
        assert entry["audio_rms"] == pytest.approx(np.sqrt((centred**2).mean()), rel=1e-12)
        assert entry["audio_peak"] == pytest.approx(np.abs(centred).max(), rel=1e-12)
    assert len({entry["recording_id"] for entry, *_ in samples.values()}) == 1


def test_the_same_input_gives_the_same_versions_in_another_place(corpus, tmp_path):
    corpus.row("a")
    manifest = corpus.write()
    first, _ = packed(manifest, tmp_path / "one")
    second, _ = packed(manifest, tmp_path / "two" / "deeper")
    assert first.resolve().name == second.resolve().name


def test_nothing_of_the_machine_is_written_into_a_pack(corpus, tmp_path):
    corpus.row(
        "a", audio_path=str(corpus.root / corpus.wav("abs.wav")), visual_path=str(corpus.root / corpus.faces("abs.npy"))
    )
    packed(corpus.write(), tmp_path)
    published = Layout(tmp_path / "data").root / "asd"
    for artifact in ("loudness_index", "packed_shards"):
        for path in (published / artifact).rglob("*"):
            assert not path.is_file() or str(tmp_path).encode() not in path.read_bytes(), path


@pytest.mark.real
def test_a_real_conversation_with_its_speaker_turns_packs_and_reads_back(real_media, corpus, tmp_path):
    turns = [line.split() for line in (real_media / "sample.rttm").read_text().splitlines() if line.strip()]
    signal, rate = soundfile.read(real_media / "sample.wav", dtype="int16")
    assert (rate, len(signal)) == (16_000, 480_000)
    fps = Fraction("29.97")
    frames = floor(30 * fps)
    truth = {}
    for speaker in sorted({turn[7] for turn in turns}):
        spans = [(Fraction(t[3]), Fraction(t[3]) + Fraction(t[4])) for t in turns if t[7] == speaker]
        centres = [Fraction(2 * j + 1, 2) / fps for j in range(frames)]
        truth[speaker] = [int(any(a <= t < b for a, b in spans)) for t in centres]
        corpus.row(
            speaker,
            audio_path=str(real_media / "sample.wav"),
            visual_path=corpus.faces(f"{speaker}.npy", frames),
            source_fps="29.97",
            labels=truth[speaker],
            start_sec="0",
        )
    assert len(truth) == 2
    _, samples = packed(corpus.write(), tmp_path)
    for speaker, labels in truth.items():
        entry, faces, audio, stored = samples[speaker]
        assert stored.tolist() == labels
        assert audio.tolist() == signal[: entry["audio_samples"]].tolist()
        assert entry["speaking_ratio"] == pytest.approx(np.mean(labels))
        assert faces[:, 0, 0].tolist() == [j % 256 for j in range(frames)]


def test_the_frame_rates_of_a_corpus_are_counted_as_given(corpus, tmp_path):
    for i, fps in enumerate(["25", "23.976", "30", "25"]):
        corpus.row(f"c{i}", source_fps=fps, start_sec=0, audio_path=corpus.wav("r.wav", 40_000))
    report = line.validate_corpus(Corpus(name="c", source=TsvCorpus(kind="tsv", manifest=corpus.write()), dataset="d"))
    assert line.frame_rate_histogram(report.clips) == {"25": 2, "23.976": 1, "30": 1}


def test_tracks_shorter_than_a_model_frame_are_counted(corpus):
    corpus.row("short", visual_path=corpus.faces("s.npy", 3), labels=[0, 1, 1], source_fps="100", start_sec=0)
    corpus.row("long")
    report = line.validate_corpus(Corpus(name="c", source=TsvCorpus(kind="tsv", manifest=corpus.write()), dataset="d"))
    assert line.clips_under_one_model_frame(report.clips) == 1
    assert line.clips_under_one_model_frame([replace(clip) for clip in report.clips[1:]]) == 0
