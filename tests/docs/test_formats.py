"""``docs/formats.md`` against the schemas and constants in the code: a column cannot be renamed without its page."""

import json
import re
from dataclasses import fields
from fnmatch import fnmatchcase

import numpy as np
import pyarrow as pa
import pytest
from pages import code, read_page, tables

from muvap_assets.asd import line
from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.tsv import TsvCorpus
from muvap_assets.asd.loudness import _SCHEMA as LOUDNESS_SCHEMA
from muvap_assets.asd.manifest_files import LOCATION_DEPENDENT as ASD_LOCATION_DEPENDENT
from muvap_assets.asd.manifest_files import MANIFEST_SCHEMA
from muvap_assets.asd.packs import layout as pack
from muvap_assets.codes import Code
from muvap_assets.findings import Finding
from muvap_assets.layout import Layout
from muvap_assets.media.npy import read_npy_header
from muvap_assets.publish import content_version
from muvap_assets.ref2va import index_rows, manifest_files, records
from muvap_assets.ref2va.contract import Format
from muvap_assets.ref2va.devices import DEVICE_FILE
from muvap_assets.ref2va.encoder import Stage
from muvap_assets.ref2va.publication import LOCATION_DEPENDENT as DATASET_LOCATION_DEPENDENT
from muvap_assets.ref2va.standing_rows import StandingRow

PAGE = "docs/formats.md"
REFERENCES = records.SCHEMAS[Format.PACKED].field("references").type.value_type

SCHEMAS = {
    "Columns of asd/manifest": MANIFEST_SCHEMA,
    "Columns of asd/loudness_index": LOUDNESS_SCHEMA,
    "Columns of index.arrow of a pack": pack.ARROW_SCHEMA,
    "Columns of ref2va/manifest": manifest_files.SCHEMA,
    "References of ref2va/manifest": pa.schema(list(manifest_files.SCHEMA.field("references").type.value_type)),
    "Geometries of ref2va/manifest": pa.schema(list(manifest_files.SCHEMA.field("geometry").type)),
    "Columns of the packed format": records.SCHEMAS[Format.PACKED],
    "Columns of the sft format": records.SCHEMAS[Format.SFT],
    "References of a row": pa.schema(list(REFERENCES)),
    "Columns of index.arrow of a dataset": index_rows._SCHEMA,
}


def the_table(heading):
    """Rows of the one table below a heading, without its header, by the header's names."""
    (found,) = tables(PAGE, heading)
    return [dict(zip(found[0], map(code, row), strict=True)) for row in found[1:]]


def type_of(kind):
    """An Arrow type as the page writes it; what a struct holds has a table of its own."""
    if pa.types.is_large_list(kind):
        return f"large_list<{type_of(kind.value_type)}>"
    if pa.types.is_list(kind):
        return f"list<{type_of(kind.value_type)}>"
    return "struct" if pa.types.is_struct(kind) else str(kind)


@pytest.mark.parametrize("heading", SCHEMAS)
def test_a_table_of_columns_is_the_schema_of_the_code(heading):
    rows, schema = the_table(heading), SCHEMAS[heading]
    assert [(row["column"], row["type"]) for row in rows] == [(field.name, type_of(field.type)) for field in schema]
    assert all(row["meaning"] for row in rows)
    if "null" in rows[0]:
        assert [row["null"] for row in rows] == ["yes" if field.nullable else "no" for field in schema]


@pytest.mark.parametrize("heading", ["Columns of asd/manifest", "Columns of asd/loudness_index"])
def test_meanings_are_those_the_files_carry_in_their_own_metadata(heading):
    for row, field in zip(the_table(heading), SCHEMAS[heading], strict=True):
        unit = (field.metadata.get(b"unit") or b"").decode()
        assert row["meaning"] == field.metadata[b"description"].decode() + (f" [{unit}]" if unit else "")


def test_the_arrays_of_a_shard_are_those_the_writer_makes():
    dtypes = {
        pack.FACES_FILE: pack.FACES_DTYPE,
        pack.AUDIO_FILE: pack.AUDIO_DTYPE,
        pack.LABELS_FILE: pack.LABELS_DTYPE,
    }
    rows = the_table("Arrays of a shard")
    assert {row["file"]: np.dtype(row["dtype"]).newbyteorder("<") for row in rows} == dtypes


def test_the_keys_of_a_pack_header_are_those_that_are_written_and_their_promised_values_too(tmp_path):
    header = pack.PackHeader(
        face_shape=(112, 112), shards=1, samples=1, source_frames=1, audio_samples=640, provenance={}
    )
    pack.write_header(tmp_path, header)
    written = json.loads((tmp_path / pack.HEADER_FILE).read_text())
    rows = {row["key"]: row["value"] for row in the_table("Keys of dataset.json")}
    assert list(rows) == list(written)
    promised = {key: json.loads(rows[key]) for key in pack._PROMISED}
    assert promised == dict(pack._PROMISED)


def test_the_keys_of_findings_rows_and_shard_metadata_are_those_of_the_code():
    finding = Finding(Code.ROW_MISSING, None, "")
    (findings,) = [table for table in tables(PAGE, "Below a data root") if table[0][0] == "key"]
    assert [code(row[0]) for row in findings[1:]] == list(finding.to_dict())
    assert [row["key"] for row in the_table("Keys of rows.json")] == [field.name for field in fields(StandingRow)]
    keys = {records.SCHEMA_KEY, records.DIGESTS_KEY, records.PROVENANCE_KEY, records.SUMMARIES_KEY}
    assert {row["key"].encode() for row in the_table("Metadata of a shard")} == keys


def test_the_page_names_every_stage_and_both_schema_ids():
    text = " ".join(read_page(PAGE).split())
    assert all(f"`{stage}`" in text for stage in Stage)
    assert all(format.schema_id in text for format in Format)
    assert pack.FORMAT in text
    assert f"version {pack.FORMAT_VERSION}" in text
    assert manifest_files.MANIFEST_FORMAT in text


def artifact_rows():
    (table,) = [table for table in tables(PAGE, "Below a data root") if table[0][0] == "artifact"]
    return {code(row[0]): row for row in table[1:]}


def listed(cell):
    return [code(name.strip()) for name in cell.split(", ") if name.strip()] if cell else []


def matches(name, pattern):
    """Whether a relative path is one the page means; ``*`` and ``{a,b}`` as a shell has them."""
    if braces := re.fullmatch(r"(.*)\{(.*)\}(.*)", pattern):
        return any(matches(name, f"{braces[1]}{each}{braces[3]}") for each in braces[2].split(","))
    return fnmatchcase(name, pattern)


def assert_files_are_listed(folder, artifact):
    """Every file of a version is one the page lists, and every one it lists is there."""
    cell = artifact_rows()[artifact][2]
    patterns = re.findall(r"`([^`]+)`", cell)
    names = [path.relative_to(folder.resolve()).as_posix() for path in folder.resolve().rglob("*") if path.is_file()]
    assert [name for name in names if not any(matches(name, pattern) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not any(matches(name, pattern) for name in names)] == []


def test_the_versions_of_the_asd_line_hold_the_files_the_page_lists(corpus, tmp_path):
    corpus.row("a")
    layout = Layout(tmp_path / "data")
    made = Corpus(name="talks", source=TsvCorpus(kind="tsv", manifest=corpus.write()), dataset="talks")
    for make in (line.make_manifest, line.make_loudness_index, line.make_packed_shards):
        assert make(layout, made).published
    for name in ("manifest", "loudness_index", "packed_shards"):
        current = layout.artifact("asd", name, "talks").current
        assert_files_are_listed(current, f"asd/{name}")
        outside = listed(artifact_rows()[f"asd/{name}"][3])
        assert content_version(current.resolve(), outside) == current.resolve().name


def test_an_array_of_a_pack_begins_where_the_page_says(asd_demo):
    for name in (pack.FACES_FILE, pack.AUDIO_FILE, pack.LABELS_FILE):
        path = asd_demo / "data/asd/packed_shards/demo_train/current" / pack.shard_name(0) / name
        header = read_npy_header(path)
        assert path.read_bytes()[:8] == b"\x93NUMPY\x01\x00"
        assert (header.data_offset, header.fortran_order, header.wrong_length()) == (128, False, None)


@pytest.mark.slow
def test_the_versions_of_the_ref2va_line_hold_the_files_the_page_lists(demo):
    for name, partition in (
        ("manifest", "demo_clips"),
        ("encoded_latents", "000.demo_clips"),
        ("parquet_cache_index", "demo_clips"),
    ):
        current = Layout(demo / "data").artifact("ref2va", name, partition).current
        assert_files_are_listed(current, f"ref2va/{name}")
        outside = listed(artifact_rows()[f"ref2va/{name}"][3])
        assert content_version(current.resolve(), outside) == current.resolve().name


def test_what_stays_out_of_a_digest_is_what_the_code_leaves_out():
    rows = artifact_rows()
    assert listed(rows["asd/manifest"][3]) == list(ASD_LOCATION_DEPENDENT)
    assert sorted(listed(rows["ref2va/parquet_cache_index"][3])) == sorted(DATASET_LOCATION_DEPENDENT)
    assert listed(rows["ref2va/encoded_latents"][3]) == [DEVICE_FILE]
    outside = ["asd/manifest", "ref2va/encoded_latents", "ref2va/parquet_cache_index"]
    assert [name for name, row in rows.items() if row[3]] == outside
