"""The gate against a real Dagster instance: what is recorded, what is not, and what stays as it was."""

import hashlib
import json

import dagster as dg
import numpy as np
import pytest

from muvap_assets.asd.loudness import read_inputs
from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.datasets import load_datasets
from muvap_assets.definitions import build_defs
from muvap_assets.defs import asd
from muvap_assets.layout import Layout
from muvap_assets.publish import current_version

MANIFEST, LOUDNESS, PACKS = asd.MANIFEST, asd.LOUDNESS_INDEX, asd.PACKED_SHARDS


class Platform:
    """A code location over one corpus, and an instance that outlives single runs."""

    def __init__(self, corpus, tmp_path, instance, **options):
        self.corpus, self.instance = corpus, instance
        self.layout = Layout(tmp_path / "data")
        datasets = tmp_path / "datasets.yaml"
        entry = {"kind": "tsv", "manifest": str(corpus.root / "train.tsv"), **options}
        datasets.write_text(json.dumps({"corpora": {"talks": entry, "other": entry}}))
        self.defs = build_defs(datasets_file=datasets, data_root=self.layout.root)

    def run(self, *keys, partition="talks"):
        job = self.defs.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            asset_selection=list(keys or (MANIFEST, LOUDNESS, PACKS)),
            partition_key=partition,
            instance=self.instance,
            raise_on_error=False,
        )


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def good(corpus):
    rec = corpus.wav("rec.wav", 80_000)
    corpus.row("a", audio_path=rec, start_sec="0.5")
    corpus.row("b", audio_path=rec, start_sec="1.25", source_fps="29.97")
    corpus.write()
    return corpus


def digest(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(str(path).encode() + path.read_bytes() for path in files)).hexdigest()


def checks(result):
    return {(c.asset_key.path[-1], c.check_name): c.passed for c in result.get_asset_check_evaluations()}


def materialized(result):
    return [event.asset_key for event in result.get_asset_materialization_events()]


def test_the_whole_line_is_materialized_with_every_check_and_its_version(good, tmp_path, instance):
    platform = Platform(good, tmp_path, instance)
    result = platform.run()
    assert result.success
    assert materialized(result) == [MANIFEST, LOUDNESS, PACKS]
    declared = {*asd.MANIFEST_CHECKS} | {*asd.LOUDNESS_CHECKS} | {*asd.PACK_CHECKS}
    assert {name for _, name in checks(result)} == declared
    assert all(checks(result).values())
    for event in result.get_asset_materialization_events():
        line, name = event.asset_key.path
        version = current_version(platform.layout.artifact(line, name, "talks"))
        assert event.step_materialization_data.materialization.tags["dagster/data_version"] == version
        assert event.partition == "talks"
    assert len(PackReader(platform.layout.asd_packed_shards("talks").current)) == 2


def test_checks_hang_on_the_materialization_they_passed_with(good, tmp_path, instance):
    result = Platform(good, tmp_path, instance).run(MANIFEST)
    record = instance.fetch_materializations(MANIFEST, limit=1).records[0]
    for evaluation in result.get_asset_check_evaluations():
        assert evaluation.target_materialization_data.storage_id == record.storage_id
        assert evaluation.partition == "talks"


def test_a_damaged_input_is_told_with_its_file_and_not_with_findings_of_a_run_before(good, tmp_path, instance):
    platform = Platform(good, tmp_path, instance)
    assert platform.run().success
    manifest = platform.layout.asd_manifest("talks").current / "manifest.parquet"
    manifest.write_bytes(b"PAR1 and nothing more")
    result = platform.run(LOUDNESS)
    (failure,) = [event.step_failure_data.user_failure_data for event in result.all_events if event.is_step_failure]
    (record,) = failure.metadata["findings"].records
    assert record.data["code"] == "artifact_invalid"
    assert record.data["found"].endswith(f" ({manifest.resolve()})")
    assert "findings_file" not in failure.metadata


def test_one_label_too_many_stores_the_failed_check_and_changes_nothing(good, tmp_path, instance):
    platform = Platform(good, tmp_path, instance)
    assert platform.run().success
    roots = [platform.layout.root / "asd"]
    before = [digest(root) for root in roots]

    good.rows[1]["labels"] = str([0] * 26)
    good.write()
    result = platform.run()

    assert not result.success
    assert materialized(result) == []
    failed = [c for c in result.get_asset_check_evaluations() if not c.passed and c.check_name == "labels_match_faces"]
    (finding,) = failed[0].metadata["findings"].records
    assert finding.data["row"] == 3
    assert "labels has 26 entries, faces has 25 frames" in finding.data["found"]
    assert failed[0].severity is dg.AssetCheckSeverity.ERROR
    assert {c.asset_key for c in result.get_asset_check_evaluations()} == {MANIFEST}
    assert [event.step_key for event in result.all_events if event.is_step_start] == ["asd__manifest"]
    assert [digest(root) for root in roots] == before
    assert len(instance.fetch_materializations(MANIFEST, limit=10).records) == 1
    assert not list((platform.layout.root / ".staging").iterdir())
    report = platform.layout.asd_manifest("talks").reports / "violations.jsonl"
    assert json.loads(report.read_text().splitlines()[0])["code"] == "label_count_mismatch"


def test_a_failure_is_not_retried_and_says_what_to_do(good, tmp_path, instance):
    platform = Platform(good, tmp_path, instance)
    good.rows[0]["audio_path"] = "gone.wav"
    good.write()
    asset = platform.defs.resolve_assets_def(MANIFEST)
    context = dg.build_asset_context(partition_key="talks")
    resources = {"layout": platform.layout, "datasets": load_datasets(tmp_path / "datasets.yaml")}
    with pytest.raises(dg.Failure) as caught:
        list(asset(context, **resources))
    assert caught.value.allow_retries is False
    assert caught.value.description.startswith(
        "asd/manifest [talks]: failed rows_valid, audio_covers_faces; nothing was published."
    )
    assert caught.value.description.count("train.tsv row 2 (a): audio_path") == 1


def test_quarantine_publishes_the_good_rows_and_warns_with_the_number(good, tmp_path, instance):
    good.row("bad", labels="[]")
    good.write()
    result = Platform(good, tmp_path, instance, on_violation="quarantine", max_rejected_share=0.5).run()
    assert result.success
    (warning,) = [c for c in result.get_asset_check_evaluations() if not c.passed]
    assert (warning.check_name, warning.severity) == ("rejected_rows", dg.AssetCheckSeverity.WARN)
    assert warning.metadata["rejected"].value == 1


def test_an_asset_without_its_input_fails_by_name(good, tmp_path, instance):
    result = Platform(good, tmp_path, instance).run(PACKS)
    assert not result.success
    assert materialized(result) == []
    assert not any(checks(result).values())
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert "asd/manifest [talks]: no published version" in failure.step_failure_data.user_failure_data.description


def test_a_pack_over_an_index_of_another_manifest_is_refused(good, tmp_path, instance):
    platform = Platform(good, tmp_path, instance)
    assert platform.run().success
    pack = current_version(platform.layout.asd_packed_shards("talks"))
    good.row("c")
    good.write()
    assert platform.run(MANIFEST).success
    result = platform.run(PACKS)
    assert not result.success
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert (
        "asd/loudness_index [talks]: built from asd/manifest version"
        in failure.step_failure_data.user_failure_data.description
    )
    assert current_version(platform.layout.asd_packed_shards("talks")) == pack
    assert platform.run(LOUDNESS, PACKS).success


def test_partitions_are_independent(good, tmp_path, instance):
    platform = Platform(good, tmp_path, instance)
    assert platform.run(partition="talks").success
    assert current_version(platform.layout.asd_manifest("other")) is None
    assert instance.get_materialized_partitions(MANIFEST) == {"talks"}


def test_unchanged_input_gives_the_same_versions_and_publishes_nothing_new(good, tmp_path, instance):
    platform = Platform(good, tmp_path, instance)
    platform.run()
    before = digest(platform.layout.root / "asd")
    result = platform.run()
    assert result.success
    published = [
        e.step_materialization_data.materialization.metadata["newly_published"].value
        for e in result.get_asset_materialization_events()
    ]
    assert published == [False, False, False]
    assert digest(platform.layout.root / "asd") == before


def test_an_error_of_ours_in_a_build_fails_every_declared_check(good, tmp_path, instance):
    platform = Platform(good, tmp_path, instance)
    assert platform.run(MANIFEST).success
    signal = np.zeros(16_000)
    good.wav("rec.wav", signal)
    result = platform.run(LOUDNESS)
    assert not result.success
    assert {(name, passed) for (_, name), passed in checks(result).items()} == {
        (name, False) for name in asd.LOUDNESS_CHECKS
    }
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert "audio_changed" in str(failure.step_failure_data.user_failure_data.metadata["finding_counts"].value)


class Overtaken:
    """A build during which, ``times`` often, somebody edits the manifest and makes what lies between again."""

    def __init__(self, platform, monkeypatch, name, times):
        self.platform, self.build, self.left = platform, getattr(asd.line, name), times
        monkeypatch.setattr(asd.line, name, self)

    def __call__(self, layout, corpus, progress):
        outcome = self.build(layout, corpus, progress)
        if self.left:
            self.left -= 1
            self.platform.corpus.rows.pop()
            self.platform.corpus.write()
            asd.line.make_manifest(layout, corpus)
            if self.build.__name__ == "make_packed_shards":
                asd.line.make_loudness_index(layout, corpus)
        return outcome


@pytest.fixture
def long(good):
    for name in "cdefg":
        good.row(name, audio_path="rec.wav", start_sec="0.5")
    good.write()
    return good


@pytest.mark.parametrize("key", [LOUDNESS, PACKS], ids=["loudness index", "packs"])
def test_what_was_overtaken_by_its_input_is_built_again_in_the_same_run(long, tmp_path, instance, monkeypatch, key):
    platform = Platform(long, tmp_path, instance)
    name = "make_loudness_index" if key == LOUDNESS else "make_packed_shards"
    Overtaken(platform, monkeypatch, name, times=1)
    result = platform.run()
    assert result.success
    assert materialized(result) == [MANIFEST, LOUDNESS, PACKS]
    assert result.retry_attempts_for_node("__".join(key.path)) == 1
    pack = PackReader(platform.layout.asd_packed_shards("talks").current)
    assert len(pack) == 6
    index = platform.layout.asd_loudness_index("talks")
    assert read_inputs(index.current)["asd/manifest"] == current_version(platform.layout.asd_manifest("talks"))


def test_a_step_that_is_overtaken_all_the_time_ends_with_what_it_has_and_says_so(
    long, tmp_path, instance, monkeypatch, capfd
):
    platform = Platform(long, tmp_path, instance)
    Overtaken(platform, monkeypatch, "make_packed_shards", times=5)
    result = platform.run()
    assert result.success
    assert result.retry_attempts_for_node("asd__packed_shards") == 3
    pack = PackReader(platform.layout.asd_packed_shards("talks").current)
    assert len(pack) == 4
    assert "more than 3 times in this run. What was built stands." in capfd.readouterr().err


def test_keys_dependencies_and_checks_are_these():
    graph = build_defs().resolve_asset_graph()
    keys = (MANIFEST, LOUDNESS, PACKS)
    parents = {key.to_user_string(): sorted(p.to_user_string() for p in graph.get(key).parent_keys) for key in keys}
    assert parents == {
        "asd/manifest": ["asd/source"],
        "asd/loudness_index": ["asd/manifest"],
        "asd/packed_shards": ["asd/loudness_index", "asd/manifest"],
    }
    for key in keys:
        node = graph.get(key)
        assert node.description
        assert node.owners == ["team:data-platform"]
        assert node.code_version
        assert node.group_name == "asd"
        assert all(graph.get(check).blocking for check in node.check_keys)
