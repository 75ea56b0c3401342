"""Twenty processes publish, roll back and clean the same artifact at once: one valid ``current``, nothing half-written."""

import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from subprocess import PIPE

import pytest
from version_roots import names

from muvap_assets.journal import events
from muvap_assets.layout import Layout
from muvap_assets.publish import content_version, current_version, publish, staged
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


REMOVER = """
import sys, time
from pathlib import Path
from muvap_assets.layout import Layout
from muvap_assets.retention import Retention, maintain
print("ready", flush=True)
stop, stopped, end = Path(sys.argv[2]), False, time.monotonic() + 60
while not stopped:
    stopped = stop.exists() or time.monotonic() > end
    time.sleep(0.005)  # two that never wait leave nobody else a core
    report = maintain(Layout(Path(sys.argv[1])), Retention(keep_versions=0, grace_sec=-1, row_grace_sec=0))
    for removal in report.removed:
        if removal.kind == "version":
            print(removal.name.split()[-1])
"""


@pytest.fixture
def artifact(tmp_path):
    return Layout(tmp_path / "root").artifact("asd", "manifest", "part")


@pytest.fixture
def start(artifact):
    """Starts publishers that are imported and wait for a line to begin; none of them outlives the test."""
    command = [sys.executable, "-c", PUBLISHER, str(artifact.root)]
    with ExitStack() as stack:

        def started(contents):
            children = []
            for content in contents:
                child = subprocess.Popen([*command, content], stdin=PIPE, stdout=PIPE, text=True)
                stack.enter_context(child)
                stack.callback(child.kill)
                children.append(child)
            assert [child.stdout.readline() for child in children] == ["ready\n"] * len(children)
            return children

        yield started


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


def test_p08_twenty_processes_publishing_at_once_leave_one_valid_current(artifact, start):
    children = start([str(i % 4) for i in range(PUBLISHERS)])
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
def test_p08_publishers_killed_at_any_moment_and_maintenance_beside_them_leave_nothing_half(artifact, start):
    choose = random.Random(7)
    killed = 0
    for round_ in range(3):
        children = start([str(choose.randrange(4)) for _ in range(PUBLISHERS)])
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


def publish_many(artifact, number):
    versions = set()
    for turn in range(25):
        with staged(artifact) as folder:
            for i in range(20):
                (folder / f"{i}.txt").write_text(f"{number} {turn} {i}")
            (folder / "manifest.tsv").write_text("here")
            versions.add(publish(folder, artifact, ("manifest.tsv",)).version)
    return versions


def test_p08_maintenance_beside_publishers_that_come_and_go_meets_nothing_it_cannot_read(artifact):
    """Folders, locks and versions vanish while it looks at them: others remove them as well."""
    stop = artifact.root.with_name("stop")
    remover = [sys.executable, "-c", REMOVER, str(artifact.root), str(stop)]
    with (
        subprocess.Popen(remover, stdout=PIPE, text=True) as first,
        subprocess.Popen(remover, stdout=PIPE, text=True) as second,
    ):
        try:
            assert [first.stdout.readline(), second.stdout.readline()] == ["ready\n"] * 2
            with ThreadPoolExecutor(2) as pool:
                versions = set.union(*pool.map(partial(publish_many, artifact), range(2)))
        finally:
            stop.touch()
        removed = [version for child in (first, second) for version in child.communicate()[0].split()]
    assert [first.returncode, second.returncode] == [0, 0]
    check_state(artifact)
    assert names(artifact.staging) == set()
    # What does not stand was removed by one of the two, and told by that one alone.
    assert removed
    assert sorted(removed) == sorted(versions - names(artifact.folder))
