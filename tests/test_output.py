"""What a verb shows of many findings: errors first, warnings counted, and where the rest can be seen."""

import json
import re
import unicodedata
from pathlib import Path

import pytest
from click.testing import CliRunner
from version_roots import publish_text

from muvap_assets.cli.main import main
from muvap_assets.cli.output import print_findings, print_json, print_table, progress, say, to_json
from muvap_assets.codes import Code, Severity
from muvap_assets.errors import ConfigError, ValidationError
from muvap_assets.findings import Finding, Place
from muvap_assets.layout import Layout
from muvap_assets.progress import ProgressLog
from muvap_assets.text_lines import UNPRINTABLE


def finding(row, severity=Severity.WARNING, code=Code.LINE_IGNORED):
    return Finding(code, Place(row=row), "a", severity=severity)


def printed(capsys, findings, *rest):
    print_findings(findings, *rest)
    return capsys.readouterr().out.splitlines()


def test_the_only_error_is_shown_before_the_warnings_that_outnumber_it(capsys):
    error = finding(61, Severity.ERROR, Code.BUILD_FAILED)
    lines = printed(capsys, [*map(finding, range(1, 61)), error], "look there")
    assert lines[0].startswith("error: build_failed: row 61")
    assert re.findall(r"row (\d+)", " ".join(lines[1:])) == [str(row) for row in range(1, 11)]
    assert lines[11:] == ["warning: line_ignored: 60 in all", "... and 50 more; look there"]


def test_errors_keep_their_order_and_are_shown_up_to_fifty(capsys):
    lines = printed(capsys, [finding(row, Severity.ERROR) for row in range(70, 0, -1)], "look there")
    assert [int(found) for found in re.findall(r"row (\d+)", " ".join(lines))] == list(range(70, 20, -1))
    assert lines[50:] == ["... and 20 more; look there"]


def test_few_findings_are_shown_whole_and_each_once(capsys):
    codes = (Code.LINE_IGNORED, Code.BYTE_ORDER_MARK)
    findings = [finding(row, code=code) for row in (1, 2, 3) for code in codes]
    lines = printed(capsys, [*findings, *findings])
    assert len(lines) == 6
    assert not any("in all" in line or "more" in line for line in lines)


def test_json_names_the_file_that_was_looked_at(tmp_path):
    finding = Finding(Code.FACES_DTYPE, tmp_path / "a.npy", "dtype float32").of_file("a.npy", row=3)
    (shown,) = to_json([finding])
    assert shown == {**finding.to_dict(), "path": str(tmp_path / "a.npy")}
    assert shown["found"] == "a.npy: dtype float32"


def test_the_command_named_for_the_rest_is_one_there_is(tmp_path):
    manifest = tmp_path / "clips.jsonl"
    manifest.write_text("{}\n" + "\n" * 60 + '{"id": 7}\n')
    said = CliRunner().invoke(main, ["validate", str(manifest)]).output.splitlines()
    (rest,) = [line for line in said if line.startswith("... and 50 more; ")]
    assert all(line.startswith("error: ") for line in said[: sum("error: " in line for line in said)])
    verb, option, file = re.search(r"muvap (\S+) (\S+) (\S+), with", rest).groups()
    assert '"line_ignored"' in CliRunner().invoke(main, [verb, option, file]).output


def test_a_build_that_is_not_published_names_the_file_that_has_all_findings(corpus, tmp_path):
    for number in range(60):
        corpus.row(f"clip{number}", source_fps="")
    done = CliRunner().invoke(main, ["pack", str(corpus.write("talks.tsv")), "-o", str(tmp_path / "out")])
    (report,) = (tmp_path / "out").rglob("violations.jsonl")
    assert f"{report} has all of them" in done.output
    assert len(report.read_text().splitlines()) >= 60


# --- what names may hold ---

HOSTILE = "a\x1b]0;owned\x07\x9b31m\r\nerror: \x7f\u202egpj.exe\u2066\u200f\u061c\u2028\udce9é中"
ESCAPED = r"a\x1b]0;owned\x07\x9b31m\r\nerror: \x7f\u202egpj.exe\u2066\u200f\u061c\u2028\udce9é中"  # letters of any script stay


def test_every_verb_prints_through_one_place():
    sources = sorted((Path(__file__).parent.parent / "muvap_assets" / "cli").glob("*.py"))
    assert [path.name for path in sources if re.search(r"\becho\(|\bprint\(", path.read_text())] == ["output.py"]


def test_what_is_unprintable_is_what_the_terminal_acts_on_and_no_letter():
    unprintable = {character for character in map(chr, range(0x110000)) if UNPRINTABLE.match(character)}
    bidi = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    for character in map(chr, range(0x110000)):
        acts = (
            unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(character) in bidi
        )
        assert (character in unprintable) == (acts or character in "\u200e\u200f\u061c"), hex(ord(character))


def test_every_part_of_a_finding_is_one_line_without_what_a_terminal_acts_on(tmp_path, capsys):
    place = Place(HOSTILE, 3, HOSTILE, HOSTILE)
    told = [
        Finding(Code.LINE_IGNORED, place, HOSTILE),
        Finding(Code.FACES_DTYPE, tmp_path / HOSTILE, HOSTILE),
        Finding(Code.FACES_DTYPE, tmp_path / HOSTILE, "x").of_file(HOSTILE, row=3),
        Finding(Code.ROOT_UNUSABLE, place, "x", case="versions", current=HOSTILE),
    ]
    for finding in told:
        assert ESCAPED in finding.message()
        assert not UNPRINTABLE.search(finding.message())
    assert len(printed(capsys, told)) == 4
    text = str(ValidationError(told, HOSTILE))
    assert [bool(UNPRINTABLE.search(each)) for each in text.split("\n")] == [False] * 5
    assert Finding.from_dict(told[0].to_dict()).found == HOSTILE  # what is published is the name itself


def test_line_breaks_of_our_own_stay_in_an_error_and_nothing_else_that_is_unprintable():
    assert str(ConfigError("one \x1b[31m\n  two \u202e")) == "one \\x1b[31m\n  two \\u202e"


def test_progress_and_tables_and_lines_escape_names(capsys):
    lines = []
    ProgressLog(lines.append, HOSTILE)(1, 1, HOSTILE)
    progress("x")(1, 1, HOSTILE)
    say(HOSTILE)
    print_table([("id",), (HOSTILE,)])
    shown = capsys.readouterr()
    for text in (*lines, *shown.err.splitlines(), *shown.out.splitlines()[:1], *shown.out.splitlines()[2:]):
        assert ESCAPED in text
    assert len(shown.out.splitlines()) == 3


def test_json_holds_names_as_they_are_and_only_escapes_of_what_is_unprintable(capsys):
    print_json({HOSTILE: [HOSTILE]})
    text = capsys.readouterr().out
    assert not UNPRINTABLE.search(text.replace("\n", ""))
    assert json.loads(text) == {HOSTILE: [HOSTILE]}
    assert "é中" in text


@pytest.mark.parametrize("as_json", [False, True])
def test_no_verb_prints_what_a_manifest_or_its_name_holds_as_it_is(tmp_path, as_json):
    path = tmp_path / "x\x1b[31m\u202e.jsonl"
    row = {"id": "\x1b]0;owned\x07\u202e", "caption": "\u202e"}
    path.write_text(json.dumps(row) + "\n" + json.dumps(row | {"target": {"video": "\x9b\u2066.mov"}}))
    done = CliRunner().invoke(main, ["validate", str(path), *(["--json"] if as_json else [])])
    assert done.exit_code == 1
    assert not UNPRINTABLE.search(done.output.replace("\n", ""))
    assert r"\u202e" in done.output


def test_an_id_that_turns_text_around_is_escaped_wherever_the_asd_line_tells_of_it(corpus, tmp_path):
    for number in range(2):
        corpus.row(f"a\u202e{number}\u2066", source_fps="" if number else "25")
    path = corpus.write("talks.tsv")
    for arguments in (["validate", path], ["validate", "--json", path], ["pack", path, "-o", tmp_path / "out"]):
        done = CliRunner().invoke(main, [str(argument) for argument in arguments])
        assert done.exit_code == 1
        assert r"a\u202e1\u2066" in done.output
        assert not UNPRINTABLE.search(done.output.replace("\n", ""))


def test_an_error_of_the_system_names_the_file_escaped(tmp_path):
    place = tmp_path / "no\x1b[31m\nerror: x" / "y"
    place.parent.write_text("")
    done = CliRunner().invoke(main, ["demo", str(place)])
    assert done.exit_code == 1
    assert r"no\x1b[31m\nerror: x" in done.output
    assert len(done.output.splitlines()) == 1


def test_a_difference_between_versions_names_rows_escaped(tmp_path):
    artifact = Layout(tmp_path).artifact("ref2va", "encoded_latents", "000.clips")
    fields = {"row": 1, "key": "k", "sha256": "0", "bucket": "b", "text_tokens": 1, "sequence_length": 1}
    ids = ["plain", "\x1b[2J\u202e"]
    versions = [publish_text(artifact, json.dumps([{"id": row, **fields}]), "rows.json") for row in ids]
    done = CliRunner().invoke(
        main, ["diff", "--data-root", str(tmp_path), *(str(artifact.version(version)) for version in versions)]
    )
    assert done.output.splitlines()[:2] == [r"+ \x1b[2J\u202e", "- plain"]


# --- how long a line gets ---


def test_an_id_of_ten_megabytes_is_cut_in_every_message_and_whole_where_it_is_published(capsys):
    long = "x" * 10_000_000
    finding = Finding(Code.LINE_IGNORED, Place(long, 3, long, long), long)
    by_path = Finding(Code.FACES_DTYPE, Place(), "y").placed(path=long, found=long)
    for text in (finding.message(), by_path.message(), str(ValidationError(finding, long)), str(ConfigError(long))):
        assert max(map(len, text.split("\n"))) < 10_000
        assert "…" in text
    assert finding.message().endswith(f"required: {finding.required}. {finding.hint}")
    print_table([("id",), (long,)])
    say(long)
    assert len(capsys.readouterr().out) < 10_000
    assert finding.to_dict()["sample_id"] == long
