"""Content decides whether a source changed; size and time only save the reading. Cases P06 and P10."""

import json
import os
import shutil
import time

import pytest

from muvap_assets.datasets import load_datasets
from muvap_assets.layout import Layout
from muvap_assets.sources import OutOfTime, fingerprint, source_of


@pytest.fixture
def place(corpus, tmp_path):
    """A corpus of three rows, an hour old, so that its files count as settled."""
    for name in ("a", "b", "c"):
        corpus.row(name)
    corpus.write()
    _age(corpus.root)
    return Place(corpus, tmp_path)


def _age(folder):
    past = time.time() - 3600
    for path in folder.rglob("*"):
        os.utime(path, (past, past))


class Place:
    """A source and the cache its digests are remembered in."""

    def __init__(self, corpus, tmp_path, **options):
        self.corpus, self.layout = corpus, Layout(tmp_path / "data")
        self.datasets = tmp_path / "datasets.yaml"
        self.configure(**options)

    def configure(self, **options):
        entry = {"kind": "tsv", "manifest": str(self.corpus.root / "train.tsv"), **options}
        self.datasets.write_text(json.dumps({"corpora": {"talks": entry}}))

    def look(self, **options):
        return fingerprint(source_of(load_datasets(self.datasets), "asd", "talks"), self.layout, **options)

    def settle(self, monkeypatch):
        """Let every file count as settled: change times cannot be set back."""
        monkeypatch.setattr("muvap_assets.storage.digests.SETTLED_SEC", -1.0)


def test_a_second_look_reads_nothing(place, monkeypatch):
    place.settle(monkeypatch)
    first, second = place.look(), place.look()
    assert (first.files, first.hashed, first.trusted, first.missing) == (7, 7, 0, 0)
    assert (second.hashed, second.trusted) == (0, 7)
    assert first.digest == second.digest


def test_touched_and_copied_files_are_read_again_and_change_nothing(place, monkeypatch):
    place.settle(monkeypatch)
    before = place.look().digest
    (place.corpus.root / "a.wav").touch()
    copy = place.corpus.root / "copy"
    shutil.copyfile(place.corpus.root / "b.npy", copy)
    copy.replace(place.corpus.root / "b.npy")
    after = place.look()
    assert (after.digest, after.hashed) == (before, 2)


@pytest.mark.parametrize("name", ["a.wav", "b.npy"])
def test_a_file_of_the_same_size_and_time_swapped_in_under_the_same_name_is_noticed(place, monkeypatch, name):
    place.settle(monkeypatch)
    before = place.look().digest
    path = place.corpus.root / name
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    swapped = path.with_suffix(".new")
    swapped.write_bytes(content)
    os.utime(swapped, ns=(status.st_atime_ns, status.st_mtime_ns))
    swapped.replace(path)
    assert path.stat().st_size == status.st_size
    assert path.stat().st_mtime_ns == status.st_mtime_ns
    assert place.look().digest != before


def test_a_file_that_changed_a_moment_ago_is_not_taken_from_the_cache(place, monkeypatch):
    monkeypatch.setattr("muvap_assets.storage.digests.SETTLED_SEC", 3600.0)
    first, second = place.look(), place.look()
    assert (second.hashed, second.digest) == (7, first.digest)


def test_files_copied_with_a_time_in_the_future_are_read_once(place, monkeypatch):
    frames = place.corpus.root / "frames"
    frames.mkdir()
    (frames / "0.jpg").write_bytes(b"frame")
    place.corpus.row("d", visual_path="frames", visual_kind="jpeg_directory")
    place.corpus.write()
    for path in place.corpus.root.rglob("*"):
        os.utime(path, (4_000_000_000, 4_000_000_000))
    place.settle(monkeypatch)
    first, second = place.look(), place.look()
    assert (first.missing, second.hashed, second.trusted) == (0, 0, first.hashed)


def test_an_edited_manifest_and_a_changed_option_are_noticed(place, monkeypatch):
    place.settle(monkeypatch)
    before = place.look().digest
    place.configure(on_violation="quarantine")
    quarantined = place.look().digest
    place.corpus.rows.pop()
    place.corpus.write()
    assert len({before, quarantined, place.look().digest}) == 3


def test_a_missing_file_is_counted_and_its_coming_is_noticed(place, monkeypatch):
    place.settle(monkeypatch)
    whole = place.look().digest
    aside = place.corpus.root / "aside"
    (place.corpus.root / "a.wav").rename(aside)
    without = place.look()
    assert without.missing == 1
    assert without.digest != whole
    aside.rename(place.corpus.root / "a.wav")
    assert place.look().digest == whole


def test_a_missing_manifest_is_a_source_too(place):
    (place.corpus.root / "train.tsv").unlink()
    assert place.look().missing == 1


def test_a_folder_of_frames_counts_with_every_frame(place, monkeypatch):
    frames = place.corpus.root / "frames"
    frames.mkdir()
    for index in range(3):
        (frames / f"{index}.jpg").write_bytes(bytes([index]))
    place.corpus.row("d", visual_path="frames", visual_kind="jpeg_directory")
    place.corpus.write()
    place.settle(monkeypatch)
    before = place.look().digest
    (frames / "1.jpg").write_bytes(b"x")
    changed = place.look()
    assert (changed.digest != before, changed.hashed) == (True, 1)


def test_a_source_moved_as_a_whole_holds_what_it_held(place, tmp_path):
    before = place.look().digest
    place.corpus.root = place.corpus.root.rename(tmp_path / "elsewhere")
    place.configure()
    assert place.look().digest == before


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"schema": 1}', '{"schema": 9, "files": {}, "names": {}}'])
def test_a_torn_or_lost_cache_only_costs_the_reading(place, monkeypatch, damage):
    place.settle(monkeypatch)
    before = place.look().digest
    (cache,) = (place.layout.cache / "sources").glob("*.json")
    cache.write_text(damage)
    after = place.look()
    assert (after.digest, after.hashed) == (before, 7)


def test_a_look_that_runs_out_of_time_goes_on_where_it_stopped(place, monkeypatch):
    place.settle(monkeypatch)
    clock = iter(range(1000))
    monkeypatch.setattr("muvap_assets.sources.time.monotonic", lambda: next(clock))
    with pytest.raises(OutOfTime):
        place.look(deadline=3)
    assert place.look(deadline=2000).trusted == 4


def test_every_file_a_ref2va_manifest_names_counts_also_in_rows_that_break_the_schema(tmp_path):
    root = tmp_path / "raw"
    (root / "media").mkdir(parents=True)
    for name in ("a.mp4", "b.png", "c.wav"):
        (root / "media" / name).write_bytes(name.encode())
    rows = [
        {"target": {"video": "media/a.mp4"}, "references": [{"type": "image", "image": "media/b.png"}]},
        {"references": [{"type": "nonsense", "audio": " media/c.wav\n", "video": None}, {"image": "media/gone.png"}]},
    ]
    (root / "clips.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "{torn\n")
    (tmp_path / "datasets.yaml").write_text(json.dumps({"ref2va": {"clips": {"manifest": "raw/clips.jsonl"}}}))
    source = source_of(load_datasets(tmp_path / "datasets.yaml"), "ref2va", "clips")
    first = fingerprint(source, Layout(tmp_path / "data"))
    assert (first.files, first.missing) == (5, 1)
    (root / "media" / "gone.png").write_bytes(b"back")
    second = fingerprint(source, Layout(tmp_path / "data"))
    assert (second.missing, second.digest != first.digest) == (0, True)


@pytest.mark.parametrize("entry", [5, [], ["x"], {"a": 1}, [1, 2], None])
def test_a_cache_of_another_shape_only_costs_the_reading(place, monkeypatch, entry):
    place.settle(monkeypatch)
    known = place.look().digest
    (path,) = (place.layout.cache / "sources").glob("*.json")
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, "files": dict.fromkeys(stored["files"], entry)}))
    assert place.look().digest == known
    path.write_text("[" * 100_000)
    assert place.look().digest == known
