"""What a verb shows of many findings: errors first, warnings counted, and where the rest can be seen."""

import re

from click.testing import CliRunner

from muvap_assets.cli.main import main
from muvap_assets.cli.output import print_findings, to_json
from muvap_assets.codes import Code, Severity
from muvap_assets.findings import Finding, Place


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
