"""Maintenance and takedown on a real ref2va line: rows encoded once stay as long as something needs them, and no longer."""

import json
import shutil

import pyarrow.parquet as pq
import pytest
from encoder_rows import FakeEncoder
from version_roots import purge_killed_at_every_removal

from muvap_assets.demo.ref2va import packed_rows, write_demo_datasets
from muvap_assets.errors import StaleInputError
from muvap_assets.layout import Layout
from muvap_assets.publish import current_version
from muvap_assets.ref2va import line
from muvap_assets.ref2va.contract import Dataset, DatasetOptions
from muvap_assets.ref2va.manifest_files import read_manifest
from muvap_assets.ref2va.publication_checks import verify_dataset
from muvap_assets.retention import Retention, maintain
from muvap_assets.storage.digests import file_sha256
from muvap_assets.storage.files import replacing
from muvap_assets.takedown import Takedown, purge

AT_ONCE = Retention(keep_versions=0, grace_sec=0, row_grace_sec=0)


class Platform:
    def __init__(self, tmp_path, spec, encoder):
        self.sources, self.layout, self.spec, self.encoder = tmp_path / "src", Layout(tmp_path / "data"), spec, encoder
        write_demo_datasets(self.sources)
        self.rows = packed_rows()
        options = DatasetOptions(width=128, height=64, num_frames=22)
        self.dataset = Dataset(name="clips", manifest=self.sources / "clips.jsonl", options=options)

    def run(self):
        """Publish everything; how many parts had to be encoded for it."""
        self.dataset.manifest.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        outcome = line.make_manifest(self.layout, self.dataset, self.spec)
        assert outcome.published, [v.message() for check in outcome.blocking for v in check.findings]
        encoded = line.make_encoded_latents(self.layout, self.dataset, 0, self.spec)
        assert encoded.published, [v.message() for check in encoded.blocking for v in check.findings]
        assert line.make_parquet_cache_index(self.layout, self.dataset).published
        return sum(encoded.value.encoded.values())

    def stored(self, suffix):
        return {path for path in self.layout.row_store.rglob(f"*{suffix}")}

    def traces(self, *needles):
        files = [path for path in self.layout.root.rglob("*") if path.is_file()]
        return [path for path in files if any(n.encode() in path.name.encode() + path.read_bytes() for n in needles)]


@pytest.fixture
def platform(tmp_path, tiny_spec, monkeypatch):
    encoder = FakeEncoder()
    monkeypatch.setattr(line, "open_h3", lambda layout, spec: encoder)
    return Platform(tmp_path, tiny_spec, encoder)


def test_what_is_published_keeps_its_rows_and_a_dropped_row_goes_with_the_last_version_that_lists_it(platform):
    platform.run()
    rows, parts = platform.stored(".row"), platform.stored(".part")
    assert maintain(platform.layout, AT_ONCE, now_sec=2e10).removed == []
    dropped = platform.rows.pop()
    assert platform.run() == 0
    maintain(platform.layout, Retention(keep_versions=1, grace_sec=0, row_grace_sec=0), now_sec=2e10)
    assert platform.stored(".row") == rows
    maintain(platform.layout, AT_ONCE, now_sec=2e10)
    assert len(platform.stored(".row")) == len(rows) - 1
    assert platform.stored(".part") < parts
    root = platform.layout.ref2va_parquet_cache_index("clips").current.resolve()
    assert all(check.passed for check in verify_dataset(root))
    assert platform.run() == 0
    platform.rows.append(dropped)
    assert platform.run() > 0


@pytest.mark.parametrize("kind", ["media", "sample"])
def test_a_purged_video_leaves_no_version_row_part_or_cache_entry(platform, kind):
    video = platform.sources / platform.rows[0]["target"]["video"]
    gone = [row for row in platform.rows if kind == "sample" or video.name in json.dumps(row)]
    gone = gone[:1] if kind == "sample" else gone
    digest, ids = file_sha256(video), [row["id"] for row in gone]
    platform.run()
    takedown = Takedown(media=frozenset({digest})) if kind == "media" else Takedown(samples=frozenset(ids))
    with pytest.raises(
        StaleInputError, match=r"ref2va/manifest \[clips\].*\n.*encoded_latents.*\n.*parquet_cache_index"
    ):
        purge(platform.layout, takedown)
    platform.rows = [row for row in platform.rows if row not in gone]
    assert platform.rows
    platform.run()
    if kind == "media":
        video.write_bytes(b"replaced since")
    report = purge(platform.layout, takedown)
    assert report.samples == set(ids)
    needles = ids if kind == "sample" else [digest, *ids]
    assert platform.traces(*needles) == []
    for artifact in ("manifest", "parquet_cache_index"):
        folder = getattr(platform.layout, f"ref2va_{artifact}")("clips")
        assert {path.name for path in folder.folder.iterdir()} == {current_version(folder), "current"}
    assert platform.run() == 0


def test_a_purge_that_was_killed_at_any_removal_is_ended_by_the_next(platform, monkeypatch):
    video = platform.sources / platform.rows[0]["target"]["video"]
    gone = [row for row in platform.rows if video.name in json.dumps(row)]
    digest, ids = file_sha256(video), [row["id"] for row in gone]
    platform.run()
    platform.rows = [row for row in platform.rows if row not in gone]
    platform.run()
    video.write_bytes(b"replaced since")
    named = Takedown(media=frozenset({digest}))
    assert purge_killed_at_every_removal(monkeypatch, platform.layout, named) > 2
    assert platform.traces(digest, *ids) == []
    assert platform.run() == 0


@pytest.mark.parametrize("content", [b"", b"PAR1 torn"])
def test_a_damaged_row_that_nothing_lists_goes_with_a_purge(platform, content):
    platform.run()
    gone = platform.rows.pop(0)["id"]
    platform.run()
    stray = platform.layout.row_store / "rows" / "ab" / f"{'ab' * 32}.row"
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(content)
    purge(platform.layout, Takedown(samples=frozenset({gone})))
    assert not stray.exists()
    assert platform.traces(gone) == []
    assert platform.run() == 0


def test_with_rows_go_parts_that_no_row_names_and_what_killed_runs_were_writing(platform):
    platform.run()
    gone = platform.rows.pop(0)["id"]
    platform.run()
    store = platform.layout.row_store
    part = store / "parts" / "text" / "ab" / "abcd.part"
    torn = [part.with_name(".abcd.part.partial"), platform.layout.cache / "media" / ".digests.json.partial"]
    part.parent.mkdir(parents=True, exist_ok=True)
    for file in (*torn, part):
        file.write_bytes(b"")
    with replacing(platform.layout.cache / "sources" / "ref2va-clips.json") as held:  # a sensor's look, beside runs
        held.write_text(json.dumps(gone))
        purge(platform.layout, Takedown(samples=frozenset({gone})))
    assert not any(file.exists() for file in torn)
    assert not part.exists()
    assert platform.run() == 0


def test_rows_and_datasets_say_themselves_which_files_they_were_made_of(platform):
    """The manifest that named the video may have been removed by maintenance, and the video with its folder."""
    video = platform.sources / platform.rows[0]["target"]["video"]
    gone = [row for row in platform.rows if video.name in json.dumps(row)]
    digest = file_sha256(video)
    platform.run()
    manifest = platform.layout.ref2va_manifest("clips")
    old = manifest.version(current_version(manifest))
    platform.rows = [row for row in platform.rows if row not in gone]
    platform.run()
    shutil.rmtree(old)
    video.unlink()
    report = purge(platform.layout, Takedown(media=frozenset({digest})))
    assert report.samples == {row["id"] for row in gone}
    assert platform.traces(digest, *report.samples) == []


def test_a_manifest_of_an_earlier_release_may_hold_any_file(platform):
    platform.run()
    manifest = platform.layout.ref2va_manifest("clips")
    old = manifest.version(current_version(manifest))
    table = pq.read_table(old / "manifest.parquet")
    stored = sorted({digest for digests in table.column("media_sha256").to_pylist() for digest in digests})
    named = [file for file in (platform.sources / "media").iterdir() if file.name in json.dumps(platform.rows)]
    assert stored == sorted(map(file_sha256, named))
    platform.rows.pop()
    platform.run()
    pq.write_table(table.drop_columns("media_sha256"), old / "manifest.parquet")
    assert len(read_manifest(old).samples) == len(table)
    any_file = Takedown(media=frozenset({"0" * 64}))
    assert purge(platform.layout, any_file, dry_run=True).removed
    purge(platform.layout, any_file)
    assert not old.exists()
    assert platform.run() == 0
