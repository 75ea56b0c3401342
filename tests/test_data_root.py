"""A run publishes in the data root that it began with, and nowhere else: not on a bare mount point, nor on another disk."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from skipping import skip_or_fail
from version_roots import names, publish_text

from muvap_assets.asd import line
from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.tsv import TsvCorpus
from muvap_assets.cli.main import main
from muvap_assets.errors import PublishError
from muvap_assets.layout import Layout
from muvap_assets.publish import CheckOutcome, current_version, run_checked
from muvap_assets.ref2va.encoder import Stage
from muvap_assets.ref2va.row_retention import in_use
from muvap_assets.ref2va.row_store import RowStore
from muvap_assets.retention import Retention, maintain
from muvap_assets.storage.digests import Digests
from muvap_assets.storage.root import begin
from muvap_assets.takedown import Takedown, purge
from muvap_assets.versions import roll_back

OTHER = r"found .*; required: the data root [0-9a-f]{32} on device .* Nothing was published there\. Mount the right one"
MOMENTS = ("before", "build", "check", "rename", "symlink", "replace")


@pytest.fixture
def artifact(tmp_path):
    return Layout(tmp_path / "root").artifact("asd", "packed_shards", "talks")


def publish_in_child(root, text):
    script = "import sys; from version_roots import *; publish_text(Artifact(Path(sys.argv[1]), *sys.argv[2:5]), sys.argv[5])"
    command = [sys.executable, "-c", script, str(root), "asd", "packed_shards", "talks", text]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)


def publish_until(artifact, moment, happens, monkeypatch):
    """Publishes, and at one moment of it something happens; the last three are when version and ``current`` are put in place."""
    happened = []

    def at(name):
        if name == moment and not happened:
            happened.append(name)
            happens()

    def build(folder):
        at("build")
        folder.joinpath("file.txt").write_text("new")

    def check(folder, value):
        at("check")
        for name in MOMENTS[3:]:
            monkeypatch.setattr(os, name, before_placing(name, getattr(os, name)))
        return [CheckOutcome.of("whole", [])]

    def before_placing(name, call):
        def placing(source, target, *options, **named):
            if name != "replace" or Path(target) == artifact.current:
                at(name)
            return call(source, target, *options, **named)

        return placing

    at("before")
    run_checked(artifact, build=build, check=check, declared=("whole",))


@pytest.mark.parametrize("moment", MOMENTS)
def test_where_the_root_was_swapped_for_an_empty_folder_nothing_is_published_or_written(artifact, moment, monkeypatch):
    root, away = artifact.root, artifact.root.with_name("away")
    old = publish_text(artifact, "old")

    def swap():
        root.rename(away)
        root.mkdir()

    with pytest.raises(PublishError, match="found no data root.*" + OTHER[8:]):
        publish_until(artifact, moment, swap, monkeypatch)
    assert names(root) == set()
    assert str((away / "asd/packed_shards/talks/current").readlink()) == old


@pytest.fixture
def disk(tmp_path):
    """A disk of its own, and the place it is mounted at a second time, from where it may go."""
    disk, place = tmp_path / "disk", tmp_path / "place"
    disk.mkdir()
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        skip_or_fail("a file system can be mounted by root only; the swapped folders above stand for it")
    try:
        subprocess.run(["mount", "--bind", str(disk), str(place)], check=True)
        yield disk, place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("below", ["", "deep/root"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_lazy_unmount_at_any_moment_leaves_the_mount_point_bare_and_the_disk_as_it_was(
    disk, below, moment, monkeypatch
):
    disk, place = disk
    artifact = Layout(place / below).artifact("asd", "packed_shards", "talks")
    old = publish_text(artifact, "old")

    def unmount():
        subprocess.run(["umount", "-l", str(place)], check=True)

    with pytest.raises(PublishError, match=OTHER):
        publish_until(artifact, moment, unmount, monkeypatch)
    assert names(place) == set()
    assert str((disk / below / "asd/packed_shards/talks/current").readlink()) == old


def test_a_disk_that_is_mounted_after_the_start_is_not_taken_for_the_folder_that_was_there(disk):
    disk, place = disk
    publish_text(Layout(place).artifact("asd", "packed_shards", "talks"), "old")
    other = place.with_name("other")
    other.mkdir()
    begin(other)
    try:
        subprocess.run(["mount", "--bind", str(disk), str(other)], check=True)
        with pytest.raises(PublishError, match=r"found the data root .* required: no data root on device"):
            publish_text(Layout(other).artifact("asd", "packed_shards", "talks"), "new")
    finally:
        subprocess.run(["umount", "-l", str(other)], check=True)


def test_another_data_root_in_its_place_is_not_published_in_nor_changed(artifact, tmp_path):
    root, other = artifact.root, tmp_path / "other"
    first = publish_text(artifact, "first")
    publish_text(artifact, "second")
    shutil.copytree(root, other, symlinks=True)
    (other / ".muvap-root").write_text(json.dumps({"id": "ab" * 16}))
    root.rename(tmp_path / "away")
    other.rename(root)
    before = {path: path.lstat().st_mtime_ns for path in root.rglob("*")}
    at_once = Retention(keep_versions=0, grace_sec=-1)
    for change in (
        lambda: publish_text(artifact, "third"),
        lambda: roll_back(artifact, first),
        lambda: maintain(Layout(root), at_once),
        lambda: purge(Layout(root), Takedown(samples=frozenset({"one"}))),
    ):
        with pytest.raises(PublishError, match=f"found the data root {'ab' * 16} on device .*{OTHER[8:]}"):
            change()
    assert {path: path.lstat().st_mtime_ns for path in root.rglob("*")} == before
    assert len(maintain(Layout(root), at_once, dry_run=True).removed) == 1
    purge(Layout(root), Takedown(samples=frozenset({"one"})), dry_run=True)
    assert {path: path.lstat().st_mtime_ns for path in root.rglob("*")} == before


def test_neither_rows_nor_caches_are_begun_anew_where_the_root_is_gone(artifact, tmp_path):
    layout = Layout(artifact.root)
    publish_text(artifact, "old")
    store, digests = RowStore(layout.row_store), Digests(layout.cache / "media" / "digests.json")
    (tmp_path / "file").write_text("content")
    digests.of(tmp_path / "file")
    artifact.root.rename(tmp_path / "away")
    for folder in (None, artifact.root):
        if folder is not None:
            folder.mkdir()
        with pytest.raises(PublishError, match=OTHER), in_use(layout.row_store):
            pass
        with pytest.raises(PublishError, match=OTHER):
            store.write_part(Stage.TEXT, "ab" * 32, {}, "")
        with pytest.raises(PublishError, match=OTHER):
            digests.save()
        assert folder is None or names(folder) == set()


def test_a_pack_whose_root_goes_while_it_is_made_says_so_and_leaves_nothing_in_its_place(corpus, tmp_path):
    corpus.row("one")
    settings = Corpus(name="talks", source=TsvCorpus(kind="tsv", manifest=corpus.write()), dataset="talks")
    layout = Layout(tmp_path / "root")
    line.make_manifest(layout, settings)
    line.make_loudness_index(layout, settings)

    def swap(done, total, what):
        if not (tmp_path / "away").exists():
            layout.root.rename(tmp_path / "away")
            layout.root.mkdir()

    with pytest.raises(PublishError, match=OTHER):
        line.make_packed_shards(layout, settings, swap)
    assert names(layout.root) == set()
    with pytest.raises(PublishError, match=OTHER):  # not that there is no manifest
        line.make_packed_shards(layout, settings)


def test_an_empty_root_is_a_new_one_for_a_process_that_begins(artifact):
    publish_text(artifact, "old")
    marker = (artifact.root / ".muvap-root").read_bytes()
    publish_text(artifact, "new")
    assert (artifact.root / ".muvap-root").read_bytes() == marker
    shutil.rmtree(artifact.root)
    artifact.root.mkdir()
    assert publish_in_child(artifact.root, "new").returncode == 0
    assert (artifact.root / ".muvap-root").read_bytes() != marker


# --- roots of earlier releases ----------------------------------------------------------------------------------------


@pytest.fixture
def earlier(artifact):
    """A data root as an earlier release left it: three artifacts and no marker."""
    root = artifact.root
    for partition in ("one", "two", "talks"):
        for text in "ab":
            publish_text(Layout(root).asd_packed_shards(partition), f"{partition} {text}")
    (root / ".muvap-root").unlink()
    return Layout(root.rename(root.with_name("earlier"))).artifact("asd", "packed_shards", "talks")


def adopt(root):
    return CliRunner().invoke(main, ["ops", "adopt-root", "--data-root", str(root)])


def test_a_root_of_an_earlier_release_is_taken_over_by_the_first_publish_once(earlier, caplog):
    publish_text(earlier, "new")
    publish_text(earlier, "newer")
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    marker = json.loads((earlier.root / ".muvap-root").read_text())["id"]
    assert f"{earlier.root}: had versions and no marker; it is the data root {marker} from now on" in warning


@pytest.mark.parametrize("lacks", ["a line", "a journal", "all journals", "a version"])
def test_where_journals_do_not_agree_it_is_refused_and_adopted_by_hand(earlier, lacks, caplog):
    journal, root = Layout(earlier.root).asd_packed_shards("one").journal, earlier.root
    if lacks == "a line":
        journal.write_text(journal.read_text().splitlines()[0] + "\n")
    elif lacks == "a journal":
        journal.unlink()
    elif lacks == "all journals":
        shutil.rmtree(root / "journal")
    else:
        shutil.rmtree(earlier.version(current_version(earlier)))
    before = {path: path.lstat().st_mtime_ns for path in root.rglob("*")}
    refused = rf"versions stand there, and no marker \.muvap-root; found .*; required: .*`muvap ops adopt-root --data-root {root}`"
    for change in (lambda: publish_text(earlier, "new"), lambda: maintain(Layout(root), Retention())):
        with pytest.raises(PublishError, match=refused):
            change()
    maintain(Layout(root), Retention(), dry_run=True)
    assert {path: path.lstat().st_mtime_ns for path in root.rglob("*")} == before

    done = adopt(root)
    if lacks == "a version":
        assert done.exit_code == 1
        assert "1 of 3 current versions are damaged; required: all whole" in done.stderr
        assert f"  asd/packed_shards [talks]: {earlier.current} names no version that stands" in done.stderr
        return
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"{root}: adopted, 3 current versions are whole"
    assert "all 3 current versions were read and are whole" in caplog.text
    assert publish_text(earlier, "new")


def test_adopting_reads_every_version_and_names_each_that_is_damaged(earlier):
    root = earlier.root
    for name in ("one", "two"):
        (Layout(root).asd_packed_shards(name).current / "file.txt").write_text("damaged")
    done = adopt(root)
    assert done.exit_code == 1
    assert "2 of 3 current versions are damaged" in done.stderr
    for name in ("one", "two"):
        assert f"asd/packed_shards [{name}] version" in done.stderr
    assert not (root / ".muvap-root").exists()


def test_a_marked_root_and_one_where_nothing_stands_are_not_adopted(artifact, tmp_path):
    publish_text(artifact, "old")
    again = adopt(artifact.root)
    assert (again.exit_code, "already; required: a data root of an earlier release" in again.stderr) == (1, True)
    (tmp_path / "empty").mkdir()
    empty = adopt(tmp_path / "empty")
    assert (empty.exit_code, "nothing is published there" in empty.stderr) == (1, True)
    assert names(tmp_path / "empty") == set()
    assert not Path(tmp_path / "empty" / ".muvap-root").exists()
