"""Scores meet ground-truth rows by entity and timestamp, official files are complete, and categories match exactly."""

import csv
import doctest

import numpy as np
import pytest

from muvap_assets.asd import prediction_files
from muvap_assets.asd.ava_csv import COLUMNS
from muvap_assets.asd.ava_metric import ava_average_precision
from muvap_assets.asd.categories import Category, average_precision_by_category, categories_of, read_division
from muvap_assets.asd.evaluation import lift
from muvap_assets.asd.prediction_files import TrackScores, read_ground_truth, read_predictions, write_predictions
from muvap_assets.asd.timeline import source_indices
from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError

BOX = ("0.1", "0.20", "3e-1", ".4")
A, B = "vidA_0000_0060:1", "vidB_0000_0060:10"
ROWS = [
    ("vidA", "0.04", *BOX, "SPEAKING_AUDIBLE", A),
    ("vidB", "2.00", *BOX, "NOT_SPEAKING", B),
    ("vidA", "0.00", *BOX, "NOT_SPEAKING", A),
    ("vidA", "0.08", *BOX, "SPEAKING_NOT_AUDIBLE", A),
    ("vidB", "10.0", *BOX, "SPEAKING_AND_AUDIBLE", B),
]
"""Shuffled: the rows of A are its frames 1, 0, 2, and as text 10.0 comes before 2.00."""


def write_csv(path, rows, header=()):
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([header, *rows] if header else rows)
    return path


def tracks(a=(0.0, 0.1, 0.2), b=(1.0, 1.1), **times):
    return [
        TrackScores(entity_id=B, scores=np.float32(b), timestamps=times.get("b_times")),
        TrackScores(entity_id=A, scores=np.float32(a), timestamps=times.get("a_times")),
    ]


@pytest.fixture
def truth(tmp_path):
    return read_ground_truth(write_csv(tmp_path / "truth.csv", ROWS), labels_known=True)


def found(error):
    return {(finding.code, finding.sample_id): finding.found for finding in error.value.findings}


def test_scores_meet_rows_by_entity_and_time_whatever_their_order(truth):
    assert truth.align(tracks()).tolist() == np.float32([0.1, 1.0, 0.0, 0.2, 1.1]).tolist()
    assert truth.labels.tolist() == [1, 0, 0, 0, 1]


def test_the_file_for_upload_has_no_header_the_rows_of_the_ground_truth_and_one_label(tmp_path, truth):
    write_predictions(tmp_path / "upload.csv", truth, tracks())
    lines = (tmp_path / "upload.csv").read_text().splitlines()
    assert lines[0] == "vidA,0.04,0.1,0.20,3e-1,.4,SPEAKING_AUDIBLE,vidA_0000_0060:1,0.1"
    written = [line.split(",") for line in lines]
    assert [row[:6] + row[7:8] for row in written] == [list(row[:6] + row[7:]) for row in ROWS]
    assert {row[6] for row in written} == {"SPEAKING_AUDIBLE"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["truth.csv", "upload.csv"]


def test_the_headered_file_differs_by_its_first_line_alone(tmp_path, truth):
    write_predictions(tmp_path / "plain.csv", truth, tracks())
    write_predictions(tmp_path / "headered.csv", truth, tracks(), header=True)
    header, *rest = (tmp_path / "headered.csv").read_text().splitlines(keepends=True)
    assert header == ",".join((*COLUMNS, "score")) + "\n"
    assert "".join(rest) == (tmp_path / "plain.csv").read_text()


@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_a_written_file_reads_back_as_the_same_scores_without_new_ties(tmp_path, truth, header, dtype):
    close = np.array([1 / 3, np.nextafter(dtype(1 / 3), dtype(1)), 1e-7], dtype)
    given = [TrackScores(entity_id=A, scores=close), TrackScores(entity_id=B, scores=np.array([-1e-5, 12345.5], dtype))]
    write_predictions(tmp_path / "predictions.csv", truth, given, header=header)
    read = read_predictions(tmp_path / "predictions.csv", truth)
    assert read.astype(dtype).tolist() == truth.align(given).tolist()
    assert len(set(read.tolist())) == 5


def test_a_combined_table_with_a_header_is_the_same_ground_truth(tmp_path, truth):
    header = (*COLUMNS[::-1], "label_id", "instance_id")
    ids = {"SPEAKING_AUDIBLE": "1", "SPEAKING_AND_AUDIBLE": "1", "NOT_SPEAKING": "0", "SPEAKING_NOT_AUDIBLE": "2"}
    rows = [(*row[::-1], ids[row[6]], row[7] + ":0") for row in ROWS]
    combined = write_csv(tmp_path / "val_orig.csv", rows, header)
    again = read_ground_truth(combined, labels_known=True)
    assert [row[:6] for row in again.table.rows] == [row[:6] for row in truth.table.rows]
    assert again.labels.tolist() == truth.labels.tolist()


def test_a_table_from_a_spreadsheet_with_a_mark_and_other_line_ends_is_read_too(tmp_path, truth):
    text = "\r\n".join(",".join(row) for row in (COLUMNS, *ROWS)) + "\r\n\r\n"
    (tmp_path / "bom.csv").write_text("\ufeff" + text, encoding="utf-8", newline="")
    again = read_ground_truth(tmp_path / "bom.csv", labels_known=True)
    assert [row[:6] for row in again.table.rows] == [row[:6] for row in truth.table.rows]
    assert [row.line for row in again.table.rows] == [2, 3, 4, 5, 6]


def test_one_table_a_video_makes_one_ground_truth_in_the_order_given(tmp_path):
    files = [write_csv(tmp_path / f"{i}.csv", rows) for i, rows in enumerate((ROWS[3:], ROWS[:3]))]
    truth = read_ground_truth(files, labels_known=True)
    assert [row.timestamp for row in truth.table.rows] == ["0.08", "10.0", "0.04", "2.00", "0.00"]


@pytest.mark.parametrize(
    ("given", "code", "entity", "what"),
    [
        (tracks()[:1], Code.COUNT_MISMATCH, A, "no scores"),
        ([*tracks(), TrackScores(entity_id=A[:-1], scores=[1])], Code.SAMPLE_ID_INVALID, A[:-1], "not in the"),
        ([*tracks(), tracks()[0]], Code.SAMPLE_ID_DUPLICATE, B, "given more than once"),
        (tracks(a=(0.0, 0.1)), Code.COUNT_MISMATCH, A, "2 scores"),
        (tracks(a=(0.0,) * 4), Code.COUNT_MISMATCH, A, "4 scores"),
        (tracks(b=(0.0, np.nan)), Code.ROW_MALFORMED, B, "nan at 1"),
        (tracks(b=(-np.inf, 0)), Code.ROW_MALFORMED, B, "-inf at 0"),
    ],
)
def test_missing_extra_repeated_short_and_unusable_tracks_are_refused_and_nothing_is_written(
    tmp_path, truth, given, code, entity, what
):
    with pytest.raises(ValidationError) as error:
        write_predictions(tmp_path / "predictions.csv", truth, given)
    assert [*found(error)] == [(code, entity)]
    assert found(error)[code, entity].startswith(what)
    assert [path.name for path in tmp_path.iterdir()] == ["truth.csv"]


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path, truth):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_predictions(tmp_path / "folder", truth, tracks())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "truth.csv"]


def test_everything_wrong_with_the_scores_is_said_at_once(truth):
    with pytest.raises(ValidationError) as error:
        truth.align([TrackScores(entity_id=A, scores=[np.nan] * 3), TrackScores(entity_id="nobody", scores=[1])])
    assert [*found(error)] == [
        (Code.ROW_MALFORMED, A),
        (Code.SAMPLE_ID_INVALID, "nobody"),
        (Code.COUNT_MISMATCH, B),
    ]


def test_named_timestamps_are_matched_by_their_exact_value_in_any_order(truth):
    given = tracks(a=(0.2, 0.0, 0.1), a_times=["0.080", "0", "0.04"], b_times=["2", "10"])
    assert truth.align(given).tolist() == truth.align(tracks()).tolist()


@pytest.mark.parametrize(
    ("times", "what"),
    [
        (["0", "0.04", "0.08000001"], "timestamp '0.08000001'"),
        (["0", "0.04", "0.040"], "timestamp '0.040' twice"),
        (["0", "0.04", "late"], "timestamp 'late'"),
        (["0", "0.04"], "2 timestamps"),
    ],
)
def test_a_timestamp_without_a_row_of_its_own_is_refused(truth, times, what):
    with pytest.raises(ValidationError) as error:
        truth.align(tracks(a_times=times))
    assert [*found(error).values()] == [what]


def test_a_foreign_prediction_file_matches_by_value_where_the_official_merge_would_drop_rows(tmp_path, truth):
    rows = [(*row[:6], "SPEAKING_AUDIBLE", row[7], str(score)) for score, row in enumerate(ROWS)][::-1]
    rows[0] = (rows[0][0], "10", *rows[0][2:])
    rows[3] = (rows[3][0], "2", *rows[3][2:])
    assert read_predictions(write_csv(tmp_path / "p.csv", rows), truth).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({8: "nan"}, r"p.csv row 1 \(vidA_0000_0060:1\): score: 'nan'; required: a finite"),
        ({8: "high"}, "score: 'high'"),
        ({8: ""}, "score: ''; required: a finite"),
        ({6: "NOT_SPEAKING"}, "p.csv row 1 .*label: 'NOT_SPEAKING'; required: one of SPEAKING_AUDIBLE"),
        ({2: "0.100001"}, "row 1 .*entity_box: 0.100001,0.20,3e-1,.4; required: 0.1,0.20"),
        ({1: "0.05"}, "timestamp '0.05'; required: each timestamp"),
        ({7: "nobody"}, "nobody.*not in the ground truth"),
    ],
)
def test_a_prediction_file_that_does_not_fit_is_refused(tmp_path, truth, change, message):
    rows = [[*row[:6], "SPEAKING_AUDIBLE", row[7], "0.5"] for row in ROWS]
    for column, value in change.items():
        rows[0][column] = value
    with pytest.raises(ValidationError, match=message):
        read_predictions(write_csv(tmp_path / "p.csv", rows), truth)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*ROWS, ("vidB", "2", *ROWS[1][2:])], "row 6 .*frame_timestamp: 2, and so on row 2 of t.csv"),
        ([*ROWS, ROWS[0][:7]], "row 6: 7 columns; required: 8"),
        ([(*row, "1", "x", "y") for row in ROWS], "row 1: 11 columns; required: the 8"),
        ([(*row, "0.5") for row in ROWS], "row 1: 9 columns; required: the 8"),
        ([(*ROWS[1], "1", "x")], "label_id: label NOT_SPEAKING with label_id '1'"),
        ([ROWS[0], ("other", *ROWS[2][1:])], "row 2 .*video_id: video ids 'vidA' and 'other' for one entity"),
        ([("vidA", "soon", *ROWS[0][2:])], "frame_timestamp: 'soon'"),
        ([("vidA", "0", "left", *ROWS[0][3:])], "entity_box: 'left,0.20,3e-1,.4'"),
        ([(*ROWS[0][:6], "SINGING", A)], "label: 'SINGING'; required: one of SPEAKING_AUDIBLE, SPEAKING_AND_AUDIBLE"),
        ([("", *ROWS[0][1:])], "video_id: ''; required: 1 to 500 printable"),
        ([(*COLUMNS[:7], "entity"), *ROWS], "8 columns, without entity_id; required: the 8"),
        ([(*COLUMNS, "label"), *[(*row, "x") for row in ROWS]], "label more than once"),
        ([(*COLUMNS, "score"), *[(*row, "1") for row in ROWS]], "so these are predictions; required: annotations"),
        ([], "no rows"),
    ],
)
def test_a_ground_truth_that_is_not_one_is_refused_by_row(tmp_path, rows, message):
    with pytest.raises(ValidationError, match=message):
        read_ground_truth(write_csv(tmp_path / "t.csv", rows), labels_known=True)


def test_files_that_cannot_be_read_are_findings_and_not_tracebacks(tmp_path):
    (tmp_path / "latin.csv").write_bytes(b"vid\xe9,0\n")
    (tmp_path / "quote.csv").write_text('vid,"0\n')
    # Read across lines, the rows between two stray quotation marks would be one field, and the metric of fewer rows.
    entities = ["e", "e", '"e', "e", "e", "e", 'e"', "e"]
    lines = [f"v,{i}.00,0,0,1,1,NOT_SPEAKING,{entity}\n" for i, entity in enumerate(entities)]
    (tmp_path / "two.csv").write_text("".join(lines))
    faults = {"absent": "cannot be read", "latin": "UTF-8", "quote": "unexpected end", "two": "row 3: not a row"}
    for name, message in faults.items():
        with pytest.raises(ValidationError, match=message):
            read_ground_truth(tmp_path / f"{name}.csv", labels_known=True)


def test_a_split_of_filler_can_be_written_for_upload_but_not_scored(tmp_path):
    rows = [(*row[:6], "?", row[7]) for row in ROWS]
    truth = read_ground_truth(write_csv(tmp_path / "test.csv", rows), labels_known=False)
    write_predictions(tmp_path / "upload.csv", truth, tracks())
    assert len((tmp_path / "upload.csv").read_text().splitlines()) == len(ROWS)
    with pytest.raises(ValidationError, match="marked unknown"):
        ava_average_precision(truth.labels, truth.align(tracks()), labels_known=truth.labels_known)
    with pytest.raises(ValidationError, match="marked unknown"):
        average_precision_by_category(truth, truth.align(tracks()), {})


def test_a_model_that_knows_the_labels_scores_one_all_the_way_to_the_official_file(tmp_path):
    rng = np.random.default_rng(7)
    rows, labels = [], {}
    for entity, frames in (("v_0000_0060:1", 40), ("v_0000_0060:10", 31), ("w_0000_0060:1", 1)):
        labels[entity] = np.resize(rng.integers(0, 2, 8).repeat(6), frames)
        names = ("NOT_SPEAKING", "SPEAKING_AUDIBLE")
        rows += [(entity[0], f"{j / 24:.4f}", *BOX, names[labels[entity][j]], entity) for j in range(frames)]
    rng.shuffle(rows)
    truth = read_ground_truth(write_csv(tmp_path / "truth.csv", rows), labels_known=True)
    given = []
    for entity, track in labels.items():
        scores = track[source_indices(len(track), 24)] + rng.random(len(source_indices(len(track), 24))) * 0.5
        given.append(TrackScores(entity_id=entity, scores=lift(scores, len(track), 24)))
    write_predictions(tmp_path / "predictions.csv", truth, given)
    scores = read_predictions(tmp_path / "predictions.csv", truth)
    assert scores.tolist() == truth.align(given).tolist()
    result = ava_average_precision(truth.labels, scores, labels_known=truth.labels_known)
    assert (result.value, result.rows) == (pytest.approx(1.0, abs=0.03), 72)


# --- tracks that were set aside -------------------------------------------------------------------------------------------


def test_a_ground_truth_can_be_restricted_to_what_a_pack_holds_and_the_value_names_the_rows_left_out(truth):
    held = truth.restricted_to([A])
    assert [row.timestamp for row in held.table.rows] == ["0.04", "0.00", "0.08"]
    result = held.average_precision(held.align(tracks()[1:]))
    # One positive, of score 0.1, behind one row of 0.2: precision 1/2.
    assert (result.value, result.rows, result.rows_left_out) == (0.5, 3, 2)
    assert str(result) == "50.0000% (3 rows, 1 positive; 2 rows left out)"
    assert str(truth.average_precision(truth.align(tracks()))).endswith("(5 rows, 2 positive)")


def test_restricting_again_counts_all_rows_that_were_left_out(truth):
    once = truth.restricted_to([A, B])
    assert (once.left_out, len(once)) == ({}, 5)
    assert once.restricted_to([B]).left_out == {"vidA": 3}


def test_a_restricted_ground_truth_of_nothing_and_a_file_for_upload_of_one_are_refused(tmp_path, truth):
    with pytest.raises(ValidationError, match="no row of these 1 entities"):
        truth.restricted_to(["nobody"])
    with pytest.raises(ValidationError, match="2 rows left out; required: all rows of the file"):
        write_predictions(tmp_path / "upload.csv", truth.restricted_to([A]), tracks()[1:])
    assert not (tmp_path / "upload.csv").exists()


def test_rows_of_tracks_that_were_set_aside_get_a_stated_constant_and_only_if_it_is_asked_for(tmp_path, truth):
    only_a = tracks()[1:]
    with pytest.raises(ValidationError, match="restricted_to and missing_score"):
        truth.align(only_a)
    aligned = truth.align(only_a, missing_score=-0.25)
    assert (aligned.tolist(), aligned.dtype) == (np.float32([0.1, -0.25, 0.0, 0.2, -0.25]).tolist(), np.float32)
    write_predictions(tmp_path / "upload.csv", truth, only_a, missing_score=-0.25)
    assert read_predictions(tmp_path / "upload.csv", truth).tolist() == pytest.approx(aligned.tolist(), abs=1e-7)
    lines = (tmp_path / "upload.csv").read_text().splitlines(keepends=True)
    (tmp_path / "partial.csv").write_text("".join(line for line in lines if "vidA" in line))
    partial = read_predictions(tmp_path / "partial.csv", truth, missing_score=-0.25)
    assert partial.tolist() == pytest.approx(aligned.tolist(), abs=1e-7)


@pytest.mark.parametrize(
    ("given", "constant", "what"),
    [
        (tracks(a=(0.0, 0.1))[1:], 0.0, "2 scores"),
        ([TrackScores(entity_id="nobody", scores=[1])], 0.0, "not in the ground truth"),
        ([], 0.0, "no scores"),
        (tracks()[1:], np.nan, "nan at 0"),
        ([TrackScores(entity_id=A, scores=np.float16([0, 1, 2]))], 1e9, "inf at 0"),
    ],
)
def test_a_constant_excuses_missing_tracks_alone(truth, given, constant, what):
    with pytest.raises(ValidationError, match=what):
        truth.align(given, missing_score=constant)


def test_categories_of_a_restricted_ground_truth_name_their_own_rows_left_out(truth):
    division = {Category.OPTIMAL_CONDITIONS: frozenset({"vidA"}), Category.SPEECH_IMPAIRMENT: frozenset({"vidB"})}
    held = truth.restricted_to([A])
    report = average_precision_by_category(held, held.align(tracks()[1:]), division)
    assert {name: (value.rows, value.rows_left_out) for name, value in report.categories.items()} == {
        "OC": (3, 0),
        "SI": (0, 2),
    }
    assert report.overall.rows_left_out == 2


# --- categories ---------------------------------------------------------------------------------------------------------

NEW, OLD = ("OC", "SI", "FO", "HVN", "SS"), ("Interview", "Debate", "Podcast", "React", "Police")


@pytest.mark.parametrize("headings", [NEW, OLD, tuple(name.lower() for name in OLD)])
def test_both_heading_sets_give_the_same_division(tmp_path, headings):
    text = "\ufeff" + "".join(f"# {heading}\r\nid{i}  \r\n\r\n" for i, heading in enumerate(headings))
    (tmp_path / "division.txt").write_text(text, encoding="utf-8", newline="")
    division = read_division(tmp_path / "division.txt")
    assert [*division.items()] == [(category, {f"id{i}"}) for i, category in enumerate(Category)]


def test_an_id_inside_another_does_not_count_and_cuts_of_a_recording_do():
    division = {
        Category.OPTIMAL_CONDITIONS: frozenset({"abc_1"}),
        Category.FACE_OCCLUSION: frozenset({"abc_10", "x-_1"}),
    }
    assert categories_of("abc_1", division) == ("OC",)
    assert categories_of("abc_10", division) == ("FO",)
    assert categories_of("abc_10_905-935", division) == ("FO",)
    assert categories_of("x-_1_0-30", division) == ("FO",)
    assert (
        categories_of("abc", division) == categories_of("abc_100", division) == categories_of("zabc_1", division) == ()
    )


def test_the_report_scores_each_category_on_its_own_rows_and_names_what_stands_out(tmp_path, truth):
    division = {
        Category.OPTIMAL_CONDITIONS: frozenset({"vidA"}),
        Category.SPEECH_IMPAIRMENT: frozenset({"vidA", "vid"}),
        Category.SURVEILLANCE_SETTINGS: frozenset({"elsewhere"}),
    }
    scores = truth.align(tracks())
    report = average_precision_by_category(truth, scores, division)
    own = np.array([0, 2, 3])
    alone = ava_average_precision(truth.labels[own], scores[own], labels_known=True)
    assert [*report.categories] == ["OC", "SI", "SS"]
    assert report.categories["OC"] == report.categories["SI"] == alone
    assert (report.categories["SS"].value, report.categories["SS"].rows) == (None, 0)
    assert report.overall == ava_average_precision(truth.labels, scores, labels_known=True)
    assert (report.unlisted, report.shared) == (("vidB",), ("vidA",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# Interview\na\n# News\nb\n", "row 3: heading '# News'; required: one of oc, si"),
        ("a\n# OC\n", "row 1: 'a' above any heading"),
        ("\n", "nothing; required: headings"),
        (None, "unreadable"),
    ],
)
def test_a_division_file_that_is_not_one_is_refused(tmp_path, text, message):
    if text is not None:
        (tmp_path / "division.txt").write_text(text)
    with pytest.raises(ValidationError, match=message):
        read_division(tmp_path / "division.txt")


def test_the_worked_example_holds():
    assert doctest.testmod(prediction_files).failed == 0
