"""Staging, checking and publishing: nothing half, nothing overwritten, nothing lost."""

import errno
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from muvap_assets.codes import Code, Severity
from muvap_assets.errors import PublishError, StaleInputError, ValidationError
from muvap_assets.findings import Finding, Place
from muvap_assets.layout import Layout
from muvap_assets.publish import (
    CheckOutcome,
    content_version,
    current_version,
    publish,
    read_findings,
    require_current,
    require_pinned,
    run_checked,
    staged,
    write_findings,
)
from muvap_assets.retention import Removal, RemovalKind, Retention, maintain
from muvap_assets.storage import locks
from muvap_assets.storage.locks import exclusive, remove_abandoned
from muvap_assets.versions import require_whole


@pytest.fixture
def artifact(tmp_path):
    return Layout(tmp_path / "root").artifact("asd", "thing", "part")


def run(artifact, content="x", passed=True, declared=("ok",), severity=Severity.ERROR, **options):
    def build(folder):
        (folder / "sub").mkdir()
        (folder / "sub" / "file.txt").write_text(content)
        return content

    def check(folder, value):
        assert (folder / "sub" / "file.txt").read_text() == value
        return [CheckOutcome(name="ok", passed=passed, severity=severity)]

    return run_checked(artifact, build=build, check=check, declared=declared, **options)


def test_a_checked_output_becomes_a_version_and_current_points_at_it(artifact):
    outcome = run(artifact)
    assert outcome.published.created
    assert outcome.published.path == artifact.folder / outcome.published.version
    assert (artifact.current / "sub" / "file.txt").read_text() == "x"
    assert current_version(artifact) == outcome.published.version
    assert list(artifact.staging.iterdir()) == []


def test_the_same_bytes_give_the_same_version_and_publishing_again_changes_nothing(artifact):
    first = run(artifact)
    before = (artifact.current / "sub" / "file.txt").stat().st_mtime_ns
    second = run(artifact)
    assert second.published.version == first.published.version
    assert not second.published.created
    assert (artifact.current / "sub" / "file.txt").stat().st_mtime_ns == before


def test_other_bytes_or_another_name_give_another_version(tmp_path):
    versions = set()
    for name, content in (("a", "x"), ("a", "y"), ("b", "x")):
        folder = tmp_path / f"{name}{content}"
        folder.mkdir()
        (folder / name).write_text(content)
        versions.add(content_version(folder))
    assert len(versions) == 3


def test_a_failed_check_publishes_nothing_and_leaves_the_version_before_as_it_was(artifact):
    first = run(artifact)
    outcome = run(artifact, content="worse", passed=False)
    assert outcome.published is None
    assert [check.name for check in outcome.blocking] == ["ok"]
    assert current_version(artifact) == first.published.version
    assert sorted(path.name for path in artifact.folder.iterdir()) == sorted([first.published.version, "current"])
    assert list(artifact.staging.iterdir()) == []


def test_what_a_killed_writer_left_within_a_version_is_no_part_of_it_and_goes_with_maintenance(artifact):
    first = run(artifact)
    left = artifact.current.resolve() / "sub" / ".stamps.json.partial"  # as a killed `muvap index rebuild` leaves it
    left.write_text("half")
    again = run(artifact).published
    assert (again.version, again.created) == (first.published.version, False)
    require_whole(artifact, again.version)
    layout = Layout(artifact.root)
    told = Removal(RemovalKind.STAGING, left.relative_to(layout.root).as_posix(), 4)
    with exclusive(left):
        assert maintain(layout, Retention()).removed == []
    assert maintain(layout, Retention(), dry_run=True).removed == [told]
    assert maintain(layout, Retention()).removed == [told]
    assert not left.exists()


def test_a_failed_warning_publishes_all_the_same(artifact):
    assert run(artifact, passed=False, severity=Severity.WARNING).published is not None


def test_a_declared_check_that_did_not_run_counts_as_failed(artifact):
    outcome = run(artifact, declared=("ok", "forgotten"))
    assert outcome.published is None
    assert [(check.name, check.passed) for check in outcome.checks] == [("ok", True), ("forgotten", False)]
    assert outcome.checks[1].findings[0].code is Code.CHECK_NOT_RUN


def test_a_check_nobody_declared_is_an_error(artifact):
    with pytest.raises(PublishError, match=r"checks \['ok'\] ran undeclared"):
        run(artifact, declared=())
    assert current_version(artifact) is None


def test_a_build_that_raises_leaves_no_trace(artifact):
    def build(folder):
        (folder / "half").write_text("half")
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        run_checked(artifact, build=build, check=lambda folder, value: [], declared=())
    assert list(artifact.staging.iterdir()) == []
    assert not artifact.folder.exists()


def test_a_full_disk_is_told_with_its_numbers(artifact):
    def build(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(
        PublishError,
        match=r"asd/thing \[part\]: the disk .* is full \(.* GB free\); nothing was published, `current` is",
    ):
        run_checked(artifact, build=build, check=lambda folder, value: [], declared=())


def test_b26_a_folder_that_is_not_this_version_is_refused_and_left_alone(artifact):
    version = run(artifact).published.version
    intruder = artifact.version(version) / "sub" / "file.txt"
    intruder.write_text("changed by hand")
    with pytest.raises(PublishError, match=f"{version}: holds something else"):
        run(artifact)
    assert intruder.read_text() == "changed by hand"


def test_an_output_without_a_file_is_refused(artifact):
    with pytest.raises(PublishError, match="nothing to publish"):
        run_checked(artifact, build=lambda folder: None, check=lambda folder, value: [], declared=())


def test_a_link_in_an_output_is_refused(artifact):
    def build(folder):
        (folder / "link").symlink_to("/etc/hostname")

    with pytest.raises(PublishError, match="neither a plain file nor a folder"):
        run_checked(artifact, build=build, check=lambda folder, value: [], declared=())


def test_files_that_hold_paths_stay_out_of_the_version_and_are_refreshed(artifact):
    def attempt(place):
        def build(folder):
            (folder / "data").write_text("same")
            (folder / "paths.txt").write_text(place)

        return run_checked(
            artifact, build=build, check=lambda f, v: [], declared=(), location_dependent=("paths.txt",)
        ).published

    first, second = attempt("here"), attempt("there")
    assert (first.version, first.created, second.created) == (second.version, True, False)
    assert (artifact.current / "paths.txt").read_text() == "there"


def test_p08_twenty_publishers_at_once_leave_one_valid_current_and_no_leftovers(artifact):
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda i: run(artifact, content=str(i % 4)), range(20)))
    versions = {outcome.published.version for outcome in outcomes}
    assert len(versions) == 4
    assert current_version(artifact) in versions
    assert list(artifact.staging.iterdir()) == []
    for version in versions:
        assert content_version(artifact.version(version)) == version


KILLED = """
import sys, time
from pathlib import Path
from muvap_assets.layout import Layout
from muvap_assets.publish import staged
with staged(Layout(Path(sys.argv[1])).artifact("asd", "thing", "part")) as folder:
    (folder / "half").write_text("half")
    print("ready", flush=True)
    time.sleep(60)
"""


def test_p08_leftovers_of_a_killed_run_are_removed_and_those_of_a_running_one_are_not(artifact):
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(artifact.root)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    assert remove_abandoned(artifact.staging) == []
    child.kill()
    child.wait()
    child.stdout.close()
    assert len(remove_abandoned(artifact.staging)) == 1
    assert list(artifact.staging.iterdir()) == []


def test_p08_a_lock_taken_for_a_dead_ones_before_it_was_held_is_replaced(artifact, monkeypatch):
    held = []

    def flock(lock, operation):
        if not held:
            (only,) = artifact.staging.glob("*.lock")
            only.unlink()
        held.append(lock)
        fcntl_flock(lock, operation)

    with staged(artifact):
        pass  # a new root takes other locks as well
    fcntl_flock = locks.fcntl.flock
    monkeypatch.setattr(locks.fcntl, "flock", flock)
    with staged(artifact) as folder:
        assert (artifact.staging / f"{folder.parent.name}.lock").is_file()
    assert len(held) == 2
    assert list(artifact.staging.iterdir()) == []


def test_an_input_that_was_never_published_is_asked_for_by_name(artifact):
    with pytest.raises(
        StaleInputError, match=r"asd/thing \[part\]: no published version.* Materialize asd/thing first"
    ):
        require_current(artifact)


def test_an_input_built_from_another_version_is_refused(artifact):
    with pytest.raises(StaleInputError, match="built from asd/manifest version old, required is version new"):
        require_pinned(artifact, inputs={"asd/manifest": "old"}, name="asd/manifest", required="new")


def test_findings_survive_their_file(tmp_path):
    finding = Finding(Code.LABELS_FLOAT, Place(row=3, sample_id="s", field="labels"), "ü\n")
    write_findings(tmp_path / "deep" / "v.jsonl", [finding, finding])
    assert read_findings(tmp_path / "deep" / "v.jsonl") == [finding, finding]


def test_publishing_is_durable_before_it_is_visible(artifact, monkeypatch):
    events = []
    real_fsync, real_rename = os.fsync, Path.rename

    def fsync(descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if artifact.staging in path.parents or path == artifact.folder:
            events.append(path.name)
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", lambda self, target: events.append("rename") or real_rename(self, target))
    run(artifact)
    assert events == ["file.txt", "sub", "tree", "rename", "part", "part"]


def test_staging_is_private_and_on_the_artifacts_file_system(artifact):
    with staged(artifact) as first, staged(artifact) as second:
        assert first != second
        assert artifact.folder not in first.parents
        assert first.stat().st_dev == artifact.root.stat().st_dev


def test_publish_returns_the_path_readers_will_use(artifact):
    with staged(artifact) as folder:
        (folder / "f").write_text("x")
        published = publish(folder, artifact)
    assert (published.path / "f").read_text() == "x"
    assert time.time() - published.path.stat().st_mtime < 60


def finding(row):
    return Finding(Code.LABELS_FLOAT, Place(row=row), "a")


@pytest.mark.parametrize("severity", Severity)
def test_what_the_build_and_the_checks_found_is_left_once_whether_or_not_it_was_published(artifact, severity):
    outcome = run_checked(
        artifact,
        build=lambda folder: (folder / "file.txt").write_text("x"),
        check=lambda folder, value: [
            CheckOutcome(name="ok", passed=False, severity=severity, findings=(finding(2), finding(3)))
        ],
        declared=("ok",),
        findings=lambda value: [finding(1), finding(2)],
    )
    assert bool(outcome.published) == (severity is Severity.WARNING)
    assert read_findings(artifact.findings) == [finding(1), finding(2), finding(3)]


def test_a_finding_that_a_check_reads_back_is_that_of_the_build_which_knows_its_file(artifact, tmp_path):
    found = Finding(Code.FACES_DTYPE, tmp_path / "a.npy", "dtype float32").of_file("a.npy", row=3)

    def build(folder):
        write_findings(folder / "violations.jsonl", [found])
        return [found]

    outcome = run_checked(
        artifact,
        build=build,
        check=lambda folder, value: [CheckOutcome.of("ok", read_findings(folder / "violations.jsonl"))],
        declared=("ok",),
        findings=lambda value: value,
    )
    (told,) = outcome.blocking[0].findings
    assert told.path == str(tmp_path / "a.npy")
    assert f"row 3: a.npy: dtype float32 ({told.path}); required: " in told.message()
    assert str(tmp_path) not in artifact.findings.read_text()


def test_findings_that_end_a_build_are_left_and_those_of_a_run_before_are_not(artifact):
    run(artifact)
    assert read_findings(artifact.findings) == []

    def build(folder):
        raise ValidationError([finding(7)], "thing")

    with pytest.raises(ValidationError):
        run_checked(artifact, build=build, check=lambda folder, value: [], declared=("ok",))
    assert read_findings(artifact.findings) == [finding(7)]
    run(artifact)
    assert read_findings(artifact.findings) == []


def test_a_staged_folder_that_could_not_be_removed_keeps_its_lock_and_goes_with_the_next_run(artifact, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr("muvap_assets.storage.locks.shutil.rmtree", lambda path, onerror: None)
        run(artifact)
    assert sorted(path.suffix for path in artifact.staging.iterdir()) == ["", ".lock"]
    run(artifact, "y")
    assert list(artifact.staging.iterdir()) == []
