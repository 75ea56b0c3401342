"""Rows against their media: what the contract demands of faces, labels and audio side by side."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile

from muvap_assets.asd.corpora.tsv import read_tsv
from muvap_assets.asd.leakage import find_leakage, read_split
from muvap_assets.asd.manifest import validate, write_manifest
from muvap_assets.asd.manifest_checks import MANIFEST_CHECKS, verify_manifest
from muvap_assets.asd.manifest_files import MANIFEST_SCHEMA, read_manifest
from muvap_assets.asd.policy import Policy
from muvap_assets.codes import Code, Severity
from muvap_assets.storage.digests import file_sha256

QUARANTINE = Policy(on_violation="quarantine", max_rejected_share=0.5)


STRICT = Policy()


def check(corpus, policy=STRICT):
    path = corpus.write()
    return validate(read_tsv(path), root=path.parent, dataset="test", policy=policy)


def found(report):
    return [(finding.sample_id, finding.code) for finding in report.findings]


def written(corpus, tmp_path, policy=STRICT):
    report = check(corpus, policy)
    folder = tmp_path / "artifact" / "version"
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder, report, root=corpus.root, published=folder, inputs={"source": "x"}, dataset="test")
    return report, folder


def test_a_good_row_is_accepted_with_what_its_media_say(corpus):
    corpus.row("a", start_sec="0.5", audio_path=corpus.wav("rec.wav", 48_000))
    report = check(corpus)
    (clip,) = report.clips
    assert not report.findings
    assert (clip.source_frames, clip.face_height, clip.face_width) == (25, 8, 8)
    assert (clip.start_sample, clip.audio_samples, clip.padded_samples) == (8000, 16_000, 0)
    assert clip.recording_samples == 48_000
    assert clip.recording_id == file_sha256(corpus.root / "rec.wav")[:16]


@pytest.mark.parametrize("labels", [24, 26])
def test_labels_and_faces_of_unequal_number_are_rejected_with_both_counts(corpus, labels):
    corpus.row("a", labels=[0] * labels)
    report = check(corpus)
    assert found(report) == [("a", Code.LABEL_COUNT_MISMATCH)]
    assert (
        report.findings[0]
        .message()
        .startswith(f"train.tsv row 2 (a): labels: labels has {labels} entries, faces has 25 frames; required: ")
    )
    assert not report.clips


def test_a24_a_whole_recording_without_start_sec_is_rejected_with_both_durations(corpus):
    corpus.row("a", audio_path=corpus.wav("rec.wav", 480_000))
    report = check(corpus)
    assert found(report) == [("a", Code.START_SEC_REQUIRED)]
    assert "lasts 30.000 s while the faces last 1.000 s" in report.findings[0].found


@pytest.mark.parametrize(
    ("declared", "samples", "code", "hint"),
    [
        ("50", 16_000, Code.START_SEC_REQUIRED, "Or source_fps is wrong: 25 would fit exactly."),
        ("30", 16_000, Code.START_SEC_REQUIRED, "Or source_fps is wrong: 25 would fit exactly."),
        (
            "25",
            round(25 * 1001 / 24000 * 16_000) * 2,
            Code.START_SEC_REQUIRED,
            "or cut the audio to the clip.",
        ),
        ("12.5", 16_000, Code.AUDIO_SHORT, "Or source_fps is wrong: 25 would fit exactly."),
        ("12.5", 15_360, Code.AUDIO_SHORT, "25 would fit to one frame, which the usual cut leaves out."),
        (
            "15",
            round(25 * 1001 / 30000 * 16_000),
            Code.AUDIO_SHORT,
            "wrong: 29.97 or 30000/1001 would fit exactly.",
        ),
        ("12.5", 14_000, Code.AUDIO_SHORT, "Raise `max_missing_audio_share` or drop the row."),
    ],
)
def test_a_rate_that_is_wrong_is_said_with_the_one_at_which_faces_and_audio_are_of_one_length(
    corpus, declared, samples, code, hint
):
    corpus.row("a", audio_path=corpus.wav("a.wav", samples), source_fps=declared)
    (finding,) = check(corpus).findings
    assert finding.code is code
    assert finding.hint.endswith(hint)


def test_no_other_rate_is_offered_where_a_start_is_given(corpus):
    corpus.row("a", source_fps="12.5", start_sec="0")
    (finding,) = check(corpus).findings
    assert finding.hint == "Raise `max_missing_audio_share` or drop the row."


@pytest.mark.parametrize(("samples", "accepted"), [(16_000 + 640 + 320, True), (16_000 + 640 + 321, False)])
def test_clip_local_audio_may_outlast_the_faces_by_a_frame_and_the_stated_tolerance(corpus, samples, accepted):
    corpus.row("a", audio_path=corpus.wav("a.wav", samples))
    report = check(corpus)
    assert bool(report.clips) is accepted
    if accepted:
        assert report.clips[0].start_sec == 0


def test_a25_a_clip_past_the_recordings_end_is_rejected(corpus):
    corpus.row("a", audio_path=corpus.wav("rec.wav", 160_000), start_sec="12")
    report = check(corpus)
    assert found(report) == [("a", Code.AUDIO_NO_OVERLAP)]
    assert "starts at 12.000 s and the recording ends at 10.000 s" in report.findings[0].found


def test_a02_audio_one_frame_short_is_normal_and_counted_as_padding(corpus):
    corpus.row("a", audio_path=corpus.wav("a.wav", 15_360))
    report = check(corpus)
    assert not report.findings
    assert report.clips[0].padded_samples == 640


def test_a25_audio_a_little_shorter_is_reported_with_its_share_and_a_lot_shorter_rejected(corpus):
    corpus.row("little", audio_path=corpus.wav("l.wav", 14_800))
    corpus.row("lot", audio_path=corpus.wav("o.wav", 14_000))
    report = check(corpus)
    assert [(v.sample_id, v.code, v.severity) for v in report.findings] == [
        ("little", Code.AUDIO_SHORT, Severity.WARNING),
        ("lot", Code.AUDIO_SHORT, Severity.ERROR),
    ]
    assert "7.5% of the clip" in report.findings[0].found
    assert "12.5% of the clip" in report.findings[1].found
    assert [clip.sample_id for clip in check(corpus, Policy(max_missing_audio_share=0.2)).clips] == ["little", "lot"]


def test_a23_tracks_of_one_recording_share_its_id_and_it_is_decoded_once(corpus, monkeypatch):
    from muvap_assets.asd import manifest

    opened = []
    real = manifest.probe_audio
    monkeypatch.setattr(manifest, "probe_audio", lambda path, *options: opened.append(path) or real(path, *options))
    rec = corpus.wav("rec.wav", 64_000)
    for i in range(3):
        corpus.row(f"t{i}", audio_path=rec, start_sec=i)
    copy = corpus.root / "copy.wav"
    copy.write_bytes((corpus.root / rec).read_bytes())
    corpus.row("t3", audio_path="copy.wav", start_sec=0)
    report = check(corpus)
    assert len({clip.recording_id for clip in report.clips}) == 1
    assert len(opened) == 2


def test_a39_a_missing_recording_is_an_error_for_each_row_that_names_it(corpus):
    corpus.row("a", audio_path="gone.wav", start_sec=0)
    corpus.row("b", audio_path="gone.wav", start_sec=0)
    corpus.row("c")
    report = check(corpus)
    assert found(report) == [("a", Code.AUDIO_MISSING), ("b", Code.AUDIO_MISSING)]
    assert len(report.clips) == 1


def test_a48_a_recording_with_nan_is_rejected_with_their_number(corpus):
    signal = np.zeros(16_000, np.float32)
    signal[[5, 7]] = np.nan, np.inf
    corpus.row("a", audio_path=corpus.wav("a.wav", signal, subtype="FLOAT"))
    report = check(corpus)
    assert found(report) == [("a", Code.AUDIO_NON_FINITE)]
    assert "2 samples" in report.findings[0].found


@pytest.mark.parametrize(("peak", "refused"), [(1.5, False), (15.9, False), (32_000, True)])
def test_integers_that_were_cast_to_floats_are_refused_and_peaks_above_full_scale_are_not(corpus, peak, refused):
    signal = np.sin(np.arange(16_000) / 9).astype(np.float32) * np.float32(peak)
    corpus.row("wav", audio_path=corpus.wav("a.wav", signal, subtype="FLOAT"))
    np.save(corpus.root / "b.npy", signal)
    corpus.row("array", audio_path="b.npy", audio_sample_rate=16_000)
    report = check(corpus)
    codes = [(name, Code.AUDIO_SCALE) for name in ("wav", "array")]
    assert found(report) == (codes if refused else [])
    if refused:
        assert "samples of up to 32,000" in report.findings[0].found


def test_faces_of_another_shape_than_most_are_rejected(corpus):
    for name in "ab":
        corpus.row(name)
    corpus.row("c", visual_path=corpus.faces("c.npy", shape=(4, 8)))
    report = check(corpus)
    assert found(report) == [("c", Code.FACE_SHAPE_MISMATCH)]
    assert [clip.sample_id for clip in report.clips] == ["a", "b"]


def test_one_array_with_two_rates_is_refused_in_all_its_rows(corpus):
    np.save(corpus.root / "rec.npy", np.zeros(64_000, np.int16))
    corpus.row("a", audio_path="rec.npy", audio_sample_rate=16_000, start_sec=0)
    corpus.row("b", audio_path="rec.npy", audio_sample_rate=32_000, start_sec=0)
    assert found(check(corpus)) == [("a", Code.AUDIO_RATE_INVALID), ("b", Code.AUDIO_RATE_INVALID)]


def test_p07_everything_wrong_with_a_file_is_reported_in_one_pass(corpus):
    corpus.row("fine")
    corpus.row("fps", source_fps="0")
    corpus.row("labels", labels="[0,2]")
    corpus.row("count", labels=[0] * 24)
    corpus.row("faces", visual_path="gone.npy")
    corpus.row("audio", audio_path="gone.wav")
    report = check(corpus)
    assert found(report) == [
        ("fps", Code.SOURCE_FPS_INVALID),
        ("labels", Code.LABELS_INVALID),
        ("count", Code.LABEL_COUNT_MISMATCH),
        ("faces", Code.FACES_MISSING),
        ("audio", Code.AUDIO_MISSING),
    ]
    assert (len(report.clips), report.row_count, report.rejected) == (1, 6, 5)


def test_under_fail_one_bad_row_fails_the_manifest_and_under_quarantine_it_is_set_aside(corpus, tmp_path):
    corpus.row("good")
    corpus.row("bad", labels=[0] * 26)
    _, folder = written(corpus, tmp_path)
    outcomes = {outcome.name: outcome for outcome in verify_manifest(folder, Policy())}
    assert set(outcomes) == set(MANIFEST_CHECKS)
    assert [name for name, outcome in outcomes.items() if outcome.blocks] == ["rows_valid", "labels_match_faces"]
    relaxed = {outcome.name: outcome for outcome in verify_manifest(folder, QUARANTINE)}
    assert not any(outcome.blocks for outcome in relaxed.values())
    assert not relaxed["rejected_rows"].passed
    assert relaxed["rejected_rows"].numbers == {"rejected": 1, "rejected_share": 0.5}
    strict = replace(QUARANTINE, max_rejected_share=0.4)
    assert next(o.name for o in verify_manifest(folder, strict) if o.blocks) == "rows_valid"


def test_a_quarantine_without_a_single_good_row_fails(corpus, tmp_path):
    corpus.row("bad", labels="[]")
    report, folder = written(corpus, tmp_path, Policy(on_violation="quarantine", max_rejected_share=1.0))
    assert not report.accepted_as_a_whole
    assert any(outcome.blocks for outcome in verify_manifest(folder, report.policy))


def test_what_is_written_is_read_back_the_same(corpus, tmp_path):
    rec = corpus.wav("audio/rec ü[1].wav", 160_000)
    corpus.row("a:1", source_fps="30000/1001", audio_path=rec, start_sec="1.001", license="CC0")
    corpus.row("b", source_fps="12.5", audio_path=rec, start_sec="0")
    report, folder = written(corpus, tmp_path)
    assert not report.findings
    for before, after in zip(report.clips, read_manifest(folder), strict=True):
        assert before.labels.tolist() == after.labels.tolist()
        assert replace(before, labels=after.labels) == replace(after, labels=after.labels)


def test_the_canonical_tsv_validates_where_it_lies_and_gives_the_same_clips(corpus, tmp_path):
    rec = corpus.wav("audio/rec.wav", 160_000)
    corpus.row("a", source_fps="29.97", audio_path=rec, start_sec="1.001")
    corpus.row("b", start_sec="0")
    report, folder = written(corpus, tmp_path)
    again = validate(read_tsv(folder / "manifest.tsv"), root=folder, dataset="test", policy=Policy())
    assert not again.findings
    assert [(c.sample_id, c.start_sec, c.source_fps) for c in again.clips] == [
        (c.sample_id, c.start_sec, c.source_fps) for c in report.clips
    ]
    assert "/" not in (folder / "manifest.tsv").read_text().split("\t")[0]


def test_p06_no_path_of_the_machine_and_the_same_bytes_wherever_the_corpus_lies(corpus, tmp_path):
    corpus.row("a")
    _, folder = written(corpus, tmp_path)
    moved = tmp_path / "elsewhere" / "deeper"
    moved.parent.mkdir()
    corpus.root.rename(moved)
    corpus.root = moved
    _, again = written(corpus, tmp_path / "other")
    for name in ("manifest.parquet", "violations.jsonl", "provenance.json"):
        assert (folder / name).read_bytes() == (again / name).read_bytes()
        assert str(tmp_path).encode() not in (folder / name).read_bytes()


def test_a_damaged_artifact_fails_its_checks(corpus, tmp_path):
    corpus.row("a")
    report, folder = written(corpus, tmp_path)
    longer = replace(report.clips[0], labels=np.zeros(25, np.uint8))
    write_manifest(
        folder,
        replace(report, clips=(longer, longer), row_count=2),
        root=corpus.root,
        published=folder,
        inputs={},
        dataset="test",
    )
    assert [o.name for o in verify_manifest(folder, Policy()) if o.blocks] == ["sample_ids_unique"]


def test_findings_lie_beside_the_manifest_as_json_lines(corpus, tmp_path):
    corpus.row("bad", labels=[0] * 26)
    _, folder = written(corpus, tmp_path)
    (line,) = (folder / "violations.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert (record["code"], record["row"], record["sample_id"]) == ("label_count_mismatch", 2, "bad")


def test_a_clip_starts_at_the_sample_nearest_to_start_sec_and_half_rounds_to_even(corpus):
    corpus.row("a", audio_path=corpus.wav("r.wav", 64_000), start_sec="0.00003125")
    corpus.row("b", audio_path="r.wav", start_sec="0.00009375")
    report = check(corpus)
    assert [clip.start_sample for clip in report.clips] == [0, 2]
    assert report.clips[0].start_sec == Fraction(1, 32_000)


def test_a45_a_lossy_recording_is_refused_and_told_what_to_do(corpus):
    soundfile.write(corpus.root / "a.mp3", np.zeros(16_000), 16_000, format="MP3")
    corpus.row("a", audio_path="a.mp3")
    report = check(corpus)
    assert found(report) == [("a", Code.AUDIO_UNSUPPORTED)]
    assert "WAV" in report.findings[0].message()


@pytest.mark.parametrize(
    ("field", "other", "same"),
    [
        (None, None, True),
        ("visual_path", "faces of other names", True),
        ("audio_path", "copy of the recording", True),
        ("start_sec", "0.04", False),
        ("visual_path", "other faces", False),
        ("audio_path", "other recording", False),
    ],
)
def test_two_ids_on_the_same_faces_sound_and_start_are_a_warning_whatever_they_are_named(corpus, field, other, same):
    fields = {
        "visual_path": corpus.faces("faces.npy"),
        "audio_path": corpus.wav("rec.wav", 32_000),
        "start_sec": "0",
    }
    corpus.row("first", **fields)
    made = {
        "faces of other names": lambda: corpus.faces("again.npy"),
        "copy of the recording": lambda: corpus.wav("again.wav", 32_000),
        "other faces": lambda: corpus.faces("other.npy", shape=(8, 8), first=1),
        "other recording": lambda: corpus.wav("other.wav", 32_001),
    }
    corpus.row("second", **{**fields, **({field: made[other]() if other in made else other} if field else {})})
    report = check(corpus)
    assert [clip.sample_id for clip in report.clips] == ["first", "second"]
    told = [(v.sample_id, v.code, v.severity, v.found) for v in report.findings]
    found = "the faces, the recording and the start of 'first' in row 2"
    assert told == ([("second", Code.SHARED_MEDIA, Severity.WARNING, found)] if same else [])


# ---- which stream, which channel


def noise(seed, frames=16_000):
    return np.random.default_rng(seed).normal(0, 0.1, frames)


def test_a_speaker_a_channel_is_two_recordings_of_one_file(corpus, tmp_path):
    left, right = noise(1), noise(2)
    pair = corpus.wav("pair.wav", np.stack([left, right], 1))
    corpus.row("both", audio_path=pair, start_sec=0)
    for channel, name in enumerate(("left", "right")):
        corpus.row(name, audio_path=pair, start_sec=0, audio_channel=channel)
    report, folder = written(corpus, tmp_path)
    digest = file_sha256(corpus.root / pair)[:16]
    assert found(report) == []
    assert [clip.recording_id for clip in report.clips] == [digest, f"{digest}-c0", f"{digest}-c1"]
    assert [clip.audio_channel for clip in read_manifest(folder)] == [None, 0, 1]
    assert [row.audio_channel for row in read_tsv(folder / "manifest.tsv").rows] == [None, 0, 1]
    assert all(outcome.passed for outcome in verify_manifest(folder, STRICT))


def test_two_channels_of_one_file_in_two_splits_are_one_shared_recording(corpus, tmp_path):
    pair = corpus.wav("pair.wav", np.stack([noise(1), noise(2)], 1))
    splits = []
    for channel in (0, 1):
        corpus.rows = []
        corpus.row(
            f"s{channel}",
            audio_path=pair,
            start_sec=0,
            audio_channel=channel,
            visual_path=corpus.faces("f.npy", 25 + channel),
            labels=[0] * (25 + channel),
        )
        _, folder = written(corpus, tmp_path / str(channel))
        splits.append(read_split(str(channel), folder))
    assert [v.code for v in find_leakage(splits[0], splits[1:])] == [Code.SHARED_RECORDING]


def test_manifests_whose_rows_choose_nothing_have_no_columns_for_it(corpus, tmp_path):
    corpus.row("a", audio_stream="", audio_channel="")
    _, folder = written(corpus, tmp_path)
    assert pq.read_schema(folder / "manifest.parquet").names == MANIFEST_SCHEMA.names
    assert "audio_channel" not in (folder / "manifest.tsv").read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        ("audio_channel", "left", Code.AUDIO_CHANNELS),
        ("audio_channel", "1", Code.AUDIO_CHANNELS),
        ("audio_stream", "first one", Code.AUDIO_STREAM),
        ("audio_stream", "1", Code.AUDIO_STREAM),
    ],
)
def test_a_choice_that_is_none_or_is_not_there_is_refused(corpus, column, value, code):
    corpus.row("a", **{column: value})
    report = check(corpus)
    assert found(report) == [("a", code)]
    assert not report.clips


def test_channels_that_cancel_each_other_are_a_finding_and_a_chosen_one_is_none(corpus):
    left = noise(3)
    pair = corpus.wav("a.wav", np.stack([left, -0.97 * left], 1), subtype="FLOAT")
    whole = corpus.wav("b.wav", np.stack([left, -left], 1), subtype="FLOAT")
    corpus.row("nearly", audio_path=pair)
    corpus.row("wholly", audio_path=whole)
    corpus.row("chosen", audio_path=pair, audio_channel=0)
    corpus.row("alike", audio_path=corpus.wav("c.wav", np.stack([left, noise(4)], 1)))
    report = check(corpus)
    assert [(v.sample_id, v.code, v.severity) for v in report.findings] == [
        ("nearly", Code.AUDIO_CANCELLED, Severity.WARNING),
        ("wholly", Code.AUDIO_CANCELLED, Severity.WARNING),
    ]
    assert "lies 36.3 dB below them" in report.findings[0].found  # 20 log10(sqrt((1 + 0.97**2) / 2) / 0.015)
    assert "is silent" in report.findings[1].found
    assert report.findings[0].hint == "The channels cancel each other; choose one by audio_channel."


def test_a_header_that_promises_more_and_an_md5_that_differs_are_warnings(corpus):
    path = corpus.root / corpus.wav("a.wav")
    path.write_bytes(path.read_bytes()[:-200])
    corpus.row("cut", audio_path="a.wav")
    path = corpus.root / corpus.wav("b.flac", format="FLAC")
    data = bytearray(path.read_bytes())
    data[26] ^= 1
    path.write_bytes(data)
    corpus.row("digest", audio_path="b.flac")
    report = check(corpus)
    assert found(report) == [("cut", Code.AUDIO_STOPPED), ("digest", Code.AUDIO_MD5)]
    assert "a.wav: the header promises 16,000 frames, the file holds 15,900" in report.findings[0].found
    assert len(report.clips) == 2
