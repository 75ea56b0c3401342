"""The CI script, run as CI runs it: from nothing, with summaries, an exit code, and no home of Dagster's."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(corpus, tmp_path):
    corpus.row("a")
    corpus.write("good.tsv")
    corpus.row("bad", labels=str([0] * 26))
    corpus.write("bad.tsv")
    entries = {name: {"kind": "tsv", "manifest": str(corpus.root / f"{name}.tsv")} for name in ("good", "bad")}
    entries["lenient"] = {**entries["bad"], "on_violation": "quarantine", "max_rejected_share": 0.5}
    (tmp_path / "datasets.yaml").write_text(json.dumps({"corpora": entries}))

    def run(*arguments):
        environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
        environment |= {
            "MUVAP_DATASETS": str(tmp_path / "datasets.yaml"),
            "MUVAP_DATA_ROOT": str(tmp_path / "data"),
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, str(ROOT / "deploy" / "ci" / "materialize.py"), *arguments]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_good_and_lenient_corpora_exit_0_with_every_check_in_both_summaries(script, tmp_path):
    done = script(
        "--corpus", "good", "--corpus", "lenient", "--junit", "reports/ci/checks.xml", "--json", "checks.json"
    )
    assert done.returncode == 0, done.stderr
    assert "asd/packed_shards [good]: made, 7/7 checks" in done.stdout
    verdict = json.loads((tmp_path / "checks.json").read_text())
    assert verdict["ok"] is True
    warned = [(c["name"], c["severity"]) for made in verdict["assets"] for c in made["checks"] if not c["passed"]]
    assert warned == [("rejected_rows", "WARN"), ("splits_share_nothing", "WARN")]  # all three lie in one folder
    suites = ET.parse(tmp_path / "reports" / "ci" / "checks.xml").getroot().findall("testsuite")
    assert [suite.get("failures") for suite in suites] == ["0"] * 6
    assert sum(int(suite.get("tests")) for suite in suites) == sum(
        len(made["checks"]) + 1 for made in verdict["assets"]
    )
    assert "labels has 26 entries" in "".join(node.text for node in suites[3].iter("system-out"))
    assert not (tmp_path / "dagster_home").exists()


def test_a_failed_gate_exits_1_names_the_row_and_skips_only_what_follows_from_it(script, tmp_path):
    done = script("--corpus", "bad", "--corpus", "good", "--junit", "checks.xml", "--json", "checks.json")
    assert done.returncode == 1
    assert "bad.tsv row 3 (bad): labels: labels has 26 entries, faces has 25 frames" in done.stderr
    outcomes = [made["outcome"] for made in json.loads((tmp_path / "checks.json").read_text())["assets"]]
    assert outcomes == ["failed", "skipped", "skipped", "made", "made", "made"]
    first, second, *_ = ET.parse(tmp_path / "checks.xml").getroot().findall("testsuite")
    failed = {case.get("name") for case in first.findall("testcase") if case.find("failure") is not None}
    assert failed == {"materialized", "rows_valid", "labels_match_faces"}
    assert (second.get("skipped"), second.get("failures")) == ("1", "0")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((), "nothing to make"),
        (("--corpus", "none"), "not in datasets.yaml"),
        (("--corpus", "good", "--json", "datasets.yaml/checks.json"), "its folder cannot be made (File exists)"),
    ],
)
def test_a_wrong_command_exits_2_and_says_what_to_do(script, arguments, found):
    done = script(*arguments)
    assert done.returncode == 2
    assert found in done.stderr


def test_the_workflow_calls_the_script_as_it_is():
    workflow = yaml.safe_load((ROOT / "deploy" / "ci" / "workflow.yml").read_text())
    commands = [step["run"] for step in workflow["jobs"]["materialize"]["steps"] if "run" in step]
    (command,) = [command for command in commands if "materialize.py" in command]
    options = {word for word in command.split() if word.startswith("--")}
    assert options <= {"--all", "--junit", "--json"}
