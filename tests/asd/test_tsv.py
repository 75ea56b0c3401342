"""The canonical TSV: what is read, and what each broken row is told."""

import csv
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from muvap_assets.asd.contract import VisualKind
from muvap_assets.asd.corpora.tsv import read_tsv
from muvap_assets.codes import Code, Severity

HEADER = "sample_id\taudio_path\tvisual_path\tsource_fps\tlabels\tstart_sec"
ROW = "clip_001\taudio/recording.wav\tfaces/clip_001.npy\t29.97\t[0,0,1,1]\t12.48"


def parse(tmp_path, *rows, header=HEADER, encoding="utf-8", newline="\n"):
    path = tmp_path / "train.tsv"
    path.write_bytes(newline.join([header, *rows]).encode(encoding))
    return read_tsv(path)


def row(**fields):
    values = {
        "sample_id": "clip",
        "audio_path": "a.wav",
        "visual_path": "f.npy",
        "source_fps": "25",
        "labels": "[0,1]",
        "start_sec": "0",
    }
    return "\t".join({**values, **fields}.values())


def codes(parsed):
    return [finding.code for finding in parsed.findings]


def test_a_first_line_of_very_many_columns_is_one_finding(tmp_path):
    parsed = parse(tmp_path, header="\t".join(f"c{number}" for number in range(80_000)))
    (finding,) = parsed.findings
    assert (finding.code, finding.found) == (Code.ROW_MALFORMED, "80000 columns")


def test_the_contracts_example_is_read_as_it_stands(tmp_path):
    parsed = parse(tmp_path, ROW)
    (clip,) = parsed.rows
    assert not parsed.findings
    assert (clip.row, clip.sample_id, clip.audio_path, clip.visual_path) == (
        2,
        "clip_001",
        "audio/recording.wav",
        "faces/clip_001.npy",
    )
    assert (clip.source_fps.text, str(clip.start_sec), clip.visual_kind) == ("29.97", "312/25", VisualKind.NPY)
    assert clip.labels.tolist() == [0, 0, 1, 1]
    assert clip.labels.dtype == np.uint8


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a27_byte_order_mark_crlf_and_blank_lines_change_nothing(tmp_path, encoding, newline):
    parsed = parse(tmp_path, ROW, "", "  ", "", encoding=encoding, newline=newline)
    assert (len(parsed.rows), parsed.row_count, parsed.findings) == (1, 1, ())


def test_a26_three_hours_of_labels_fit_in_one_field_and_the_csv_limit_is_restored(tmp_path):
    before = csv.field_size_limit()
    labels = [i // 7 % 2 for i in range(3 * 3600 * 60)]
    parsed = parse(tmp_path, row(labels=json.dumps(labels)))
    assert parsed.rows[0].labels.tolist() == labels
    assert csv.field_size_limit() == before


def test_fields_may_be_quoted(tmp_path):
    parsed = parse(tmp_path, row(labels='"[0, 1]"', audio_path='"a\tb.wav"'.replace("\t", " ")))
    assert not parsed.findings
    assert parsed.rows[0].labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""[0, 1]"""', "is a JSON str"),
        ("['0','1']", "is not JSON"),
        ('"[""0"",""1""]"', "entry 0 is"),
        ("[0,1,true]", "entry 2 is 'true'"),
        ("[NaN,1]", "holds NaN"),
        ("[0,Infinity]", "holds Infinity"),
        ("[0,1,]", "is not JSON"),
        ("[]", "an empty list"),
        ("[0,1,2]", "entry 2 is '2'"),
        ("[0,-1]", "entry 1 is '-1'"),
        ("[0,256]", "entry 1 is '256'"),
        ("[0,0.5]", "entry 1 is '0.5'"),
        ("[0,[1]]", "entry 1 is"),
        ("[0,null]", "entry 1 is 'null'"),
        ("{}", "is a JSON dict"),
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a28_labels_that_are_not_a_list_of_0_and_1_are_refused_with_the_offending_entry(tmp_path, text, found):
    parsed = parse(tmp_path, row(labels=text))
    assert codes(parsed) == [Code.LABELS_INVALID]
    assert not parsed.rows
    (finding,) = parsed.findings
    assert found in finding.found
    assert (finding.row, finding.field, finding.sample_id) == (2, "labels", "clip")


def test_a28_labels_written_as_floats_are_accepted_with_a_note(tmp_path):
    parsed = parse(tmp_path, row(labels="[0.0, 1.0, 1]"))
    assert parsed.rows[0].labels.tolist() == [0, 1, 1]
    assert [(v.code, v.severity) for v in parsed.findings] == [(Code.LABELS_FLOAT, Severity.WARNING)]


@pytest.mark.parametrize("column", ["sample_id", "audio_path", "visual_path", "source_fps", "labels"])
def test_a_missing_column_is_named(tmp_path, column):
    header = "\t".join(name for name in HEADER.split("\t") if name != column)
    parsed = parse(tmp_path, header=header)
    assert codes(parsed) == [Code.COLUMN_MISSING]
    assert repr(column) in parsed.findings[0].found


def test_all_missing_columns_are_one_finding_that_says_what_may_be_meant(tmp_path):
    (finding,) = parse(tmp_path, header=HEADER.replace("labels", "lables").replace("audio_path", "sound")).findings
    assert finding.found.startswith("no column 'audio_path', 'labels' in ['sample_id', 'sound', ")
    assert finding.hint == "Did you mean 'labels' by 'lables'?"


@pytest.mark.parametrize("separator", [";", ","])
def test_a_header_separated_by_something_else_than_tabs_is_told_so(tmp_path, separator):
    (finding,) = parse(tmp_path, header=HEADER.replace("\t", separator)).findings
    assert (finding.code, finding.row) == (Code.COLUMN_MISSING, 1)
    assert finding.found.endswith(f"separated by {separator!r}")


def test_a_file_without_a_header_is_one_short_finding(tmp_path):
    labels = str([0, 1] * 4000)
    (finding,) = parse(tmp_path, row(), header=row(labels=labels) + "\t\t").findings
    assert finding.code == Code.COLUMN_MISSING
    assert len(finding.message()) < 500


def test_a_column_given_twice_is_told_beside_one_that_is_missing(tmp_path):
    parsed = parse(tmp_path, header=HEADER.replace("labels", "sample_id"))
    assert codes(parsed) == [Code.COLUMN_MISSING, Code.COLUMN_DUPLICATE]


def test_start_sec_may_be_missing_as_column_or_as_value(tmp_path):
    short = "\t".join(HEADER.split("\t")[:5])
    assert parse(tmp_path, "\t".join(ROW.split("\t")[:5]), header=short).rows[0].start_sec is None
    assert parse(tmp_path, row(start_sec="")).rows[0].start_sec is None


def test_a_misspelled_column_is_reported_with_what_it_may_mean(tmp_path):
    parsed = parse(tmp_path, row(), header=HEADER.replace("start_sec", "start_secs"))
    assert [(v.code, v.severity, v.hint) for v in parsed.findings] == [
        (Code.COLUMN_UNKNOWN, Severity.WARNING, "Did you mean 'start_sec'?")
    ]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"sample_id": ""}, Code.SAMPLE_ID_INVALID),
        ({"sample_id": "a\x07b"}, Code.SAMPLE_ID_INVALID),
        ({"sample_id": "x" * 501}, Code.SAMPLE_ID_INVALID),
        ({"audio_path": " "}, Code.PATH_INVALID),
        ({"visual_path": "f\x00.npy"}, Code.PATH_INVALID),
        ({"source_fps": ""}, Code.SOURCE_FPS_INVALID),
        ({"source_fps": "0"}, Code.SOURCE_FPS_INVALID),
        ({"source_fps": "29,97"}, Code.SOURCE_FPS_INVALID),
        ({"start_sec": "-1"}, Code.START_SEC_INVALID),
        ({"start_sec": "nan"}, Code.START_SEC_INVALID),
        ({"start_sec": "0:12"}, Code.START_SEC_INVALID),
        ({"start_sec": "1e99"}, Code.START_SEC_INVALID),
        ({"audio_path": "a.npy"}, Code.AUDIO_RATE_INVALID),
    ],
)
def test_each_bad_field_has_its_code(tmp_path, fields, code):
    parsed = parse(tmp_path, row(**fields))
    assert codes(parsed) == [code]
    assert not parsed.rows


def test_a08_a_frame_rate_is_never_assumed(tmp_path):
    parsed = parse(
        tmp_path, row(sample_id="a", source_fps="23.976"), row(sample_id="b", source_fps=""), row(sample_id="c")
    )
    assert [clip.source_fps.text for clip in parsed.rows] == ["23.976", "25"]
    assert "never assumed" in parsed.findings[0].hint


@pytest.mark.parametrize(("kind", "rate"), [("mp4", "16000"), ("npy", "16k"), ("npy", "0"), ("npy", "16000.0")])
def test_optional_columns_are_checked_too(tmp_path, kind, rate):
    parsed = parse(tmp_path, row() + f"\t{kind}\t{rate}", header=HEADER + "\tvisual_kind\taudio_sample_rate")
    assert len(parsed.findings) == 1
    assert not parsed.rows


def test_a_rate_for_all_rows_is_that_of_arrays_whose_row_gives_none(tmp_path):
    paths = {"own": "a.npy", "none": "b.NPY ", "wav": "c.wav"}
    rows = [
        row(sample_id=name, audio_path=path) + ("\t32000" if name == "own" else "\t ") for name, path in paths.items()
    ]
    path = tmp_path / "train.tsv"
    path.write_text("\n".join([HEADER + "\taudio_sample_rate", *rows]) + "\n")
    parsed = read_tsv(path, 8_000)
    assert not parsed.findings
    assert {clip.sample_id: clip.audio_sample_rate for clip in parsed.rows} == {
        "own": 32_000,
        "none": 8_000,
        "wav": None,
    }
    (refused,) = read_tsv(path).findings
    assert (refused.sample_id, refused.code) == ("none", Code.AUDIO_RATE_INVALID)
    assert "option `audio_sample_rate`" in refused.message()


def test_a_rate_for_all_rows_needs_no_column(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text(f"{HEADER}\n{row(audio_path='a.npy')}\n")
    assert [clip.audio_sample_rate for clip in read_tsv(path, 8_000).rows] == [8_000]


def test_every_broken_row_is_reported_at_once_and_the_good_ones_stay(tmp_path):
    parsed = parse(
        tmp_path,
        row(sample_id="good"),
        row(sample_id="bad", source_fps="x", labels="[3]"),
        "too\tfew",
        row(sample_id="also good"),
        '"unpaired\tquote"x\t\t\t\t',
    )
    assert [clip.sample_id for clip in parsed.rows] == ["good", "also good"]
    assert [(v.row, v.code) for v in parsed.findings] == [
        (3, Code.SOURCE_FPS_INVALID),
        (3, Code.LABELS_INVALID),
        (4, Code.ROW_MALFORMED),
        (6, Code.ROW_MALFORMED),
    ]
    assert parsed.row_count == 5


@pytest.mark.parametrize("closed", [False, True], ids=["never closed", "closed by another stray one"])
def test_b19_a_stray_quotation_mark_takes_its_own_row_and_no_other(tmp_path, closed):
    rows = [row(sample_id=f"s{i}") + "\tCC BY" for i in range(9)]
    rows[3] = row(sample_id="s3") + '\t"CC BY'
    if closed:
        rows[6] = row(sample_id="s6") + '\tCC BY"'
    parsed = parse(tmp_path, *rows, header=HEADER + "\tlicense")
    assert [clip.sample_id for clip in parsed.rows] == [f"s{i}" for i in range(9) if i != 3]
    assert [(v.row, v.code) for v in parsed.findings] == [(5, Code.ROW_MALFORMED)]
    assert parsed.row_count == 9


def test_a26_a_line_without_end_keeps_the_whole_file_from_being_taken(tmp_path, monkeypatch):
    monkeypatch.setattr("muvap_assets.asd.corpora.fields.MAX_ROW_CHARACTERS", 1000)
    parsed = parse(tmp_path, row(sample_id="a"), row(sample_id="b", labels="[" + "0," * 600), row(sample_id="c"))
    (finding,) = parsed.findings
    assert (finding.code, finding.row) == (Code.FILE_UNREADABLE, None)  # of the file: quarantine does not help
    assert finding.found == "line 3 is over 1,000 characters without an end; nothing after it was read"


def test_manifests_are_read_in_two_threads_at_once(tmp_path):
    labels = [0, 1] * 100_000
    for name in "ab":
        (tmp_path / name).mkdir()
    before = csv.field_size_limit()
    with ThreadPoolExecutor(2) as pool:
        rows = [row(sample_id=f"s{i}", labels=json.dumps(labels)) for i in range(4)]
        read = list(pool.map(lambda name: parse(tmp_path / name, *rows), "ab"))
    assert [(len(parsed.rows), parsed.findings) for parsed in read] == [(4, ())] * 2
    assert csv.field_size_limit() == before


def test_all_rows_of_a_repeated_id_are_refused_and_name_one_another(tmp_path):
    parsed = parse(tmp_path, row(sample_id="a"), row(sample_id="b"), row(sample_id="a"))
    assert [clip.sample_id for clip in parsed.rows] == ["b"]
    assert [(v.row, v.found) for v in parsed.findings] == [(2, "also in row 4"), (4, "also in row 2")]


def test_bytes_that_are_not_utf8_are_reported_with_their_row(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_bytes(f"{HEADER}\n{row(sample_id='ok')}\n".encode() + row(sample_id="é").encode("latin-1") + b"\n")
    parsed = read_tsv(path)
    assert [(v.row, v.code) for v in parsed.findings] == [(3, Code.ENCODING_INVALID)]
    assert len(parsed.rows) == 1


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_a_file_in_utf16_or_utf32_is_one_finding_and_no_line_is_read(tmp_path, encoding):
    parsed = parse(tmp_path, row(sample_id="a"), row(sample_id="é"), encoding=encoding)
    (finding,) = parsed.findings
    assert (finding.code, finding.row, parsed.row_count) == (Code.ENCODING_INVALID, None, 0)
    assert finding.found.startswith("this is UTF-")


def test_the_line_after_a_header_that_does_not_decode_is_never_taken_for_it(tmp_path):
    for second in (HEADER, "é"):
        parsed = parse(tmp_path, second, row(sample_id="b"), header=HEADER + "\té", encoding="latin-1")
        assert [(v.row, v.code) for v in parsed.findings] == [(1, Code.ENCODING_INVALID)]
        assert not parsed.rows


@pytest.mark.parametrize("content", [b"", b"\n\n", HEADER.encode()])
def test_a_manifest_without_rows_is_an_error(tmp_path, content):
    path = tmp_path / "train.tsv"
    path.write_bytes(content)
    assert codes(read_tsv(path)) == [Code.MANIFEST_EMPTY]


def test_a_manifest_that_is_not_there_is_a_finding_and_no_traceback(tmp_path):
    assert codes(read_tsv(tmp_path / "none.tsv")) == [Code.FILE_UNREADABLE]


def test_license_and_consent_are_carried_through(tmp_path):
    parsed = parse(tmp_path, row() + "\tCC-BY-4.0\tform-7", header=HEADER + "\tlicense\tconsent")
    assert (parsed.rows[0].license, parsed.rows[0].consent) == ("CC-BY-4.0", "form-7")


# --- ids that occur twice, or nearly ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [row(source_fps="fast"), row(labels="[2]"), row().rpartition("\t")[0], row(audio_path=" ", start_sec="-1")],
    ids=["rate", "labels", "a field less", "two faults"],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_duplicate_of_a_broken_row_is_a_duplicate_all_the_same(tmp_path, broken, first):
    parsed = parse(tmp_path, *([broken, row()] if first else [row(), broken]), row(sample_id="other"))
    assert [clip.sample_id for clip in parsed.rows] == ["other"]
    duplicates = [(v.row, v.found) for v in parsed.findings if v.code is Code.SAMPLE_ID_DUPLICATE]
    assert duplicates == [(2, "also in row 3"), (3, "also in row 2")]
    assert parsed.row_count == 3


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Anna", "anna"),
        ("caf\u00e9", "cafe\u0301"),  # composed, decomposed
        ("CAF\u00c9", "cafe\u0301"),
        ("\uff21\uff11", "a1"),  # full width
        ("stra\u00dfe", "STRASSE"),
    ],
)
def test_ids_that_differ_only_by_case_or_unicode_form_are_a_warning_and_both_are_kept(tmp_path, first, second):
    parsed = parse(tmp_path, row(sample_id=first), row(sample_id="other"), row(sample_id=second))
    assert [clip.sample_id for clip in parsed.rows] == [first, "other", second]
    (warning,) = parsed.findings
    assert (warning.code, warning.severity) == (Code.SAMPLE_ID_ALIKE, Severity.WARNING)
    assert (warning.row, warning.sample_id) == (4, second)
    assert warning.found == f"{second!a} differs from {first!a} in row 2 only by case or Unicode form"


def test_ids_that_differ_in_more_are_no_finding(tmp_path):
    ids = ["a:1", "a_1", "a 1", "\u00e9", "e", "\u00df", "s"]
    assert not parse(tmp_path, *(row(sample_id=each) for each in ids)).findings


def test_a_text_that_is_no_id_is_not_compared(tmp_path):
    parsed = parse(tmp_path, *[row(sample_id="a" * 501)] * 2, *[row(sample_id=" ")] * 2)
    assert codes(parsed) == [Code.SAMPLE_ID_INVALID] * 4


def test_of_very_many_rows_of_one_id_each_names_five_others_and_how_many_more(tmp_path):
    found = [finding.found for finding in parse(tmp_path, *[row()] * 20).findings]
    assert (found[0], found[19]) == ("also in row 3, 4, 5, 6, 7 and 14 more", "also in row 2, 3, 4, 5, 6 and 14 more")
