"""One reader of AVA-style CSV: what a corpus takes as annotations, evaluation takes as ground truth, in the same words."""

from fractions import Fraction

import pytest

from muvap_assets.asd.ava_csv import EXTENDED_COLUMNS, read_original
from muvap_assets.asd.prediction_files import TrackScores, read_ground_truth, read_predictions, write_predictions
from muvap_assets.codes import Code, Severity
from muvap_assets.errors import ValidationError

V = Code
A, B = "vidA_0000_0060:1", "vidB_0000_0060:2"
TIMES = ("0.04", "0.08", "0.12")
ROWS = [
    [entity[:4], time, "0.1", "0.2", "0.4", "0.6", label, entity, label_id, f"{entity}:0"]
    for entity in (A, B)
    for time, label, label_id in zip(
        TIMES, ("SPEAKING_AUDIBLE", "NOT_SPEAKING", "SPEAKING_NOT_AUDIBLE"), "102", strict=True
    )
]
HEADER = list(EXTENDED_COLUMNS)


def lines(rows, separator=","):
    return "".join(separator.join(row) + "\n" for row in rows)


def indexed(rows, header=None):
    """As pandas writes a table with its index: a row number first, under no name."""
    return lines([*([["", *header]] if header else []), *([str(i), *row] for i, row in enumerate(rows))])


def cut(rows, columns):
    return [row[:columns] for row in rows]


EXPONENT = [[row[0], {"0.04": "4e-2", "0.08": "8E-02", "0.12": "1.2e-1"}[row[1]], "1e-1", *row[3:]] for row in ROWS]
GOOD = {
    "8 columns, no header": lines(cut(ROWS, 8)),
    "10 columns, no header": lines(ROWS),
    "8 columns with a header": lines(cut([HEADER, *ROWS], 8)),
    "10 columns with a header": lines([HEADER, *ROWS]),
    "header of another case": lines([["Video_ID", *map(str.upper, HEADER[1:])], *ROWS]),
    "columns in another order and one more": lines([[*row[::-1], "x"] for row in [HEADER, *ROWS]]),
    "blanks after commas": lines([HEADER, *ROWS], ", "),
    "blanks after commas, no header": lines(cut(ROWS, 8), " , "),
    "exponents": lines([HEADER, *EXPONENT]),
    "a row number under no name": indexed(ROWS, HEADER),
    "a row number under the name it has when read again": indexed(ROWS, HEADER).replace(
        ",video_id", "Unnamed: 0,video_id"
    ),
    "a row number before 10 columns, no header": indexed(ROWS),
    "a row number before 8 columns, no header": indexed(cut(ROWS, 8)),
    "label ids as decimals": lines([HEADER, *([*row[:8], f"{row[8]}.0", row[9]] for row in ROWS)]),
    "quoted, CRLF, a byte-order mark, blank lines": "\ufeff"
    + lines([[f'"{field}"' for field in row] for row in [HEADER, *ROWS]]).replace("\n", "\r\n\r\n"),
    "quoted, blanks after commas": lines([[f'"{field}"' for field in row] for row in [HEADER, *ROWS]], ", "),
}


@pytest.mark.parametrize("kind", GOOD)
def test_a_corpus_and_evaluation_read_the_same_of_every_kind_of_file(tmp_path, kind):
    path = tmp_path / "val_orig.csv"
    path.write_text(GOOD[kind], encoding="utf-8", newline="")
    original, truth = read_original(path), read_ground_truth(path, labels_known=True)
    assert not original.findings
    assert {name: entity.video_id for name, entity in original.entities.items()} == {A: "vidA", B: "vidB"}
    for entity in (A, B):
        rows = truth.table.of_entity(entity)
        assert [Fraction(row.timestamp) for row in rows] == [Fraction(time) for time in TIMES]
        assert [[float(side) for side in row.box.split(",")] for row in rows] == [[0.1, 0.2, 0.4, 0.6]] * 3
        assert original.entities[entity].times_usec.tolist() == [40_000, 80_000, 120_000]
        assert original.entities[entity].labels.tolist() == [1, 0, 0]
    assert truth.labels.tolist() == [1, 0, 0] * 2


def changed(column, value, row=1):
    return lines([HEADER, *([*r[:column], value, *r[column + 1 :]] if i == row else r for i, r in enumerate(ROWS, 1))])


BAD = {
    "a time that is none": (changed(1, "noon"), V.FRAME_TIMES_INVALID, 2, A, "'noon'"),
    "a negative time": (changed(1, "-1"), V.FRAME_TIMES_INVALID, 2, A, "'-1'"),
    "a time beyond all videos": (changed(1, "1e99"), V.FRAME_TIMES_INVALID, 2, A, "'1e99'"),
    "a time twice": (changed(1, "8e-2"), V.FRAME_TIMES_INVALID, 3, A, "0.08, and so on row 2 of val_orig.csv"),
    "a box that is none": (changed(2, "left"), V.BOX_INVALID, 2, A, "'left,0.2,0.4,0.6'"),
    "a box that is not finite": (changed(3, "nan"), V.BOX_INVALID, 2, A, "'0.1,nan,0.4,0.6'"),
    "an unknown label": (changed(6, "SINGING"), V.LABEL_UNKNOWN, 2, A, "'SINGING'"),
    "a label id of another class": (changed(8, "0"), V.LABELS_DISAGREE, 2, A, "label SPEAKING_AUDIBLE with"),
    "no entity": (changed(7, " "), V.SAMPLE_ID_INVALID, 2, None, "''"),
    "an entity that cannot be printed": (changed(7, "a\x07"), V.SAMPLE_ID_INVALID, 2, None, r"'a\x07'"),
    "a video that cannot be printed": (changed(0, "x" * 501), V.SAMPLE_ID_INVALID, 2, A, "'xxx"),
    "two videos": (changed(0, "vidX", row=2), V.VIDEO_ID_UNKNOWN, 3, A, "video ids 'vidA' and 'vidX'"),
    "a row of fewer columns": (lines([HEADER, *ROWS, ROWS[0][:7]]), V.ROW_MALFORMED, 8, None, "7 columns"),
    "columns that are not there": (lines(cut([HEADER, *ROWS], 6)), V.ORIGINAL_FORMAT, 1, None, "6 columns, without label"),
    "a column twice": (lines([[*row, row[6]] for row in [HEADER, *ROWS]]), V.COLUMN_DUPLICATE, 1, None, "label more"),
    "predictions": (lines([[*row, "0.5"] for row in [HEADER, *ROWS]]).replace("id,0.5", "id,score", 1),
                    V.COLUMN_UNKNOWN, 1, None, "a score column"),
    "predictions, no header": (lines([[*row[:8], "0.5"] for row in ROWS]), V.ORIGINAL_FORMAT, 1, None, "9 columns"),
    "a loader CSV": ("entity\t1\t25\t[0]\n", V.ORIGINAL_FORMAT, 1, None, "columns separated by tabs"),
    "nothing": ("", V.ORIGINAL_FORMAT, None, None, "no rows"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_a_corpus_and_evaluation_refuse_the_same_with_the_same_words(tmp_path, kind):
    text, code, row, entity, found = BAD[kind]
    path = tmp_path / "val_orig.csv"
    path.write_text(text)
    (finding,) = read_original(path).findings
    assert (finding.code, finding.row, finding.sample_id) == (code, row, entity)
    assert finding.found.startswith(found)
    with pytest.raises(ValidationError) as error:
        read_ground_truth(path, labels_known=True)
    assert error.value.findings == (finding,)


def test_rows_of_an_entity_that_say_the_same_are_one_finding_and_other_values_have_their_own(tmp_path):
    rows = [[*row[:6], "MUMBLING" if i != 1 else "HUMMING", *row[7:]] for i, row in enumerate(ROWS)]
    (tmp_path / "val_orig.csv").write_text(lines(rows))
    found = [(v.row, v.sample_id, v.found) for v in read_original(tmp_path / "val_orig.csv").findings]
    assert found == [
        (1, A, "'MUMBLING' (and in 1 more rows)"),
        (2, A, "'HUMMING'"),
        (4, B, "'MUMBLING' (and in 2 more rows)"),
    ]


def test_labels_that_are_filler_are_not_looked_at_by_either(tmp_path):
    (tmp_path / "test.csv").write_text(lines([[*row[:6], "?", row[7]] for row in ROWS]))
    original = read_original(tmp_path / "test.csv", labels_known=False)
    assert not original.findings
    assert original.entities[A].labels.tolist() == [0, 0, 0]
    assert len(read_ground_truth(tmp_path / "test.csv", labels_known=False)) == 6


def test_a_folder_of_one_file_a_video_is_read_by_both(tmp_path):
    (tmp_path / "a.csv").write_text(lines(ROWS[:3]))
    (tmp_path / "b.csv").write_text(lines(cut([HEADER, *ROWS[3:]], 8)))
    assert [*read_original(tmp_path).entities] == [A, B]
    assert [row.source for row in read_ground_truth(tmp_path, labels_known=True).table.rows] == ["a.csv"] * 3 + [
        "b.csv"
    ] * 3


@pytest.mark.parametrize("columns", [8, 10])
@pytest.mark.parametrize("index", [False, True])
def test_predictions_are_read_with_and_without_what_training_tools_add(tmp_path, columns, index):
    (tmp_path / "truth.csv").write_text(lines(ROWS))
    truth = read_ground_truth(tmp_path / "truth.csv", labels_known=True)
    rows = [[*row[:6], "SPEAKING_AUDIBLE", *row[7:columns], f"{i}e-1"] for i, row in enumerate(ROWS)]
    for header in (None, [*HEADER[:columns], "score"]):
        text = indexed(rows, header) if index else lines([*([header] if header else []), *rows])
        (tmp_path / "predictions.csv").write_text(text)
        assert read_predictions(tmp_path / "predictions.csv", truth).tolist() == [0, 0.1, 0.2, 0.3, 0.4, 0.5]


def test_what_is_written_for_upload_has_no_blanks_whatever_the_ground_truth_has(tmp_path):
    (tmp_path / "truth.csv").write_text(lines(ROWS, " , "))
    truth = read_ground_truth(tmp_path / "truth.csv", labels_known=True)
    tracks = [TrackScores(entity_id=entity, scores=[0.25, 0.5, 1.0]) for entity in (A, B)]
    write_predictions(tmp_path / "upload.csv", truth, tracks)
    assert (tmp_path / "upload.csv").read_text().splitlines()[
        0
    ] == f"vidA,0.04,0.1,0.2,0.4,0.6,SPEAKING_AUDIBLE,{A},0.25"


@pytest.mark.parametrize(
    ("fps", "frames", "hint"),
    [
        (120, 60, "Two decimals cannot name frames at over 100 fps (here 60 in 0.49 s)"),
        (240, 60, "Two decimals cannot name frames at over 100 fps (here 60 in 0.25 s)"),
        (25, 2, "Drop the row that is not true"),
        (100, 30, "Drop the row that is not true"),
    ],
)
def test_times_of_two_decimals_that_cannot_name_their_frames_are_not_told_to_be_dropped(tmp_path, fps, frames, hint):
    times = [f"{float(Fraction(i, fps)):.2f}" for i in range(frames)]
    times += [times[-1]] if len(set(times)) == frames else []
    rows = [["v", time, *ROWS[0][2:6], "NOT_SPEAKING", "v:1"] for time in times]
    (tmp_path / "t.csv").write_text(lines(rows))
    (finding,) = read_original(tmp_path / "t.csv").findings
    assert (finding.code, finding.severity) == (V.FRAME_TIMES_INVALID, Severity.ERROR)
    assert finding.hint.startswith(hint)
    with pytest.raises(ValidationError) as error:
        read_ground_truth(tmp_path / "t.csv", labels_known=True)
    assert error.value.findings == (finding,)
