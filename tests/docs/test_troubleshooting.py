"""``docs/troubleshooting.md``: what ``make docs`` writes, every error, and findings of nearly every code from real bad input."""

import ast
import inspect
from pathlib import Path

import pytest
from pages import code, read_page, tables
from troubleshooting import PAGE, SECTIONS, codes_of, real_findings, written

from muvap_assets import errors
from muvap_assets.codes import Code
from muvap_assets.errors import MuvapError


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    return list(real_findings(tmp_path_factory.mktemp("inputs")))


def test_every_code_is_below_one_heading():
    assert [each for section in SECTIONS for each in codes_of(section)] == list(Code)
    assert all(each.causes and each.hint for each in Code)


def test_the_page_is_what_make_docs_writes_from_the_table_and_real_bad_input(findings):
    page = read_page(PAGE)
    assert page.splitlines() == written(page, findings).splitlines()


def test_every_error_is_explained_once_and_no_other():
    (table,) = tables(PAGE, "Errors")
    classes = [name for name, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, MuvapError)]
    assert sorted(code(row[0]) for row in table[1:]) == sorted(classes)
    assert all(row[1] and row[2] for row in table[1:])


def test_no_error_is_defined_where_this_page_does_not_look():
    known = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, MuvapError)}
    defined = {
        node.name
        for path in Path(errors.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and known & {getattr(base, "id", "") for base in node.bases}
    }
    assert defined - known == set()


def test_what_is_said_weighs_what_the_table_says(findings):
    assert {str(each.code) for each in findings if each.severity not in each.code.severities} == set()


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
            "decoder_stuck",
            "device_memory",
            "encode_failed",
            "figure_unusual",
            "image_too_large",
            "level_invalid",
            "offset_mismatch",
            "video_timestamps",
        )
    }
