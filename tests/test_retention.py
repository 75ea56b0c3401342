"""Maintenance: what it removes, what it never does, and a random history of a data root against a model of both."""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from version_roots import names, publish_text

from muvap_assets import journal
from muvap_assets.asd import line
from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.tsv import TsvCorpus
from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.cli.main import main
from muvap_assets.errors import FormatError
from muvap_assets.layout import Layout
from muvap_assets.publish import current_version, publish, staged, write_json
from muvap_assets.ref2va import row_retention
from muvap_assets.ref2va.records import PROVENANCE_KEY
from muvap_assets.ref2va.row_retention import in_use
from muvap_assets.retention import DAY_SEC, RemovalKind, Retention, maintain
from muvap_assets.versions import roll_back

AT_ONCE = Retention(keep_versions=1, grace_sec=0, row_grace_sec=0)
LATER = 10 * 365 * DAY_SEC


@pytest.fixture
def layout(tmp_path):
    return Layout(tmp_path / "root")


@pytest.fixture
def artifact(layout):
    return layout.artifact("asd", "thing", "part")


def now(later=0.0):
    return journal.wall_clock_sec() + later


# --- rows that cost nothing ---


def store_row(layout, key, parts):
    """A row and its parts, with the provenance a real one has; old as the hills."""
    row = layout.row_store / "rows" / key[:2] / f"{key}.row"
    row.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"x": [1]})
    metadata = {
        PROVENANCE_KEY: json.dumps({"row_key": key, "parts": {str(i): p for i, p in enumerate(parts)}}).encode()
    }
    pq.write_table(table.replace_schema_metadata(metadata), row)
    for part in parts:
        path = layout.row_store / "parts" / "text" / part[:2] / f"{part}.part"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(part)
    return row


def list_rows(layout, keys, dataset="clips"):
    """Publish a part that lists rows of these keys."""
    fields = {"row": 1, "sha256": "0", "bucket": "b", "text_tokens": 1, "sequence_length": 1}
    with staged(layout.ref2va_encoded_latents(dataset, 0)) as folder:
        write_json(folder / "rows.json", [{"id": key, "key": key, **fields} for key in keys])
        return publish(folder, layout.ref2va_encoded_latents(dataset, 0)).version


def stored(layout):
    return {path.stem for path in layout.row_store.glob("**/*") if path.suffix in (".row", ".part")}


# --- versions ---


def test_current_and_the_last_versions_stay_and_older_ones_go(artifact, layout):
    versions = [publish_text(artifact, content) for content in "abcde"]
    report = maintain(layout, Retention(keep_versions=2, grace_sec=60), now_sec=now(61))
    assert names(artifact.folder) == {*versions[2:], "current"}
    assert current_version(artifact) == versions[4]
    assert (report.count(RemovalKind.VERSION), report.freed_bytes) == (2, 2)
    assert list(artifact.staging.iterdir()) == []


def test_a_version_that_was_current_within_the_grace_period_stays(artifact, layout):
    versions = [publish_text(artifact, content) for content in "abc"]
    policy = Retention(keep_versions=0, grace_sec=60)
    assert maintain(layout, policy, now_sec=now(50)).removed == []
    assert names(artifact.folder) == {*versions, "current"}


def test_what_the_journal_does_not_know_has_the_grace_period_too(artifact, layout):
    versions = [publish_text(artifact, content) for content in "abc"]
    artifact.journal.unlink()
    policy = Retention(keep_versions=0, grace_sec=60)
    assert maintain(layout, policy, now_sec=now(30)).removed == []
    maintain(layout, policy, now_sec=now(90))
    assert names(artifact.folder) == {versions[2], "current"}


def test_a_version_gone_back_to_stays_however_old(artifact, layout):
    versions = [publish_text(artifact, content) for content in "abc"]
    roll_back(artifact, versions[0])
    maintain(layout, Retention(keep_versions=0, grace_sec=0), now_sec=now(1))
    assert names(artifact.folder) == {versions[0], "current"}


def test_a_dry_run_says_what_would_go_and_changes_nothing(artifact, layout):
    for content in "abc":
        publish_text(artifact, content)
    store_row(layout, "aa11", ["p1"])
    before = {path: path.stat().st_mtime_ns for path in layout.root.rglob("*") if path.is_file()}
    dry = maintain(layout, AT_ONCE, dry_run=True, now_sec=now(1))
    assert {p: p.stat().st_mtime_ns for p in layout.root.rglob("*") if p.is_file()} == before
    assert dry.removed == maintain(layout, AT_ONCE, now_sec=now(1)).removed
    assert [removal.kind for removal in dry.removed] == ["version", "row", "part"]


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_file_that_versions_share_is_freed_with_its_last_name_and_once(artifact, layout, dry_run):
    shared = {"kept": b"x" * 100, "removed": b"y" * 10}
    for name, content in shared.items():
        (layout.root.parent / name).write_bytes(content)
    for own, linked in (("a", ["kept", "removed"]), ("b", ["removed"]), ("c", ["kept"]), ("d", [])):
        with staged(artifact) as folder:
            (folder / "own").write_text(own)
            for name in linked:
                os.link(layout.root.parent / name, folder / name)
            publish(folder, artifact)
    for name in shared:
        (layout.root.parent / name).unlink()
    report = maintain(layout, AT_ONCE, dry_run=dry_run, now_sec=now(1))
    assert sorted(removal.freed_bytes for removal in report.removed) == [1, 11]


def test_p08_what_a_killed_run_left_goes_and_a_running_one_keeps_its_folder(artifact, layout):
    script = (
        "import sys; from pathlib import Path; from muvap_assets.layout import Layout; from muvap_assets.publish import staged\n"
        "with staged(Layout(Path(sys.argv[1])).artifact('asd', 'thing', 'part')) as folder:\n"
        "    (folder / 'half').write_text('half'); print('ready', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(layout.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        assert maintain(layout, AT_ONCE, now_sec=now(LATER)).removed == []
        child.kill()
    report = maintain(layout, AT_ONCE, now_sec=now(LATER))
    assert [(removal.kind, removal.freed_bytes) for removal in report.removed] == [(RemovalKind.STAGING, 4)]
    assert list(artifact.staging.iterdir()) == []


# --- clocks that jump ---

YEAR = 365 * DAY_SEC
IN_2019 = 1_550_000_000.0


def clock_at(monkeypatch, seconds):
    monkeypatch.setattr(journal, "wall_clock_sec", lambda: seconds)


@pytest.mark.parametrize("wrong", [IN_2019, 0.0, 4e9, 1e300], ids=str)
@pytest.mark.parametrize("move", [0, 1, 2], ids=["first", "second", "last"])
def test_a_version_replaced_a_moment_ago_stays_whatever_year_a_move_was_written_down_in(
    artifact, layout, monkeypatch, wrong, move
):
    for number, content in enumerate("abc"):
        with monkeypatch.context() as patch:
            if number == move:
                clock_at(patch, wrong)
            publish_text(artifact, content)
    policy = Retention(keep_versions=0, grace_sec=60)
    for later in (1, 2, 50):
        assert maintain(layout, policy, now_sec=now(later)).count(RemovalKind.VERSION) == 0
    assert len(names(artifact.folder)) == 4
    maintain(layout, policy, now_sec=now(120))
    assert names(artifact.folder) == {current_version(artifact), "current"}


@pytest.mark.parametrize("jump", [IN_2019 - 1.8e9, -40 * YEAR, 2 * YEAR, 20 * YEAR])
def test_a_clock_that_is_wrong_during_maintenance_removes_nothing(artifact, layout, jump):
    for content in "abc":
        publish_text(artifact, content)
    store_row(layout, "aa1", ["p1"])
    report = maintain(layout, Retention(keep_versions=0), now_sec=now(jump))
    assert report.removed == []
    assert "4 versions, rows and parts" in report.left[0] or "3 versions, rows and parts" in report.left[0]
    assert maintain(layout, Retention(keep_versions=0), now_sec=now(1)).removed == []
    assert stored(layout) == {"aa1", "p1"}
    maintain(layout, Retention(keep_versions=0), now_sec=now(15 * DAY_SEC))
    assert (names(artifact.folder), stored(layout)) == ({current_version(artifact), "current"}, set())


def test_all_of_a_root_made_under_a_wrong_clock_goes_a_grace_period_after_it_was_first_seen(
    artifact, layout, monkeypatch
):
    with monkeypatch.context() as patch:
        clock_at(patch, IN_2019)
        versions = [publish_text(artifact, content) for content in "abc"]
    row = store_row(layout, "aa1", ["p1"])
    for path in [row, *layout.row_store.rglob("*.part")]:
        os.utime(path, (IN_2019, IN_2019))
    publish_text(artifact, "d")
    policy = Retention(keep_versions=0, grace_sec=60, row_grace_sec=90)
    (told,) = maintain(layout, policy, now_sec=now(), dry_run=True).left
    assert told.startswith("3 versions, rows and parts (asd/thing/part/")
    assert maintain(layout, policy, now_sec=now()).left == [told]
    assert names(layout.cache) == {"retention.json"}
    report = maintain(layout, policy, now_sec=now(70))
    assert (report.left, report.count(RemovalKind.VERSION)) == ([], 3)
    assert not set(versions) & names(artifact.folder)
    assert stored(layout) == {"aa1", "p1"}
    maintain(layout, policy, now_sec=now(200))
    assert stored(layout) == {"p1"}  # nothing needs it since then
    maintain(layout, policy, now_sec=now(400))
    assert stored(layout) == set()
    assert json.loads((layout.cache / "retention.json").read_text()) == {}


def test_a_grace_of_zero_waits_for_nothing_whatever_the_times_are(artifact, layout, monkeypatch):
    with monkeypatch.context() as patch:
        clock_at(patch, 4e9)
        publish_text(artifact, "a")
        publish_text(artifact, "b")
    maintain(layout, Retention(keep_versions=0, grace_sec=0))
    assert names(artifact.folder) == {current_version(artifact), "current"}


@pytest.mark.parametrize("content", ["[]", "{", '{"asd/thing/part/x": "y"}', '{"x": NaN}'])
def test_a_damaged_note_of_what_waits_is_made_anew(artifact, layout, content):
    layout.cache.mkdir(parents=True)
    (layout.cache / "retention.json").write_text(content)
    for each in "ab":
        publish_text(artifact, each)
    assert maintain(layout, Retention(keep_versions=0), now_sec=now(9 * YEAR)).count(RemovalKind.VERSION) == 0


# --- what cannot be removed ---


@contextmanager
def immutable(root, *paths):
    """A file that cannot be removed, a folder whose entries cannot, wherever they are moved below ``root``."""
    if subprocess.run(["chattr", "+i", *map(str, paths)], check=False, capture_output=True).returncode:
        pytest.skip("no file can be made immutable here")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-R", "-i", str(root)], check=False, capture_output=True)  # it stumbles over links


def test_a_version_that_cannot_be_removed_is_not_counted_as_removed_and_goes_once_it_can(artifact, layout):
    versions = [publish_text(artifact, content) for content in "abcd"]
    [file] = artifact.version(versions[0]).iterdir()
    with immutable(layout.root, file):
        report = maintain(layout, AT_ONCE, now_sec=now(1))
        assert [removal.name for removal in report.removed] == [f"asd/thing [part] {versions[1]}"]
        [left] = report.left
        assert left.startswith(
            f"version: asd/thing [part] {versions[0]}: could not be removed: Operation not permitted ("
        )
        again = maintain(layout, AT_ONCE, now_sec=now(1))
        assert again.removed == []
        assert again.left[0].startswith("staging: asd-thing-part-")
        assert (
            CliRunner()
            .invoke(main, ["maintenance", "--data-root", str(layout.root)])
            .output.startswith("left: staging:")
        )
    report = maintain(layout, AT_ONCE, now_sec=now(1))
    assert ([removal.freed_bytes for removal in report.removed], report.left) == ([1], [])
    assert list(artifact.staging.iterdir()) == []


def test_rows_and_files_of_killed_runs_that_cannot_be_removed_are_named_and_the_others_go(layout):
    row, _ = store_row(layout, "aa1", ["p1"]), store_row(layout, "bb2", ["p2"])
    partial = layout.cache / ".thing.json.partial"
    partial.parent.mkdir(parents=True)
    partial.write_text("half")
    with immutable(layout.root, row.parent, partial.parent):
        report = maintain(layout, AT_ONCE, now_sec=now(1))
    assert stored(layout) == {"aa1"}
    assert {removal.name for removal in report.removed} == {
        "rows/bb/bb2.row",
        "parts/text/p1/p1.part",
        "parts/text/p2/p2.part",
    }
    assert [line.partition(": could not be removed")[0] for line in report.left] == [
        "staging: cache/.thing.json.partial",
        "row: rows/aa/aa1.row",
    ]


def test_what_another_process_removed_meanwhile_is_not_reported(layout, monkeypatch):
    row, unused = store_row(layout, "aa1", ["p1"]), row_retention.unused

    def find_and_lose(*arguments):
        found = unused(*arguments)
        row.unlink()
        return found

    monkeypatch.setattr(row_retention, "unused", find_and_lose)
    report = maintain(layout, AT_ONCE, now_sec=now(1))
    assert ([removal.kind for removal in report.removed], report.left) == (["part"], [])


# --- readers ---


@pytest.fixture
def packs(corpus, layout):
    """A pack of two shards, and two newer versions of it."""
    settings = Corpus(
        name="talks",
        source=TsvCorpus(kind="tsv", manifest=corpus.root / "train.tsv"),
        dataset="talks",
        shard_bytes=100_000,
    )
    paths = []
    for name in ("one", "two", "three", "four"):
        corpus.row(name, visual_path=corpus.faces(f"{name}.npy", shape=(40, 40)))
        corpus.write()
        for make in (line.make_manifest, line.make_loudness_index, line.make_packed_shards):
            outcome = make(layout, settings)
        paths.append(outcome.published.path)
    return paths


def test_a_reader_keeps_what_it_mapped_and_fails_clearly_on_what_it_did_not(packs, layout):
    reader = PackReader(packs[1])
    faces = reader[0].faces
    expected = faces.copy()
    maintain(layout, AT_ONCE, now_sec=now(1))
    assert not packs[1].exists()
    np.testing.assert_array_equal(reader[0].faces, expected)
    np.testing.assert_array_equal(faces, expected)
    with pytest.raises(
        FormatError, match=r"gone since the pack was opened: maintenance removed.*Open its `current` anew"
    ):
        reader[1]


def test_a_reader_within_the_grace_period_maps_what_it_likes(packs, layout):
    reader = PackReader(packs[1])
    maintain(layout, Retention(keep_versions=0, grace_sec=DAY_SEC), now_sec=now(DAY_SEC - 60))
    assert len([sample.faces.sum() for sample in reader]) == 2


# --- row store ---


def test_rows_no_version_lists_go_with_the_parts_only_they_were_made_of(layout):
    for key, parts in (("aa1", ["p1", "shared"]), ("bb2", ["p2", "shared"]), ("cc3", ["p3"])):
        store_row(layout, key, parts)
    list_rows(layout, ["aa1", "bb2"])
    list_rows(layout, ["aa1"])
    maintain(layout, Retention(keep_versions=1, grace_sec=0, row_grace_sec=0), now_sec=now(1))
    assert stored(layout) == {"aa1", "bb2", "p1", "p2", "shared"}
    maintain(layout, Retention(keep_versions=0, grace_sec=0, row_grace_sec=0), now_sec=now(1))
    assert stored(layout) == {"aa1", "p1", "shared"}


def test_a_row_of_a_failed_run_waits_for_it_to_come_back(layout):
    store_row(layout, "aa1", ["p1"])
    maintain(layout, Retention(), now_sec=now(13 * DAY_SEC))
    assert stored(layout) == {"aa1", "p1"}
    maintain(layout, Retention(), now_sec=now(15 * DAY_SEC))
    assert stored(layout) == set()


def test_a_row_that_a_published_dataset_links_stays(layout):
    row = store_row(layout, "aa1", ["p1"])
    artifact = layout.ref2va_parquet_cache_index("clips")
    with staged(artifact) as folder:
        os.link(row, folder / "data.parquet")
        publish(folder, artifact)
    maintain(layout, AT_ONCE, now_sec=now(LATER))
    assert stored(layout) == {"aa1", "p1"}


def test_a_listed_row_that_cannot_be_read_keeps_all_parts_and_is_told(layout):
    store_row(layout, "aa1", ["p1"]).write_bytes(b"damaged")
    store_row(layout, "bb2", ["p2"])
    list_rows(layout, ["aa1"])
    report = maintain(layout, AT_ONCE, now_sec=now(LATER))
    assert stored(layout) == {"aa1", "p1", "p2"}
    assert "1 listed rows cannot be read (aa1)" in report.left[0]


def test_while_a_run_uses_the_row_store_nothing_is_removed_from_it(layout):
    store_row(layout, "aa1", ["p1"])
    with in_use(layout.row_store):
        process = multiprocessing.get_context("spawn").Process(target=maintain, args=(layout, AT_ONCE))
        process.start()
        process.join()
        assert (process.exitcode, stored(layout)) == (0, {"aa1", "p1"})
    assert maintain(layout, AT_ONCE, now_sec=now(1)).left == []
    assert stored(layout) == set()


def test_the_command_says_what_it_removed(artifact, layout):
    versions = [publish_text(artifact, content) for content in "abc"]
    arguments = ["maintenance", "--data-root", str(layout.root), "--keep", "1", "--grace-hours", "0"]
    result = CliRunner().invoke(main, [*arguments, "--dry-run"])
    assert f"version: asd/thing [part] {versions[0]}: 1 bytes\n1 would be removed, 1 bytes" in result.output
    assert "1 removed, 1 bytes" in CliRunner().invoke(main, arguments).output
    assert names(artifact.folder) == {*versions[1:], "current"}


def test_the_command_keeps_as_many_versions_as_the_datasets_file_says(artifact, layout, tmp_path):
    versions = [publish_text(artifact, content) for content in "abcd"]
    datasets = tmp_path / "datasets.yaml"
    datasets.write_text("keep_versions: 2\n")
    arguments = ["maintenance", "--data-root", str(layout.root), "--grace-hours", "0"]
    assert "0 removed" in CliRunner().invoke(main, arguments).output  # three without the file
    assert CliRunner().invoke(main, [*arguments, "--datasets", str(datasets)]).exit_code == 0
    assert names(artifact.folder) == {*versions[1:], "current"}
    assert CliRunner().invoke(main, [*arguments, "--datasets", str(datasets), "--keep", "1"]).exit_code == 0
    assert names(artifact.folder) == {*versions[2:], "current"}


# --- against a model ---


class History(RuleBasedStateMachine):
    """Anything that may happen to a data root, in any order; the model holds what has to be there after it."""

    GRACE, ROW_GRACE, KEEP = 100.0, 300.0, 1

    def __init__(self):
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.layout = Layout(Path(self._folder.name))
        self.clock = 2_000_000_000.0
        self.real_clock, journal.wall_clock_sec = journal.wall_clock_sec, lambda: self.clock
        self.moves, self.keys_of, self.row_times, self.links = [], {}, {}, set()
        self.readers, self.standing = [], set()

    def teardown(self):
        journal.wall_clock_sec = self.real_clock
        for stream, _ in self.readers:
            stream.close()
        self._folder.cleanup()

    @initialize()
    def begin(self):
        self.publish({0})

    @rule(rows=st.sets(st.integers(0, 4), min_size=1))
    def publish(self, rows):
        keys = sorted(f"{row:02d}row" for row in rows)
        for key in keys:
            if key not in self.row_times:
                self.encode(key)
        version = list_rows(self.layout, keys)
        self.keys_of[version] = set(keys)
        self.standing.add(version)
        if not self.moves or self.moves[-1][0] != version:
            self.moves.append((version, self.clock))

    @rule(row=st.integers(0, 4))
    def encode_without_publishing(self, row):
        if f"{row:02d}row" not in self.row_times:
            self.encode(f"{row:02d}row")

    def encode(self, key):
        path = store_row(self.layout, key, [f"{key}part"])
        for file in (path, self.layout.row_store / "parts" / "text" / key[:2] / f"{key}part.part"):
            os.utime(file, (self.clock, self.clock))
        self.row_times[key] = self.clock

    @rule(data=st.data())
    def go_back(self, data):
        version = data.draw(st.sampled_from(sorted(self.standing)))
        roll_back(self.artifact, version)
        if self.moves[-1][0] != version:
            self.moves.append((version, self.clock))

    @rule(data=st.data())
    def export_a_row(self, data):
        if not self.row_times:
            return
        key = data.draw(st.sampled_from(sorted(self.row_times)))
        if key not in self.links:
            (self.layout.root / "exported").mkdir(exist_ok=True)
            os.link(self.layout.row_store / "rows" / key[:2] / f"{key}.row", self.layout.root / "exported" / key)
            self.links.add(key)

    @rule()
    def open_current(self):
        stream = (self.artifact.current / "rows.json").open()
        self.readers.append((stream, (self.artifact.current / "rows.json").read_text()))

    @rule(seconds=st.sampled_from([1.0, 99.0, 101.0, 301.0]))
    def wait(self, seconds):
        self.clock += seconds

    @rule(dry_run=st.booleans())
    def maintenance(self, dry_run):
        policy = Retention(keep_versions=self.KEEP, grace_sec=self.GRACE, row_grace_sec=self.ROW_GRACE)
        maintain(self.layout, policy, dry_run=dry_run, now_sec=self.clock)
        if dry_run:
            return
        last = {version: position for position, (version, _) in enumerate(self.moves)}
        others = sorted((v for v in self.standing if v != self.moves[-1][0]), key=last.__getitem__, reverse=True)
        self.standing -= {v for v in others[self.KEEP :] if self.clock - self.moves[last[v] + 1][1] > self.GRACE}
        listed = set().union(*(self.keys_of[version] for version in self.standing))
        young = {key for key, made in self.row_times.items() if made >= self.clock - self.ROW_GRACE}
        self.row_times = {key: made for key, made in self.row_times.items() if key in listed | young | self.links}

    @property
    def artifact(self):
        return self.layout.ref2va_encoded_latents("clips", 0)

    @precondition(lambda self: self.moves)
    @invariant()
    def what_has_to_be_there_is(self):
        assert names(self.artifact.folder) == {*self.standing, "current"}
        assert current_version(self.artifact) == self.moves[-1][0]
        assert stored(self.layout) == {name for key in self.row_times for name in (key, f"{key}part")}
        for stream, text in self.readers:
            stream.seek(0)
            assert stream.read() == text


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
