"""The asset pages of the whole demo: nothing missing, nothing too large, and every number against a count of the test's own.

The counts here read source files and published files with csv, NumPy, soundfile and pyarrow, not with the package.
"""

import base64
import csv
import hashlib
import json
import logging
import math
import re
from collections import Counter
from fractions import Fraction
from io import BytesIO
from pathlib import Path

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from click.testing import CliRunner
from dagster._serdes import serialize_value
from PIL import Image

from muvap_assets.cli.main import main
from muvap_assets.codes import Code
from muvap_assets.definitions import build_defs
from muvap_assets.defs import asd, asd_pages, metadata, ref2va
from muvap_assets.demo.corpus import write_demo_corpus
from muvap_assets.demo.ref2va import write_demo_datasets
from muvap_assets.errors import PictureError
from muvap_assets.findings import Finding
from muvap_assets.layout import Layout
from muvap_assets.publish import read_findings

LIMIT_BYTES = 500_000
ASD = [asd.MANIFEST, asd.LOUDNESS_INDEX, asd.PACKED_SHARDS]
REF2VA = [ref2va.MANIFEST, ref2va.ENCODED_LATENTS, ref2va.CACHE_INDEX]
PICTURES = {
    asd.MANIFEST: {"picture_clips"},
    asd.LOUDNESS_INDEX: {"picture_levels"},
    asd.PACKED_SHARDS: {"picture_faces", "picture_alignment"},
    ref2va.MANIFEST: set(),
    ref2va.ENCODED_LATENTS: {"picture_latent_figures", "picture_latent_frame"},
    ref2va.CACHE_INDEX: {"picture_buckets"},
}
COMMON = {
    *("dagster/row_count", "dagster/partition_row_count", "dagster/column_schema", "dagster/uri", "path", "version"),
    *("newly_published", "size_bytes", "inputs", "work_item", "items_done", "items_reused", "items_skipped", "seconds"),
    "items_per_second",
}


class Demo:
    """The demo's two lines in one code location, on an instance of their own."""

    def __init__(self, folder, checkpoint, instance):
        self.sources, self.instance, self.layout = folder / "sources", instance, Layout(folder / "data")
        write_demo_corpus(self.sources / "asd")
        write_demo_datasets(self.sources / "ref2va")
        entries = {
            "corpora": {"train": {"kind": "tsv", "manifest": str(self.sources / "asd/train.tsv"), "dataset": "demo"}},
            "ref2va": {
                "clips": {
                    "manifest": str(self.sources / "ref2va/clips.jsonl"),
                    **{"width": 128, "height": 64, "num_frames": 22, "parts": 2, "global_batch_rows": 2},
                }
            },
        }
        datasets = folder / "datasets.yaml"
        datasets.write_text(json.dumps(entries))
        self.defs = build_defs(datasets_file=datasets, data_root=self.layout.root)

    def run(self, key, partition):
        job = self.defs.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            asset_selection=[key], partition_key=partition, instance=self.instance, raise_on_error=False
        )

    def run_all(self):
        results = [self.run(key, "train") for key in ASD]
        results.append(self.run(ref2va.MANIFEST, "clips"))
        results += [
            self.run(ref2va.ENCODED_LATENTS, dg.MultiPartitionKey({"dataset": "clips", "part": f"{part:03d}"}))
            for part in range(2)
        ]
        return [*results, self.run(ref2va.CACHE_INDEX, "clips")]


def read_tsv(path):
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def materializations(result):
    return [event.step_materialization_data.materialization for event in result.get_asset_materialization_events()]


@pytest.fixture(scope="module")
def demo(tmp_path_factory, tiny_checkpoint):
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.setenv("MUVAP_H3_CHECKPOINT", str(tiny_checkpoint))
        patch.setenv("MUVAP_H3_DEVICE", "cpu")
        yield Demo(tmp_path_factory.mktemp("pages"), tiny_checkpoint, instance)


@pytest.fixture(scope="module")
def results(demo):
    found = demo.run_all()
    assert all(result.success for result in found)
    return found


@pytest.fixture(scope="module")
def pages(results):
    """What each materialization shows, by key and partition."""
    return {
        (event.asset_key, event.partition): event.metadata for result in results for event in materializations(result)
    }


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def page(pages, key, partition="train"):
    return pages[key, partition]


def values(metadata_of_page):
    """Numbers and texts as they are; tables and schemas left as objects."""
    return {name: getattr(value, "value", value) for name, value in metadata_of_page.items()}


# --- what every page has ------------------------------------------------------------------------------------------------


def test_every_page_of_the_demo_has_all_its_parts(pages):
    assert {key for key, _ in pages} == {*ASD, *REF2VA}
    for (key, _), shown in pages.items():
        assert set(shown) >= COMMON
        assert {name for name in shown if name.startswith("picture_")} == PICTURES[key]


def test_no_event_of_the_demo_is_over_half_a_megabyte(results):
    sizes = [len(serialize_value(event)) for result in results for event in result.all_events]
    assert max(sizes) < LIMIT_BYTES
    assert max(sizes) > 10_000  # the pictures are in there


def test_numbers_are_plain_finite_numbers_and_tables_have_at_most_twenty_rows(results):
    evaluations = [check for result in results for check in result.get_asset_check_evaluations()]
    shown = [event.metadata for result in results for event in materializations(result)]
    for each in [*shown, *(check.metadata for check in evaluations)]:
        for name, value in each.items():
            if isinstance(value, dg.FloatMetadataValue):
                assert type(value.value) is float and math.isfinite(value.value), name
            if isinstance(value, dg.IntMetadataValue):
                assert type(value.value) is int, name
            if isinstance(value, dg.JsonMetadataValue):
                json.dumps(value.value, allow_nan=False)
            if isinstance(value, dg.TableMetadataValue):
                assert 0 < len(value.records) <= 20, name


def test_pictures_are_small_pngs_with_a_caption(pages):
    for (key, _), shown in pages.items():
        for name in PICTURES[key]:
            text = shown[name].value
            title, data, caption = re.fullmatch(r"!\[(.+)\]\(data:image/png;base64,(.+)\)\n\n(.+)", text).groups()
            png = base64.b64decode(data, validate=True)
            image = Image.open(BytesIO(png))
            assert image.format == "PNG" and image.width <= 1000 and len(png) <= 100_000
            assert title and len(caption) > 20
            assert not image.text


def test_each_page_names_its_version_its_place_and_what_it_was_made_from(pages, demo):
    current = {
        "asd/manifest": demo.layout.asd_manifest("train"),
        "asd/loudness_index": demo.layout.asd_loudness_index("train"),
        "ref2va/manifest": demo.layout.ref2va_manifest("clips"),
    }
    expected = {
        asd.MANIFEST: {"source": sha256(demo.sources / "asd/train.tsv")},
        asd.LOUDNESS_INDEX: {"asd/manifest"},
        asd.PACKED_SHARDS: {"asd/manifest", "asd/loudness_index"},
        ref2va.MANIFEST: {"source": sha256(demo.sources / "ref2va/clips.jsonl")},
        ref2va.ENCODED_LATENTS: {"ref2va/manifest"},
        ref2va.CACHE_INDEX: {"ref2va/manifest"},
    }
    for (key, _), shown in pages.items():
        folder = Path(shown["path"].value)
        assert folder.is_dir() and folder.name == shown["version"].value
        assert shown["dagster/uri"].value == folder.resolve().as_uri()
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert shown["size_bytes"].value == sum(path.stat().st_size for path in files)
        inputs = shown["inputs"].value
        wanted = expected[key]
        if isinstance(wanted, set):
            wanted = {name: current[name].current.resolve().name for name in wanted}
        assert inputs == wanted


def test_the_definitions_say_what_an_asset_is_before_it_is_made(demo):
    graph = demo.defs.resolve_asset_graph()
    for key in [asd.SOURCE, ref2va.SOURCE, *ASD, *REF2VA]:
        node = graph.get(key)
        guide = f"docs/{key.path[0]}.md"
        assert node.metadata["guide"].value == guide and guide in node.description
        assert node.metadata["operations"].value == "docs/operations.md"
        assert len(node.description) > 200
        assert node.group_name == key.path[0] and node.kinds and node.owners
        if key not in (asd.SOURCE, ref2va.SOURCE):
            schema = node.metadata["dagster/column_schema"]
            assert all(column.description for column in schema.columns)


def test_an_observed_source_tells_where_it_lies_and_how_many_files_it_names(demo):
    result = demo.run(asd.SOURCE, "train")
    (event,) = result.get_asset_observation_events()
    shown = event.asset_observation_data.asset_observation.metadata
    rows = read_tsv(demo.sources / "asd/train.tsv")
    named = {row["audio_path"] for row in rows} | {row["visual_path"] for row in rows}
    assert shown["missing"].value == 0
    assert shown["files"].value == len(named) + 1  # and the manifest itself
    assert shown["dagster/uri"].value == (demo.sources / "asd").resolve().as_uri()
    assert shown["texts"].value == {"source": str(demo.sources / "asd/train.tsv")}


# --- columns ------------------------------------------------------------------------------------------------------------


def arrow_table(path):
    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def check_columns(schema, table):
    assert [column.name for column in schema.columns] == table.schema.names
    for column, kind in zip(schema.columns, table.schema.types, strict=True):
        item = str(kind.value_type) if pa.types.is_list(kind) or pa.types.is_large_list(kind) else ""
        if item and "struct" not in item:
            assert column.type == f"list<{item}>"
        elif not item and "struct" not in str(kind):
            assert column.type == str(kind)
        else:
            assert "item" not in column.type and "element" not in column.type and "struct<" in column.type
    for column in schema.columns:
        assert column.description and len(column.description) > 5
        found = table.column(column.name)
        if not column.constraints.nullable:
            assert found.null_count == 0, column.name
        if column.constraints.unique:
            assert len(found.unique()) == len(found), column.name
        if "> 0" in column.constraints.other:
            assert all(value is None or value > 0 for value in found.to_pylist()), column.name
        if ">= 0" in column.constraints.other:
            assert all(value is None or value >= 0 for value in found.to_pylist()), column.name


@pytest.mark.parametrize(
    ("key", "partition", "entry", "file"),
    [
        (asd.MANIFEST, "train", "dagster/column_schema", "manifest.parquet"),
        (asd.LOUDNESS_INDEX, "train", "dagster/column_schema", "loudness_index.parquet"),
        (asd.PACKED_SHARDS, "train", "dagster/column_schema", "index.arrow"),
        (ref2va.MANIFEST, "clips", "dagster/column_schema", "manifest.parquet"),
        (ref2va.CACHE_INDEX, "clips", "index_columns", "map_style_cache/index.arrow"),
    ],
)
def test_every_written_column_is_described_and_none_is_invented(pages, key, partition, entry, file):
    shown = page(pages, key, partition)
    check_columns(shown[entry].value, arrow_table(Path(shown["path"].value) / file))


def test_the_columns_of_shards_are_those_of_every_shard(pages):
    shown = page(pages, ref2va.CACHE_INDEX, "clips")
    shards = sorted(Path(shown["path"].value).rglob("*.parquet"))
    table = pa.concat_tables([pq.ParquetFile(shard).read() for shard in shards])
    check_columns(shown["dagster/column_schema"].value, table)


def test_the_columns_of_encoded_rows_are_the_keys_of_their_list_and_of_their_files(pages, demo):
    for part in range(2):
        shown = page(pages, ref2va.ENCODED_LATENTS, f"clips|{part:03d}")
        rows = json.loads((Path(shown["path"].value) / "rows.json").read_text())
        schema = shown["dagster/column_schema"].value
        assert rows and all(list(row) == [column.name for column in schema.columns] for row in rows)
        names = [column.name for column in shown["row_file_columns"].value.columns]
        for row in rows:
            (file,) = (f for f in demo.layout.row_store.rglob("*") if f.is_file() and sha256(f) == row["sha256"])
            assert names == pq.ParquetFile(file).schema_arrow.names


def test_units_are_given_with_the_columns(pages):
    columns = {column.name: column for column in page(pages, asd.LOUDNESS_INDEX)["dagster/column_schema"].value.columns}
    assert columns["dbfs"].description.endswith("[dBFS]") and columns["dbfs"].tags == {"unit": "dBFS"}
    assert columns["dbfs"].constraints.nullable and not columns["rms"].constraints.nullable


# --- asd: counted again --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tsv(demo):
    folder = demo.sources / "asd"
    rows = read_tsv(folder / "train.tsv")
    for row in rows:
        path = folder / row["visual_path"]
        row["frames"] = len(list(path.iterdir())) if path.is_dir() else len(np.load(path, mmap_mode="r"))
        row["fps"] = Fraction(row["source_fps"])
        row["label_list"] = json.loads(row["labels"])
        row["digest"] = sha256(folder / row["audio_path"])
    return rows


def test_the_manifests_numbers_are_those_of_its_source(pages, tsv):
    shown = values(page(pages, asd.MANIFEST))
    assert shown["dagster/row_count"] == len(tsv) == 13
    assert shown["frames"] == sum(row["frames"] for row in tsv)
    assert shown["hours"] == pytest.approx(float(sum(row["frames"] / row["fps"] for row in tsv)) / 3600)
    assert shown["recordings"] == len({row["digest"] for row in tsv})
    assert page(pages, asd.MANIFEST)["frame_rates"].value == Counter(row["source_fps"] for row in tsv)
    assert shown["rejected"] == 0 and shown["items_done"] == 13 and shown["items_skipped"] == 0
    short = sum(row["frames"] / row["fps"] < Fraction(1, 25) for row in tsv)
    assert shown["clips_under_one_model_frame"] == short


def test_the_loudness_numbers_are_those_of_the_recordings(pages, demo, tsv):
    shown = values(page(pages, asd.LOUDNESS_INDEX))
    rows = pq.read_table(Path(shown["path"]) / "loudness_index.parquet").to_pylist()
    assert shown["dagster/row_count"] == len({row["digest"] for row in tsv}) == len(rows)
    seconds = []
    for digest, path in {row["digest"]: demo.sources / "asd" / row["audio_path"] for row in tsv}.items():
        if path.suffix == ".npy":
            seconds.append(len(np.load(path)) / 32_000)
            continue
        info = soundfile.info(path)
        seconds.append(info.frames / info.samplerate)
        if info.samplerate == 16_000 and info.subtype == "PCM_16":
            samples = soundfile.read(path, dtype="float64")[0]
            level = 20 * math.log10(float(np.sqrt(np.mean((samples - samples.mean()) ** 2))))
            (row,) = [row for row in rows if row["sha256"] == digest]
            assert row["dbfs"] == pytest.approx(level, abs=1e-9)
            assert shown["dbfs_min"] <= level <= shown["dbfs_max"]
    assert shown["hours"] == pytest.approx(sum(seconds) / 3600, abs=1e-6)
    levels = sorted(row["dbfs"] for row in rows)
    assert (shown["dbfs_min"], shown["dbfs_max"]) == (levels[0], levels[-1])
    assert shown["silent"] == 0 and shown["items_done"] == len(rows)


def test_the_packs_numbers_are_those_of_its_arrays(pages, tsv):
    shown = values(page(pages, asd.PACKED_SHARDS))
    folder = Path(shown["path"])
    shards = sorted(folder.glob("shard-*"))
    labels = np.concatenate([np.load(shard / "labels.npy") for shard in shards])
    faces = [np.load(shard / "faces.npy", mmap_mode="r") for shard in shards]
    audio = sum(len(np.load(shard / "audio.npy", mmap_mode="r")) for shard in shards)
    assert shown["dagster/row_count"] == len(tsv)
    assert shown["frames"] == len(labels) == sum(len(each) for each in faces) == sum(row["frames"] for row in tsv)
    assert shown["speaking_share"] == pytest.approx(labels.mean())
    assert labels.sum() == sum(sum(row["label_list"]) for row in tsv)
    assert shown["hours"] == pytest.approx(audio / 16_000 / 3600)
    assert shown["shards"] == len(shards)
    assert (shown["face_height"], shown["face_width"]) == faces[0].shape[1:] == (112, 112)
    index = [row for shard in shards for row in json.loads((shard / "index.json").read_text())]
    assert shown["padded_samples"] == sum(row["padded_samples"] for row in index)
    assert shown["clipped_samples"] == sum(row["clipped_samples"] for row in index)
    assert shown["items_done"] == len(tsv) and shown["items_reused"] == 0


# --- ref2va: counted again -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shard_rows(pages):
    folder = Path(page(pages, ref2va.CACHE_INDEX, "clips")["path"].value)
    rows = []
    for shard in sorted(folder.rglob("*.parquet")):
        columns = ["id", "width", "height", "num_frames", "text_embedding_shape", "ref_visual_rows_shape"]
        columns += ["ref_audio_rows_shape", "vae_latent_shape", "audio_latent_shape"]
        (row,) = pq.ParquetFile(shard).read(columns=columns).to_pylist()
        rows.append({**row, "file_bytes": shard.stat().st_size})
    return rows


def joint_length(row):
    """Rows of the joint sequence, from the shapes the tensors were written in: a patch is 2 by 2 latent pixels."""
    _, frames, height, width = row["vae_latent_shape"]
    target = frames * (height // 2) * (width // 2) + 2 * row["audio_latent_shape"][2]
    return row["text_embedding_shape"][0] + row["ref_visual_rows_shape"][0] + row["ref_audio_rows_shape"][0] + target


def test_the_ref2va_manifests_numbers_are_those_of_its_source_and_of_what_was_encoded(pages, demo, shard_rows):
    shown = values(page(pages, ref2va.MANIFEST, "clips"))
    lines = (demo.sources / "ref2va/clips.jsonl").read_text().splitlines()
    assert shown["dagster/row_count"] == shown["admitted"] == len(lines) == 4
    assert shown["refused"] == 0
    rows = [json.loads(line) for line in lines]
    named = [holder for row in rows for holder in (row["target"], *row["references"])]
    media = {holder[name] for holder in named for name in ("image", "video", "audio") if name in holder}
    assert shown["media_read_for_their_digest"] + shown["media_recognized_by_size_and_time"] == len(media)
    assert shown["presentation_tokens"] == sum(row["text_embedding_shape"][0] for row in shard_rows)
    assert shown["longest_sequence"] == max(map(joint_length, shard_rows))
    buckets = {r.data["bucket"]: r.data["rows"] for r in page(pages, ref2va.MANIFEST, "clips")["buckets"].records}
    assert buckets == Counter(f"bucket={r['width']}x{r['height']}-{r['num_frames']}f" for r in shard_rows)


def test_the_parts_numbers_add_up_to_the_rows(pages, shard_rows):
    parts = [values(page(pages, ref2va.ENCODED_LATENTS, f"clips|{part:03d}")) for part in range(2)]
    assert sum(part["dagster/row_count"] for part in parts) == len(shard_rows)
    for part in parts:
        stages = [name.removeprefix("encoded_") for name in part if name.startswith("encoded_")]
        made, reused = (sum(part[f"{what}_{stage}"] for stage in stages) for what in ("encoded", "reused"))
        assert part["items_done"] == made + reused and part["items_reused"] == reused
        assert part["seconds"] > 0 and part["items_per_second"] == pytest.approx(
            part["items_done"] / part["seconds"], rel=1e-2
        )


def test_the_index_numbers_are_those_of_its_shards(pages, shard_rows):
    shown = values(page(pages, ref2va.CACHE_INDEX, "clips"))
    lengths = sorted(map(joint_length, shard_rows))
    assert shown["dagster/row_count"] == len(shard_rows)
    assert shown["shard_bytes"] == sum(row["file_bytes"] for row in shard_rows)
    assert shown["joint_length_max"] == lengths[-1]
    assert shown["joint_length_median"] in lengths[1:3]
    records = [record.data for record in page(pages, ref2va.CACHE_INDEX, "clips")["buckets"].records]
    assert {r["bucket"]: r["rows"] for r in records} == Counter(
        f"bucket={r['width']}x{r['height']}-{r['num_frames']}f" for r in shard_rows
    )
    assert all(r["repeats_8"] == -r["rows"] % 8 for r in records)
    capacities = page(pages, ref2va.CACHE_INDEX, "clips")["capacities"].value
    assert all(capacity % 256 == 0 for capacity in capacities) and max(capacities) >= lengths[-1]
    padded = sum(min(c for c in capacities if c >= length) for length in lengths)
    assert shown["capacity_waste_share"] == pytest.approx(1 - sum(lengths) / padded)


# --- again, and with something changed -----------------------------------------------------------------------------------


def test_drawn_again_pictures_are_the_same_bytes_and_what_stood_is_counted_as_reused(demo, results, pages):
    (event,) = materializations(demo.run(asd.PACKED_SHARDS, "train"))
    for name in PICTURES[asd.PACKED_SHARDS]:
        assert event.metadata[name].value == page(pages, asd.PACKED_SHARDS)[name].value
    assert not event.metadata["newly_published"].value
    assert event.metadata["items_reused"].value == event.metadata["items_done"].value == 13
    part = dg.MultiPartitionKey({"dataset": "clips", "part": "000"})
    (event,) = materializations(demo.run(ref2va.ENCODED_LATENTS, part))
    assert event.metadata["items_reused"].value == event.metadata["items_done"].value > 0
    for name in PICTURES[ref2va.ENCODED_LATENTS]:
        assert event.metadata[name].value == page(pages, ref2va.ENCODED_LATENTS, "clips|000")[name].value


def test_a_picture_that_cannot_be_drawn_leaves_the_materialization_and_says_why(demo, results, monkeypatch):
    def broken(pack):
        raise PictureError("no font is left")

    monkeypatch.setattr(asd_pages, "faces_picture", broken)
    result = demo.run(asd.PACKED_SHARDS, "train")
    assert result.success
    (event,) = materializations(result)
    assert event.metadata["picture_faces"].value == "not drawn: PictureError: no font is left"
    assert event.metadata["picture_alignment"].value.startswith("![")
    told = [entry.user_message for entry in demo.instance.all_logs(result.run_id) if entry.level == logging.WARNING]
    assert told == ["the picture 'faces' was not drawn: PictureError: no font is left"]


def test_a_rebuilt_asset_names_the_version_before_and_a_command_that_compares_them(demo, results, pages, monkeypatch):
    assert "previous_version" not in page(pages, asd.MANIFEST)
    source = demo.sources / "asd" / "train.tsv"
    lines = source.read_text().splitlines()
    kept = [line for line in lines if not line.startswith("talk_6:1")]
    source.write_text("\n".join(kept) + "\n")
    try:
        (event,) = materializations(demo.run(asd.MANIFEST, "train"))
        assert event.metadata["previous_version"].value == page(pages, asd.MANIFEST)["version"].value
        command = event.metadata["compare"].value.strip("`").split()
        monkeypatch.setenv("MUVAP_DATA_ROOT", str(demo.layout.root))
        printed = CliRunner().invoke(main, command[1:])
        assert printed.exit_code == 0, printed.output
        assert printed.output.splitlines() == ["- talk_6:1", "0 added, 1 removed, 0 changed, 12 unchanged"]
    finally:
        source.write_text("\n".join(lines) + "\n")
        assert demo.run(asd.MANIFEST, "train").success


# --- rejections ------------------------------------------------------------------------------------------------------------


def test_a_failed_run_leaves_every_finding_in_a_file_that_its_checks_and_its_failure_name(demo, results):
    source = demo.sources / "asd" / "train.tsv"
    lines = source.read_text().splitlines()
    again = [line.replace("\t", " again\t", 1) for line in lines[1:]]
    broken = [re.sub(r"\[[01],", "[7,", line, count=1) for line in [*lines[1:], *again]]
    source.write_text("\n".join([lines[0], *broken]) + "\n")
    try:
        result = demo.run(asd.MANIFEST, "train")
    finally:
        source.write_text("\n".join(lines) + "\n")
    assert not result.success and not materializations(result)
    file = demo.layout.asd_manifest("train").findings
    listed = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(listed) == 26 and {each["code"] for each in listed} == {"labels_invalid"}
    (check,) = [c for c in result.get_asset_check_evaluations() if c.check_name == "rows_valid"]
    (failure,) = [event.step_failure_data.user_failure_data for event in result.all_events if event.is_step_failure]
    for shown in (check.metadata, failure.metadata):
        assert shown["findings_file"].value == str(file)
        assert shown["findings_total"].value == 26
        assert shown["finding_counts"].value == {"labels_invalid": 26}
        first = shown["findings"].records[0].data
        assert len(shown["findings"].records) == 20
        assert {name: first[name] for name in ("row", "sample_id", "code", "required")} == {
            "row": 2,
            "sample_id": "talk_0:1",
            "code": "labels_invalid",
            "required": "a JSON list of 0 and 1, one a face frame",
        }
        assert first["found"] == "entry 0 is '7'" and first["hint"]
    assert f"... and 6 more in {file}" in failure.description


def test_recordings_that_changed_since_the_manifest_are_listed_in_the_loudness_reports(demo, results):
    recording = demo.sources / "asd/audio/mono16.wav"
    content = recording.read_bytes()
    recording.write_bytes(content[:-2] + b"\x01\x02")
    try:
        result = demo.run(asd.LOUDNESS_INDEX, "train")
    finally:
        recording.write_bytes(content)
    assert not result.success
    file = demo.layout.asd_loudness_index("train").findings
    (listed,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert listed["code"] == "audio_changed" and str(demo.sources) not in str(listed)
    (failure,) = [event.step_failure_data.user_failure_data for event in result.all_events if event.is_step_failure]
    assert failure.metadata["findings_file"].value == str(file)
    for check in result.get_asset_check_evaluations():
        assert not check.passed and check.metadata["findings_file"].value == str(file)
        not_run, finding = (record.data for record in check.metadata["findings"].records)
        assert (not_run["code"], finding["code"]) == ("check_not_run", "audio_changed")
        assert finding["hint"] == Code.AUDIO_CHANGED.hint
        assert finding["found"].endswith(f" ({recording})")  # where it was looked for, which is not in the file
    assert demo.run(asd.LOUDNESS_INDEX, "train").success
    assert file.read_text() == ""


def test_a_header_of_a_megabyte_does_not_end_up_in_the_records_of_its_run(demo, results):
    source = demo.sources / "asd" / "train.tsv"
    content = source.read_text()
    source.write_text("x" * 1_000_000 + "\n")
    try:
        result = demo.run(asd.MANIFEST, "train")
    finally:
        source.write_text(content)
    assert not result.success
    sizes = [len(serialize_value(event)) for event in result.all_events]
    assert max(sizes) < LIMIT_BYTES
    (finding,) = read_findings(demo.layout.asd_manifest("train").findings)
    assert "'xxx" in finding.found
    assert len(finding.found) < 1000


def test_a_table_keeps_twenty_rows_and_writes_all_of_them_to_the_file_it_names(tmp_path):
    rows = [{"name": f"clip {i}", "level": np.float64(i) / 2, "missing": None} for i in range(25)]
    shown = metadata.table("levels", rows, tmp_path / "new" / "levels.jsonl")
    assert len(shown["levels"].records) == 20
    assert shown["levels"].records[3].data == {"name": "clip 3", "level": 1.5, "missing": ""}
    assert [column.type for column in shown["levels"].schema.columns] == ["string", "float", "string"]
    written = [json.loads(line) for line in Path(shown["levels_file"].value).read_text().splitlines()]
    assert written == [{"name": f"clip {i}", "level": i / 2, "missing": None} for i in range(25)]
    assert set(metadata.table("levels", rows[:20], tmp_path / "unused.jsonl")) == {"levels"}
    assert not (tmp_path / "unused.jsonl").exists()


def test_a_finding_as_long_as_a_book_is_cut_in_the_table():
    finding = Finding(Code.LABELS_FLOAT, None, "x" * 100_000)
    shown = metadata.findings_table([finding] * 30)
    assert len(shown["findings"].records[0].data["found"]) == 400
    assert len(serialize_value(shown["findings"])) < 50_000
