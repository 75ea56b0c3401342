"""The text of raw manifests: forms, and one finding of each kind, all reported at once."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from media_makers import raw_row, write_rows

from muvap_assets.codes import Severity
from muvap_assets.ref2va.contract import DatasetOptions, Format, Geometry, Reference, ReferenceKind
from muvap_assets.ref2va.raw_manifest import read_raw_manifest
from muvap_assets.ref2va.raw_rows import exact_number, json_object

IMAGE = {"type": "image", "image": "picture.png"}
VIDEO = {"type": "video", "video": "clip.mp4"}
AUDIO = {"type": "audio", "audio": "voice.wav"}


@pytest.fixture
def folder(tmp_path):
    """A folder in which every file a row names is there."""
    inside = tmp_path / "dataset"
    inside.mkdir()
    for name in ("target.mov", "picture.png", "clip.mp4", "voice.wav"):
        (inside / name).touch()
    (tmp_path / "outside.png").touch()
    return inside


def read(folder, content, name="train.jsonl", **options):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_raw_manifest(path, DatasetOptions(**options))


def codes(manifest):
    return [str(finding.code) for finding in manifest.findings]


def of_row(folder, row, **options):
    return read(folder, json.dumps(row) + "\n", **options)


def test_a_full_row_is_read_as_written(folder):
    row = raw_row(
        target_geometry={"width": 832, "height": 480, "num_frames": 124},
        references=[
            IMAGE,
            {**VIDEO, "fps": "30000/1001"},
            {**AUDIO, "sample_rate": 44100},
            {"type": "video_audio", "video": "clip.mp4", "audio": "voice.wav", "fps": 29.97, "sample_rate": 8000},
        ],
    )
    manifest = of_row(folder, row)
    assert not manifest.findings
    (sample,) = manifest.samples
    assert sample.geometry == Geometry(832, 480, 124)
    assert sample.target_video == Path("target.mov")
    assert sample.references == (
        Reference(kind=ReferenceKind.IMAGE, image=Path("picture.png")),
        Reference(kind=ReferenceKind.VIDEO, video=Path("clip.mp4"), fps=Fraction(30_000, 1001)),
        Reference(kind=ReferenceKind.AUDIO, audio=Path("voice.wav"), sample_rate_hz=44_100),
        Reference(
            kind=ReferenceKind.VIDEO_AUDIO,
            video=Path("clip.mp4"),
            audio=Path("voice.wav"),
            fps=Fraction(2997, 100),
            sample_rate_hz=8000,
        ),
    )


ROWS = [raw_row("a"), raw_row("b")]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)


@pytest.mark.parametrize(
    ("name", "content", "ids"),
    [
        ("train.jsonl", LINES, ["a", "b"]),
        ("train.jsonl", LINES.replace("\n", "\r\n"), ["a", "b"]),
        ("train.jsonl", LINES.rstrip(), ["a", "b"]),
        ("train.json", json.dumps(ROWS), ["a", "b"]),
        ("train.json", json.dumps({"data": ROWS}, indent=2), ["a", "b"]),
        ("train.json", json.dumps(ROWS[0], indent=2), ["a"]),
        ("train.jsonl", json.dumps(ROWS[0], indent=2), ["a"]),
        ("train.json", LINES, ["a", "b"]),
    ],
)
def test_every_form_is_read_by_its_content(folder, name, content, ids):  # B22
    manifest = read(folder, content, name)
    assert not manifest.findings
    assert [sample.id for sample in manifest.samples] == ids
    assert [sample.row for sample in manifest.samples] == list(range(1, len(ids) + 1))
    assert manifest.rows_total == len(ids)


@pytest.mark.parametrize("content", ["", "\n\n", "[]", '{"data": []}'])
def test_zero_rows_are_a_finding(folder, content):  # B07
    assert "manifest_empty" in codes(read(folder, content, "train.json"))


ONE_WRONG = {
    "an unknown key": ({"caption_en": "x"}, "key_unknown", "caption_en"),
    "an unknown key inside": ({"target": {"video": "target.mov", "fps": 24}}, "key_unknown", "target.fps"),
    "a rate on an image": ({"references": [{**IMAGE, "fps": 24}]}, "key_unknown", "references[0].fps"),
    "audio on a silent video": (
        {"references": [{**VIDEO, "audio": "voice.wav"}]},
        "key_unknown",
        "references[0].audio",
    ),
    "no caption": ({"caption": ...}, "key_missing", "caption"),
    "no schema": ({"schema_version": ...}, "key_missing", "schema_version"),
    "no audio path": (
        {"references": [{"type": "video_audio", "video": "clip.mp4"}]},
        "key_missing",
        "references[0].audio",
    ),
    "the sft schema": ({"schema_version": "minimax_h3_ref2va_precomputed_v1"}, "schema_invalid", "schema_version"),
    "the packed schema": ({"schema_version": "minimax_h3_ref2va_packed_v1"}, "schema_invalid", "schema_version"),
    "a number as schema": ({"schema_version": 1}, "schema_invalid", "schema_version"),
    "a number as id": ({"id": 7}, "sample_id_invalid", "id"),
    "a blank id": ({"id": " "}, "sample_id_invalid", "id"),
    "null as id": ({"id": None}, "key_missing", "id"),
    "null as caption": ({"caption": None}, "key_missing", "caption"),
    "null as references": ({"references": None}, "key_missing", "references"),
    "null as schema": ({"schema_version": None}, "key_missing", "schema_version"),
    "null as a reference": ({"references": [IMAGE, None]}, "value_invalid", "references[1]"),
    "null as the path a reference needs": (
        {"references": [{"type": "image", "image": None}]},
        "key_missing",
        "references[0].image",
    ),
    "a control character in an id": ({"id": "a\nb"}, "sample_id_invalid", "id"),
    "a sign in an id that turns text around": ({"id": "a\u202eb"}, "sample_id_invalid", "id"),
    "a sign in an id that isolates text": ({"id": "a\u2066b"}, "sample_id_invalid", "id"),
    "a mark of direction in an id": ({"id": "a\u061cb"}, "sample_id_invalid", "id"),
    "a blank caption": ({"caption": " \n"}, "value_invalid", "caption"),
    "a list as caption": ({"caption": ["x"]}, "value_invalid", "caption"),
    "text as target": ({"target": "target.mov"}, "value_invalid", "target"),
    "an object as references": ({"references": {"0": IMAGE}}, "value_invalid", "references"),
    "an unknown type": ({"references": [IMAGE, {"type": "gif"}]}, "value_invalid", "references[1].type"),
    "a reference that is text": ({"references": [IMAGE, "x.png"]}, "value_invalid", "references[1]"),
    "a rate of zero": ({"references": [{**VIDEO, "fps": 0}]}, "value_invalid", "references[0].fps"),
    "a negative rate": ({"references": [{**VIDEO, "fps": -24}]}, "value_invalid", "references[0].fps"),
    "a rate in words": ({"references": [{**VIDEO, "fps": "ntsc"}]}, "value_invalid", "references[0].fps"),
    "a truth value as rate": ({"references": [{**VIDEO, "fps": True}]}, "value_invalid", "references[0].fps"),
    "a broken sample rate": (
        {"references": [IMAGE, {**AUDIO, "sample_rate": 44.1}]},
        "value_invalid",
        "references[1].sample_rate",
    ),
    "ten images": ({"references": [IMAGE] * 10}, "reference_count", "references"),
    "four videos": ({"references": [VIDEO] * 4}, "reference_count", "references"),
    "four audios": ({"references": [IMAGE] + [AUDIO] * 4}, "reference_count", "references"),
    "thirteen in all": ({"references": [IMAGE] * 9 + [VIDEO] * 2 + [AUDIO] * 2}, "reference_count", "references"),
    "audio only": ({"references": [AUDIO]}, "reference_visual_missing", "references"),
    "no reference": ({"references": []}, "reference_visual_missing", "references"),
    "an empty path": ({"target": {"video": ""}}, "path_invalid", "target.video"),
    "a path that is no text": ({"target": {"video": 7}}, "path_invalid", "target.video"),
    "null as path": ({"target": {"video": None}}, "key_missing", "target.video"),
    "a path out of the folder": (
        {"references": [{"type": "image", "image": "../outside.png"}]},
        "path_outside",
        "references[0].image",
    ),
    "an absolute path out of it": ({"target": {"video": "/etc/hostname"}}, "path_outside", "target.video"),
    "a missing file": ({"target": {"video": "gone.mp4"}}, "media_missing", "target.video"),
    "a folder as file": ({"target": {"video": "."}}, "media_missing", "target.video"),
    "130 frames": (
        {"target_geometry": {"width": 64, "height": 64, "num_frames": 130}},
        "geometry_invalid",
        "target_geometry.num_frames",
    ),
    "a width off the lattice": (
        {"target_geometry": {"width": 100, "height": 64, "num_frames": 22}},
        "geometry_invalid",
        "target_geometry.width",
    ),
    "a negative height": (
        {"target_geometry": {"width": 64, "height": -64, "num_frames": 22}},
        "geometry_invalid",
        "target_geometry.height",
    ),
    "a canvas of a million pixels a line": (
        {"target_geometry": {"width": 1_344_000, "height": 768, "num_frames": 22}},
        "geometry_invalid",
        "target_geometry",
    ),
    "a canvas beyond 64 bits": (
        {"target_geometry": {"width": 32 * 10**9, "height": 32 * 10**9, "num_frames": 22}},
        "geometry_invalid",
        "target_geometry",
    ),
    "a side of 64 bits": (
        {"target_geometry": {"width": 2**63, "height": 32, "num_frames": 22}},
        "geometry_invalid",
        "target_geometry",
    ),
    "frames of a week": (
        {"target_geometry": {"width": 64, "height": 64, "num_frames": 17 * 10**6 + 5}},
        "geometry_invalid",
        "target_geometry.num_frames",
    ),
    "frames beyond 64 bits": (
        {"target_geometry": {"width": 64, "height": 64, "num_frames": 17 * 2**64 + 5}},
        "geometry_invalid",
        "target_geometry.num_frames",
    ),
    "a fraction as width": (
        {"target_geometry": {"width": 64.0, "height": 64, "num_frames": 22}},
        "value_invalid",
        "target_geometry.width",
    ),
    "text as geometry": ({"target_geometry": "832x480"}, "value_invalid", "target_geometry"),
    "a width that is too large with the default height": (
        {"target_geometry": {"width": 64_000}},
        "geometry_invalid",
        "target_geometry",
    ),
}


@pytest.mark.parametrize("name", ONE_WRONG)
def test_one_wrong_thing_is_one_finding_in_its_place(folder, name):
    fields, code, field = ONE_WRONG[name]
    manifest = of_row(folder, raw_row(**fields))
    assert [(str(v.code), v.field, v.row) for v in manifest.findings] == [(code, field, 1)]
    assert not manifest.samples
    assert manifest.rows_total == 1
    message = manifest.findings[0].message()
    assert message.startswith("train.jsonl row 1")
    published = str(manifest.findings[0].to_dict())
    assert str(folder.parent) not in published  # the message names the file as it was resolved, too
    if code in ("media_missing", "path_outside") and "/etc" not in message:
        assert f"({folder.parent}" in message


def test_a_path_of_windows_is_told_what_to_write(folder):
    for path in ("media\\plain.mp4", "C:\\data\\plain.mp4"):
        (finding,) = of_row(folder, raw_row(target={"video": path})).findings
        assert (str(finding.code), finding.hint.endswith(" Write / for \\ in paths.")) == ("media_missing", True)


def test_all_of_them_are_reported_at_once(folder):  # acceptance 9
    rows = [raw_row(**{"id": f"row {i}", **fields}) for i, (fields, _, _) in enumerate(ONE_WRONG.values())]
    lines = [json.dumps(row) for row in rows]
    lines += ["# a comment", "", '{"id": "x", "id": "x"}', "[1", "7", json.dumps(raw_row("row 0")), "not json"]
    lines.insert(0, json.dumps(raw_row("good")))
    manifest = read(folder, "\ufeff" + "\n".join(lines) + "\n")
    found = codes(manifest)
    assert {code for _, code, _ in ONE_WRONG.values()} <= set(found)
    assert {"byte_order_mark", "row_malformed", "line_ignored", "key_duplicate", "sample_id_duplicate"} <= set(found)
    assert manifest.samples[0].id == "good"
    assert manifest.rows_total == len(lines) - 1


def test_the_example_of_the_contract_limits_holds_at_its_edge(folder):  # B16
    manifest = of_row(folder, raw_row(references=[IMAGE] * 6 + [VIDEO] * 3 + [AUDIO] * 3))
    assert not manifest.findings


@pytest.mark.parametrize(
    ("limits", "references", "required"),
    [
        ({"max_images": 1}, [IMAGE] * 2, "at most 1 (max_images)"),
        ({"max_videos": 0}, [IMAGE, VIDEO], "at most 0 (max_videos)"),
        ({"max_audios": 2}, [IMAGE] + [AUDIO] * 3, "at most 2 (max_audios)"),
        ({"max_references": 1}, [IMAGE, VIDEO], "at most 1 (max_references)"),
        ({"max_videos": 1}, [IMAGE] * 10, "at most 9 (MiniMaxH3Ref2VASetupStep)"),
    ],
)
def test_limits_that_are_set_hold_and_are_cited_by_where_they_come_from(folder, limits, references, required):  # B16
    manifest = of_row(folder, raw_row(references=references), **limits)
    assert [(str(v.code), v.required) for v in manifest.findings] == [("reference_count", required)]


def test_limits_may_be_wider_than_the_models(folder):  # B16
    row = raw_row(references=[IMAGE] * 20)
    assert not of_row(folder, row, max_images=20, max_references=20).findings


def test_a_soundtrack_is_no_standalone_audio(folder):
    both = {"type": "video_audio", "video": "clip.mp4", "audio": "voice.wav"}
    assert not of_row(folder, raw_row(references=[both] * 3 + [AUDIO] * 3)).findings
    assert codes(of_row(folder, raw_row(references=[both, both, VIDEO, VIDEO]))) == ["reference_count"]


def test_keys_given_twice_are_refused_at_any_depth(folder):  # B22
    text = json.dumps(raw_row()).replace('"image": "picture.png"', '"image": "picture.png", "image": "clip.mp4"')
    manifest = read(folder, text + "\n")
    assert [(str(v.code), v.field) for v in manifest.findings] == [("key_duplicate", "references[0].image")]


UNION = ("image", "video", "audio", "fps", "sample_rate")


def test_null_counts_as_not_given_at_any_depth(folder):
    """A loader that gives all rows the same keys fills with null those that a row does not have."""
    references = [
        IMAGE,
        VIDEO,
        AUDIO,
        {"type": "video_audio", "video": "clip.mp4", "audio": "voice.wav", "fps": 25},
    ]
    plain = raw_row(references=references)
    filled = {
        **plain,
        "target": {"video": "target.mov", "fps": None},
        "references": [{**dict.fromkeys(UNION), **reference} for reference in references],
        "target_geometry": None,
        "note": None,
    }
    manifest = of_row(folder, filled)
    assert not manifest.findings
    assert manifest.samples == of_row(folder, plain).samples
    nothing_asked = {**plain, "target_geometry": {"width": None, "height": None, "num_frames": None}}
    for format in Format:
        assert of_row(folder, nothing_asked, format=format).samples == manifest.samples


def test_a_key_given_twice_is_refused_also_where_one_is_null(folder):
    text = json.dumps(raw_row()).replace('"image": "picture.png"', '"image": null, "image": "picture.png"')
    assert codes(read(folder, text + "\n")) == ["key_duplicate"]


@pytest.mark.parametrize(
    ("given", "geometry"),
    [
        ({"width": 832}, Geometry(832, 480, 56)),
        ({"height": 64, "width": None}, Geometry(640, 64, 56)),
        ({"num_frames": 124}, Geometry(640, 480, 124)),
        ({"width": 64, "num_frames": 22}, Geometry(64, 480, 22)),
    ],
)
def test_a_partial_geometry_takes_the_rest_from_the_options(folder, given, geometry):
    manifest = of_row(folder, raw_row(target_geometry=given), width=640, height=480, num_frames=56)
    assert not manifest.findings
    assert manifest.samples[0].geometry == geometry


def test_blanks_around_id_caption_and_paths_are_no_part_of_them(folder):
    blank = " \t\n\u3000"
    row = raw_row(f"{blank}a{blank}", caption=f"{blank}She says:\n no.{blank}", target={"video": f" target.mov{blank}"})
    row["references"] = [{"type": "image", "image": "\npicture.png "}]
    manifest = of_row(folder, row)
    assert not manifest.findings
    (sample,) = manifest.samples
    assert (sample.id, sample.caption) == ("a", "She says:\n no.")
    assert [sample.target_video, *sample.references[0].paths] == [Path("target.mov"), Path("picture.png")]


def test_ids_that_differ_only_by_outer_blanks_are_the_same_id(folder):
    manifest = write_rows(folder / "train.jsonl", [raw_row("a"), raw_row(" a ")])
    (finding,) = read_raw_manifest(manifest, DatasetOptions()).findings
    assert (str(finding.code), finding.row, finding.sample_id) == ("sample_id_duplicate", 2, "a")


def test_ids_given_twice_name_both_rows(folder):  # B22
    manifest = write_rows(folder / "train.jsonl", [raw_row("a"), raw_row("b"), raw_row("a")])
    (finding,) = read_raw_manifest(manifest, DatasetOptions()).findings
    assert (str(finding.code), finding.row, finding.found) == ("sample_id_duplicate", 3, "also in row 1")


def test_ids_that_differ_only_by_case_or_unicode_form_are_warnings(folder):
    ids = ["a", "A", "\xe9", "e\u0301"]
    read_back = read_raw_manifest(write_rows(folder / "train.jsonl", [raw_row(each) for each in ids]), DatasetOptions())
    assert [sample.id for sample in read_back.samples] == ids
    told = [(str(v.code), str(v.severity), v.row) for v in read_back.findings]
    assert told == [("sample_id_alike", "warning", 2), ("sample_id_alike", "warning", 4)]


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_constants_that_are_no_json_are_refused(folder, constant):
    text = json.dumps(raw_row(references=[{**VIDEO, "fps": 24}])).replace("24", constant)
    manifest = read(folder, text + "\n")
    assert [(str(v.code), v.found) for v in manifest.findings] == [("value_invalid", constant)]


def test_bytes_that_are_no_utf8_cost_their_row_alone(folder):
    broken = json.dumps(raw_row("b", caption="caf?")).encode().replace(b"?", b"\xe9")
    content = b"\n".join([json.dumps(raw_row("a")).encode(), broken, json.dumps(raw_row("c")).encode()])
    manifest = read(folder, content)
    assert [(str(v.code), v.row) for v in manifest.findings] == [("encoding_invalid", 2)]
    assert [sample.id for sample in manifest.samples] == ["a", "c"]
    assert manifest.rows_total == 3


def test_a_byte_order_mark_is_passed_over_and_reported(folder):
    manifest = read(folder, "\ufeff" + LINES)
    assert [(str(v.code), v.severity) for v in manifest.findings] == [("byte_order_mark", Severity.WARNING)]
    assert len(manifest.samples) == 2


def test_blank_lines_warn_and_comments_are_refused(folder):  # B22
    first, second = LINES.splitlines()
    manifest = read(folder, f"{first}\n\n# note\n{second}\n\n")
    assert [(str(v.code), v.row, v.severity) for v in manifest.findings] == [
        ("line_ignored", 2, Severity.WARNING),
        ("row_malformed", 3, Severity.ERROR),
    ]
    assert "a comment, which JSON does not have" in manifest.findings[1].message()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.json", json.dumps(ROWS)[:-20]),
        ("train.json", json.dumps(ROWS[0], indent=2)[:-20]),
        ("train.json", '{"data": {}}'),
        ("train.json", "[" * 100_000),
        ("train.jsonl", '{"id": '),
    ],
)
def test_a_broken_document_is_one_finding(folder, name, content):
    manifest = read(folder, content, name)
    (finding,) = manifest.findings
    assert finding.code in ("row_malformed", "value_invalid")
    assert not manifest.samples


@pytest.mark.parametrize("start", ["", "\n\n", "\ufeff"])
@pytest.mark.parametrize("wrong", ["oops", "null", json.dumps(ROWS[0])[:-30], json.dumps([ROWS[0]]), "]", '"id": 1'])
def test_a_bad_second_line_costs_itself_alone(folder, wrong, start):
    rows = [json.dumps(raw_row(name)) for name in "abcdef"]
    rows[3] = json.dumps(raw_row("d", caption=" "))
    manifest = read(folder, start + "\n".join([rows[0], wrong, *rows[1:]]) + "\n")
    blank = start.count("\n")
    assert manifest.rows_total == 7
    assert [(sample.id, sample.row - blank) for sample in manifest.samples] == [
        ("a", 1),
        ("b", 3),
        ("c", 4),
        ("e", 6),
        ("f", 7),
    ]
    errors = [finding for finding in manifest.findings if finding.severity is Severity.ERROR]
    assert [finding.row - blank for finding in errors] == [2, 5]
    assert errors[1].field == "caption"


@pytest.mark.parametrize("document", [[*ROWS], {"data": ROWS}, ROWS[0]])
@pytest.mark.parametrize("layout", [{}, {"indent": 1}, {"indent": 0}])
@pytest.mark.parametrize("name", ["train.json", "train.jsonl"])
def test_a_document_is_read_as_one_however_it_is_laid_out(folder, document, layout, name):
    manifest = read(folder, json.dumps(document, **layout) + "\n\n", name)
    assert not manifest.findings
    assert [sample.id for sample in manifest.samples] == (["a"] if document is ROWS[0] else ["a", "b"])


@pytest.mark.parametrize("document", [[*ROWS], {"data": ROWS}])
@pytest.mark.parametrize("layout", [{}, {"indent": 1}, {"indent": 0}])
def test_text_after_a_document_is_one_finding(folder, document, layout):
    (finding,) = read(folder, json.dumps(document, **layout) + "\noops\n", "train.json").findings
    assert (str(finding.code), finding.row) == ("row_malformed", 1)


def test_keys_beside_data_are_refused(folder):
    manifest = read(folder, json.dumps({"data": ROWS, "version": 2}), "train.json")
    assert [(str(v.code), v.field) for v in manifest.findings] == [("key_unknown", "version")]


def test_the_encoded_schemas_are_named_with_a_pointer(folder):  # B22
    manifest = of_row(folder, raw_row(schema_version="minimax_h3_ref2va_precomputed_v1"))
    message = manifest.findings[0].message()
    assert "minimax_h3_ref2va_precomputed_v1" in message
    assert "already encoded rows" in message
    assert "minimax_h3_ref2va_raw_v1" in message


def test_paths_may_leave_the_folder_when_allowed(folder):
    row = raw_row(references=[{"type": "image", "image": "../outside.png"}])
    assert not of_row(folder, row, allow_outside=True).findings


def test_a_link_out_of_the_folder_counts_as_leaving_it(folder):
    (folder / "link.png").symlink_to(folder.parent / "outside.png")
    assert codes(of_row(folder, raw_row(references=[{"type": "image", "image": "link.png"}]))) == ["path_outside"]


def paths_of(folder, target, picture, **options):
    """Target and picture of a row as its sample has them."""
    row = raw_row(target={"video": str(target)}, references=[{"type": "image", "image": str(picture)}])
    manifest = of_row(folder, row, **options)
    assert not manifest.findings
    (sample,) = manifest.samples
    return sample.target_video.as_posix(), sample.references[0].image.as_posix()


def test_absolute_paths_into_the_folder_become_relative_to_it(folder):
    (folder / "media").mkdir()
    (folder / "media" / "a.png").touch()
    given = f"{folder}/media/../target.mov", f"{folder}//media/./a.png"
    assert paths_of(folder, *given) == ("target.mov", "media/a.png")
    assert paths_of(folder, *given, allow_outside=True) == ("target.mov", "media/a.png")


def test_a_folder_reached_by_a_link_gives_the_same_paths_by_either_name(folder):
    link = folder.parent / "link"
    link.symlink_to(folder)
    for base in (folder, link):
        assert paths_of(base, folder / "target.mov", link / "picture.png") == ("target.mov", "picture.png")


def test_links_inside_the_folder_keep_the_name_they_were_given(folder):
    (folder / "named.mov").symlink_to("target.mov")
    (folder / "out.png").symlink_to(folder.parent / "outside.png")
    given = folder / "named.mov", folder / "out.png"
    assert paths_of(folder, *given, allow_outside=True) == ("named.mov", "out.png")


def test_a_path_is_not_shortened_to_another_file(folder):
    (folder.parent / "deep" / "er").mkdir(parents=True)
    (folder.parent / "deep" / "target.mov").touch()
    (folder / "away").symlink_to(folder.parent / "deep" / "er")
    given = folder / "away" / ".." / "target.mov"  # the file beside `er`, though it reads like the folder's own
    assert paths_of(folder, given, "picture.png", allow_outside=True) == (given.as_posix(), "picture.png")


def test_absolute_paths_that_are_let_out_stay_as_they_are(folder):
    outside = folder.parent / "outside.png"
    assert paths_of(folder, "./target.mov", outside, allow_outside=True) == ("target.mov", outside.as_posix())


def test_a_manifest_named_from_its_own_folder_knows_its_paths(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert paths_of(Path(), folder / "target.mov", "picture.png") == ("target.mov", "picture.png")


def test_odd_but_harmless_names_are_found(folder):
    (folder / "a [1] *é.png").touch()
    assert not of_row(folder, raw_row(references=[{"type": "image", "image": "a [1] *é.png"}])).findings


def test_sft_refuses_a_target_geometry(folder):
    row = raw_row(target_geometry={"width": 64, "height": 64, "num_frames": 22})
    assert codes(of_row(folder, row, format=Format.SFT)) == ["geometry_refused"]


def test_packed_rows_may_name_any_canvas_and_count_on_the_lattice(folder):  # the caps bind sft only
    row = raw_row(target_geometry={"width": 3200, "height": 32, "num_frames": 379})
    assert not of_row(folder, row).findings


def test_a_missing_manifest_is_a_finding(tmp_path):
    manifest = read_raw_manifest(tmp_path / "gone.jsonl", DatasetOptions())
    assert codes(manifest) == ["file_unreadable"]


@pytest.mark.parametrize("value", ["1e99999999999", "1/0", "9" * 30, "", " 24", "٣", True, None, [24]])
def test_odd_numbers_are_no_numbers(value):
    assert exact_number(value) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["schema_version", "id", "target", "caption", "references", "target_geometry"]


@given(value=json_values | st.dictionaries(st.sampled_from(KEYS), json_values))
def test_no_json_value_makes_reading_fail(tmp_path_factory, value):
    folder = tmp_path_factory.getbasetemp()
    manifest = read(folder, json.dumps(value) + "\n", "any.jsonl")
    assert manifest.findings
    assert all(finding.message() for finding in manifest.findings)


@given(content=st.binary(max_size=60))
def test_no_bytes_make_reading_fail(tmp_path_factory, content):
    manifest = read(tmp_path_factory.getbasetemp(), content, "bytes.jsonl")
    assert manifest.findings


def test_a_hundred_thousand_keys_of_which_one_is_given_twice_are_read_at_once():
    keys = ", ".join(f'"k{number}": 0' for number in range(100_000))
    value = json.loads("{" + keys + ', "k7": 1}', object_pairs_hook=json_object)
    assert value.repeated == ("k7",)
    assert json_object([("a", 1), ("b", 2)]) == {"a": 1, "b": 2}


@pytest.mark.parametrize("text", ["\n" * 100, "{}\n\n\n{}\n\n", "  \n# x\n{}\n"])
def test_lines_are_numbered_as_an_editor_does(tmp_path, text):
    path = tmp_path / "clips.jsonl"
    path.write_text(text)
    rows = [finding.row for finding in read_raw_manifest(path, DatasetOptions()).findings if finding.row]
    whole = text.rstrip().split("\n") if text.strip() else []
    assert set(rows) == set(range(1, len(whole) + 1))


def test_an_audio_stream_is_chosen_by_number_or_language(folder):
    references = [
        {"type": "image", "image": "picture.png"},
        {"type": "audio", "audio": "voice.wav", "audio_stream": "ENG"},
        {"type": "video_audio", "video": "clip.mp4", "audio": "voice.wav", "audio_stream": 1},
    ]
    manifest = of_row(folder, raw_row(target={"video": "target.mov", "audio_stream": 0}, references=references))
    (sample,) = manifest.samples
    assert sample.audio_stream == "0"
    assert [reference.audio_stream for reference in sample.references] == [None, "eng", "1"]


@pytest.mark.parametrize("stream", [-1, 1.5, True, "second one", "", ["eng"]])
def test_an_audio_stream_that_is_neither_is_refused(folder, stream):
    manifest = of_row(folder, raw_row(target={"video": "target.mov", "audio_stream": stream}))
    assert [(v.code, v.field) for v in manifest.findings] == [("value_invalid", "target.audio_stream")]
