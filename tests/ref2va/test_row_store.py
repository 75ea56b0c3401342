"""The row store: whole or absent, whatever happens."""

import hashlib
import json

import numpy as np
import pytest

from muvap_assets.ref2va.encoder import Stage
from muvap_assets.ref2va.row_store import RowStore

KEY = "ab" + "0" * 62


@pytest.fixture
def store(tmp_path):
    return RowStore(tmp_path / "store")


def arrays():
    rng = np.random.default_rng(0)
    return {
        "ref_visual_rows": rng.standard_normal((5, 96)).astype(np.float32),
        "ref_visual_geometry": np.array([[1, 2, 3]], dtype=np.int64),
        "empty": np.empty((0, 32), dtype=np.float32),
    }


def part_file(store):
    return store.root / "parts" / "text" / "ab" / f"{KEY}.part"


def test_a_part_comes_back_as_it_went(store):
    store.write_part(Stage.TEXT, KEY, arrays(), "cpu")
    found = store.read_part(Stage.TEXT, KEY)
    assert sorted(found) == sorted(arrays())
    for name, values in arrays().items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(found[name], values)
    assert store.read_part(Stage.TARGET_AUDIO, KEY) is None


def test_a_part_names_the_device_it_was_made_on_and_those_of_before_it_did_can_be_read(store):
    assert store.part_device(Stage.TEXT, KEY) == "not recorded"
    store.write_part(Stage.TEXT, KEY, arrays(), "cpu x86_64 AVX2")
    assert store.part_device(Stage.TEXT, KEY) == "cpu x86_64 AVX2"
    header, rest = part_file(store).read_bytes()[:-32].split(b"\n", 1)
    before = b"muvap-ref2va-part " + json.dumps(sorted(arrays())).encode() + b"\n" + rest
    assert header != before.split(b"\n", 1)[0]
    part_file(store).write_bytes(before + hashlib.sha256(before).digest())
    assert store.part_device(Stage.TEXT, KEY) == "not recorded"
    np.testing.assert_array_equal(store.read_part(Stage.TEXT, KEY)["ref_visual_rows"], arrays()["ref_visual_rows"])


def test_the_same_arrays_give_the_same_bytes(store):
    store.write_part(Stage.TEXT, KEY, arrays(), "cpu")
    before = part_file(store).read_bytes()
    store.write_part(Stage.TEXT, KEY, dict(reversed(arrays().items())), "cpu")
    assert part_file(store).read_bytes() == before


@pytest.mark.parametrize("where", [0, 5, 40, 300, -33, -1])
def test_a_part_with_any_damaged_byte_is_removed_and_counted(store, where):
    store.write_part(Stage.TEXT, KEY, arrays(), "cpu")
    data = bytearray(part_file(store).read_bytes())
    data[where] ^= 0xFF
    part_file(store).write_bytes(data)
    assert store.read_part(Stage.TEXT, KEY) is None
    assert not part_file(store).exists()
    assert store.corrupt == 1


@pytest.mark.parametrize("size", [0, 10, 33, 200, -1])
def test_a_truncated_part_is_removed(store, size):
    store.write_part(Stage.TEXT, KEY, arrays(), "cpu")
    data = part_file(store).read_bytes()
    part_file(store).write_bytes(data[:size])
    assert not store.has_part(Stage.TEXT, KEY)
    assert not part_file(store).exists()


def test_a_part_whose_writing_fails_does_not_appear_and_leaves_nothing(store):
    with pytest.raises(ValueError, match="Object arrays"):
        store.write_part(Stage.TEXT, KEY, {"a": np.zeros(3), "b": np.array([object()], dtype=object)}, "cpu")
    assert not store.has_part(Stage.TEXT, KEY)
    assert [path for path in store.root.rglob("*") if path.is_file()] == []


def test_a_row_that_is_found_wrong_does_not_stand(store):
    def write(path):
        path.write_bytes(b"row")

    assert store.write_row(KEY, write, lambda path: ["wrong"]) == ["wrong"]
    assert not store.row_path(KEY).exists()
    assert store.write_row(KEY, write, lambda path: []) == []
    assert store.row_path(KEY).read_bytes() == b"row"
    assert store.row_path(KEY).suffix == ".row"
    assert [path for path in store.root.rglob("*") if path.is_file()] == [store.row_path(KEY)]
