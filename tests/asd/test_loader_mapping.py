"""Mapped arrays: read-only, without a file handle, and gone with their last view."""

import gc
from pathlib import Path

import numpy as np
import pytest

from muvap_assets.asd.packs.mapping import map_npy
from muvap_assets.media.npy import NpyError


def mapped(path):
    return str(path) in Path("/proc/self/maps").read_text()


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("array", [np.arange(60, dtype=np.uint8).reshape(3, 4, 5), np.arange(-9, 9, dtype="<i2")])
def test_a_mapped_array_is_the_saved_one_and_cannot_be_written(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    before = open_files()
    found = map_npy(tmp_path / "a.npy")
    assert open_files() == before
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype
    for view in (found, found[1:], found.reshape(-1)):
        with pytest.raises(ValueError, match=r"read-only|WRITEABLE"):
            view[...] = 0


def test_an_array_is_unmapped_when_the_last_view_of_it_is_gone(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(10_000))
    view = map_npy(tmp_path / "a.npy")[5:7]
    gc.collect()
    assert mapped(tmp_path / "a.npy")
    assert view.tolist() == [5, 6]
    del view
    gc.collect()
    assert not mapped(tmp_path / "a.npy")


def test_a_file_far_larger_than_memory_is_mapped(tmp_path):
    with (tmp_path / "a.npy").open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": (1 << 40,)})
        stream.truncate(stream.tell() + (1 << 40))
    assert map_npy(tmp_path / "a.npy")[-1] == 0


def test_what_cannot_be_mapped_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        map_npy(tmp_path / "missing.npy")
    (tmp_path / "text.npy").write_text("hello")
    with pytest.raises(NpyError, match=r"no \.npy file"):
        map_npy(tmp_path / "text.npy")
