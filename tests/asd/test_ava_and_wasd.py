"""AVA and WASD in miniature, from their folders to packed bytes, against the truth their crops and sounds carry."""

import json
import math
import shutil
from fractions import Fraction

import numpy as np
import pytest
import soundfile
from loader_miniature import HEADER, Miniature, Track

from muvap_assets.asd import line
from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.ava import AvaCorpus
from muvap_assets.asd.corpora.tsv import TsvCorpus, read_tsv
from muvap_assets.asd.corpora.wasd import WasdCorpus
from muvap_assets.asd.manifest_files import read_manifest
from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.asd.policy import Policy
from muvap_assets.asd.timeline import source_indices
from muvap_assets.codes import Code, Severity
from muvap_assets.demo.corpus import read_frame_number
from muvap_assets.layout import Layout

V = Code
VIDEO = "HV0H6oc4Kvs"
ENTITY = f"{VIDEO}_0960_1020:1"
RATES = ("12.5", "23.976", "24", "25", "29.97", "30", "30000/1001", "50", "60")


def ava(corpus, **options):
    return AvaCorpus(kind="ava", root=corpus.root, split=corpus.split, **options)


def wasd(corpus, **options):
    return WasdCorpus(kind="wasd", root=corpus.root, split=corpus.split, **options)


def as_tsv(corpus):
    """The same tracks as a canonical TSV names them."""
    lines = ["sample_id\taudio_path\tvisual_path\tsource_fps\tlabels\tvisual_kind"]
    lines += [
        "\t".join([t.entity_id, str(corpus.wav(t)), str(corpus.crops(t)), t.fps, str(t.labels), "jpeg_directory"])
        for t in corpus.tracks
    ]
    manifest = corpus.root.parent / "same.tsv"
    manifest.write_text("\n".join(lines) + "\n")
    return TsvCorpus(kind="tsv", manifest=manifest)


def judged(source, policy=None):
    return line.validate_corpus(Corpus(name="c", source=source, dataset="d", policy=policy or Policy()))


def found(report):
    return [(finding.sample_id, finding.code) for finding in report.findings]


def only(report):
    (finding,) = report.findings
    return finding


def packed(source, root, name="c"):
    """Run the whole line; returns the layout and the pack."""
    layout, corpus = Layout(root), Corpus(name=name, source=source, dataset="d")
    for make in (line.make_manifest, line.make_loudness_index, line.make_packed_shards):
        outcome = make(layout, corpus)
        assert outcome.published, [v.message() for check in outcome.blocking for v in check.findings]
    return layout, PackReader(layout.asd_packed_shards(name).current)


@pytest.fixture
def one(tmp_path):
    """One AVA track of 25 frames at 25 fps; its files may be broken before it is read."""
    return Miniature(tmp_path / "ava", [Track(ENTITY, VIDEO)]).write()


@pytest.mark.parametrize(("reader", "separator"), [(ava, ":"), (wasd, "_")])
def test_a_miniature_is_packed_as_its_crops_and_clicks_say_at_every_rate(tmp_path, reader, separator):
    tracks = [
        Track(f"G16p2gY-26M_905-{i}_0000_0060:{i}", f"G16p2gY-26M_905-{i}", fps, 30 + i, f"{9 + i}.96")
        for i, fps in enumerate(RATES)
    ]
    corpus = Miniature(tmp_path / "corpus", tracks, separator=separator).write()
    corpus.write_original()
    layout, pack = packed(reader(corpus), tmp_path / "data")
    clips = read_manifest(layout.asd_manifest("c").current)
    assert [(c.sample_id, c.video_id, c.source_fps.text) for c in clips] == [
        (t.entity_id, t.video_id, t.fps) for t in tracks
    ]
    for track, sample in zip(tracks, pack, strict=True):
        assert [read_frame_number(face) for face in sample.faces] == list(range(track.frames))
        assert sample.labels.tolist() == track.labels
        clip, _ = soundfile.read(corpus.wav(track), dtype="int16")
        assert np.array_equal(sample.audio[: len(clip)], clip)
        assert not sample.audio[len(clip) :].any()
        fps = sample.source_fps.value
        for j in np.flatnonzero(np.diff(track.labels[:-1], prepend=0) == 1):  # the last frame's sound was not cut out
            heard = np.flatnonzero(sample.audio == 20_000) / 16_000 * float(fps)
            assert np.abs(heard - (j + 0.5)).min() < 0.02 * float(fps)


def test_the_same_content_as_tsv_and_as_ava_gives_the_same_bytes(tmp_path):
    tracks = [Track(f"{VIDEO}_0960_1020:{i}", VIDEO, fps, 40, "999.9") for i, fps in enumerate(("25", "29.97"))]
    corpus = Miniature(tmp_path / "ava", tracks).write()
    _, first = packed(ava(corpus), tmp_path / "one")
    _, second = packed(as_tsv(corpus), tmp_path / "two")
    for name in ("faces.npy", "labels.npy", "audio.npy", "index.json"):
        assert (first.path / "shard-000000" / name).read_bytes() == (second.path / "shard-000000" / name).read_bytes()


def test_the_published_tsv_is_the_same_corpus_again(tmp_path):
    corpus = Miniature(tmp_path / "ava", [Track(ENTITY, VIDEO, label_ids=[1] * 25)], split="test").write()
    layout, pack = packed(ava(corpus), tmp_path / "data")
    (row,) = read_tsv(layout.asd_manifest("c").current / "manifest.tsv").rows
    assert (row.sample_id, row.video_id, row.labels_known) == (ENTITY, VIDEO, False)
    assert not pack[0].entry.labels_known


def test_an_entry_needs_root_and_split_and_every_path_may_be_another(tmp_path):
    corpus = Miniature(tmp_path / "ava", [Track(ENTITY, VIDEO)]).write()
    elsewhere = tmp_path / "elsewhere"
    (corpus.root / "clips_audios" / "train").rename(elsewhere)
    corpus.loader.rename(tmp_path / "mine.csv")
    report = judged(ava(corpus, audio=elsewhere, loader=tmp_path / "mine.csv"))
    assert not report.findings
    assert report.clips[0].audio_path == str(elsewhere / VIDEO / f"{ENTITY}.wav")
    assert report.clips[0].visual_path == f"clips_videos/train/{VIDEO}/{ENTITY}"


# --- A01, A03, A04, A05: crops against labels ---------------------------------------------------------------------------


@pytest.mark.parametrize("annotated", [True, False])
def test_a01_an_extra_crop_is_refused_by_name_with_both_counts(one, annotated):
    if annotated:
        one.write_original()
    (one.crops(one.tracks[0]) / "902.07.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    finding = only(judged(ava(one)))
    assert (finding.code, finding.row) == (V.LABEL_COUNT_MISMATCH, 1)
    assert finding.found == "labels has 25 entries, faces has 26 frames; extra '902.07.jpg'"


def test_a01_a05_a_missing_crop_is_refused_with_its_time(one):
    one.write_original()
    (one.crops(one.tracks[0]) / "902.48.jpg").unlink()
    finding = only(judged(ava(one)))
    assert finding.found == "labels has 25 entries, faces has 24 frames; missing '902.48'"
    assert "extractions lose crops" in finding.hint


def test_a05_a_missing_crop_is_refused_with_its_place_also_without_annotations(one):
    (one.crops(one.tracks[0]) / "902.48.jpg").unlink()
    assert [finding.found for finding in judged(ava(one)).findings] == [
        "labels has 25 entries, faces has 24 frames",
        "the crops leave out frames between '902.44.jpg' and '902.52.jpg'",
    ]


def test_a01_a_shifted_crop_among_as_many_as_labels_is_refused(one):
    folder = one.crops(one.tracks[0])
    (folder / "902.48.jpg").rename(folder / "902.50.jpg")
    assert not judged(ava(one)).findings  # within half a step: nothing but annotations can tell
    one.write_original()
    finding = only(judged(ava(one)))
    assert finding.code is V.FRAME_TIMES_MISMATCH
    assert finding.found.endswith("extra '902.50.jpg'; missing '902.48'")


def test_a01_a_crop_on_the_heels_of_another_is_refused_without_annotations_too(one):
    folder = one.crops(one.tracks[0])
    (folder / "902.96.jpg").rename(folder / "902.93.jpg")
    finding = only(judged(ava(one)))
    assert (finding.code, finding.found) == (
        V.FRAME_CROWDED,
        "'902.93.jpg' less than half a step after the crop before",
    )


@pytest.mark.parametrize("video", ["G16p2gY-26M_905-935", "Ve_wd6pcZwY_70-100", "WZkEgX7lfQs_10-35"])
def test_a01_the_extra_crops_wasd_ships_with_are_known_by_name(tmp_path, video):
    corpus = Miniature(tmp_path / "wasd", [Track(f"{video}_0000_0060_1", video, "30", 30, "0")]).write()
    (corpus.crops(corpus.tracks[0]) / "29.83.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    mismatch = judged(wasd(corpus)).findings[0]
    assert mismatch.code is V.LABEL_COUNT_MISMATCH
    assert "Known of WASD train as shipped: nine tracks" in mismatch.hint


def test_a01_other_tracks_go_on_where_the_corpus_may_set_bad_ones_aside(tmp_path):
    tracks = [Track(f"{VIDEO}_0960_1020:{i}", VIDEO) for i in range(4)]
    corpus = Miniature(tmp_path / "ava", tracks).write()
    (corpus.crops(tracks[2]) / "902.00.jpg").unlink()
    report = judged(ava(corpus), Policy(on_violation="quarantine", max_rejected_share=0.3))
    assert [clip.sample_id[-1] for clip in report.clips] == ["0", "1", "3"]
    assert report.accepted_as_a_whole
    assert not judged(ava(corpus)).accepted_as_a_whole


def test_a02_a_wav_one_frame_short_is_normal_and_silence_takes_its_end(one):
    report = judged(ava(one))
    assert soundfile.info(one.wav(one.tracks[0])).frames == 15_360
    assert not report.findings
    assert report.clips[0].padded_samples == 640


@pytest.mark.parametrize("start", ["9.88", "99.88", "999.88"])
def test_a03_crops_are_in_the_order_of_numbers_across_a_power_of_ten(tmp_path, start):
    corpus = Miniature(tmp_path / "ava", [Track(ENTITY, VIDEO, frames=8, start_sec=start)]).write()
    _, pack = packed(ava(corpus), tmp_path / "data")
    assert [read_frame_number(face) for face in pack[0].faces] == list(range(8))


def test_a03_names_that_are_no_numbers_and_equal_numbers_are_refused_together(one):
    folder = one.crops(one.tracks[0])
    (folder / "face.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    (folder / "902.0.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    assert {code for _, code in found(judged(ava(one)))} == {V.FRAME_NAME_INVALID, V.FRAME_NAME_DUPLICATE}


@pytest.mark.parametrize("annotated", [True, False])
def test_a04_a_hole_in_a_track_is_refused_although_the_counts_agree(tmp_path, annotated):
    track = Track(ENTITY, VIDEO, frames=20)
    times = [f"{902 + (i + (16 if i >= 10 else 0)) / 25:.2f}" for i in range(20)]
    corpus = Miniature(tmp_path / "ava", [track])
    type(track).times, kept = property(lambda self: times), type(track).times
    try:
        corpus.write()
        if annotated:
            corpus.write_original()
    finally:
        type(track).times = kept
    finding = judged(ava(corpus)).findings[0]
    assert finding.code is V.FRAME_GAP
    assert finding.found == (
        "the annotation leaves out frames between '902.36' and '903.04'"
        if annotated
        else "the crops leave out frames between '902.36.jpg' and '903.04.jpg'"
    )


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        (lambda i: f"{902 + i / 25:.2f}", "'902.36.jpg' and '903.04.jpg'"),
        (lambda i: str(100 + i), "'109.jpg' and '126.jpg'"),
        (lambda i: f"{40 * i:06}", "'000360.jpg' and '001040.jpg'"),
    ],
    ids=["seconds", "numbers", "milliseconds"],
)
def test_a04_a_hole_in_a_folder_that_a_tsv_names_is_refused_and_none_is_accepted(one, named, shown):
    folder = one.crops(one.tracks[0])
    for i, crop in enumerate(sorted(folder.iterdir())):
        crop.rename(folder / f"{named(i)}.jpg")
    assert not judged(as_tsv(one)).findings
    for i in range(24, 9, -1):
        (folder / f"{named(i)}.jpg").rename(folder / f"{named(i + 16)}.jpg")
    finding = judged(as_tsv(one)).findings[0]
    assert finding.code is V.FRAME_GAP
    assert finding.found == f"the crops leave out frames between {shown}"


@pytest.mark.parametrize(("step", "told"), [(1, []), (2, [V.SOURCE_FPS_DIFFERS]), (40, [])])
def test_a07_crops_numbered_in_steps_are_told_where_the_steps_are_no_milliseconds(one, step, told):
    folder = one.crops(one.tracks[0])
    for i, crop in enumerate(sorted(folder.iterdir())):
        crop.rename(folder / f"{step * i:05}.jpg")
    assert [finding.code for finding in judged(as_tsv(one)).findings] == told


@pytest.mark.parametrize(
    ("true", "declared", "code", "rates"),
    [
        ("25", "50", V.FRAME_GAP, "25"),
        ("50", "12.5", V.FRAME_CROWDED, "50"),
        ("30", "60", V.FRAME_GAP, "29.97 or 30000/1001 or 30"),  # names of two decimals do not tell these apart
    ],
)
@pytest.mark.parametrize("annotated", [True, False])
def test_a07_a_rate_that_makes_every_step_a_fault_is_said_to_be_wrong(tmp_path, true, declared, code, rates, annotated):
    corpus = Miniature(tmp_path / "ava", [Track(ENTITY, VIDEO, true, 60)]).write()
    corpus.loader.write_text(corpus.loader.read_text().replace(f"\t{true}\t[", f"\t{declared}\t["))
    if annotated:
        corpus.write_original()
    hints = [finding.hint for finding in judged(ava(corpus)).findings if finding.code is code]
    if annotated and code is V.FRAME_CROWDED:  # each crop is at its annotated time
        assert not hints
    else:
        assert [hint.endswith(f"Or source_fps is wrong: {rates} would fit.") for hint in hints] == [True]


def test_a04_a_lost_crop_is_not_said_to_be_a_wrong_rate(one):
    (one.crops(one.tracks[0]) / "902.48.jpg").unlink()
    assert not [v for v in judged(ava(one)).findings if "source_fps is wrong" in v.hint]


def test_crops_of_two_decimals_at_120_fps_are_said_to_have_replaced_one_another(tmp_path):
    corpus = Miniature(tmp_path / "ava", [Track(ENTITY, VIDEO, "120", 60)]).write()
    finding = judged(ava(corpus)).findings[0]
    assert finding.code is V.LABEL_COUNT_MISMATCH
    assert "labels has 60 entries, faces has 50 frames" in finding.found
    assert finding.hint.endswith(
        "two decimals name at most 100 frames a second, and at 120 some were written over others."
    )


def test_a07_a_tsv_is_told_too_that_its_rate_is_not_that_of_the_crops(tmp_path):
    corpus = Miniature(tmp_path / "ava", [Track(ENTITY, VIDEO, "30", 300, "5")]).write()
    source = as_tsv(corpus)
    source.manifest.write_text(source.manifest.read_text().replace("\t30\t", "\t29\t"))
    assert V.SOURCE_FPS_DIFFERS in {finding.code for finding in judged(source).findings}


def test_a02_the_published_tsv_of_cut_clips_is_as_valid_as_what_it_was_made_of(tmp_path):
    """Seconds of two decimals cut up to a hundredth more than a frame off a clip."""
    tracks = [Track(f"{VIDEO}_0_1:{i}", VIDEO, fps, 5, f"{9 + i}.97") for i, fps in enumerate([*RATES, "90", "100"])]
    corpus = Miniature(tmp_path / "ava", tracks).write()
    source = ava(corpus)
    before = judged(source)
    assert not before.findings
    outcome = line.make_manifest(Layout(tmp_path / "data"), Corpus(name="c", source=source, dataset="d"))
    again = TsvCorpus(kind="tsv", manifest=outcome.published.path / "manifest.tsv")
    assert not judged(again).findings
    missing = [clip.padded_samples - 16_000 / clip.source_fps.value for clip in before.clips]
    assert max(missing) > 1  # or nothing was tried here


@pytest.mark.parametrize("fps", [*RATES, "90", "100"])
def test_a04_names_rounded_to_two_decimals_are_no_gap_at_any_rate(tmp_path, fps):
    corpus = Miniature(tmp_path / "ava", [Track(ENTITY, VIDEO, fps, 60, "0.5")]).write()
    assert not judged(ava(corpus)).findings


# --- A06 to A10: rates, columns, labels that are none -------------------------------------------------------------------


@pytest.mark.parametrize("fps", ["12.5", "30", "50", "60", "30000/1001"])
def test_a06_model_frames_show_exactly_the_frame_their_centre_falls_into(tmp_path, fps):
    corpus = Miniature(tmp_path / "ava", [Track(ENTITY, VIDEO, fps, 260)]).write()
    _, pack = packed(ava(corpus), tmp_path / "data")
    shown = source_indices(260, pack[0].source_fps)
    for k, face in enumerate(pack[0].faces[shown]):
        frame = math.floor(Fraction(2 * k + 1, 50) * Fraction(fps))
        assert read_frame_number(face) == frame
        assert pack[0].labels[shown][k] == corpus.tracks[0].labels[frame]


def test_a07_a_declared_rate_that_moves_an_index_is_told_and_kept_as_given(tmp_path):
    corpus = Miniature(tmp_path / "ava", [Track(ENTITY, VIDEO, "30", 300, "5")]).write()
    corpus.loader.write_text(corpus.loader.read_text().replace("\t30\t", "\t29\t"))
    (told,) = [v for v in judged(ava(corpus)).findings if v.code is V.SOURCE_FPS_DIFFERS]
    assert told.severity is Severity.WARNING
    assert "29, while 300 crops span 9.97 s, as at 29.99" in told.found


def test_a08_every_track_keeps_its_own_rate(tmp_path):
    tracks = [Track(f"{VIDEO}_0_1:{i}", VIDEO, fps) for i, fps in enumerate(("23.976", "25", "30"))]
    report = judged(ava(Miniature(tmp_path / "ava", tracks).write()))
    assert line.frame_rate_histogram(report.clips) == {"23.976": 1, "25": 1, "30": 1}


@pytest.mark.parametrize("rate", ["", "0", "nan", "25fps"])
def test_a08_a_row_without_its_rate_is_refused(one, rate):
    one.loader.write_text(one.loader.read_text().replace("\t25\t[", f"\t{rate}\t["))
    assert found(judged(ava(one))) == [(ENTITY, V.SOURCE_FPS_INVALID)]


@pytest.mark.parametrize("columns", [4, 5])
def test_a09_four_and_five_columns_are_read_and_the_fifth_means_nothing(one, columns):
    one.write_loader(columns)
    report = judged(ava(one))
    assert not report.findings
    assert report.clips[0].labels.tolist() == one.tracks[0].labels


def test_a09_other_numbers_of_columns_are_refused_by_row(one):
    one.loader.write_text(one.loader.read_text() + "x\t1\n")
    assert [(v.code, v.row) for v in judged(ava(one)).findings] == [(V.ROW_MALFORMED, 2)]


def test_a10_the_labels_of_ava_test_are_filler(tmp_path):
    corpus = Miniature(tmp_path / "ava", [Track(ENTITY, VIDEO, label_ids=[1] * 25)], split="test").write()
    layout, pack = packed(ava(corpus), tmp_path / "data")
    assert not pack[0].entry.labels_known
    provenance = json.loads((layout.asd_manifest("c").current / "provenance.json").read_text())
    assert provenance["corpus"]["labels"] == "filler, not known"
    assert judged(ava(corpus, labels_known=True)).clips[0].labels_known


def test_a10_a_split_that_always_speaks_is_a_warning(tmp_path):
    corpus = Miniature(tmp_path / "ava", [Track(ENTITY, VIDEO, label_ids=[1] * 25)]).write()
    outcome = line.make_manifest(Layout(tmp_path / "data"), Corpus(name="c", source=ava(corpus), dataset="d"))
    (check,) = [check for check in outcome.checks if not check.passed]
    assert (check.name, check.severity, outcome.published is not None) == ("labels_vary", Severity.WARNING, True)
    assert check.findings[0].code is V.LABELS_ALL_SPEAKING


# --- A11, A12: the original CSV -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spellings",
    [
        ("NOT_SPEAKING", "SPEAKING_AUDIBLE", "SPEAKING_NOT_AUDIBLE"),
        ("NOT_SPEAKING", "SPEAKING_AND_AUDIBLE", "SPEAKING_BUT_NOT_AUDIBLE"),
    ],
)
def test_a11_both_spellings_are_read_and_inaudible_speech_is_none(tmp_path, spellings):
    track = Track(ENTITY, VIDEO, label_ids=[0, 1, 2, 2, 1] * 5)
    corpus = Miniature(tmp_path / "ava", [track]).write()
    corpus.write_original(rows=corpus.original_rows(spellings))
    layout, pack = packed(ava(corpus), tmp_path / "data")
    assert pack[0].labels.tolist() == [0, 1, 0, 0, 1] * 5
    notes = json.loads((layout.asd_manifest("c").current / "provenance.json").read_text())["corpus"]
    assert notes["original_rows_by_label"] == {spellings[1]: 10, spellings[2]: 10, spellings[0]: 5}
    assert notes["inaudible_frames"] == 10
    assert notes["label_rule"][spellings[2]] == 0
    assert json.loads((pack.path / "dataset.json").read_text())["provenance"]["corpus"] == notes


def test_a11_label_2_of_a_loader_is_inaudible_speech_and_counted(one):
    one.loader.write_text(f"{ENTITY}\t25\t25\t{[0, 1, 2, 2, 1] * 5}\n")
    report = judged(ava(one))
    assert report.clips[0].labels.tolist() == [0, 1, 0, 0, 1] * 5
    assert report.notes["loader_inaudible_frames"] == 10


def test_a11_another_label_is_refused_with_its_value(one):
    rows = one.original_rows()
    rows[3][6] = "MUMBLING"
    one.write_original(rows=rows)
    finding = only(judged(ava(one)))
    assert (finding.code, finding.sample_id, finding.field) == (V.LABEL_UNKNOWN, ENTITY, "label")
    assert (finding.source, finding.row, finding.found) == ("train_orig.csv", 5, "'MUMBLING'")
    one.loader.write_text(f"{ENTITY}\t25\t25\t{[3] * 25}\n")
    one.original.unlink()
    assert found(judged(ava(one))) == [(ENTITY, V.LABELS_INVALID)]


def test_a11_labels_that_contradict_the_annotations_are_refused(one):
    one.write_original()
    one.loader.write_text(one.loader.read_text().replace("[0, 0", "[1, 0"))
    finding = only(judged(ava(one)))
    assert finding.code is V.LABELS_DISAGREE
    assert finding.found == "entry 0 is 1, the original CSV says 0 (1 frames differ)"


@pytest.mark.parametrize(("columns", "header"), [(8, False), (8, True), (10, False), (10, True)])
def test_a12_eight_and_ten_columns_are_read_with_and_without_a_header(one, columns, header):
    one.write_original(columns, header)
    report = judged(ava(one))
    assert not report.findings
    assert report.notes["original_rows_by_label"].keys() == {"NOT_SPEAKING", "SPEAKING_AUDIBLE"}


def test_a12_one_csv_a_video_is_read_as_the_authors_publish_them(one):
    one.write_original(8, header=False)
    folder = one.root / "published"
    folder.mkdir()
    one.original.rename(folder / f"{VIDEO}-activespeaker.csv")
    assert "original_rows_by_label" in judged(ava(one, original=folder)).notes


def test_a12_missing_columns_are_named_with_the_tool_that_writes_them(one):
    one.original.write_text(",".join(HEADER[:6]) + "\n")
    finding = only(judged(ava(one)))
    assert finding.code is V.ORIGINAL_FORMAT
    assert "without label, entity_id" in finding.found
    assert "the training tools (ASC, TalkNet, Light-ASD) add label_id and instance_id" in finding.hint


def test_a12_an_original_csv_in_place_of_the_loader_is_told_apart(one):
    one.write_original(8, header=False)
    one.original.rename(one.loader)
    finding = only(judged(ava(one)))
    assert finding.code is V.LOADER_FORMAT
    assert "8 columns separated by commas: an original annotation CSV" in finding.found
    assert "ASC, TalkNet and Light-ASD write it" in finding.hint


def test_a12_an_original_csv_that_was_asked_for_and_is_not_there_is_an_error(one):
    assert found(judged(ava(one, original=one.root / "none.csv"))) == [(None, V.ORIGINAL_MISSING)]


# --- A13, A14: ids and paths --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entity", "video"),
    [
        ("HV0H6oc4Kvs_0960_1020:1", "HV0H6oc4Kvs"),
        ("G16p2gY-26M_905-935_0000_0060:1", "G16p2gY-26M_905-935"),
        ("G16p2gY-26M_905-935_0000_0060_1", "G16p2gY-26M_905-935"),
        ("my_talk_12_0000_0060:12", "my_talk_12"),
        ("free form", "session 7"),
    ],
)
def test_a13_the_video_is_no_fixed_number_of_characters(tmp_path, entity, video):
    corpus = Miniature(tmp_path / "wasd", [Track(entity, video, start_sec="3")]).write()
    report = judged(wasd(corpus))
    assert not report.findings
    assert report.clips[0].video_id == video


def test_a13_the_original_csv_says_the_video_where_there_is_one(tmp_path):
    corpus = Miniature(tmp_path / "wasd", [Track("a_0_1:1", "another name")]).write()
    corpus.write_original()
    assert judged(wasd(corpus)).clips[0].video_id == "another name"


def test_a13_an_entity_without_a_video_is_refused(one):
    one.loader.write_text(one.loader.read_text().replace(ENTITY, "nobody"))
    assert found(judged(ava(one))) == [("nobody", V.VIDEO_ID_UNKNOWN)]


@pytest.mark.parametrize("entity", ["../x_0_1:1", "a/b_0_1:1", ".."])
def test_an_id_that_is_a_path_is_refused(one, entity):
    one.loader.write_text(one.loader.read_text().replace(ENTITY, entity))
    (finding,) = judged(ava(one)).findings
    assert finding.code in (V.PATH_INVALID, V.VIDEO_ID_UNKNOWN)


def test_what_is_wrong_with_entities_of_other_splits_concerns_nobody(one):
    rows = one.original_rows()
    one.write_original(rows=[*rows, [*rows[0][:6], "MUMBLING", "other_0_1:1", "0", ""]])
    report = judged(ava(one))
    assert not report.findings
    assert report.notes["original_rows_by_label"]["MUMBLING"] == 1


def test_a14_the_id_never_changes_where_underscores_stand_on_disk(tmp_path):
    corpus = Miniature(tmp_path / "ava", [Track(ENTITY, VIDEO)], separator="_").write()
    report = judged(ava(corpus))
    assert not report.findings
    assert report.clips[0].sample_id == ENTITY
    assert report.clips[0].visual_path.endswith("HV0H6oc4Kvs_0960_1020_1")


def test_a14_the_exact_and_the_changed_name_side_by_side_are_refused(one):
    other = Miniature(one.root, one.tracks, separator="_")
    other.write_crops(one.tracks[0])
    finding = only(judged(ava(one)))
    assert finding.code is V.ENTITY_PATH_AMBIGUOUS
    assert finding.found.startswith("both clips_videos/train/HV0H6oc4Kvs/HV0H6oc4Kvs_0960_1020:1 and")


def test_a14_two_entities_that_become_one_path_are_both_refused(tmp_path):
    tracks = [Track(ENTITY, VIDEO), Track(ENTITY.replace(":", "_"), VIDEO)]
    corpus = Miniature(tmp_path / "ava", tracks, separator="_")
    corpus.write_crops(tracks[0])
    corpus.write_wav(tracks[0])
    corpus.write_loader()
    report = judged(ava(corpus))
    assert set(found(report)) == {(t.entity_id, V.ENTITY_PATH_SHARED) for t in tracks}
    assert not report.clips


def test_a_duplicate_of_a_broken_loader_row_is_a_duplicate_all_the_same(one):
    line_of = one.loader.read_text()
    for broken in (
        line_of.replace("\t25\t25", "\t25\tfast"),
        line_of.replace("\t25\t25", "\t24\t25"),
        ENTITY + "\t25\n",
    ):
        one.loader.write_text(broken + line_of)
        report = judged(ava(one), Policy(on_violation="quarantine", max_rejected_share=1))
        assert not report.clips
        duplicates = [(v.row, v.found) for v in report.findings if v.code is V.SAMPLE_ID_DUPLICATE]
        assert duplicates == [(1, "also in row 2"), (2, "also in row 1")]


# --- without folders of videos, as the converters of ASC and UniTalk leave it ---------------------------------------------


@pytest.mark.parametrize("separator", [":", "_"])
@pytest.mark.parametrize("annotated", [True, False])
def test_a_layout_without_folders_of_videos_gives_the_same_pack_and_says_that_it_was_found(
    tmp_path, separator, annotated
):
    tracks = [Track(f"{VIDEO}_0960_1020:{i}", VIDEO, "25", 20 + i) for i in range(3)]
    packs = {}
    for flat in (False, True):
        corpus = Miniature(tmp_path / f"flat_{flat}", tracks, separator=separator, flat=flat).write()
        if annotated:
            corpus.write_original()
        layout, packs[flat] = packed(ava(corpus), tmp_path / f"data_{flat}")
        provenance = json.loads((layout.asd_manifest("c").current / "provenance.json").read_text())
        said = {"without_video_folder": {"audio": 3, "faces": 3}} if flat else {}
        assert {key: provenance["corpus"][key] for key in provenance["corpus"] if "folder" in key} == said
        assert {clip.video_id for clip in read_manifest(layout.asd_manifest("c").current)} == {VIDEO}
    for name in ("faces.npy", "labels.npy", "audio.npy", "index.json"):
        first, second = (packs[flat].path / "shard-000000" / name for flat in (False, True))
        assert first.read_bytes() == second.read_bytes()


def test_faces_and_sound_may_have_different_layouts(tmp_path):
    corpus = Miniature(tmp_path / "ava", [Track(ENTITY, VIDEO)], flat=True)
    corpus.write_crops(corpus.tracks[0])
    corpus.flat = False
    corpus.write_wav(corpus.tracks[0])
    corpus.write_loader()
    report = judged(ava(corpus))
    assert not report.findings
    assert report.notes["without_video_folder"] == {"faces": 1, "audio": 0}


@pytest.mark.parametrize("part", ["crops", "wav"])
def test_a_track_that_is_there_in_both_layouts_is_refused(one, part):
    both = Miniature(one.root, one.tracks, flat=True)
    getattr(both, f"write_{part}")(one.tracks[0])
    finding = only(judged(ava(one)))
    assert (finding.code, finding.sample_id) == (V.ENTITY_PATH_AMBIGUOUS, ENTITY)
    assert finding.found.endswith("and the same name outside the video's folder are there")


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize(("part", "code"), [("crops", V.FACES_MISSING), ("wav", V.AUDIO_MISSING)])
def test_what_is_missing_is_named_where_the_layout_has_it_as_written_and_as_resolved(tmp_path, flat, part, code):
    tracks = [Track(f"{VIDEO}_0960_1020:{i}", VIDEO) for i in range(2)]
    corpus = Miniature(tmp_path / "ava", tracks, flat=flat).write()
    gone = getattr(corpus, part)(tracks[1])
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    finding = only(judged(ava(corpus)))
    assert (finding.code, finding.path) == (code, str(gone))
    assert finding.found.startswith(f"{gone.relative_to(corpus.root)}: ")
    assert f"({gone}); required: " in finding.message()


def test_a_video_named_as_its_entity_is_not_taken_for_the_other_layout(tmp_path):
    corpus = Miniature(tmp_path / "ava", [Track("talk", "talk")]).write()
    report = judged(ava(corpus))
    assert not report.findings
    assert report.clips[0].visual_path == "clips_videos/train/talk/talk"


# --- A17, A18, A23, A24, and everything at once ---------------------------------------------------------------------------


def test_a17_an_empty_crop_is_refused_before_any_is_decoded(one):
    (one.crops(one.tracks[0]) / "902.20.jpg").write_bytes(b"")
    finding = only(judged(ava(one)))
    assert finding.code is V.FRAME_FILE_EMPTY
    assert "'902.20.jpg'" in finding.found


def test_a17_a_crop_cut_short_is_refused_at_packing_by_name(one, tmp_path):
    crop = one.crops(one.tracks[0]) / "902.20.jpg"
    crop.write_bytes(crop.read_bytes()[: crop.stat().st_size // 2])
    layout, corpus = Layout(tmp_path / "data"), Corpus(name="c", source=ava(one), dataset="d")
    assert line.make_manifest(layout, corpus).published
    assert line.make_loudness_index(layout, corpus).published
    with pytest.raises(Exception, match=r"902\.20\.jpg: a JPEG (without end marker|cut within)"):
        line.make_packed_shards(layout, corpus)


def test_a18_a_box_outside_the_picture_is_told_and_an_empty_one_refused_with_its_time(one):
    rows = one.original_rows()
    rows[2][2] = "-0.01"
    one.write_original(rows=rows)
    told = only(judged(ava(one)))
    assert (told.code, told.severity) == (V.BOX_OUTSIDE, Severity.WARNING)
    rows[4][4] = rows[4][2]
    one.write_original(rows=rows)
    (refused,) = [v for v in judged(ava(one)).findings if v.severity is Severity.ERROR]
    assert refused.found.startswith("an empty box at 902.16 s")


def test_a23_a24_tracks_on_a_whole_recording_start_where_the_annotations_say(tmp_path):
    video = "G16p2gY-26M_905-935"
    tracks = [Track(f"{video}_0000_0060:{i}", video, start_sec=f"{i}.24") for i in range(3)]
    corpus = Miniature(tmp_path / "wasd", tracks, recording_sec=30).write()
    corpus.write_recordings()
    corpus.write_original()
    report = judged(wasd(corpus, audio_kind="recordings"))
    assert not report.findings
    assert [clip.start_sec for clip in report.clips] == [Fraction(6, 25), Fraction(31, 25), Fraction(56, 25)]
    assert len({clip.recording_id for clip in report.clips}) == 1
    _, pack = packed(wasd(corpus, audio_kind="recordings"), tmp_path / "data")
    sound = corpus.recording(video)
    for sample, clip in zip(pack, report.clips, strict=True):
        assert np.array_equal(sample.audio, sound[clip.start_sample : clip.start_sample + 16_000])


def test_a24_a_whole_recording_without_start_sec_is_refused_and_told_why(tmp_path):
    corpus = Miniature(tmp_path / "wasd", [Track(ENTITY, VIDEO, start_sec="1")], recording_sec=30).write()
    corpus.write_recordings()
    finding = only(judged(wasd(corpus, audio_kind="recordings")))
    assert finding.code is V.START_SEC_REQUIRED
    assert "cannot be recovered from the rate and the labels" in finding.hint
    corpus.write_recordings("as_clips")
    (corpus.root / "as_clips" / f"{VIDEO}.wav").rename(corpus.wav(corpus.tracks[0]))
    finding = only(judged(wasd(corpus)))
    assert finding.code is V.START_SEC_REQUIRED
    assert "the audio lasts 30.000 s while the faces last 1.000 s" in finding.found


def test_p06_a_corpus_that_was_moved_is_one_finding_a_folder(one):
    (one.root / "clips_videos").rename(one.root / "moved")
    finding = only(judged(ava(one)))
    assert finding.code is V.FACES_MISSING
    assert finding.found == "no folder clips_videos/train"
    assert "moved" in finding.hint


def test_p07_everything_wrong_with_a_split_is_told_in_one_pass(tmp_path):
    tracks = [Track(f"{VIDEO}_0_1:{i}", VIDEO) for i in range(8)]
    corpus = Miniature(tmp_path / "ava", tracks).write()
    (corpus.crops(tracks[0]) / "902.00.jpg").unlink()
    (corpus.crops(tracks[1]) / "902.00.jpg").write_bytes(b"")
    (corpus.crops(tracks[2]) / "notes.txt").write_text("x")
    corpus.wav(tracks[3]).unlink()
    corpus.wav(tracks[4]).write_bytes(b"")
    lines = corpus.loader.read_text().splitlines()
    lines[5] = lines[5].replace("\t25\t25\t", "\t26\t25\t")
    lines[6] = lines[6].replace("\t25\t25\t", "\t25\tfast\t")
    lines += [lines[7], "broken"]
    corpus.loader.write_text("\n".join(lines) + "\n")
    report = judged(ava(corpus))
    assert {(name and name[-1], code) for name, code in found(report)} == {
        ("0", V.LABEL_COUNT_MISMATCH),
        ("1", V.FRAME_FILE_EMPTY),
        ("2", V.FRAME_NAME_INVALID),
        ("3", V.AUDIO_MISSING),
        ("4", V.AUDIO_EMPTY),
        ("5", V.LABEL_COUNT_MISMATCH),
        ("6", V.SOURCE_FPS_INVALID),
        ("7", V.SAMPLE_ID_DUPLICATE),
        ("n", V.ROW_MALFORMED),
    }
    assert (report.row_count, len(report.clips)) == (10, 0)
