"""Encoded rows on disk: the two schemas, the mirror pairs, and everything the read-back must notice."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from muvap_assets.codes import Code
from muvap_assets.errors import FormatError, ValidationError
from muvap_assets.ref2va import records
from muvap_assets.ref2va.contract import Format, Geometry, ReferenceGeometry
from muvap_assets.ref2va.records import (
    DIGESTS_KEY,
    SCHEMAS,
    Record,
    from_row,
    pyarrow_schema_ref2va,
    pyarrow_schema_ref2va_sft,
    read_shard,
    record_digests,
    tensor_cells,
    tensor_of,
    to_row,
    write_shard,
)
from muvap_assets.ref2va.verify import verify_row_file

RNG = np.random.default_rng(0)
TRIPLES = ("vae_latent", "audio_latent", "text_embedding")
SFT_COLUMNS = [
    "id",
    "schema_version",
    "vae_latent_bytes",
    "vae_latent_shape",
    "vae_latent_dtype",
    "audio_latent_bytes",
    "audio_latent_shape",
    "audio_latent_dtype",
    "text_embedding_bytes",
    "text_embedding_shape",
    "text_embedding_dtype",
    "text_token_tags",
    "ref_visual_anchor_bytes",
    "ref_visual_anchor_shape",
    "ref_visual_anchor_dtype",
    "ref_audio_anchor_bytes",
    "ref_audio_anchor_shape",
    "ref_audio_anchor_dtype",
    "references",
    "file_name",
    "caption",
    "media_type",
    "width",
    "height",
    "num_frames",
    "duration_sec",
    "fps",
    "audio_sample_rate",
]
REFERENCES = (
    ReferenceGeometry(media_type="image", has_audio=False, num_latent_frames=1, latent_height=4, latent_width=6),
    ReferenceGeometry(media_type="audio", has_audio=True, num_audio_latents=3),
    ReferenceGeometry(
        media_type="video", has_audio=True, num_latent_frames=2, latent_height=4, latent_width=4, num_audio_latents=2
    ),
)


def drawn(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def record(format=Format.PACKED, **changes):
    base = Record(
        id="clip_0017",
        format=format,
        vae_latent=drawn(24, 7, 4, 8),
        audio_latent=drawn(2, 32, 37),
        text_embedding=drawn(11, 32),
        text_token_tags=np.array([1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]),
        visual_rows=drawn(6 + 8, 96),
        audio_rows=drawn(10, 32),
        references=REFERENCES,
        reference_noise_seed=42 if format is Format.PACKED else None,
        file_name="media/clip_0017.mp4",
        caption="Größe 🎬",
        geometry=Geometry(128, 64, 22),
    )
    return replace(base, **changes)


def same(one, other):
    assert record_digests(one) == record_digests(other)
    plain = ("id", "format", "references", "reference_noise_seed", "file_name", "caption", "geometry")
    assert [getattr(one, name) for name in plain] == [getattr(other, name) for name in plain]


# --- schemas -----------------------------------------------------------------------------------------------------------


def test_the_sft_columns_are_the_existing_readers_in_its_order():
    assert pyarrow_schema_ref2va_sft.names == SFT_COLUMNS
    assert pyarrow_schema_ref2va_sft.field("text_token_tags").type == pa.list_(pa.int64())
    assert pyarrow_schema_ref2va_sft.metadata == {b"schema_version": b"minimax_h3_ref2va_precomputed_v1"}


def test_the_packed_columns_hold_clean_rows_and_the_noise_seed_instead_of_anchors():
    renamed = [name.replace("_anchor_", "_rows_") for name in SFT_COLUMNS]
    renamed.insert(renamed.index("references") + 1, "reference_noise_seed")
    assert pyarrow_schema_ref2va.names == renamed
    assert pyarrow_schema_ref2va.metadata == {b"schema_version": b"minimax_h3_ref2va_packed_v1"}
    assert not {name for name in pyarrow_schema_ref2va.names if "anchor" in name}


@pytest.mark.parametrize("format", list(Format))
def test_rows_come_back_as_they_went(format):
    one = record(format)
    row = to_row(one)
    assert list(row) == SCHEMAS[format].names
    same(from_row(row), one)
    assert row["duration_sec"] == 22 / 24
    assert (row["fps"], row["audio_sample_rate"], row["media_type"]) == (24.0, 32_000, "video_with_audio")
    assert row["vae_latent_bytes"] == one.vae_latent.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(3, 5), (0, 96), (2, 3, 4)])
def test_a_tensor_is_read_by_its_stored_dtype_and_shape(dtype, shape):
    values = drawn(*shape) * 100
    expected = torch.from_numpy(values).to(getattr(torch, dtype))
    cells = tensor_cells("x", values, dtype)
    assert cells["x_bytes"] == (expected.view(torch.int16) if dtype == "bfloat16" else expected).numpy().tobytes()
    found = tensor_of(cells, "x")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected.float().numpy())


def test_bfloat16_keeps_what_is_not_finite():
    values = np.array([np.nan, np.inf, -np.inf, 0.0, 3.4e38], dtype=np.float32)
    expected = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(tensor_of(tensor_cells("x", values, "bfloat16"), "x"), expected)


def test_bytes_that_do_not_fit_dtype_and_shape_are_refused():
    row = to_row(record())
    row["vae_latent_shape"] = [24, 7, 4, 9]
    with pytest.raises(FormatError, match="vae_latent: 21504 bytes; required: 24192"):
        from_row(row)
    with pytest.raises(FormatError, match="vae_latent: dtype 'int8'"):
        from_row(to_row(record()) | {"vae_latent_dtype": "int8"})


def test_a_tensor_over_the_arrow_cell_limit_is_refused_before_writing(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "MAX_CELL_BYTES", 1000)
    with pytest.raises(ValidationError, match="21,504 bytes; required: at most 1,000") as info:
        write_shard(tmp_path / "x", [record()])
    assert info.value.finding.code is Code.CELL_TOO_LARGE


def test_the_cell_limit_is_arrows():
    assert records.MAX_CELL_BYTES // (4 * 5120) == 104_857


# --- shards ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", list(Format))
def test_a_shard_has_one_row_group_a_row_zstd_and_its_schema_id_in_metadata_and_column(tmp_path, format):
    path = tmp_path / "shard"
    written = [record(format, id="a"), record(format, id="b")]
    assert write_shard(path, written, {"encoder": "abc"}) == 2
    for one, other in zip(read_shard(path), written, strict=True):
        same(one, other)
    with pq.ParquetFile(path) as shard:
        assert shard.num_row_groups == shard.metadata.num_rows == 2
        column = shard.metadata.row_group(0).column(2)
        assert (column.compression, column.has_dictionary_page, column.is_stats_set) == ("ZSTD", False, False)
        assert shard.schema_arrow.metadata[b"schema_version"] == format.schema_id.encode()
        assert json.loads(shard.metadata.metadata[b"muvap_provenance"]) == {"encoder": "abc"}
        assert shard.read()["schema_version"].to_pylist() == [format.schema_id] * 2
    assert verify_row_file(path) == []


def test_the_same_records_give_the_same_bytes(tmp_path):
    one = record()
    for name in ("a", "b"):
        write_shard(tmp_path / name, [one], {"x": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_records_of_both_formats_do_not_go_into_one_shard(tmp_path):
    with pytest.raises(FormatError, match="both formats"):
        write_shard(tmp_path / "x", [record(), record(Format.SFT)])
    with pytest.raises(FormatError, match="no record"):
        write_shard(tmp_path / "x", [])


def test_a_shard_is_not_read_for_one_of_the_other_schema(tmp_path):
    path = tmp_path / "x"
    schema = pyarrow_schema_ref2va.with_metadata({b"schema_version": b"minimax_h3_ref2va_precomputed_v1"})
    pq.write_table(pa.Table.from_pylist([to_row(record())], schema=schema), path)
    with pytest.raises(FormatError, match="a whole shard of one of the two schemas"):
        read_shard(path)


# --- read back ---------------------------------------------------------------------------------------------------------


def found_in(tmp_path, one, **options):
    write_shard(tmp_path / "row", [one])
    return verify_row_file(tmp_path / "row", **options)


def test_a_truncated_file_is_found(tmp_path):  # B29
    write_shard(tmp_path / "row", [record()])
    data = (tmp_path / "row").read_bytes()
    (tmp_path / "row").write_bytes(data[:-20])
    (finding,) = verify_row_file(tmp_path / "row")
    assert finding.code is Code.SCHEMA_MISMATCH
    assert "not readable as Parquet" in finding.found


def test_any_damaged_byte_is_found(tmp_path):
    write_shard(tmp_path / "row", [record()])
    data = bytearray((tmp_path / "row").read_bytes())
    data[len(data) // 3] ^= 0xFF
    (tmp_path / "row").write_bytes(data)
    assert verify_row_file(tmp_path / "row")


def test_every_value_that_is_not_finite_is_counted_by_name_with_its_share(tmp_path):  # B30
    bad = drawn(24, 7, 4, 8)
    bad[0, 0, 0, :3] = (np.nan, np.inf, -np.inf)
    (finding,) = found_in(tmp_path, record(vae_latent=bad))
    assert finding.code is Code.TENSOR_NON_FINITE
    assert finding.message() == (
        "row (clip_0017): vae_latent: 3 of 5,376 values are not finite (0.06%); required: finite values throughout. "
        "Encode the row again; if it recurs, look at its media, and at the checkpoint if it happens to other rows."
    )


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"vae_latent": drawn(24, 6, 4, 8)}, Code.TENSOR_SHAPE, "vae_latent"),
        ({"vae_latent": drawn(24, 7, 8, 4)}, Code.TENSOR_SHAPE, "vae_latent"),  # B08: width and height swapped
        ({"audio_latent": drawn(2, 32, 38)}, Code.TENSOR_SHAPE, "audio_latent"),
        ({"text_embedding": drawn(0, 32), "text_token_tags": np.empty(0, np.int64)}, Code.TENSOR_SHAPE, "text_embedding"),
        ({"visual_rows": drawn(13, 96)}, Code.REFERENCE_ROWS_MISMATCH, "ref_visual_rows"),
        ({"visual_rows": drawn(0, 96)}, Code.REFERENCE_ROWS_MISMATCH, "ref_visual_rows"),  # B15
        ({"audio_rows": drawn(5, 32)}, Code.REFERENCE_ROWS_MISMATCH, "ref_audio_rows"),
        ({"text_token_tags": np.ones(10, np.int64)}, Code.TAGS_INVALID, "text_token_tags"),
        ({"text_token_tags": np.array([2] + [1] * 10)}, Code.TAGS_INVALID, "text_token_tags"),
        ({"references": (REFERENCES[0], REFERENCES[2])}, Code.REFERENCE_ROWS_MISMATCH, "ref_audio_rows"),
        (
            {"references": (replace(REFERENCES[0], has_audio=True, num_audio_latents=3), *REFERENCES[1:])},
            Code.REFERENCE_ROWS_MISMATCH,
            "references[0]",
        ),
        (
            {"references": (*REFERENCES[:2], replace(REFERENCES[2], has_audio=False))},
            Code.REFERENCE_ROWS_MISMATCH,
            "references[2]",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_geometry_is_found_by_field(tmp_path, change, code, field):
    found = found_in(tmp_path, record(**change))
    assert (code, field) in [(finding.code, finding.field) for finding in found]
    assert all(finding.sample_id == "clip_0017" for finding in found)


def test_references_in_another_order_than_declared_are_found(tmp_path):
    swapped = (REFERENCES[1], REFERENCES[0], REFERENCES[2])
    assert found_in(tmp_path, record(), declared=REFERENCES) == []
    (finding,) = found_in(tmp_path, record(), declared=swapped)
    assert finding.code is Code.REFERENCE_ROWS_MISMATCH
    assert "differing at [0, 1]" in finding.found


def test_bytes_other_than_those_encoded_are_found(tmp_path, monkeypatch):
    one = record()
    encoded = record_digests(one)
    monkeypatch.setattr(records, "record_digests", lambda _: encoded)
    assert found_in(tmp_path, one) == []
    (finding,) = found_in(tmp_path, replace(one, audio_rows=one.audio_rows + 1))
    assert (finding.code, finding.field) == (Code.DIGEST_MISMATCH, "ref_audio_rows")


def test_a_file_without_digests_is_found(tmp_path):
    table = pa.Table.from_pylist([to_row(record())], schema=pyarrow_schema_ref2va)
    pq.write_table(table, tmp_path / "row")
    (finding,) = verify_row_file(tmp_path / "row")
    assert finding.code is Code.DIGEST_MISMATCH


def test_several_rows_in_one_row_group_are_found(tmp_path):
    rows = [to_row(record(id=name)) for name in ("a", "b")]
    pq.write_table(pa.Table.from_pylist(rows, schema=pyarrow_schema_ref2va), tmp_path / "row")
    (finding,) = verify_row_file(tmp_path / "row")
    assert finding.code is Code.COUNT_MISMATCH


@pytest.mark.parametrize(
    "column", ["id", "vae_latent_bytes", "vae_latent_shape", "text_token_tags", "references", "width"]
)
def test_a_null_in_any_column_is_an_error_of_the_row(tmp_path, column):
    row = {**to_row(record()), column: None}
    path = tmp_path / "row.parquet"
    pq.write_table(pa.Table.from_pylist([row], schema=pyarrow_schema_ref2va), path)
    with pytest.raises(FormatError, match=f"null in {column}"):
        read_shard(path)
    assert any(f"null in {column}" in found.found for found in verify_row_file(path))


@pytest.mark.parametrize("shape", [[2**62, 4], [0, 2**62, 2**62], [-1, -4], [None]])
def test_a_shape_no_array_has_is_refused(shape):
    row = {"id": "a", **tensor_cells("x", np.zeros((0, 4), np.float32)), "x_shape": shape}
    with pytest.raises(FormatError, match="x: 0 bytes"):
        tensor_of(row, "x")


def test_metadata_of_another_kind_is_a_finding(tmp_path):
    path = tmp_path / "row.parquet"
    for stored in (b"[[1]]", b'[{"vae_latent": 7}]', b"[" * 100_000, b'[{"vae_latent": "\\ud800"}]'):
        with pq.ParquetWriter(path, pyarrow_schema_ref2va, compression="zstd", use_dictionary=False) as writer:
            writer.write_table(pa.Table.from_pylist([to_row(record())], schema=pyarrow_schema_ref2va))
            writer.add_key_value_metadata({DIGESTS_KEY: stored})
        found = verify_row_file(path)
        assert Code.DIGEST_MISMATCH in {finding.code for finding in found}
        assert "".join(finding.message() for finding in found).encode()
