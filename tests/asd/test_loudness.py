"""Levels of whole recordings against plain NumPy and Fractions, and the index reopened from disk."""

from __future__ import annotations

import json
import math
import re
import tracemalloc
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
import soxr

from muvap_assets.asd.contract import Clip, VisualKind
from muvap_assets.asd.loudness import (
    INDEX_FILE,
    LOUDNESS_CHECKS,
    LOUDNESS_CODE_VERSION,
    PROVENANCE_FILE,
    build_loudness_index,
    measure_recording,
    read_inputs,
    read_loudness_index,
    verify_loudness_index,
)
from muvap_assets.asd.policy import Policy
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.codes import Code, Severity
from muvap_assets.errors import FormatError, ValidationError
from muvap_assets.media import sound
from muvap_assets.media.audio import mono_16k_blocks, probe_audio, to_int16

INPUTS = {"asd/manifest": "0123456789abcdef"}


def pcm(path, values, rate_hz=16_000):
    """A 16-bit file of exactly these values."""
    soundfile.write(path, np.asarray(values, np.int16), rate_hz, subtype="PCM_16")
    return path


def noise(count, level=3_000, seed=1):
    return np.random.default_rng(seed).normal(0, level, count).clip(-32768, 32767).astype(np.int16)


def reference(values):
    """The same figures by plain NumPy in float64, for int16 values."""
    samples = np.asarray(values, np.int16) / 32768
    centred = samples - samples.mean()
    rms = math.sqrt(np.mean(centred**2))
    return {"mean": samples.mean(), "rms": rms, "peak": np.abs(centred).max(), "dbfs": 20 * math.log10(rms)}


def clip_of(root, audio_path, *, row=2, sample_id="a", npy_rate_hz=None, **changes):
    """A clip on a recording below ``root``, as validation would accept it."""
    probe = probe_audio(root / audio_path, npy_rate_hz)
    clip = Clip(
        row=row,
        dataset="demo",
        sample_id=sample_id,
        audio_path=audio_path,
        visual_path=f"{sample_id}.npy",
        visual_kind=VisualKind.NPY,
        source_fps=FrameRate.parse(25),
        labels=np.zeros(1, np.uint8),
        start_sec=Fraction(0),
        audio_sample_rate=npy_rate_hz,
        recording_id=probe.sha256[:16],
        recording_samples=probe.samples_16k,
        face_height=112,
        face_width=112,
    )
    return replace(clip, **changes)


@pytest.fixture
def corpus(tmp_path):
    """Two recordings under four clips; the first is named by two paths."""
    root = tmp_path / "corpus"
    (root / "audio").mkdir(parents=True)
    pcm(root / "audio/b.wav", noise(16_000))
    pcm(root / "audio/copy.wav", noise(16_000))
    soundfile.write(root / "audio/a.flac", np.stack([noise(44_100, seed=2)] * 2, 1), 44_100)
    names = ("audio/b.wav", "audio/a.flac", "audio/copy.wav", "audio/b.wav")
    return root, [clip_of(root, name, row=row, sample_id=f"clip_{row}") for row, name in enumerate(names, 2)]


@pytest.fixture
def index(corpus, tmp_path):
    """A folder with the index of that corpus."""
    root, clips = corpus
    folder = tmp_path / "index"
    folder.mkdir()
    build_loudness_index(folder, clips, root, inputs=INPUTS)
    return folder


# ---- one recording


def test_levels_equal_plain_numpy_in_float64(tmp_path):
    values = noise(50_001) + np.int16(700)
    stats = measure_recording(pcm(tmp_path / "a.wav", values))
    for name, expected in reference(values).items():
        assert getattr(stats, name) == pytest.approx(expected, rel=1e-12), name
    assert (stats.samples_16k, stats.rate_hz, stats.channels) == (50_001, 16_000, 1)
    assert stats.duration_sec == 50_001 / 16_000
    assert not stats.silent
    assert stats.clipped_samples == 0


def test_levels_are_those_of_what_a_pack_holds(tmp_path):
    source = np.random.default_rng(3).normal(0, 0.9, (44_100 * 2, 2))
    soundfile.write(tmp_path / "a.wav", source, 44_100, subtype="FLOAT")
    mono = source.astype(np.float32).mean(axis=1, dtype=np.float64).astype(np.float32)
    resampled = np.rint(soxr.resample(mono, 44_100, 16_000).astype(np.float64) * 32768)
    stats = measure_recording(tmp_path / "a.wav")
    for name, expected in reference(resampled.clip(-32768, 32767)).items():
        assert getattr(stats, name) == pytest.approx(expected, rel=1e-12), name
    assert stats.clipped_samples == np.count_nonzero((resampled > 32767) | (resampled < -32768)) > 0
    packed = np.concatenate([to_int16(block)[0] for block in mono_16k_blocks(tmp_path / "a.wav")])
    assert stats.rms == pytest.approx(reference(packed)["rms"], rel=1e-12)
    assert stats.samples_16k == len(packed) == 32_000


def test_a_gain_covers_the_whole_recording_and_not_a_chunk(tmp_path):
    quiet, loud = noise(30 * 16_000, 100, seed=4), noise(30 * 16_000, 8_000, seed=5)
    stats = measure_recording(pcm(tmp_path / "a.wav", np.concatenate([quiet, loud])))
    assert stats.dbfs == pytest.approx(reference(np.concatenate([quiet, loud]))["dbfs"], abs=1e-9)
    assert reference(quiet)["dbfs"] + 30 < stats.dbfs < reference(loud)["dbfs"] - 2.9


def test_an_offset_is_removed_before_rms_and_peak(tmp_path):
    values = noise(16_000, 1_000)
    plain = measure_recording(pcm(tmp_path / "a.wav", values))
    offset = measure_recording(pcm(tmp_path / "b.wav", values + np.int16(9_000)))
    assert offset.rms == pytest.approx(plain.rms, rel=1e-12)
    assert offset.peak == pytest.approx(plain.peak, rel=1e-12)
    assert offset.mean - plain.mean == pytest.approx(9_000 / 32768, rel=1e-12)


def test_a_large_offset_costs_no_precision(tmp_path):
    values = np.full(200_000, 32_766, np.int16)
    values[::1_000] += 1
    values[::1_001] -= 1
    stats = measure_recording(pcm(tmp_path / "a.wav", values))
    exact = [Fraction(int(value)) for value in np.unique(values)]
    counts = [int(np.count_nonzero(values == value)) for value in np.unique(values)]
    mean = sum(value * count for value, count in zip(exact, counts, strict=True)) / len(values)
    variance = sum((value - mean) ** 2 * count for value, count in zip(exact, counts, strict=True)) / len(values)
    assert stats.mean == float(mean / 32768)
    assert stats.rms == math.sqrt(variance) / 32768


def test_levels_do_not_depend_on_block_sizes(tmp_path, monkeypatch):
    soundfile.write(tmp_path / "a.flac", np.stack([noise(90_000), noise(90_000, seed=7)], 1), 48_000)
    whole = measure_recording(tmp_path / "a.flac")
    for values in (64, 5_001):
        monkeypatch.setattr(sound, "_BLOCK_VALUES", values)
        assert measure_recording(tmp_path / "a.flac") == whole


@pytest.mark.parametrize("level", [0, 1, -32768, 12_345])
def test_a_constant_signal_is_silent_and_has_no_level(tmp_path, level):
    stats = measure_recording(pcm(tmp_path / "a.wav", np.full(16_000, level)))
    assert stats.silent
    assert stats.dbfs is None
    assert (stats.mean, stats.rms, stats.peak) == (level / 32768, 0.0, 0.0)


def test_a_signal_within_one_step_is_silent_and_an_impulse_is_not(tmp_path):
    flicker = np.tile([0, 1], 8_000)
    assert measure_recording(pcm(tmp_path / "a.wav", flicker)).silent
    impulse = np.zeros(16_000)
    impulse[77] = 20_000
    stats = measure_recording(pcm(tmp_path / "b.wav", impulse))
    assert not stats.silent
    assert stats.rms == pytest.approx(reference(impulse)["rms"], rel=1e-12)
    assert stats.dbfs == pytest.approx(20 * math.log10(stats.rms))
    assert measure_recording(pcm(tmp_path / "c.wav", 2 * flicker)).silent is False


def test_non_finite_samples_reject_the_recording_with_their_count(tmp_path):
    signal = np.zeros(48_000)
    signal[[5, 40_000]] = np.nan, np.inf
    soundfile.write(tmp_path / "a.wav", signal, 16_000, subtype="FLOAT")
    with pytest.raises(ValidationError, match="2 of 48000 values are NaN, infinite or beyond float32") as caught:
        measure_recording(tmp_path / "a.wav")
    assert caught.value.finding.code is Code.AUDIO_NON_FINITE


def test_a_recording_that_changed_since_the_manifest_is_refused(tmp_path):
    path = pcm(tmp_path / "a.wav", noise(1_000))
    digest = measure_recording(path).sha256
    assert measure_recording(path, expected_id=digest[:16]) == measure_recording(path)
    pcm(path, noise(1_000, seed=9))
    with pytest.raises(
        ValidationError, match=rf"recording \w{{16}}; required: {digest[:16]}, as when the manifest"
    ) as caught:
        measure_recording(path, expected_id=digest[:16])
    assert caught.value.finding.code is Code.AUDIO_CHANGED


def test_an_empty_recording_has_no_level(tmp_path):
    with pytest.raises(ValidationError, match="0 frames at 16000 Hz"):
        measure_recording(pcm(tmp_path / "a.wav", []))


def test_a_npy_waveform_is_measured_at_the_rate_given(tmp_path):
    np.save(tmp_path / "a.npy", noise(88_200))
    stats = measure_recording(tmp_path / "a.npy", 44_100)
    assert (stats.samples_16k, stats.duration_sec) == (32_000, 2.0)


def test_measuring_holds_blocks_and_not_the_recording(tmp_path):
    path = tmp_path / "a.wav"
    with soundfile.SoundFile(path, "w", 48_000, 2, "PCM_16") as file:
        for second in range(240):
            file.write(np.full((48_000, 2), second, np.int16))
    tracemalloc.start()
    stats = measure_recording(path)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert stats.samples_16k == 240 * 16_000
    assert peak_bytes < 16 << 20  # the recording is 46 MB, and 92 MB as float32


# ---- the index


def test_a_recording_shared_by_many_tracks_has_one_row_and_is_measured_once(corpus, tmp_path):
    root, clips = corpus
    calls = []
    rows = build_loudness_index(tmp_path, clips, root, inputs=INPUTS, progress=lambda *event: calls.append(event))
    assert [row.audio_path for row in rows] == ["audio/b.wav", "audio/a.flac"]
    assert calls == [(1, 2, "audio/b.wav"), (2, 2, "audio/a.flac")]
    assert list(read_loudness_index(tmp_path)) == [clips[0].recording_id, clips[1].recording_id]


def test_the_index_reads_back_as_it_was_measured(corpus, index):
    root, clips = corpus
    rows = read_loudness_index(index)
    for clip in clips[:2]:
        expected = replace(measure_recording(root / clip.audio_path), audio_path=clip.audio_path)
        assert rows[clip.recording_id] == expected
    assert read_inputs(index) == INPUTS


def test_the_bytes_depend_neither_on_workers_nor_on_the_place(corpus, index, tmp_path):
    root, clips = corpus
    moved = tmp_path / "elsewhere" / "corpus"
    moved.parent.mkdir()
    root.rename(moved)
    for workers in (1, 2, 7):
        folder = tmp_path / f"index-{workers}"
        folder.mkdir()
        absolute = [replace(clip, audio_path=str(moved / clip.audio_path)) for clip in clips]
        build_loudness_index(folder, absolute if workers == 2 else clips, moved, inputs=INPUTS, workers=workers)
        for name in (INDEX_FILE, PROVENANCE_FILE):
            assert (folder / name).read_bytes() == (index / name).read_bytes()
            assert str(tmp_path).encode() not in (folder / name).read_bytes()


def test_an_absolute_path_outside_the_corpus_is_kept_as_a_name(tmp_path):
    clip = clip_of(tmp_path, str(pcm(tmp_path / "far.wav", noise(1_000))))
    (tmp_path / "corpus").mkdir()
    rows = build_loudness_index(tmp_path, [clip], tmp_path / "corpus", inputs=INPUTS)
    assert rows[0].audio_path == "far.wav"


def test_provenance_names_inputs_parameters_and_code(index):
    assert json.loads((index / PROVENANCE_FILE).read_text()) == {
        "artifact": "asd/loudness_index",
        "inputs": INPUTS,
        "parameters": {"sample_rate_hz": 16_000, "resampler": "soxr HQ", "scale": 32_768},
        "code_version": LOUDNESS_CODE_VERSION,
    }


def test_every_column_says_what_it_holds(index):
    schema = pq.read_schema(index / INDEX_FILE)
    assert all(field.metadata[b"description"] for field in schema)
    assert schema.field("duration_sec").metadata[b"unit"] == b"s"
    assert [field.name for field in schema if field.nullable] == ["dbfs"]


def test_every_bad_recording_is_named_in_one_error(corpus, tmp_path):
    root, clips = corpus
    (root / "audio/a.flac").unlink()
    pcm(root / "audio/b.wav", noise(10))
    with pytest.raises(ValidationError, match=r"loudness index: 2 finding\(s\)") as caught:
        build_loudness_index(tmp_path, clips, root, inputs=INPUTS)
    changed, missing = caught.value.findings
    assert (changed.code, missing.code) == (Code.AUDIO_CHANGED, Code.AUDIO_MISSING)
    assert missing.message().startswith("demo row 3 (clip_3): audio_path: audio/a.flac: no such file (")
    assert f"audio/a.flac: no such file ({missing.path}); required: " in missing.message()
    assert not any(str(tmp_path) in str(finding.to_dict()) for finding in caught.value.findings)
    assert not (tmp_path / INDEX_FILE).exists()


def test_an_index_that_cannot_be_read_says_why(index, tmp_path):
    with pytest.raises(FormatError, match=r"loudness_index\.parquet: missing \(.*\); required: what was published"):
        read_loudness_index(tmp_path)
    with pytest.raises(FormatError, match=r"provenance\.json: missing \(.*\); required: what was published"):
        read_inputs(tmp_path)
    table = pq.read_table(index / INDEX_FILE)
    pq.write_table(table.drop_columns(["peak"]), index / INDEX_FILE)
    with pytest.raises(FormatError, match=r"columns .*; required: the columns that this version writes"):
        read_loudness_index(index)
    pq.write_table(pa.concat_tables([table, table]), index / INDEX_FILE)
    with pytest.raises(FormatError, match=r"4 rows for 2 recordings \(.*\); required: one row a recording"):
        read_loudness_index(index)
    for text in ("{", "[]", "{}", '{"inputs": 3}'):
        (index / PROVENANCE_FILE).write_text(text)
        with pytest.raises(FormatError, match=r"provenance\.json: unreadable .*required: what was published"):
            read_inputs(index)


# ---- its checks


def outcomes_of(folder, clips, policy=None):
    return {outcome.name: outcome for outcome in verify_loudness_index(folder, clips, policy or Policy())}


def rewrite(folder, change):
    """Change the rows of an index on disk."""
    table = pq.read_table(folder / INDEX_FILE)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), folder / INDEX_FILE)


def test_a_sound_index_passes_every_check_with_its_numbers(corpus, index):
    outcomes = outcomes_of(index, corpus[1])
    assert tuple(outcomes) == LOUDNESS_CHECKS
    assert all(outcome.passed and not outcome.findings for outcome in outcomes.values())
    levels, rows, silence = outcomes.values()
    stats = list(read_loudness_index(index).values())
    assert levels.numbers["dbfs_min"] == min(entry.dbfs for entry in stats)
    assert levels.numbers["dbfs_median"] == pytest.approx(sum(entry.dbfs for entry in stats) / 2)
    assert rows.numbers == {"recordings": 2, "clips": 4, "hours": round(2 / 3600, 6)}
    assert silence.numbers == {"silent": 0, "recordings": 2, "share": 0.0, "max_share": 0.1}
    assert json.dumps([dict(outcome.numbers) for outcome in outcomes.values()], allow_nan=False)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"rms": math.nan}, "rms nan"),
        ({"dbfs": -math.inf}, "dbfs -inf"),
        ({"peak": 0.0001}, "peak 0.0001"),
        ({"peak": 2.5}, "peak 2.5"),
        ({"mean": -1.5}, "mean -1.5"),
        ({"dbfs": -3.0}, r"dbfs -3\.0, rms"),
        ({"dbfs": None}, "silent False, dbfs None"),
        ({"silent": True, "dbfs": None}, "silent True, dbfs None, peak"),
        ({"clipped_samples": -1}, "-1 clipped"),
        ({"duration_sec": 9.0}, r"16000 samples for 9\.0 s"),
    ],
)
def test_levels_that_contradict_each_other_are_found(corpus, index, change, found):
    rewrite(index, lambda rows: rows[0].update(change))
    outcome = outcomes_of(index, corpus[1])["levels_finite"]
    assert outcome.blocks
    assert [finding.code for finding in outcome.findings] == [Code.LEVEL_INVALID]
    assert re.search(f"audio/b.wav: .*{found}", outcome.findings[0].message())


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda rows: rows.pop(), "no row for recording"),
        (lambda rows: rows.append(rows[0]), "2 rows for recording"),
        (lambda rows: rows.append({**rows[0], "recording_id": "f" * 16, "sha256": "f" * 64}), "f, which the manifest"),
        (lambda rows: rows[0].update(sha256="0" * 64), "of SHA-256 0000"),
        (
            lambda rows: rows[0].update(samples_16k=15_999),
            "audio/b.wav: 15999 samples; required: 16000, as the manifest",
        ),
    ],
)
def test_a_row_too_few_too_many_or_of_another_length_is_found(corpus, index, change, found):
    rewrite(index, change)
    outcome = outcomes_of(index, corpus[1])["one_row_per_recording"]
    assert outcome.blocks
    assert len(outcome.findings) == 1
    assert found in outcome.findings[0].message()


def test_an_index_that_cannot_be_opened_fails_its_first_check(corpus, index):
    (index / INDEX_FILE).write_bytes(b"PAR1 and nothing more")
    (outcome,) = verify_loudness_index(index, corpus[1], Policy())
    assert outcome.name == "levels_finite"
    assert outcome.blocks
    assert outcome.findings[0].code is Code.ARTIFACT_INVALID
    assert str(index) not in str(outcome.findings[0].to_dict())


def test_silent_recordings_are_reported_and_too_many_of_them_fail(corpus, tmp_path):
    root, clips = corpus
    pcm(root / "audio/zero.wav", np.zeros(16_000))
    clips = [*clips, clip_of(root, "audio/zero.wav", row=6, sample_id="mute")]
    build_loudness_index(tmp_path, clips, root, inputs=INPUTS)

    accepted = outcomes_of(tmp_path, clips, Policy(max_silent_share=0.5))["silent_share"]
    assert accepted.passed
    assert (accepted.numbers["silent"], accepted.numbers["recordings"]) == (1, 3)
    (finding,) = accepted.findings
    assert (finding.code, finding.severity) == (Code.AUDIO_SILENT, Severity.WARNING)
    assert "audio/zero.wav" in finding.message()

    refused = outcomes_of(tmp_path, clips, Policy(max_silent_share=0.3))["silent_share"]
    assert refused.blocks
    assert [finding.code for finding in refused.findings] == [
        Code.SILENT_SHARE,
        Code.AUDIO_SILENT,
    ]
    assert "1 of 3 recordings are silent (33.3%); required: at most 30.0%" in refused.findings[0].message()
