"""A disk that is too small is refused with its numbers; one that fills up midway leaves what was published as it was."""

import errno
import os
import shutil
import subprocess
from collections import namedtuple

import numpy as np
import pytest
from encoder_rows import FakeEncoder, audio, image, row, video
from version_roots import names

from muvap_assets import disk
from muvap_assets.asd import line
from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.tsv import TsvCorpus
from muvap_assets.asd.packs import reuse
from muvap_assets.asd.packs.plan import pack_bytes, plan_shards
from muvap_assets.disk import file_states, require_space, sizes
from muvap_assets.errors import PublishError
from muvap_assets.layout import Layout
from muvap_assets.media import npy
from muvap_assets.publish import content_version, current_version
from muvap_assets.ref2va import encode
from muvap_assets.ref2va.encode import EncodeOptions, encode_rows
from muvap_assets.ref2va.row_store import RowStore


class NoisyEncoder(FakeEncoder):
    """Makes random values of a width that a real conditioner may have."""

    def __init__(self):
        super().__init__()
        self.text_width = 640

    def encode(self, stage, row, media, sequence_length):
        tensors, drawn = super().encode(stage, row, media, sequence_length), np.random.default_rng(len(row.caption))
        floats = {name for name, values in tensors.items() if values.dtype == np.float32}
        return tensors | {n: drawn.standard_normal(tensors[n].shape).astype(np.float32) for n in floats}


Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def published(corpus, tmp_path):
    """A corpus with one pack published, and a second row waiting to be packed."""
    layout = Layout(tmp_path / "root")
    settings = Corpus(name="talks", source=TsvCorpus(kind="tsv", manifest=corpus.root / "train.tsv"), dataset="talks")
    for name in ("one", "two"):
        corpus.row(name, visual_path=corpus.faces(f"{name}.npy", shape=(64, 64)))
        corpus.write()
        for make in (line.make_manifest, line.make_loudness_index):
            make(layout, settings)
        if name == "one":
            line.make_packed_shards(layout, settings)
    return layout, settings


def assert_untouched(layout):
    artifact = layout.asd_packed_shards("talks")
    version = current_version(artifact)
    assert names(artifact.folder) == {version, "current"}
    assert content_version(artifact.version(version)) == version
    assert list(artifact.staging.iterdir()) == []


def test_space_is_asked_of_the_disk_that_will_hold_it(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(shutil, "disk_usage", lambda place: asked.append(place) or Usage(0, 0, 10**9))
    require_space(tmp_path / "not" / "there", 10**9, "x")
    assert asked == [tmp_path]
    message = r"^x: 1.000 GB free on the disk that holds it; required: 3.500 GB, 2.500 GB more. Nothing was written."
    with pytest.raises(PublishError, match=message):
        require_space(tmp_path, 3_500_000_000, "x")


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ((10**9, 3_500_000_000, 2_500_000_000), ("1.000 GB", "3.500 GB", "2.500 GB")),
        ((0, 10_000_000, 10_000_000), ("0.000 MB", "10.000 MB", "10.000 MB")),
        ((1000, 42_000, 41_000), ("1.000 kB", "42.000 kB", "41.000 kB")),
        ((999, 1000, 1), ("0.999 kB", "1.000 kB", "0.001 kB")),
        ((5_000_000_000, 5_000_000_001, 1), ("5,000,000.000 kB", "5,000,000.001 kB", "0.001 kB")),
        ((5_000_000_000, 5_000_500_000, 500_000), ("5,000.000 MB", "5,000.500 MB", "0.500 MB")),
        ((7 * 10**12, 8 * 10**12, 10**12), ("7,000.000 GB", "8,000.000 GB", "1,000.000 GB")),
        ((0,), ("0 bytes",)),
        ((12,), ("12 bytes",)),
    ],
)
def test_space_is_told_in_a_unit_that_shows_what_differs(counts, told):
    assert sizes(*counts) == told


def test_the_plan_knows_what_a_pack_takes(published):
    layout, settings = published
    folder = layout.asd_packed_shards("talks").current.resolve()
    taken = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    clips = line.make_packed_shards(layout, settings).value
    assert (
        0 < taken - pack_bytes(plan_shards(clips[:1], (64, 64)), (64, 64)) < 6000
    )  # headers, empty indexes, provenance


def test_a_pack_that_does_not_fit_is_refused_before_anything_is_written(published, monkeypatch):
    layout, settings = published
    monkeypatch.setattr(shutil, "disk_usage", lambda place: Usage(0, 0, 1000))
    monkeypatch.setattr(npy, "preallocate_npy", None)
    with pytest.raises(PublishError, match=r"packed shards: 1\.000 kB free .*required: [0-9.]+ kB, [0-9.]+ kB more"):
        line.make_packed_shards(layout, settings)
    assert_untouched(layout)


@pytest.mark.parametrize("call", ["posix_fallocate", "pwrite", "fsync"])
def test_a_disk_that_fills_up_midway_publishes_nothing_and_says_so(published, monkeypatch, call):
    layout, settings = published
    real, calls = getattr(os, call), []

    def fails(*arguments, **options):
        calls.append(call)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments, **options)

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(
        PublishError, match=r"asd/packed_shards \[talks\]: the disk .* is full \(.*nothing was published"
    ):
        line.make_packed_shards(layout, settings)
    monkeypatch.undo()
    assert_untouched(layout)
    assert line.make_packed_shards(layout, settings).published.created


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1.5 MB."""
    place = tmp_path / "small"
    place.mkdir()
    options = ["-t", "tmpfs", "-o", "size=1500k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(["mount", *options], check=False, capture_output=True).returncode:
        pytest.skip("a file system can be mounted by root only; the injected faults above stand for it")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_real_small_disk_refuses_keeps_what_it_has_and_takes_what_fits(corpus, small_disk):
    layout = Layout(small_disk / "root")
    settings = Corpus(name="talks", source=TsvCorpus(kind="tsv", manifest=corpus.root / "train.tsv"), dataset="talks")

    def run():
        corpus.write()
        for make in (line.make_manifest, line.make_loudness_index, line.make_packed_shards):
            outcome = make(layout, settings)
        return outcome.published

    corpus.row("fits")
    assert run().created
    corpus.row("does not", visual_path=corpus.faces("large.npy", shape=(300, 300)))
    corpus.rows.pop(0)
    with pytest.raises(PublishError, match=r"packed shards: [0-9.]+ (MB|kB) free .* Free some space"):
        run()
    assert_untouched(layout)
    hog = small_disk / "hog"
    with pytest.raises(OSError, match="No space left"):
        hog.write_bytes(bytes(2_000_000))
    with pytest.raises(PublishError, match=r"asd/manifest \[talks\]: the disk .* is full"):
        run()
    assert_untouched(layout)
    hog.unlink()
    corpus.rows.clear()
    corpus.row("also fits")
    assert run().created


def test_rows_to_encode_are_estimated_without_those_that_stand(tmp_path, monkeypatch):
    store = RowStore(tmp_path / "store")
    many = (image(1), video(2, sound=9_000), audio(3))
    rows = [row("a", *many), row("b", *many, seed=3), row("c", *many, seed=3, caption="Another " * 500)]
    asked = []

    def require(place, needed_bytes, what):
        asked.append(needed_bytes)
        require_space(place, needed_bytes, what)

    def written():
        return sum(state.st_size for state in file_states(store.root))

    monkeypatch.setattr(encode, "require_space", require)
    for some, parts in ((rows[:1], 5), (rows[:2], 2), (rows, 1)):  # those that no row before has
        before = written()
        assert len(encode_rows(some, NoisyEncoder(), store).rows) == len(some)
        took = written() - before
        assert took <= asked[-1] < 1.1 * took + 18_000 + 6_000 * parts
    encode_rows(rows, NoisyEncoder(), store)
    assert asked[-1] == 0
    for path in store.root.glob("rows/*/*.row"):
        path.unlink()  # as where a run was killed before its first row stood
    encode_rows(rows, NoisyEncoder(), store)
    assert asked[-1] < written()
    monkeypatch.setattr(shutil, "disk_usage", lambda place: Usage(0, 0, 10**5))
    with pytest.raises(PublishError, match=r"rows of clips.jsonl: .* free .*; required: "):
        encode_rows([row("d", *many, seed=4)], NoisyEncoder(), store, EncodeOptions(source="clips.jsonl"))


def test_a_full_disk_after_the_pack_was_published_costs_only_the_next_ones_time(published, monkeypatch):
    layout, settings = published

    def fails(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(reuse, "write_origins", fails)
    assert line.make_packed_shards(layout, settings).published.created


def test_free_bytes_is_what_is_left_for_us(tmp_path):
    status = os.statvfs(tmp_path)
    assert abs(disk.free_bytes(tmp_path) - status.f_bavail * status.f_frsize) < 10**9


def test_what_a_folder_holds_is_counted_while_others_remove_it(tmp_path):
    for name in ("a/1", "a/2", "b/1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(7))
    (tmp_path / "link").symlink_to("a/1")
    assert [state.st_size for state in file_states(tmp_path)] == [7, 7, 7]
    states = file_states(tmp_path)
    next(states)
    shutil.rmtree(tmp_path)
    assert list(states) == []
