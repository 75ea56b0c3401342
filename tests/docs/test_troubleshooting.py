"""``docs/troubleshooting.md``: every code and every error, none that does not exist, and messages that are really said."""

import inspect

import pytest
from bad_inputs import KINDS, findings_of, printed
from pages import blocks, code, tables

from muvap_assets import errors
from muvap_assets.asd.packs import layout
from muvap_assets.codes import Code
from muvap_assets.errors import MuvapError
from muvap_assets.ref2va import shard_tree

PAGE = "docs/troubleshooting.md"
GROUPS = (
    "Text of a manifest",
    "Faces",
    "Audio",
    "AVA, WASD and splits",
    "Videos, boxes and turns",
    "Rows and media of ref2va",
    "Encoding",
    "Published artifacts",
)
WEIGHTS = {"error": {"error"}, "warning": {"warning"}, "either": {"error", "warning"}}


def rows():
    """Code, weight, cause and cure of every code on the page."""
    return [[code(row[0]), *row[1:]] for group in GROUPS for table in tables(PAGE, group) for row in table[1:]]


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    """What all bad inputs give."""
    return [each for make in KINDS for each in findings_of(make, tmp_path_factory.mktemp(make.__name__))]


def test_every_code_is_explained_once_and_no_other():
    assert sorted(row[0] for row in rows()) == sorted(Code)
    assert all(row[1] in WEIGHTS and row[2] and row[3] for row in rows())


def test_every_error_is_explained_once_and_no_other():
    (table,) = tables(PAGE, "Errors")
    classes = [
        name
        for module in (errors, layout, shard_tree)
        for name, value in inspect.getmembers(module, inspect.isclass)
        if issubclass(value, MuvapError) and value.__module__ == module.__name__
    ]
    assert sorted(code(row[0]) for row in table[1:]) == sorted(classes)
    assert all(row[1] and row[2] for row in table[1:])


def test_no_error_is_defined_where_this_page_does_not_look():
    import ast
    from pathlib import Path

    names = {"MuvapError", "ValidationError", "NpyError"}  # the last two never leave the readers that raise them
    package = Path(errors.__file__).parent
    defined = {
        node.name: [getattr(base, "id", "") for base in node.bases]
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    known = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, MuvapError)}
    ours = {name for name, bases in defined.items() if known & set(bases)} | known
    (table,) = tables(PAGE, "Errors")
    assert ours - names - {code(row[0]) for row in table[1:]} == set()


@pytest.mark.parametrize("group", GROUPS)
def test_the_messages_shown_are_said_about_real_bad_input(group, findings):
    said = {printed(finding) for finding in findings}
    (block,) = [block for block in blocks(PAGE) if block.section == group]
    shown = block.text.splitlines()
    assert [line for line in shown if line not in said] == []
    explained = [code(row[0]) for (table,) in [tables(PAGE, group)] for row in table[1:]]
    assert [line.split(": ")[1] for line in shown] == [name for name in explained if f": {name}: " in block.text]


def test_what_is_said_weighs_what_the_page_says(findings):
    weights = {row[0]: WEIGHTS[row[1]] for row in rows()}
    assert {
        (str(each.code), str(each.severity)) for each in findings if each.severity not in weights[each.code]
    } == set()


def test_most_codes_come_from_real_bad_input(findings):
    missing = set(Code) - {finding.code for finding in findings}
    # Media that decode differently from library to library, devices, weights, and damage that only a bug of ours could do.
    assert missing == {
        Code(name)
        for name in (
            "audio_changed",
            "bucket_mismatch",
            "build_failed",
            "capacity_exceeded",
            "caption_holds_vision_token",
            "cell_too_large",
            "decode_differs",
            "decode_failed",
            "device_memory",
            "encode_failed",
            "figure_unusual",
            "image_too_large",
            "level_invalid",
            "offset_mismatch",
            "video_timestamps",
        )
    }
