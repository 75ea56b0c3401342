"""MSDWild's text: windows, turns and ids to rows. Videos are opened for their rate and never decoded."""

from decimal import Decimal
from fractions import Fraction

import pytest
from msdwild_miniature import Miniature

from muvap_assets.asd.contract import TrackBoxes
from muvap_assets.asd.corpora import msdwild
from muvap_assets.asd.corpora.msdwild import MsdwildCorpus
from muvap_assets.asd.corpora.tsv import read_tsv
from muvap_assets.codes import Code, Severity
from muvap_assets.datasets import parse_datasets
from muvap_assets.errors import ConfigError
from muvap_assets.media.video import VideoSource


@pytest.fixture
def mini(tmp_path, monkeypatch):
    """Boxes and turns at 10 frames a second; the rate is the only thing that is read of a video, and stubbed."""
    monkeypatch.setattr(msdwild, "declared_rate", lambda path: Fraction(10))
    root = tmp_path / "msdwild"
    root.mkdir()
    return Miniature(root)


def read(mini, **options):
    options = {"window_sec": 3, "overlap_sec": 1, "min_window_sec": 3, **options}
    corpus = MsdwildCorpus.model_validate({"kind": "msdwild", "root": mini.root, **options})
    mini.write(corpus.split)
    return corpus.read()


def spans(parsed):
    return [(row.boxes.face_id, row.boxes.first_frame, len(row.labels)) for row in parsed.rows]


def codes(parsed, severity=None):
    return [finding.code for finding in parsed.findings if severity in (None, finding.severity)]


# --- windows ---


def test_by_default_windows_of_30_seconds_do_not_overlap_and_a_last_one_of_2_seconds_is_kept(mini):
    corpus = MsdwildCorpus(kind="msdwild", root=mini.root)
    stated = (corpus.window_sec, corpus.overlap_sec, corpus.min_window_sec, corpus.min_face_share)
    assert stated == (30, 0, 2, Decimal("0.9"))
    assert corpus.unmatched_faces == "reject"
    for name, frames in (("a", 620), ("b", 619), ("c", 20), ("d", 19)):
        mini.boxes(name, frames, faces=(0,))
        mini.speaks(name, "0", 0, 1)
    mini.write()
    kept = [(row.video_id, row.boxes.first_frame, len(row.labels)) for row in corpus.read().rows]
    assert kept == [("a", 0, 300), ("a", 300, 300), ("a", 600, 20), ("b", 0, 300), ("b", 300, 300), ("c", 0, 20)]


def test_windows_begin_with_the_first_face_and_an_incomplete_one_is_left_out(mini):
    mini.boxes("a", 95, faces=(0,), missing={(0, frame) for frame in range(7)})
    mini.speaks("a", "0", 0, 1)
    parsed = read(mini)
    assert spans(parsed) == [(0, 7, 30), (0, 27, 30), (0, 47, 30)]  # the next, 67 to 97, would end past 95
    assert parsed.notes["counts"]["final_windows_left_out"] == 1
    assert [row.start_sec for row in parsed.rows] == [Fraction(7, 10), Fraction(27, 10), Fraction(47, 10)]
    assert [row.sample_id for row in parsed.rows] == ["a_0_000007", "a_0_000027", "a_0_000047"]


@pytest.mark.parametrize(("shortest", "kept"), [("2.8", True), ("2.9", False)])
def test_a_final_window_is_kept_where_it_is_long_enough(mini, shortest, kept):
    mini.boxes("a", 95, faces=(0,), missing={(0, frame) for frame in range(7)})
    mini.speaks("a", "0", 0, 1)
    parsed = read(mini, min_window_sec=shortest)
    assert (spans(parsed)[-1] == (0, 67, 28)) is kept


def test_no_window_follows_one_that_reaches_the_end(mini):
    mini.boxes("a", 50, faces=(0,))
    mini.speaks("a", "0", 0, 1)
    assert spans(read(mini, min_window_sec="0.1")) == [(0, 0, 30), (0, 20, 30)]


@pytest.mark.parametrize(("missing", "kept"), [(3, True), (4, False)])
def test_a_face_needs_boxes_on_nine_tenths_of_a_window(mini, missing, kept):
    mini.boxes("a", 30, missing={(1, frame) for frame in range(missing)})
    for speaker in "01":
        mini.speaks("a", speaker, 0, 1)
    parsed = read(mini)
    assert spans(parsed) == [(0, 0, 30), *([(1, 0, 30)] if kept else [])]
    assert parsed.notes["counts"]["tracks_below_min_face_share"] == (not kept)


def test_a_video_too_short_for_a_window_is_told(mini):
    mini.boxes("a", 29, faces=(0,))
    mini.speaks("a", "0", 0, 1)
    parsed = read(mini)
    assert codes(parsed) == [Code.VIDEO_WITHOUT_WINDOW]
    assert "faces on 29 frames, 2.900 s; required: at least 3 s" in parsed.findings[0].message()


def test_windows_do_not_drift_at_a_rate_that_is_no_whole_number(mini, monkeypatch):
    monkeypatch.setattr(msdwild, "declared_rate", lambda path: Fraction(30000, 1001))
    mini.boxes("a", 2000, faces=(0,))
    mini.speaks("a", "0", 0, 1)
    firsts = [row.boxes.first_frame for row in read(mini).rows]
    assert firsts == [round(k * 2 * Fraction(30000, 1001)) for k in range(len(firsts))]
    assert len(firsts) == 32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_sec": 5, "overlap_sec": 5}, "overlap_sec 5 has to be below window_sec 5"),
        ({"min_window_sec": 31}, "min_window_sec 31 has to be at most window_sec 30"),
        ({"split": "train"}, r"corpora.wild.split: Input should be 'all', 'few.train', 'few.val' or 'many.val'"),
        ({"min_face_share": 0}, "corpora.wild.min_face_share"),
        ({"fps": 25}, "corpora.wild.fps"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, options, message):
    entry = {"kind": "msdwild", "root": "msdwild", **options}
    with pytest.raises(ConfigError, match=message):
        parse_datasets({"corpora": {"wild": entry}}, tmp_path / "datasets.yaml")


def test_folders_default_to_the_published_layout_and_can_be_given_one_by_one(tmp_path):
    entry = {"kind": "msdwild", "root": "msdwild", "split": "few.val", "boxes": "elsewhere"}
    corpus = parse_datasets({"corpora": {"wild": entry}}, tmp_path / "datasets.yaml").corpora["wild"]
    root = tmp_path / "msdwild"
    assert corpus.video_file("00001") == root / "msdwild_boundingbox_labels" / "00001.mp4"
    assert corpus.boxes_file("00001") == tmp_path / "elsewhere" / "00001.csv"
    assert corpus.rttm_file == root / "rttms" / "few.val.rttm"


# --- labels ---


def test_a20_labels_come_from_the_turns_and_not_from_the_last_column(mini):
    mini.boxes("a", 30, faces=(0,))
    mini.speaks("a", "0", "0.5", "0.7")
    mini.speaks("a", "0", "2.95", "1")
    (row,) = read(mini).rows
    assert row.labels.nonzero()[0].tolist() == [5, 6, 7, 8, 9, 10, 11, 29]  # centres 0.55 to 1.15, and 2.95
    assert row.labels_known


def test_a20_a_missing_rttm_is_found_out_before_any_video_is_opened(mini, monkeypatch):
    opened = []
    monkeypatch.setattr(msdwild, "declared_rate", lambda path: opened.append(path))
    mini.boxes("a", 30)
    parsed = MsdwildCorpus(kind="msdwild", root=mini.root).read()
    assert codes(parsed) == [Code.RTTM_MISSING]
    assert "all.rttm: it cannot be read (No such file or directory)" in parsed.findings[0].message()
    assert (parsed.rows, parsed.row_count, opened) == ((), 0, [])


def test_reading_decodes_no_frame(tmp_path, monkeypatch):
    def decode(self, fps=None):
        raise AssertionError("a frame was decoded")

    mini = Miniature(tmp_path)
    mini.video("a", 30, Fraction(10), sound=None)
    mini.boxes("a", 30, faces=(0,))
    mini.speaks("a", "0", 0, 1)
    monkeypatch.setattr(VideoSource, "frames", decode)
    (row,) = read(mini).rows
    assert row.source_fps.text == "10"


@pytest.mark.parametrize("split", ["all", "few.train"])
def test_a_video_without_turns_is_wrong_in_the_whole_corpus_and_no_part_of_a_split(mini, split):
    mini.boxes("a", 30, faces=(0,))
    mini.boxes("b", 30, faces=(0,))
    mini.speaks("a", "0", 0, 1)
    parsed = read(mini, split=split)
    assert [row.video_id for row in parsed.rows] == ["a"]
    assert codes(parsed) == ([Code.RTTM_MISSING] if split == "all" else [])
    assert parsed.row_count == (2 if split == "all" else 1)


# --- ids ---


def test_a19_a_face_without_a_speaker_is_refused_and_both_directions_are_counted(mini):
    mini.boxes("a", 30, extra=[f"{frame},face,7,0,0,9,9,1" for frame in range(30)])
    for speaker in ("0", "1", "2", "3"):
        mini.speaks("a", speaker, 0, 1)
    parsed = read(mini)
    assert spans(parsed) == [(0, 0, 30), (1, 0, 30)]
    assert parsed.row_count == 3
    assert [(v.code, v.severity, v.sample_id) for v in parsed.findings] == [
        (Code.FACE_WITHOUT_SPEAKER, Severity.ERROR, "a_7"),
        (Code.SPEAKER_WITHOUT_FACE, Severity.WARNING, "a"),
        (Code.SPEAKER_WITHOUT_FACE, Severity.WARNING, "a"),
    ]
    assert "face 7, of 1 tracks, has no speaker among '0', '1', '2', '3'" in parsed.findings[0].message()
    counts = parsed.notes["counts"]
    assert (counts["faces_without_speaker"], counts["speakers_without_face"]) == (1, 2)


def test_a19_an_explicit_policy_makes_such_a_face_never_speak(mini):
    mini.boxes("a", 30, extra=[f"{frame},face,7,0,0,9,9,1" for frame in range(30)])
    for speaker in ("0", "1"):
        mini.speaks("a", speaker, 0, 3)
    parsed = read(mini, unmatched_faces="negative")
    assert [(row.boxes.face_id, int(row.labels.sum())) for row in parsed.rows] == [(0, 30), (1, 30), (7, 0)]
    assert codes(parsed, Severity.ERROR) == []
    assert codes(parsed) == [Code.FACE_WITHOUT_SPEAKER]


@pytest.mark.parametrize("speaker", ["01", "1.0", "spk1", "10"])
def test_a19_a_face_is_the_speaker_of_the_very_same_name(mini, speaker):
    mini.boxes("a", 30, faces=(1,))
    mini.speaks("a", speaker, 0, 1)
    parsed = read(mini)
    assert parsed.rows == ()
    assert codes(parsed) == [Code.FACE_WITHOUT_SPEAKER, Code.SPEAKER_WITHOUT_FACE]


def test_a_face_without_a_speaker_and_without_a_track_harms_nobody(mini):
    mini.boxes("a", 30, extra=["3,face,7,0,0,9,9,1"])
    for speaker in ("0", "1"):
        mini.speaks("a", speaker, 0, 1)
    parsed = read(mini)
    assert len(parsed.rows) == parsed.row_count == 2
    assert codes(parsed, Severity.ERROR) == []


@pytest.mark.parametrize("split", ["all", "few.train"])
def test_a21_videos_of_negative_names_are_skipped_and_listed(mini, split):
    mini.boxes("a", 30, faces=(0,))
    mini.boxes("-00012", 30, faces=(0,))
    mini.speaks("a", "0", 0, 1)
    for name in ("-00012", "-00013"):
        mini.speaks(name, "0", 0, 1)
    parsed = read(mini, split=split)
    assert [row.video_id for row in parsed.rows] == ["a"]
    assert parsed.row_count == 1
    (finding,) = parsed.findings
    assert (finding.code, finding.severity) == (Code.ID_NEGATIVE, Severity.WARNING)
    assert "2 videos: -00012, -00013" in finding.message()
    assert parsed.notes["negative_ids"] == ["-00012", "-00013"]


def test_what_is_wrong_with_several_videos_is_told_together_and_the_others_go_on(mini, monkeypatch):
    from muvap_assets.media.video_faces import declared_rate

    monkeypatch.setattr(
        msdwild, "declared_rate", lambda path: Fraction(10) if path.stem != "d" else declared_rate(path)
    )
    for name in "abde":
        mini.boxes(name, 30, faces=(0,))
    (mini.media / "b.csv").write_text("frame_id,face,face_id,x1,y1,x2,y2,fixed\n")
    for name in "abcde":
        mini.speaks(name, "0", 0, 1)
    mini.turns.append("SPEAKER e 1 x 1 <NA> <NA> 0 <NA> <NA>")
    parsed = read(mini)
    assert [row.video_id for row in parsed.rows] == ["a"]
    assert parsed.row_count == 5
    assert {(v.sample_id, v.code) for v in parsed.findings} == {
        ("b", Code.BOX_INVALID),
        ("c", Code.FACES_MISSING),
        ("d", Code.FACES_MISSING),
        ("e", Code.RTTM_INVALID),
    }


def test_rows_are_numbered_in_the_order_of_videos_windows_and_faces(mini):
    for name in "ba":
        mini.boxes(name, 50)
        for speaker in "01":
            mini.speaks(name, speaker, 0, 1)
    parsed = read(mini)
    assert [row.row for row in parsed.rows] == list(range(1, 9))
    assert [row.sample_id for row in parsed.rows[:4]] == ["a_0_000000", "a_1_000000", "a_0_000020", "a_1_000020"]


def test_the_texts_a_manifest_is_made_from_are_named(mini):
    mini.boxes("a", 30)
    mini.speaks("a", "0", 0, 1)
    mini.write()
    inputs = MsdwildCorpus(kind="msdwild", root=mini.root).inputs()
    assert set(inputs) == {"rttm", "boxes/a"}
    assert all(path.is_file() for path in inputs.values())


def test_media_below_the_root_are_named_relative_to_it(mini, tmp_path):
    mini.boxes("a", 30, faces=(0,))
    mini.speaks("a", "0", 0, 1)
    (row,) = read(mini, audio=tmp_path / "wav").rows
    assert row.visual_path == "msdwild_boundingbox_labels/a.mp4"
    assert row.boxes.boxes_path == "msdwild_boundingbox_labels/a.csv"
    assert row.audio_path == str(tmp_path / "wav" / "a.wav")
    assert not row.audio_from_video


# --- the same rows in the canonical form ---


CANONICAL = """
sample_id  audio_path  visual_path  source_fps  labels  start_sec    visual_kind  boxes_path  face_id  first_frame
good       v.mp4       v.mp4        25          [0,1]   1001/30000   video_boxes  v.csv       3        7
no_boxes   v.mp4       v.mp4        25          [0,1]   0            video_boxes  -           3        7
no_face    v.mp4       v.mp4        25          [0,1]   0            video_boxes  v.csv       x        7
no_frame   v.mp4       v.mp4        25          [0,1]   0            video_boxes  v.csv       3        7.5
array      v.wav       v.npy        25          [0,1]   0            npy          -           -        -
"""


def test_a_canonical_row_of_boxes_needs_all_three_of_its_columns(tmp_path):
    path = tmp_path / "manifest.tsv"
    rows = [["" if field == "-" else field for field in line.split()] for line in CANONICAL.split("\n")]
    path.write_text("".join("\t".join(fields) + "\n" for fields in rows if fields))
    parsed = read_tsv(path)
    assert [(v.sample_id, v.code, v.field) for v in parsed.findings] == [
        ("no_boxes", Code.PATH_INVALID, "boxes_path"),
        ("no_face", Code.BOX_INVALID, "face_id"),
        ("no_frame", Code.BOX_INVALID, "first_frame"),
    ]
    good, array = parsed.rows
    assert (good.boxes, good.start_sec) == (TrackBoxes("v.csv", 3, 7), Fraction(1001, 30000))
    assert good.audio_from_video
    assert (array.boxes, array.audio_from_video) == (None, False)


def test_one_mistyped_frame_id_asks_for_no_million_windows(mini):
    mini.boxes("a", 40, faces=(0,), extra=["999999999,face,0,1,1,9,9,0"])
    mini.speaks("a", "0", 0, 1)
    parsed = read(mini)
    assert parsed.rows == ()
    assert codes(parsed, Severity.ERROR) == [Code.BOX_INVALID]
    assert "boxes from frame 0 to 999999999, which is over 100,000 windows" in parsed.findings[0].found
