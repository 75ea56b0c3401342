"""A partition that grew too old is reported by itself, whatever the others do."""

import datetime
import json

import dagster as dg
import pytest

from muvap_assets.definitions import build_defs
from muvap_assets.defs import asd, freshness

PACKS = asd.PACKED_SHARDS


@pytest.fixture
def defs(tmp_path):
    entry = {"kind": "tsv", "manifest": "train.tsv"}
    corpora = {"old": {**entry, "max_age_hours": 24}, "new": {**entry, "max_age_hours": 48}, "free": entry}
    (tmp_path / "datasets.yaml").write_text(json.dumps({"corpora": corpora}))
    return build_defs(datasets_file=tmp_path / "datasets.yaml", data_root=tmp_path / "data")


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as ephemeral:
        for name in ("old", "new", "free"):
            ephemeral.report_runless_asset_event(dg.AssetMaterialization(PACKS, partition=name))
        yield ephemeral


def look(defs, instance, cursor=None):
    repository = defs.get_repository_def()
    with dg.build_sensor_context(instance, cursor=cursor, repository_def=repository) as context:
        return repository.get_sensor_def("partition_ages").evaluate_tick(context)


def later(monkeypatch, hours):
    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.datetime.now(tz) + datetime.timedelta(hours=hours)

    fake = type("fake", (), {"datetime": Later, "timedelta": datetime.timedelta, "UTC": datetime.UTC})
    monkeypatch.setattr(freshness, "datetime", fake)


def test_each_partition_is_told_when_it_grows_too_old_and_once_only(defs, instance, monkeypatch):
    first = look(defs, instance)
    assert {(e.partition, e.passed) for e in first.asset_events} == {("old", True), ("new", True)}
    assert look(defs, instance, first.cursor).asset_events == []
    later(monkeypatch, 30)
    second = look(defs, instance, first.cursor)
    (told,) = second.asset_events
    assert (told.partition, told.passed, told.severity) == ("old", False, dg.AssetCheckSeverity.WARN)
    assert told.description.startswith("last made or confirmed 30.0 hours ago; required: at most 24.")
    assert look(defs, instance, second.cursor).asset_events == []
    instance.report_runless_asset_event(told)
    (summary,) = instance.event_log_storage.get_latest_asset_check_execution_by_key(
        [dg.AssetCheckKey(PACKS, freshness.CHECK)]
    ).values()
    assert summary.status.value == "FAILED"


def test_a_hanging_webhook_costs_a_tick_one_alert_and_no_result(defs, instance, monkeypatch):
    sent, clock = [], [0.0]

    def hang(alert):
        sent.append(alert)
        clock[0] += 20
        return "timed out"

    monkeypatch.setattr("muvap_assets.defs.alerts.send", hang)
    monkeypatch.setattr(freshness, "time", type("fake", (), {"monotonic": lambda: clock[0]}))
    later(monkeypatch, 60)
    events = look(defs, instance).asset_events
    assert {(e.partition, e.passed) for e in events} == {("old", False), ("new", False)}
    assert len(sent) == 1


def test_a_run_that_makes_a_partition_reports_its_age(corpus, tmp_path, instance):
    corpus.row("a")
    corpus.write()
    entry = {"kind": "tsv", "manifest": str(corpus.root / "train.tsv"), "max_age_hours": 1}
    (tmp_path / "datasets.yaml").write_text(json.dumps({"corpora": {"talks": entry}}))
    defs = build_defs(datasets_file=tmp_path / "datasets.yaml", data_root=tmp_path / "data")
    result = defs.resolve_implicit_global_asset_job_def().execute_in_process(
        asset_selection=[asd.MANIFEST, asd.LOUDNESS_INDEX, PACKS], partition_key="talks", instance=instance
    )
    (age,) = [c for c in result.get_asset_check_evaluations() if c.check_name == freshness.CHECK]
    assert (age.passed, age.partition) == (True, "talks")


def test_the_asset_shows_the_policy_of_its_most_patient_partition(defs):
    policy = defs.resolve_asset_graph().get(PACKS).freshness_policy
    assert policy.fail_window.to_timedelta() == datetime.timedelta(hours=48)


@pytest.mark.parametrize("hours", [0.02, 87_600])
def test_the_shortest_and_the_longest_limit_make_a_policy(tmp_path, hours):
    entry = {"kind": "tsv", "manifest": "train.tsv", "max_age_hours": hours}
    (tmp_path / "datasets.yaml").write_text(json.dumps({"corpora": {"talks": entry}}))
    defs = build_defs(datasets_file=tmp_path / "datasets.yaml", data_root=tmp_path / "data")
    policy = defs.resolve_asset_graph().get(PACKS).freshness_policy
    assert policy.fail_window.to_timedelta() == datetime.timedelta(hours=hours)


def test_without_limits_there_is_neither_a_check_nor_a_sensor(tmp_path):
    names = {sensor.name for sensor in build_defs().sensors}
    assert "partition_ages" not in names
