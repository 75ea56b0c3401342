"""The table of codes against all that uses it: cases and facts are those of the table, and no text stands anywhere else."""

import ast
import string
from collections import defaultdict
from pathlib import Path

import pytest

import muvap_assets
from muvap_assets.codes import Code, Severity
from muvap_assets.findings import Finding, Place

PACKAGE = Path(muvap_assets.__file__).parent
NO_FACTS = {"case", "severity", "source", "row", "sample_id", "field"}


def names_in(template):
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


def facts_of(code, case):
    texts = code.case(case)
    return names_in(texts.required) | names_in(texts.hint)


def literals(node):
    """The texts that an expression may be, or ``None`` where that is not to be seen."""
    if isinstance(node, ast.Constant):
        return [node.value]
    if isinstance(node, ast.IfExp):
        parts = [literals(node.body), literals(node.orelse)]
        return None if None in parts else [text for part in parts for text in part]
    return None


MAKERS = {"Finding", "add", "note"}
"""What makes a finding: the record itself, the collector of ref2va's rows, and a decoder's warnings."""


def uses():
    """Each call that makes a finding of a stated code: its place, the code, its cases and its keywords."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            code = node.args[0]
            if name in MAKERS and isinstance(code, ast.Attribute) and getattr(code.value, "id", "") == "Code":
                keywords = {keyword.arg: keyword.value for keyword in node.keywords}
                cases = literals(keywords["case"]) if "case" in keywords else [""]
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", Code[code.attr], cases, keywords


def test_most_findings_name_their_code_where_they_are_made():
    assert sum(1 for _ in uses()) > 250


def test_facts_and_cases_are_those_of_the_table():
    wrong = []
    for where, code, cases, keywords in uses():
        facts = set(keywords) - NO_FACTS
        for case in cases or ():
            try:
                required = facts_of(code, case)
            except KeyError:
                wrong.append(f"{where}: {code} has no case {case!r}")
                continue
            if facts != required and not (len(cases) > 1 and required <= facts):
                wrong.append(f"{where}: {code} {case!r} takes {sorted(required)}, given are {sorted(facts)}")
    assert wrong == []


def test_no_text_of_the_table_is_written_at_a_call():
    assert [
        f"{where}: {name}"
        for where, _, _, keywords in uses()
        for name in ("required", "hint")
        if name in keywords and literals(keywords[name]) is not None
    ] == []


def test_a_weight_is_given_only_where_the_table_leaves_a_choice():
    assert [where for where, code, _, keywords in uses() if "severity" in keywords and len(code.severities) == 1] == []


def test_every_case_of_the_table_is_used():
    named = defaultdict(set)
    for _, code, cases, _ in uses():
        named[code] |= set(cases or [])
    texts = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    unused = [(code, case.name) for code in Code for case in code.cases if case.name not in named[code]]
    assert [f"{code}: {name}" for code, name in unused if f'"{name}"' not in texts.replace(f'Case("{name}"', "")] == []


@pytest.mark.parametrize("code", Code)
def test_texts_of_the_table_are_whole_sentences_and_rules(code):
    for case in ("", *(each.name for each in code.cases)):
        texts = code.case(case)
        assert texts.hint.endswith((".", "?")) and not texts.required.endswith(".")


def test_a_finding_fills_in_the_facts_of_its_case_and_keeps_its_place():
    where = Place(source="train.tsv", row=3, sample_id="a", field="visual_path")
    finding = Finding(Code.FACES_MISSING, Path("/data/a.npy"), "nothing is there")
    assert finding.message().startswith("/data/a.npy: nothing is there; required: ")
    placed = finding.of_file("a.npy", source="train.tsv", row=3, sample_id="a", field="visual_path")
    assert placed.message().startswith(
        "train.tsv row 3 (a): visual_path: a.npy: nothing is there (/data/a.npy); required: "
    )
    assert Place(placed.source, placed.row, placed.sample_id, placed.field) == where
    assert Finding.from_dict(placed.to_dict()) == placed  # what is published holds no path of this machine
    assert "/data" not in str(placed.to_dict())


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("~/a.npy", "~ is not expanded"),
        ("https://host/a.npy", "A URL is not read"),
        ("s3://bucket/a.npy", "A URL is not read"),
        (r"faces\a.npy", "Write / for"),
        ("a.npy", None),
    ],
)
def test_what_a_path_cannot_be_is_said_where_nothing_is_at_it(written, said):
    hint = Finding(Code.FACES_MISSING, Path("/data/a.npy"), "nothing is there").of_file(written, row=1).hint
    added = hint.removeprefix(Code.FACES_MISSING.hint)
    assert added.startswith(f" {said}") if said else added == ""
    assert (
        Finding(Code.FACES_DTYPE, Path("/data/a.npy"), "dtype float32").of_file(written).hint == Code.FACES_DTYPE.hint
    )


def test_severities_of_the_table_are_those_of_findings():
    assert Finding(Code.LABELS_FLOAT, None, "written as 0.0").severity is Severity.WARNING
    assert (
        Finding(Code.COLUMN_UNKNOWN, None, "column 'a'", severity=Severity.WARNING, columns="b").severity
        is Severity.WARNING
    )
