"""Section P of the known cases: what goes wrong on platforms like this one. Each test names its case.

P10 (staleness by time or by nothing) and the moved folder of P06 are in ``tests/test_sources.py``, a writer killed half-way
(P08) in ``tests/test_killed_operations.py``.
"""

import json
import shutil

import dagster as dg
import pytest

from muvap_assets.asd.packs.verify import verify_pack
from muvap_assets.definitions import build_defs
from muvap_assets.defs import asd
from muvap_assets.layout import Layout
from muvap_assets.publish import current_version

LINE = [asd.MANIFEST, asd.LOUDNESS_INDEX, asd.PACKED_SHARDS]


@pytest.fixture
def location(corpus, tmp_path):
    """A code location over ten rows on one recording, published nowhere yet."""
    rec = corpus.wav("rec.wav", 160_000)
    for index in range(10):
        corpus.row(f"clip_{index}", audio_path=rec, start_sec=index / 2)
    corpus.write()
    (tmp_path / "datasets.yaml").write_text(
        json.dumps({"corpora": {"talks": {"kind": "tsv", "manifest": str(corpus.root / "train.tsv")}}})
    )
    return build_defs(datasets_file=tmp_path / "datasets.yaml", data_root=tmp_path / "data")


def run(defs, *, instance=None):
    """One run of the line, in an instance of its own unless one is given."""
    job = defs.resolve_implicit_global_asset_job_def()
    with instance or dg.DagsterInstance.ephemeral() as used:
        return job.execute_in_process(asset_selection=LINE, partition_key="talks", instance=used, raise_on_error=False)


def test_p01_every_check_of_a_gate_blocks_and_nothing_runs_after_a_failed_one(corpus, location):
    graph = location.resolve_asset_graph()
    gated = [
        key for key in graph.get_all_asset_keys() if graph.get(key).is_materializable and graph.get(key).check_keys
    ]
    assert all(graph.get(check).blocking for key in gated for check in graph.get(key).check_keys)
    corpus.rows[0]["labels"] = "[]"
    corpus.write()
    result = run(location)
    assert not result.success
    assert {event.step_key for event in result.all_events if event.is_step_start} == {"asd__manifest"}


def test_p02_partitions_are_corpora_and_datasets_and_never_rows(corpus, tmp_path):
    for index in range(300):
        corpus.row(f"clip_{index}", audio_path="rec.wav", visual_path="faces.npy")
    corpus.write()
    entries = {name: {"kind": "tsv", "manifest": str(corpus.root / "train.tsv")} for name in ("a", "b")}
    sets = {"clips": {"manifest": "clips.jsonl", "parts": 3}}
    (tmp_path / "datasets.yaml").write_text(json.dumps({"corpora": entries, "ref2va": sets}))
    graph = build_defs(datasets_file=tmp_path / "datasets.yaml", data_root=tmp_path / "data").resolve_asset_graph()
    defined = {key: graph.get(key).partitions_def for key in graph.get_all_asset_keys()}
    counts = {key.to_user_string(): len(keys.get_partition_keys()) for key, keys in defined.items() if keys}
    assert counts == {
        **{f"asd/{name}": 2 for name in ("source", "manifest", "loudness_index", "packed_shards")},
        **{f"ref2va/{name}": 1 for name in ("source", "manifest", "parquet_cache_index")},
        "ref2va/encoded_latents": 3,
    }


@pytest.mark.slow
def test_p04_many_runs_in_one_session_each_have_an_instance_of_their_own(location):
    assert all(run(location).success for _ in range(5))


def test_p06_a_pack_holds_no_path_of_the_machine_it_was_made_on(corpus, location, tmp_path):
    assert run(location).success
    pack = Layout(tmp_path / "data").asd_packed_shards("talks").current
    needle = str(tmp_path).encode()
    assert [path.name for path in pack.rglob("*") if path.is_file() and needle in path.read_bytes()] == []
    moved = tmp_path / "elsewhere"
    shutil.copytree(pack, moved)
    assert not [check for check in verify_pack(moved, None) if check.blocks]


def test_p06_a_moved_media_folder_is_asked_about_by_name(corpus, location):
    corpus.root.rename(corpus.root.with_name("moved"))
    corpus.root.mkdir()
    shutil.copy(corpus.root.with_name("moved") / "train.tsv", corpus.root)
    result = run(location)
    assert not result.success
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    text = failure.step_failure_data.user_failure_data.description
    assert "moved" in text.lower()
    assert "(clip_0)" in text


def test_p07_three_bad_rows_among_ten_are_reported_together_with_where_and_what(corpus, location, tmp_path):
    corpus.rows[2]["labels"] = "[]"
    corpus.rows[5]["visual_path"] = "gone.npy"
    corpus.rows[8]["start_sec"] = "9999"
    corpus.write()
    result = run(location)
    assert not result.success
    report = Layout(tmp_path / "data").asd_manifest("talks").reports / "violations.jsonl"
    found = [json.loads(line) for line in report.read_text().splitlines()]
    assert {entry["sample_id"] for entry in found} == {"clip_2", "clip_5", "clip_8"}
    assert {entry["row"] for entry in found} == {4, 7, 10}


def test_p08_a_failed_run_leaves_nothing_staged_and_the_published_version_as_it_was(corpus, location, tmp_path):
    assert run(location).success
    layout = Layout(tmp_path / "data")
    before = current_version(layout.asd_manifest("talks"))
    corpus.rows[0]["labels"] = "[]"
    corpus.write()
    assert not run(location).success
    assert current_version(layout.asd_manifest("talks")) == before
    assert list((layout.root / ".staging").iterdir()) == []


def test_p11_a_missing_shard_is_a_failed_check_that_names_it(location, tmp_path):
    assert run(location).success
    pack = tmp_path / "copy"
    shutil.copytree(Layout(tmp_path / "data").asd_packed_shards("talks").current, pack)
    (pack / "shard-000000" / "faces.npy").unlink()
    blocking = [check for check in verify_pack(pack, None) if check.blocks]
    assert blocking
    assert "shard-000000" in " ".join(finding.message() for check in blocking for finding in check.findings)
