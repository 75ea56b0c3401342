"""The failing demo: every bad row is refused for the code it is named after, and the check's page says what to do about it."""

import dagster as dg
import pytest

from muvap_assets.datasets import load_datasets
from muvap_assets.definitions import build_defs
from muvap_assets.defs import asd, ref2va
from muvap_assets.demo.failing import CORPORA, DATASETS, write_failing_demo
from muvap_assets.layout import Layout


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    return write_failing_demo(tmp_path_factory.mktemp("failing") / "demo")


@pytest.fixture
def run(demo, tmp_path, tiny_checkpoint, monkeypatch):
    """Materialize one partition of a manifest and return what its checks said."""
    monkeypatch.setenv("MUVAP_H3_CHECKPOINT", str(tiny_checkpoint))
    monkeypatch.setenv("MUVAP_H3_DEVICE", "cpu")
    definitions = build_defs(datasets_file=demo, data_root=tmp_path / "data")

    def materialize(key, partition):
        with dg.DagsterInstance.ephemeral() as instance:
            job = definitions.resolve_implicit_global_asset_job_def()
            return job.execute_in_process(
                asset_selection=[key], partition_key=partition, instance=instance, raise_on_error=False
            )

    materialize.layout = Layout(tmp_path / "data")
    return materialize


def test_every_dataset_of_the_failing_demo_is_named_and_none_has_more_bad_rows_than_a_table_shows(demo):
    datasets = load_datasets(demo)
    assert set(datasets.corpora) == set(CORPORA)
    assert set(datasets.ref2va) == set(DATASETS)
    for name in (*datasets.corpora, *datasets.ref2va):
        manifest = (datasets.corpora.get(name) or datasets.ref2va[name]).manifest
        assert not manifest.is_file() or manifest.read_bytes().count(b"\n") <= 21


def rejections(result, key, check):
    (found,) = [c for c in result.get_asset_check_evaluations() if c.check_name == check and c.asset_key == key]
    records = [record.data for record in found.metadata["findings"].records]
    return found, records


def check_rejections(records, codes):
    assert {record["code"] for record in records} == set(map(str, codes))
    for record in records:
        assert record["hint"] and record["required"] and record["found"]
        assert record["sample_id"].strip() in ("", record["code"], "good")


@pytest.mark.parametrize("corpus", [name for name in CORPORA if name != "quarantined"])
def test_a_corpus_is_refused_and_each_bad_row_shows_its_hint_on_the_page_of_the_check(run, corpus):
    result = run(asd.MANIFEST, corpus)
    assert not result.success
    found, records = rejections(result, asd.MANIFEST, "rows_valid")
    assert not found.passed
    check_rejections(records, CORPORA[corpus])
    assert found.metadata["findings_total"].value == len(records)


def test_a_quarantined_row_is_listed_though_the_others_are_published(run):
    result = run(asd.MANIFEST, "quarantined")
    assert result.success
    found, records = rejections(result, asd.MANIFEST, "rejected_rows")
    assert not found.passed and found.severity is dg.AssetCheckSeverity.WARN
    check_rejections(records, CORPORA["quarantined"])


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_dataset_is_refused_and_each_bad_row_shows_its_hint_on_the_page_of_the_check(run, dataset):
    result = run(ref2va.MANIFEST, dataset)
    assert not result.success
    found, records = rejections(result, ref2va.MANIFEST, "rows_valid")
    assert not found.passed
    check_rejections(records, DATASETS[dataset])
