"""The index: what it says, what it notices, and what it refuses to run."""

import errno
import hashlib
import json
import os
import pickle
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from published_rows import LONG, REFERENCES, WIDE, clean_record, published, sft_record

from muvap_assets.codes import Code
from muvap_assets.errors import FormatError, ValidationError
from muvap_assets.ref2va import cache, shard_footer, shard_scan
from muvap_assets.ref2va.cache import (
    INDEX_NAME,
    PICKLE_NAME,
    STAMPS_NAME,
    Depth,
    open_index,
    read_index,
    rebuild_index,
    verify_index,
)
from muvap_assets.ref2va.file_info import read_file_info
from muvap_assets.ref2va.index_rows import written_geometry
from muvap_assets.ref2va.publication_checks import verify_dataset
from muvap_assets.ref2va.records import write_shard
from muvap_assets.ref2va.shard_footer import read_footer

FIRST, SECOND = "bucket=32x32-5f/data_00000000.parquet", "bucket=32x32-5f/data_00000001.parquet"


@pytest.fixture
def folder(tmp_path):
    return published(tmp_path, clean_record("a"), clean_record("b"), clean_record("w", WIDE))


def codes(folder, **options):
    return [(found.code, found.source) for found in verify_index(folder, **options).findings]


def own(path):
    """Give a shard an inode of its own, so that damage to it is none to the row store's."""
    content, times = path.read_bytes(), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    path.unlink()
    path.write_bytes(content)
    os.utime(path, ns=times)
    return path


# --- what it says ------------------------------------------------------------------------------------------------------


def test_each_row_is_described_as_it_was_written(tmp_path):
    folder = published(tmp_path, clean_record("a", LONG, tokens=13), clean_record("b"))
    first, second = read_index(folder).rows
    shard = folder / "bucket=32x32-22f/data_00000000.parquet"
    assert (first.path, first.id, first.rows, first.bucket) == (
        shard.relative_to(folder).as_posix(),
        "a",
        1,
        "bucket=32x32-22f",
    )
    assert first.bytes == len(shard.read_bytes())
    assert (first.num_frames, first.latent_frames, first.audio_latents, first.text_tokens) == (22, 7, 37, 13)
    assert first.references == REFERENCES
    # text, visual rows of image (1*2*1) and video (2*1*1), audio rows of 3 and 1 latents, both channels, target
    assert first.joint_length == 13 + 2 + 2 + 6 + 2 + 2 * 37 + 7 * 1 * 1
    assert second.joint_length == 11 + 4 + 8 + 2 * 8 + 2 * 1 * 1


def test_the_index_is_arrow_that_any_reader_opens_and_no_sweep_takes_for_a_shard(folder):
    with pa.ipc.open_file(folder / INDEX_NAME) as reader:
        table = reader.read_all()
    assert table["path"].to_pylist() == sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")
    )
    assert table.schema.metadata == {b"schema_version": b"minimax_h3_ref2va_packed_v1"}


@pytest.mark.parametrize("tail", [16, 1000, 1 << 20])
@pytest.mark.parametrize("shortcut", [True, False])
def test_a_footer_says_what_pyarrow_says_however_it_is_read(folder, monkeypatch, tail, shortcut):
    monkeypatch.setattr(shard_footer, "TAIL_BYTES", tail)
    if not shortcut:
        monkeypatch.setattr(shard_footer, "_value", lambda footer, key: None)
    with (folder / FIRST).open("rb") as stream:
        footer = read_footer(stream.fileno(), (folder / FIRST).stat().st_size, FIRST)
    stored = pq.read_metadata(folder / FIRST).metadata
    assert footer.schema_id.encode() == stored[b"schema_version"]
    assert list(footer.summaries) == json.loads(stored[b"muvap_row_summaries"])


def test_large_shards_are_indexed_as_small_ones(folder, monkeypatch):
    before = read_index(folder)
    monkeypatch.setattr(shard_scan, "_SMALL_BYTES", 0)
    assert shard_scan.scan_shards(folder) == before
    assert [row.sha256 for row in before.rows] == [
        hashlib.sha256((folder / row.path).read_bytes()).hexdigest() for row in before.rows
    ]


@settings(deadline=None)
@given(st.integers(0, 20), st.integers(1, 90), st.integers(1, 90))
def test_a_geometry_is_recovered_from_the_shape_it_gives(n, width, height):
    found = written_geometry((24, 5 * n + 2, 2 * height, 2 * width))
    assert (found.width, found.height, found.num_frames) == (32 * width, 32 * height, 17 * n + 5)


@pytest.mark.parametrize(
    "shape", [(24, 3, 2, 2), (24, 1, 2, 2), (16, 2, 2, 2), (24, 2, 2), (24, 2, 3, 2), (24, 0, 2, 2)]
)
def test_a_shape_no_geometry_gives_is_refused(shape):
    with pytest.raises(Exception, match="required"):
        written_geometry(shape)


# --- unchanged, changed, damaged ---------------------------------------------------------------------------------------


def test_an_unchanged_dataset_is_verified_without_reading_a_byte_of_it(folder):
    for path in folder.rglob("*.parquet"):  # were a byte read, every digest would be wrong
        status = path.stat()
        path.unlink()
        path.write_bytes(bytes(status.st_size))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    verdict = verify_index(folder)
    assert (verdict.findings, verdict.read, verdict.unchanged) == ((), (), 3)
    assert len(verify_index(folder, depth=Depth.FULL).findings) == 3


def test_a_byte_changed_in_place_is_noticed_by_its_time_and_by_a_full_read(folder):
    shard = own(folder / FIRST)
    content = bytearray(shard.read_bytes())
    content[100] ^= 1
    status = shard.stat()
    shard.write_bytes(content)
    os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert codes(folder) == [(Code.DIGEST_MISMATCH, FIRST)]
    os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert codes(folder) == []
    assert codes(folder, depth=Depth.FULL) == [(Code.DIGEST_MISMATCH, FIRST)]


def test_new_times_alone_are_no_change(folder):  # P10
    for path in folder.rglob("*.parquet"):
        os.utime(path)
    verdict = verify_index(folder)
    assert (verdict.findings, len(verdict.read)) == ((), 3)


def test_without_stamps_everything_is_read(folder):
    (folder / STAMPS_NAME).unlink()
    assert len(verify_index(folder).read) == 3


def test_a_truncated_shard_is_told_apart_and_another_version_still_opens(tmp_path, folder):  # B29
    other = published(tmp_path, clean_record("a"), name="other")
    shard = own(folder / FIRST)
    shard.write_bytes(shard.read_bytes()[:-20])
    assert codes(folder) == [(Code.SHARD_CHANGED, FIRST)]
    with pytest.raises(ValidationError, match=r"bytes; required: .* by the index\. Restore the shard"):
        open_index(folder)
    with pytest.raises(ValidationError, match="does not end in a Parquet footer"):
        rebuild_index(folder)
    assert len(open_index(other).rows) == 1


def test_a_missing_shard_is_listed_also_without_an_index(folder):  # P11
    (folder / FIRST).unlink()
    assert codes(folder) == [(Code.SHARD_MISSING, "bucket=32x32-5f"), (Code.SHARD_MISSING, FIRST)]
    shutil.rmtree(folder / "map_style_cache")
    with pytest.raises(ValidationError, match=r"no data_00000000 \(1 missing\)"):
        open_index(folder)


def test_an_added_shard_is_not_ignored_and_a_rebuild_takes_it_in(tmp_path, folder):  # B27
    added = "bucket=32x32-5f/data_00000002.parquet"
    write_shard(folder / added, [clean_record("new")])
    assert codes(folder) == [(Code.SHARD_STRAY, added)]
    with pytest.raises(ValidationError, match="if it was added on purpose, run `muvap index rebuild"):
        open_index(folder)
    assert [row.id for row in rebuild_index(folder).rows] == ["a", "b", "new", "w"]
    assert codes(folder) == []


def test_a_shard_of_two_rows_is_not_indexed(folder):  # B27
    own(folder / FIRST)
    write_shard(folder / FIRST, [clean_record("a"), clean_record("x")])
    with pytest.raises(ValidationError, match="2 rows of schema"):
        rebuild_index(folder)


@pytest.mark.parametrize(
    "place", ["x.parquet", "tmp/x.parquet", "bucket=32x32-5f/backup.parquet", "bucket=1x1-5f/data_0.parquet"]
)
def test_a_stray_parquet_file_anywhere_below_the_root_is_an_error(folder, place):  # B27
    (folder / place).parent.mkdir(exist_ok=True)
    shutil.copyfile(folder / FIRST, folder / place)
    assert codes(folder) == [(Code.SHARD_STRAY, place)]
    with pytest.raises(ValidationError, match="Move it out of the dataset"):
        rebuild_index(folder)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_links_are_errors_wherever_they_lead(tmp_path, folder, inside, kind):
    target = folder if inside else tmp_path / "elsewhere"
    target.mkdir(exist_ok=True)
    link = folder / "link.parquet"
    link.symlink_to(target / FIRST if kind == "file" else target)
    assert codes(folder) == [(Code.LINK_FOUND, "link.parquet")]
    (found,) = verify_index(folder).findings
    assert ("inside" if inside else "outside") in found.found


def test_a_shard_in_another_shapes_bucket_is_refused(folder):
    (folder / "bucket=64x32-5f/data_00000001.parquet").write_bytes((folder / FIRST).read_bytes())
    with pytest.raises(ValidationError) as error:
        rebuild_index(folder)
    assert Code.BUCKET_MISMATCH in {found.code for found in error.value.findings}


def test_the_same_row_twice_is_refused(folder):
    (folder / "bucket=32x32-5f/data_00000002.parquet").write_bytes((folder / FIRST).read_bytes())
    with pytest.raises(ValidationError, match=r"\(a\): bucket=32x32-5f/data_00000000.parquet holds that row too"):
        rebuild_index(folder)


def test_the_two_schemas_are_never_one_dataset(folder):  # B35
    own(folder / SECOND)
    write_shard(folder / SECOND, [sft_record(clean_record("b"))])
    with pytest.raises(ValidationError) as error:
        rebuild_index(folder)
    assert [found.code for found in error.value.findings] == [Code.SCHEMAS_MIXED]
    assert "Publish the two formats as two datasets." in str(error.value)
    assert any(check.blocks for check in verify_dataset(folder))


# --- places ------------------------------------------------------------------------------------------------------------


def test_a_moved_dataset_is_noticed_and_a_rebuild_writes_its_new_place(tmp_path, folder):
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    assert codes(moved) == [(Code.INDEX_MOVED, PICKLE_NAME)]
    for required in (True, False):
        with pytest.raises(ValidationError, match=rf"It was moved or copied: run `muvap index rebuild {moved}`"):
            open_index(moved, require_existing=required)
    versioned = (moved / INDEX_NAME).read_bytes()
    rebuild_index(moved)
    assert len(open_index(moved, require_existing=True).rows) == 3
    assert (moved / INDEX_NAME).read_bytes() == versioned
    assert pickle.loads((moved / PICKLE_NAME).read_bytes())[0][0] == str(moved / FIRST)
    assert yaml.safe_load((moved / "training.yaml").read_text())["training"]["data"]["data_path"] == str(moved)
    assert all(check.passed for check in verify_dataset(moved))
    assert codes(folder) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a,b", "',' in its path"),
        ("a:2", "':' in its path"),
        ("bucket=1x1-5f", "the folder 'bucket=1x1-5f' in its path"),
    ],
)
def test_a_root_the_trainer_cannot_read_is_refused_before_anything_is_published(tmp_path, name, message):
    with pytest.raises(ValidationError, match=message):
        published(tmp_path / name, clean_record("a"))
    assert not list((tmp_path / name / "ref2va").rglob("*.parquet"))


def test_a_dataset_is_opened_through_a_link_to_it(folder):
    link = folder.parent / "current"
    assert link.is_symlink()
    assert open_index(link, require_existing=True) == open_index(folder)


# --- missing, required -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [INDEX_NAME, PICKLE_NAME])
def test_a_missing_index_is_built_on_first_use_unless_an_existing_one_is_required(folder, name):
    before = (folder / name).read_bytes()
    (folder / name).unlink()
    with pytest.raises(ValidationError, match=r"it is not there; required: an existing index\. Run `muvap index"):
        open_index(folder, require_existing=True)
    assert not (folder / name).exists()
    assert len(open_index(folder).rows) == 3
    assert (folder / name).read_bytes() == before


def test_a_valid_index_is_used_without_scanning(folder, monkeypatch):
    monkeypatch.setattr(cache, "scan_shards", None)
    monkeypatch.setattr(cache, "read_shard_row", None)
    assert len(open_index(folder).rows) == len(open_index(folder, require_existing=True).rows) == 3


def test_where_nothing_can_be_written_a_missing_index_is_a_clear_error(folder, monkeypatch):  # P06
    (folder / INDEX_NAME).unlink()

    def refuse(path, index):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(cache, "write_index_file", refuse)
    with pytest.raises(FormatError, match=r"cannot be written \(Read-only file system\)"):
        open_index(folder)
    assert sorted(path.name for path in (folder / "map_style_cache").iterdir()) == ["file_info.pkl", "stamps.json"]


def test_a_pickle_that_leads_out_of_the_root_is_noticed(tmp_path, folder):
    files = [str(folder / row.path) for row in read_index(folder).rows]
    files[0] = str(tmp_path / "store/a.row")
    (folder / PICKLE_NAME).write_bytes(pickle.dumps((tuple(files), (1, 1, 1))))
    assert codes(folder) == [(Code.INDEX_INVALID, PICKLE_NAME)]


@pytest.mark.parametrize("damage", ["cut", "empty", "foreign"])
def test_a_damaged_index_is_an_error_not_a_rescan(folder, damage):
    path = folder / INDEX_NAME
    if damage == "foreign":
        table = pa.table({"path": ["x"]})
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        path.write_bytes(path.read_bytes()[:-30] if damage == "cut" else b"")
    assert codes(folder) == [(Code.INDEX_INVALID, INDEX_NAME)]
    with pytest.raises(ValidationError, match="muvap index rebuild"):
        open_index(folder)


def test_an_index_that_counts_otherwise_is_noticed(folder):
    index = read_index(folder)
    files = [str(folder / row.path) for row in index.rows]
    (folder / PICKLE_NAME).write_bytes(pickle.dumps((tuple(files), (1, 2, 1))))
    assert codes(folder) == [(Code.INDEX_INVALID, PICKLE_NAME)]
    changed = replace(index, rows=(replace(index.rows[0], text_tokens=5), *index.rows[1:]))
    cache.write_index(folder, changed)
    cache.place_index(folder, changed)
    assert codes(folder, depth=Depth.FULL) == [(Code.SHARD_CHANGED, FIRST)]


# --- the pickle is never run -------------------------------------------------------------------------------------------


class Planted:
    """Creates a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_planted_reducer_is_refused_and_never_runs(tmp_path, folder):
    mark = tmp_path / "ran"
    (folder / PICKLE_NAME).write_bytes(pickle.dumps((Planted(mark), (1, 1, 1))))
    with pytest.raises(
        FormatError,
        match=r"it asks for _?io\.open to be called or found; nothing was run; required: a tuple of paths",
    ):
        read_file_info(folder / PICKLE_NAME)
    assert codes(folder) == [(Code.INDEX_INVALID, PICKLE_NAME)]
    for required in (True, False):
        with pytest.raises(ValidationError, match="Somebody planted"):
            open_index(folder, require_existing=required)
    rebuild_index(folder)
    assert len(open_index(folder, require_existing=True).rows) == 3
    assert not mark.exists()


@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        "x",
        ("a",),
        (("a",), (1,), ()),
        (("a",), (1.0,)),
        ((b"a",), (1,)),
        (("a",), (True,)),
        {"a": 1},
        (Path("a"), (1,)),
    ],
)
def test_a_pickle_of_anything_else_is_refused(tmp_path, value):
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(value))
    with pytest.raises(FormatError, match="muvap index rebuild"):
        read_file_info(tmp_path / "x.pkl")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_tuples_and_lists_of_any_protocol_are_read(tmp_path, protocol):
    (tmp_path / "x.pkl").write_bytes(pickle.dumps((["a", "b"], (1, 2)), protocol=protocol))
    assert read_file_info(tmp_path / "x.pkl") == (("a", "b"), (1, 2))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_end_in_a_clear_error_or_two_tuples(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "random.pkl"
    path.write_bytes(content)
    try:
        files, counts = read_file_info(path)
    except FormatError as error:
        assert "muvap index rebuild" in str(error)
    else:
        assert isinstance(files, tuple)
        assert isinstance(counts, tuple)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("path", "../../etc/passwd", "for a shard of"),
        ("path", None, "a null in path"),
        ("bucket", "bucket=64x64-5f", "for a shard of"),
        ("bytes", -1, "bytes from -1"),
        ("joint_length", 2**62, "joint_length from"),
        ("references", None, "a null in references"),
        ("references", [None], "a null in"),
        ("path", SECOND, "out of order, or twice"),
    ],
)
def test_an_index_whose_values_no_index_has_is_damaged(folder, column, value, message):
    path = folder / INDEX_NAME
    table = pa.ipc.open_file(pa.BufferReader(path.read_bytes())).read_all()
    rows = table.to_pylist()
    rows[0][column] = value
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=table.schema))
    with pytest.raises(FormatError, match=message):
        read_index(folder)
    assert (Code.INDEX_INVALID, INDEX_NAME) in codes(folder)


def test_an_index_without_a_row_is_damaged(folder):
    path = folder / INDEX_NAME
    table = pa.ipc.open_file(pa.BufferReader(path.read_bytes())).read_all()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.slice(0, 0))
    with pytest.raises(FormatError, match="no row"):
        read_index(folder)
    assert [check.name for check in verify_dataset(folder) if not check.passed] == ["index_matches"]


# --- in one thread or several ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cost_sec", "slow_from", "alone"), [(0.0001, 1000, 1000), (0.0001, 300, 306), (0.01, 0, 3)])
def test_quick_reads_stay_in_one_thread_and_slow_ones_move_to_several_in_the_same_order(
    monkeypatch, cost_sec, slow_from, alone
):
    """A read that costs 0.1 ms is quick, one of 10 ms is not; the first 20 ms are forgiven, so is what was saved."""
    clock, caller, own_thread, seen = [0.0], threading.get_ident(), [], []
    monkeypatch.setattr(shard_scan.time, "perf_counter", lambda: clock[0])

    def read(path):
        if threading.get_ident() == caller:
            own_thread.append(path)
            clock[0] += cost_sec if int(path) < slow_from else 0.01
        return int(path)

    results = shard_scan.each_path(read, map(str, range(1000)), 2, lambda done, total, path: seen.append((done, path)))
    assert results == list(range(1000))
    assert own_thread == [str(n) for n in range(len(own_thread))]
    assert len(own_thread) == alone
    assert seen[-1] == (1000, "999")
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
