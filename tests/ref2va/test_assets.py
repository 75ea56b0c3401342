"""The ref2va assets on a real Dagster instance, with the real model classes on the tiny checkpoint."""

import json
import pickle

import dagster as dg
import pytest
from encoder_rows import FakeEncoder

from muvap_assets.definitions import build_defs
from muvap_assets.defs import ref2va
from muvap_assets.demo.ref2va import packed_rows, sft_rows, write_demo_datasets
from muvap_assets.layout import Layout
from muvap_assets.publish import current_version
from muvap_assets.ref2va import line
from muvap_assets.ref2va.row_store import RowStore
from muvap_assets.ref2va.standing_rows import read_rows

MANIFEST, ENCODED, INDEX = ref2va.MANIFEST, ref2va.ENCODED_LATENTS, ref2va.CACHE_INDEX
OPTIONS = {"width": 128, "height": 64, "num_frames": 22, "parts": 2}


class Platform:
    """A code location over the demo's datasets, and an instance that outlives single runs."""

    def __init__(self, tmp_path, checkpoint, instance, monkeypatch):
        self.instance, self.sources, self.layout = instance, tmp_path / "sources", Layout(tmp_path / "data")
        write_demo_datasets(self.sources)
        monkeypatch.setenv("MUVAP_H3_CHECKPOINT", str(checkpoint))
        monkeypatch.setenv("MUVAP_H3_DEVICE", "cpu")
        entries = {
            "clips": {"manifest": str(self.sources / "clips.jsonl"), **OPTIONS},
            "whole": {"manifest": str(self.sources / "whole.json"), "format": "sft"},
        }
        self.datasets = tmp_path / "datasets.yaml"
        self.datasets.write_text(json.dumps({"ref2va": entries}))
        self.defs = build_defs(datasets_file=self.datasets, data_root=self.layout.root)

    def write_clips(self, rows):
        (self.sources / "clips.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(self, key, partition):
        job = self.defs.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            asset_selection=[key], partition_key=partition, instance=self.instance, raise_on_error=False
        )

    def run_line(self, name="clips", parts=2):
        results = [self.run(MANIFEST, name)]
        results += [
            self.run(ENCODED, dg.MultiPartitionKey({"dataset": name, "part": f"{part:03d}"})) for part in range(parts)
        ]
        return [*results, self.run(INDEX, name)]


@pytest.fixture
def platform(tmp_path, tiny_checkpoint, monkeypatch):
    with dg.DagsterInstance.ephemeral() as instance:
        yield Platform(tmp_path, tiny_checkpoint, instance, monkeypatch)


@pytest.fixture
def fake(monkeypatch):
    """The line with an encoder that takes microseconds, for what does not depend on its values."""
    encoder = FakeEncoder()
    monkeypatch.setattr(line, "open_h3", lambda layout, spec: encoder)
    return encoder


def checks(result):
    return {c.check_name: c.passed for c in result.get_asset_check_evaluations()}


def failure(result):
    (event,) = [event for event in result.all_events if event.is_step_failure]
    return event.step_failure_data.user_failure_data


def test_the_demo_goes_through_with_every_check_on_the_real_classes(platform):
    results = platform.run_line()
    assert all(result.success for result in results)
    declared = {*ref2va.MANIFEST_CHECKS, *ref2va.ENCODE_CHECKS, *ref2va.INDEX_CHECKS}
    assert {name for result in results for name in checks(result)} == declared
    assert all(passed for result in results for passed in checks(result).values())
    root = platform.layout.ref2va_parquet_cache_index("clips").current.resolve()
    shards = sorted(str(path) for path in root.rglob("*.parquet"))
    with (root / "map_style_cache" / "file_info.pkl").open("rb") as stream:
        assert pickle.load(stream) == (tuple(shards), (1, 1, 1, 1))
    rows = [
        row for part in range(2) for row in read_rows(platform.layout.ref2va_encoded_latents("clips", part).current)
    ]
    assert {row.id for row in rows} == {row["id"] for row in packed_rows()}


def test_an_sft_dataset_goes_through_and_parts_past_its_own_are_empty(platform, fake):
    results = platform.run_line("whole", parts=2)
    assert all(result.success for result in results)
    empty = platform.layout.ref2va_encoded_latents("whole", 1).current
    assert read_rows(empty) == []
    full = platform.layout.ref2va_encoded_latents("whole", 0).current
    assert [row.id for row in read_rows(full)] == [row["id"] for row in sft_rows()]


def test_a_bad_row_publishes_nothing_and_names_every_finding(platform, fake):
    assert all(result.success for result in platform.run_line())
    before = current_version(platform.layout.ref2va_manifest("clips"))
    rows = packed_rows()
    rows[0]["references"] = [{"type": "audio", "audio": "media/voice.wav"}]
    rows[1]["target_geometry"] = {"width": 130, "height": 64, "num_frames": 23}
    platform.write_clips(rows)
    result = platform.run(MANIFEST, "clips")
    assert not result.success
    assert not result.get_asset_materialization_events()
    counts = failure(result).metadata["finding_counts"].value
    assert {"reference_visual_missing", "geometry_invalid"} <= set(counts)
    assert current_version(platform.layout.ref2va_manifest("clips")) == before


def test_a_nan_in_one_row_fails_its_check_by_name_and_keeps_the_others(platform, fake):
    assert platform.run(MANIFEST, "clips").success
    parts = {part: [row["id"] for row in packed_rows() if _part(row["id"]) == part] for part in range(2)}
    part, ids = next((part, ids) for part, ids in parts.items() if len(ids) > 1)
    fake.poison = {ids[0]}
    key = dg.MultiPartitionKey({"dataset": "clips", "part": f"{part:03d}"})
    result = platform.run(ENCODED, key)
    assert not result.success
    assert checks(result)["tensors_finite"] is False
    assert checks(result)["text_tags"] is True
    assert not result.get_asset_materialization_events()
    assert f"({ids[0]})" in failure(result).description
    assert current_version(platform.layout.ref2va_encoded_latents("clips", part)) is None
    fake.poison, fake.calls = set(), []
    assert platform.run(ENCODED, key).success
    assert {sample for _, sample in fake.calls} == {ids[0]}


def _part(sample_id):
    from pathlib import Path

    from muvap_assets.ref2va.contract import Dataset

    return Dataset(name="clips", manifest=Path("x"), parts=2).part_of(sample_id)


def test_only_what_changed_is_encoded_again_through_the_assets(platform, fake):
    platform.run_line()
    fake.calls = []
    rows = packed_rows()
    rows[1]["caption"] = "Another caption."
    platform.write_clips(rows)
    assert all(result.success for result in platform.run_line())
    assert [(str(stage), sample) for stage, sample in fake.calls] == [("text", "walk-2")]


def test_rows_whose_manifest_was_made_again_meanwhile_are_taken_up_in_the_same_run(platform, fake, monkeypatch):
    """It holds the GPU's slot through the retry, and encodes nothing twice."""
    assert platform.run(MANIFEST, "clips").success
    encode, waiting = line.make_encoded_latents, [packed_rows()]

    def overtaken(layout, dataset, part, spec, progress):
        outcome = encode(layout, dataset, part, spec, progress)
        if waiting:
            rows = waiting.pop()
            rows[1]["caption"] = "Another caption."
            platform.write_clips(rows)
            assert platform.run(MANIFEST, "clips").success
        return outcome

    monkeypatch.setattr(line, "make_encoded_latents", overtaken)
    key = dg.MultiPartitionKey({"dataset": "clips", "part": f"{_part('walk-2'):03d}"})
    result = platform.run(ENCODED, key)
    assert result.success
    assert result.retry_attempts_for_node("ref2va__encoded_latents") == 1
    calls = [(str(stage), sample) for stage, sample in fake.calls]
    assert calls.count(("text", "walk-2")) == 2
    assert all(calls.count(call) == 1 for call in calls if call != ("text", "walk-2"))
    assert input_version(result) == input_version(platform.run(ENCODED, key))  # the lineage names the later manifest


def input_version(result):
    (event,) = result.get_asset_materialization_events()
    return event.step_materialization_data.materialization.tags["dagster/input_data_version/ref2va/manifest"]


def test_the_index_refuses_parts_encoded_from_another_manifest(platform, fake):
    platform.run_line()
    published = current_version(platform.layout.ref2va_parquet_cache_index("clips"))
    platform.write_clips(packed_rows()[:3])
    assert platform.run(MANIFEST, "clips").success
    result = platform.run(INDEX, "clips")
    assert not result.success
    assert "built from ref2va/manifest version" in failure(result).description
    assert current_version(platform.layout.ref2va_parquet_cache_index("clips")) == published


def test_changing_one_row_leaves_the_other_shards_as_they_were(platform, fake):
    platform.run_line()
    first = platform.layout.ref2va_parquet_cache_index("clips").current.resolve()
    rows = packed_rows()
    rows[0]["caption"] = "Changed."
    platform.write_clips(rows)
    platform.run_line()
    second = platform.layout.ref2va_parquet_cache_index("clips").current.resolve()
    assert first != second
    shards = sorted(path.relative_to(first) for path in first.rglob("*.parquet"))
    changed = [shard for shard in shards if (first / shard).read_bytes() != (second / shard).read_bytes()]
    assert [str(shard) for shard in changed] == ["bucket=128x64-22f/data_00000000.parquet"]


def test_a_damaged_row_in_the_store_is_found_before_it_is_published(platform, fake):
    platform.run(MANIFEST, "clips")
    for part in range(2):
        platform.run(ENCODED, dg.MultiPartitionKey({"dataset": "clips", "part": f"{part:03d}"}))
    row = next(row for p in range(2) for row in read_rows(platform.layout.ref2va_encoded_latents("clips", p).current))
    path = RowStore(platform.layout.row_store).row_path(row.key)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    result = platform.run(INDEX, "clips")
    assert not result.success
    assert f"({row.id}): its file's digest is" in failure(result).description
    assert current_version(platform.layout.ref2va_parquet_cache_index("clips")) is None


def test_the_graph_links_parts_and_datasets_both_ways_and_gpu_work_is_pooled():
    graph = build_defs().resolve_asset_graph()
    keys = (MANIFEST, ENCODED, INDEX)
    parents = {key.to_user_string(): sorted(p.to_user_string() for p in graph.get(key).parent_keys) for key in keys}
    assert parents == {
        "ref2va/manifest": ["ref2va/source"],
        "ref2va/encoded_latents": ["ref2va/manifest"],
        "ref2va/parquet_cache_index": ["ref2va/encoded_latents", "ref2va/manifest"],
    }
    assert graph.get(ENCODED).pools == {"gpu"}
    for key in keys:
        assert graph.get(key).description
        assert all(graph.get(check).blocking for check in graph.get(key).check_keys)
