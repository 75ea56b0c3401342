"""Disks that fill, close or vanish while something is published, and signals at every step of it: one version stands, whole.

What a full disk does to packs is in tests/test_disk.py, what SIGKILL does in tests/test_killed_operations.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from skipping import skip_or_fail

from muvap_assets.cli.main import main
from muvap_assets.errors import MuvapError, PublishError
from muvap_assets.layout import Artifact
from muvap_assets.publish import CheckOutcome, content_version, current_version, run_checked, staged

PUBLISHER = """
import os, signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts in the background ignore it
from muvap_assets.layout import Artifact
from muvap_assets.publish import CheckOutcome, run_checked

root, text, after, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
artifact = Artifact(root, "asd", "packed_shards", "talks")
count = 0

def step(name, call):
    def counted(*arguments, **options):
        global count
        count += 1
        if count == after:
            if number == 0:
                raise OSError(28, "No space left on device")
            os.kill(os.getpid(), number)
        return call(*arguments, **options)
    return counted

def build(folder):
    (folder / "rows.txt").write_text(text)
    (folder / "deep").mkdir()
    (folder / "deep" / "more.txt").write_text(text * 1000)

for name in ("fsync", "rename", "replace", "symlink", "write", "open"):
    setattr(os, name, step(name, getattr(os, name)))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
run_checked(artifact, build=build, check=lambda folder, value: [CheckOutcome.of("whole", [])], declared=("whole",))
print(f"steps {count}")
"""


def artifact_of(root: Path) -> Artifact:
    return Artifact(root, "asd", "packed_shards", "talks")


def publish_in_child(root: Path, text: str, after: int = 0, number: int = 0) -> subprocess.CompletedProcess:
    words = [sys.executable, "-c", PUBLISHER, str(root), text, str(after), str(int(number))]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def build(text: str):
    def write(folder: Path) -> None:
        (folder / "rows.txt").write_text(text)

    return write


def publish(artifact: Artifact, text: str, check=lambda folder, value: [CheckOutcome.of("whole", [])]):
    return run_checked(artifact, build=build(text), check=check, declared=("whole",))


def standing(artifact: Artifact) -> list[str]:
    """Versions in the artifact's folder; each is what its name says."""
    names = sorted(path.name for path in artifact.folder.iterdir() if path.name != "current")
    assert [content_version(artifact.version(name)) for name in names] == names
    return names


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, 0], ids=lambda n: getattr(n, "name", "ENOSPC"))
def test_a_fault_at_any_step_of_publishing_leaves_the_old_or_the_new_version_whole(tmp_path, number):
    publish(artifact_of(tmp_path / "count"), "old")
    counted = publish_in_child(tmp_path / "count", "new")
    steps = int(counted.stdout.split()[-1])
    assert steps >= 10
    for after in range(1, steps + 1):
        root = tmp_path / f"at-{after}"
        artifact = artifact_of(root)
        publish(artifact, "old")
        old = current_version(artifact)
        done = publish_in_child(root, "new", after, number)
        # The last step is the removal of what was staged: a full disk is nothing to it, and a signal leaves it to the next run.
        assert (done.returncode != 0) == (number != 0 or after < steps), f"step {after} of {steps}"
        assert current_version(artifact) in standing(artifact), after
        assert old in standing(artifact), after
        if after < steps:
            assert list(artifact.staging.iterdir()) == [], after
        again = publish_in_child(root, "new")
        assert again.returncode == 0, again.stderr
        assert len(standing(artifact)) == 2, after
        assert current_version(artifact) != old
        assert list(artifact.staging.iterdir()) == [], after


@pytest.mark.slow
def test_a_kill_at_any_step_of_the_first_publish_leaves_a_root_that_the_next_one_takes(tmp_path):
    markers = set()
    for after in range(1, 11):  # it is marked within these, and what follows is the same in every root
        artifact = artifact_of(tmp_path / f"at-{after}")
        assert publish_in_child(artifact.root, "new", after, signal.SIGKILL).returncode == -signal.SIGKILL
        again = publish_in_child(artifact.root, "new")
        assert again.returncode == 0, again.stderr
        assert standing(artifact) == [current_version(artifact)]
        markers.add((artifact.root / ".muvap-root").read_text())
    assert len(markers) == 10


@pytest.fixture
def read_only(tmp_path):
    """A data root with one version, on a disk that may be read only; root passes over modes, but not over this."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        skip_or_fail("a file system can be mounted by root only")
    try:
        artifact = artifact_of(place)
        publish(artifact, "old")
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        yield artifact
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_may_only_be_read_is_read_and_told_of(read_only, corpus):
    before = current_version(read_only)
    with pytest.raises(OSError, match="Read-only file system"):
        publish(read_only, "new")
    assert (current_version(read_only), standing(read_only)) == (before, [before])
    corpus.row("one")
    shown = CliRunner().invoke(main, ["pack", str(corpus.write("talks.tsv")), "-o", str(read_only.root)])
    assert shown.exit_code == 1
    assert "Read-only file system. Check the path, its permissions and the disk." in shown.stderr
    at = ["--data-root", str(read_only.root)]
    listed = CliRunner().invoke(main, ["versions", "asd/packed_shards", "talks", *at])
    assert (listed.exit_code, before in listed.stdout) == (0, True)
    for verb in (["maintenance"], ["purge", "--sample", "one"]):
        assert CliRunner().invoke(main, [*verb, "--dry-run", *at]).exit_code == 0


def test_a_root_below_a_file_is_refused_and_the_file_stays(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="Not a directory"):
        publish(artifact_of(tmp_path / "file"), "new")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("what", ["staging", "root"])
def test_a_folder_that_vanishes_midway_publishes_nothing(tmp_path, what):
    artifact = artifact_of(tmp_path / "root")
    publish(artifact, "old")
    before = current_version(artifact)

    def vanish(folder, value):
        shutil.rmtree(artifact.staging if what == "staging" else artifact.root)
        return [CheckOutcome.of("whole", [])]

    if what == "staging":
        with pytest.raises((OSError, MuvapError)):
            publish(artifact, "new", vanish)
        assert (current_version(artifact), standing(artifact)) == (before, [before])
        assert publish(artifact, "new").published.created
        return
    for _ in range(2):  # the second begins where nothing is any more
        with pytest.raises(PublishError, match="Nothing was published"):
            publish(artifact, "new", vanish)
        assert not artifact.root.exists()
    assert publish_in_child(artifact.root, "new").returncode == 0
    assert standing(artifact) == [current_version(artifact)]


def test_media_that_vanish_between_validation_and_packing_are_named(corpus, tmp_path):
    corpus.row("one")
    corpus.row("two")
    words = ["pack", str(corpus.write("talks.tsv")), "-o", str(tmp_path / "root")]
    assert CliRunner().invoke(main, words).exit_code == 0
    artifact = artifact_of(tmp_path / "root")
    before = current_version(artifact)
    shutil.rmtree(tmp_path / "root" / "cache", ignore_errors=True)
    (corpus.root / "two.wav").unlink()
    shown = CliRunner().invoke(main, words)
    assert shown.exit_code == 1
    assert "two.wav" in shown.output
    assert current_version(artifact) == before
    assert standing(artifact) == [before]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit(143), MemoryError])
def test_nothing_stays_staged_whatever_ends_the_block(tmp_path, error):
    artifact = artifact_of(tmp_path)

    def fail():
        with staged(artifact) as folder:
            (folder / "half").write_text("x")
            raise error

    with pytest.raises(type(error) if isinstance(error, BaseException) else error):
        fail()
    assert list(artifact.staging.iterdir()) == []


def test_a_published_file_that_somebody_changed_is_never_taken_for_the_version(tmp_path):
    artifact = artifact_of(tmp_path)
    version = publish(artifact, "old").published.version
    (artifact.version(version) / "rows.txt").write_text("other")
    with pytest.raises(PublishError, match="holds something else than version"):
        publish(artifact, "old")
    assert (artifact.version(version) / "rows.txt").read_text() == "other"
