"""The column tables: each is what is written, no more and no less, and every column is explained."""

from dataclasses import fields

import pytest

from muvap_assets.asd.loudness import LoudnessStats
from muvap_assets.asd.loudness_columns import LOUDNESS_TABLE
from muvap_assets.asd.manifest_files import MANIFEST_SCHEMA
from muvap_assets.asd.manifest_files import MANIFEST_TABLE as ASD_MANIFEST_TABLE
from muvap_assets.asd.packs.columns import PACK_TABLE
from muvap_assets.asd.packs.layout import PackEntry
from muvap_assets.ref2va.contract import Format
from muvap_assets.ref2va.index_rows import INDEX_TABLE, IndexedRow
from muvap_assets.ref2va.manifest_files import MANIFEST_TABLE as REF2VA_MANIFEST_TABLE
from muvap_assets.ref2va.record_columns import RECORD_TABLES
from muvap_assets.ref2va.standing_rows import STANDING_TABLE, StandingRow

TABLES = {
    "asd/manifest": ASD_MANIFEST_TABLE,
    "asd/loudness_index": LOUDNESS_TABLE,
    "asd/packed_shards": PACK_TABLE,
    "ref2va/manifest": REF2VA_MANIFEST_TABLE,
    "ref2va/encoded_latents": STANDING_TABLE,
    "ref2va/parquet_cache_index": INDEX_TABLE,
    "packed": RECORD_TABLES[Format.PACKED],
    "sft": RECORD_TABLES[Format.SFT],
}


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_explained_once(name):
    names = [column.name for column in TABLES[name]]
    assert len(names) == len(set(names))
    for column in TABLES[name]:
        assert len(column.description) > 5 and not column.description.endswith("."), column.name


@pytest.mark.parametrize("name", TABLES)
def test_a_column_whose_name_says_a_unit_gives_that_unit(name):
    units = {"_sec": "s", "_hz": "Hz", "_bytes": "bytes", "_dbfs": "dBFS"}
    for column in TABLES[name]:
        for ending, unit in units.items():
            if column.name.endswith(ending) and not str(column.type).startswith("binary"):
                assert column.unit == unit, column.name


@pytest.mark.parametrize(
    ("table", "record"),
    [
        (LOUDNESS_TABLE, LoudnessStats),
        (PACK_TABLE, PackEntry),
        (INDEX_TABLE, IndexedRow),
        (STANDING_TABLE, StandingRow),
    ],
)
def test_a_table_of_records_has_their_fields_in_their_order(table, record):
    assert [column.name for column in table] == [field.name for field in fields(record)]
    kinds = {"str": "string", "int": "int", "float": "double", "bool": "bool"}
    for column, field in zip(table, fields(record), strict=True):
        if column.name != "references":
            assert kinds[str(field.type).removesuffix(" | None")] in str(column.type), column.name
            assert column.nullable == str(field.type).endswith("| None")


def test_the_manifests_own_file_carries_descriptions_and_units():
    field = MANIFEST_SCHEMA.field("start_sec")
    assert field.metadata == {b"description": b"start on the recording, rounded", b"unit": b"s"}
    assert not field.nullable
