"""Twenty processes publish, roll back and clean the same artifact at once: one valid ``current``, nothing half-written."""

import random
import subprocess
import sys
import time

import pytest
from version_roots import names

from muvap_assets.journal import events
from muvap_assets.layout import Layout
from muvap_assets.publish import content_version, current_version
from muvap_assets.retention import Retention, maintain
from muvap_assets.versions import roll_back, standing_versions

PUBLISHERS = 20

PUBLISHER = """
import sys
from pathlib import Path
from muvap_assets.layout import Layout
from muvap_assets.publish import CheckOutcome, run_checked
root, content = Path(sys.argv[1]), sys.argv[2]
def build(folder):
    (folder / "sub").mkdir()
    for i in range(20):
        (folder / "sub" / f"{i}.txt").write_text(content * 100)
    (folder / "manifest.tsv").write_text(str(folder))
def check(folder, value):
    return [CheckOutcome(name="ok", passed=(folder / "sub" / "19.txt").stat().st_size == 100)]
artifact = Layout(root).artifact("asd", "manifest", "part")
print("ready", flush=True)
sys.stdin.readline()
outcome = run_checked(artifact, build=build, check=check, declared=("ok",), location_dependent=("manifest.tsv",))
print(outcome.published.version, outcome.published.created, flush=True)
"""


@pytest.fixture
def artifact(tmp_path):
    return Layout(tmp_path / "root").artifact("asd", "manifest", "part")


def start(artifact, contents):
    """Publishers that are imported and wait for a line to begin."""
    command = [sys.executable, "-c", PUBLISHER, str(artifact.root)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([*command, content], **pipes) for content in contents]
    assert [child.stdout.readline() for child in started] == ["ready\n"] * len(started)
    return started


def go(children):
    for child in children:
        child.stdin.write("\n")
        child.stdin.flush()


def finish(children):
    results = []
    for child in children:
        output, _ = child.communicate()
        results.append((child.returncode, output.split()))
    return results


def check_state(artifact):
    """What must hold whatever happened: everything that stands is whole, and nothing else lies there."""
    standing = {version.version for version in standing_versions(artifact)}
    assert names(artifact.folder) == {*standing, "current"}
    assert current_version(artifact) in standing
    for version in standing:
        assert content_version(artifact.version(version), ("manifest.tsv",)) == version
        assert (artifact.version(version) / "manifest.tsv").is_file()


def test_p08_twenty_processes_publishing_at_once_leave_one_valid_current(artifact):
    children = start(artifact, [str(i % 4) for i in range(PUBLISHERS)])
    go(children)
    results = finish(children)
    assert [code for code, _ in results] == [0] * PUBLISHERS
    versions = {version for _, (version, _) in results}
    assert len(versions) == 4
    # Each version was put in its place by exactly one of the five that made it.
    assert sorted(version for _, (version, created) in results if created == "True") == sorted(versions)
    check_state(artifact)
    assert names(artifact.staging) == set()
    assert events(artifact)[-1].version == current_version(artifact)


@pytest.mark.slow
def test_p08_publishers_killed_at_any_moment_and_maintenance_beside_them_leave_nothing_half(artifact):
    choose = random.Random(7)
    killed = 0
    for round_ in range(3):
        children = start(artifact, [str(choose.randrange(4)) for _ in range(PUBLISHERS)])
        go(children)
        for child in children[:8]:
            time.sleep(choose.uniform(0, 0.02))
            child.kill()
        maintain(artifact_layout(artifact), Retention(keep_versions=1, grace_sec=0, row_grace_sec=0))
        if current_version(artifact) is not None:
            roll_back(artifact, current_version(artifact))
        results = finish(children)
        killed += sum(code < 0 for code, _ in results)
        assert [code for code, _ in results[8:]] == [0] * (PUBLISHERS - 8), round_
        check_state(artifact)
    assert killed
    maintain(
        artifact_layout(artifact), Retention(keep_versions=1, grace_sec=0, row_grace_sec=0), now_sec=time.time() + 10
    )
    check_state(artifact)
    assert names(artifact.staging) == set()
    assert len(names(artifact.folder)) == 3


def artifact_layout(artifact):
    return Layout(artifact.root)
