"""What is requested when a source, the code or the clock changes, on evaluated conditions; no daemon."""

import datetime
import json
import time

import dagster as dg
import pytest

from muvap_assets.definitions import build_defs
from muvap_assets.defs import asd, automation, ref2va
from muvap_assets.errors import ConfigError
from muvap_assets.sources import OutOfTime

NIGHT = datetime.datetime(2026, 3, 1, 2, 0, tzinfo=datetime.UTC)


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


class Watched:
    """A code location over two corpora, evaluated tick by tick."""

    def __init__(self, corpus, tmp_path, instance, monkeypatch):
        self.corpus, self.instance, self.cursor, self.sensor_cursor = corpus, instance, None, None
        rec = corpus.wav("rec.wav", 80_000)
        for name in ("a", "b", "c"):
            corpus.row(name, audio_path=rec, start_sec="0.5")
        corpus.write("one.tsv")
        corpus.write("two.tsv")
        entries = {name: {"kind": "tsv", "manifest": str(corpus.root / f"{name}.tsv")} for name in ("one", "two")}
        self.datasets = tmp_path / "datasets.yaml"
        self.datasets.write_text(json.dumps({"corpora": entries}))
        self.root = tmp_path / "data"
        now = time.time()
        monkeypatch.setattr("muvap_assets.sources.time.time", lambda: now + 10)
        self.load()

    def load(self):
        self.defs = build_defs(datasets_file=self.datasets, data_root=self.root)

    def run(self, *keys, partition):
        job = self.defs.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            asset_selection=list(keys or (asd.MANIFEST, asd.LOUDNESS_INDEX, asd.PACKED_SHARDS)),
            partition_key=partition,
            instance=self.instance,
            raise_on_error=False,
        )

    def look(self):
        """One tick of the sensor; its observations are stored as the daemon stores them."""
        repository = self.defs.get_repository_def()
        sensor = repository.get_sensor_def("source_changes")
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.sensor_cursor, repository_def=repository, resources=self.defs.resources
        ) as context:
            data = sensor.evaluate_tick(context)
        self.sensor_cursor = data.cursor
        for event in data.asset_events:
            self.instance.report_runless_asset_event(event)
        return [(event.asset_key, event.partition) for event in data.asset_events]

    def edit(self, name):
        """One row fewer, seen by the sensor."""
        self.corpus.rows.pop()
        self.corpus.write(name)
        return self.look()

    def requested(self, at=None):
        """One tick of the automation sensor: what it asks for, by asset and partition."""
        result = dg.evaluate_automation_conditions(
            self.defs,
            self.instance,
            asset_selection=dg.AssetSelection.assets(*self.defs.resolve_asset_graph().get_all_asset_keys()),
            cursor=self.cursor,
            evaluation_time=at or datetime.datetime.now(datetime.UTC),
        )
        self.cursor = result.cursor
        keys = (asd.MANIFEST, asd.LOUDNESS_INDEX, asd.PACKED_SHARDS)
        asked = {key.path[-1]: sorted(result.get_requested_partitions(key)) for key in keys}
        return {name: partitions for name, partitions in asked.items() if partitions}

    def settled(self, at=None):
        """Two ticks: in the first there is a reason, in the second there is no new one. What they ask for."""
        asked = [self.requested(at), self.requested(at)]
        assert asked[0] == {}
        return asked[1]


WHOLE_LINE = {"manifest": ["one"], "loudness_index": ["one"], "packed_shards": ["one"]}
EVERYTHING = {name: ["one", "two"] for name in WHOLE_LINE}


@pytest.fixture
def unwatched(corpus, tmp_path, instance, monkeypatch):
    return Watched(corpus, tmp_path, instance, monkeypatch)


@pytest.fixture
def watched(unwatched):
    """Everything built, every source seen, nothing left to ask for."""
    unwatched.look()
    assert unwatched.settled() == EVERYTHING
    for name in ("one", "two"):
        assert unwatched.run(partition=name).success
    assert unwatched.requested() == {}
    return unwatched


@pytest.mark.parametrize("made", [False, True], ids=["nothing is made", "all is made"])
@pytest.mark.parametrize("seen_first", [False, True], ids=["a tick comes first", "sources are seen first"])
def test_a_fresh_instance_asks_for_everything_once_whatever_comes_first(unwatched, made, seen_first):
    if made:
        for name in ("one", "two"):
            assert unwatched.run(partition=name).success
    if not seen_first:
        assert unwatched.requested() == {}
    unwatched.look()
    assert unwatched.settled() == EVERYTHING
    for name in ("one", "two"):
        assert unwatched.run(partition=name).success
    assert [unwatched.requested() for _ in range(3)] == [{}, {}, {}]


@pytest.mark.parametrize("edits", [1, 2], ids=["before the next tick", "in the tick after the request"])
def test_a_change_while_a_requested_run_is_under_way_is_asked_for_after_it(watched, edits):
    """The run has read its manifest by then; that it ends before the next tick must not count as the answer."""
    watched.edit("one.tsv")
    assert watched.settled() == WHOLE_LINE
    watched.corpus.rows[0]["end_sec"] = "1.5"
    watched.edit("one.tsv") if edits == 1 else watched.corpus.write("one.tsv")
    assert watched.run(partition="one").success
    assert watched.requested() == {}
    watched.look()
    assert [asked for asked in (watched.requested(), watched.requested()) if asked] == [WHOLE_LINE]
    assert watched.run(partition="one").success
    assert [watched.requested() for _ in range(3)] == [{}, {}, {}]


def test_a_source_that_changes_in_every_tick_is_asked_for_once_it_stands(watched):
    for _ in range(2):
        watched.edit("one.tsv")
        assert watched.requested() == {}
    assert watched.requested() == WHOLE_LINE
    watched.run(partition="one")
    assert [watched.requested() for _ in range(3)] == [{}, {}, {}]


@pytest.mark.parametrize("first", [False, True], ids=["later", "in the first tick"])
def test_a_change_observed_while_a_tick_is_evaluated_is_asked_for_once(unwatched, monkeypatch, first):
    """It comes after the number of the last event was noted, so that it counts in this tick and in the next."""
    if not first:
        unwatched.look()
        assert unwatched.settled() == EVERYTHING
        unwatched.corpus.rows.pop()
        unwatched.corpus.write("one.tsv")
    log = unwatched.instance.event_log_storage
    last_event = type(log).get_maximum_record_id

    def observed_after(self):
        number = last_event(self)
        monkeypatch.setattr(type(log), "get_maximum_record_id", last_event)
        assert unwatched.look()
        return number

    monkeypatch.setattr(type(log), "get_maximum_record_id", observed_after)
    asked = [unwatched.requested() for _ in range(6)]
    assert [found for found in asked if found] == [EVERYTHING if first else WHOLE_LINE]


def test_a_source_is_reported_once_and_again_only_when_its_content_changed(watched):
    assert watched.look() == []
    (watched.corpus.root / "one.tsv").touch()
    assert watched.look() == []
    assert watched.edit("one.tsv") == [(asd.SOURCE, "one")]


def test_a_source_that_never_comes_to_its_end_keeps_no_other_waiting(unwatched, monkeypatch):
    read = automation.fingerprint

    def endless(source, *arguments, **options):
        if source.name == "one":
            raise OutOfTime
        return read(source, *arguments, **options)

    monkeypatch.setattr(automation, "fingerprint", endless)
    assert unwatched.look() == []
    assert unwatched.look() == [(asd.SOURCE, "two")]
    unwatched.edit("two.tsv")
    monkeypatch.setattr(automation, "fingerprint", read)
    assert (asd.SOURCE, "one") in unwatched.look()


def test_an_edited_manifest_asks_for_its_chain_in_one_run_and_for_nothing_else(watched):
    watched.edit("one.tsv")
    assert watched.settled() == WHOLE_LINE
    watched.run(partition="one")
    assert watched.requested() == {}


def test_a_media_file_swapped_under_the_same_name_asks_for_every_corpus_that_names_it(watched):
    watched.corpus.faces("a.npy", shape=(8, 8))
    content = bytearray((watched.corpus.root / "a.npy").read_bytes())
    content[-1] ^= 1
    (watched.corpus.root / "a.npy").write_bytes(content)
    watched.look()
    assert watched.settled()["packed_shards"] == ["one", "two"]


def test_a_touched_file_asks_for_nothing(watched):
    for path in watched.corpus.root.iterdir():
        path.touch()
    assert watched.look() == []
    assert watched.requested() == {}


def test_a_new_code_version_asks_for_its_asset_and_what_follows_from_it(watched, monkeypatch):
    monkeypatch.setattr(asd, "LOUDNESS_CODE_VERSION", "next")
    watched.load()
    assert watched.requested() == {"loudness_index": ["one", "two"], "packed_shards": ["one", "two"]}


def test_a_corpus_added_to_the_datasets_file_is_asked_for_once_and_no_other(watched):
    watched.corpus.write("three.tsv")
    entries = json.loads(watched.datasets.read_text())["corpora"]
    three = {"kind": "tsv", "manifest": str(watched.corpus.root / "three.tsv")}
    watched.datasets.write_text(json.dumps({"corpora": {**entries, "three": three}}))
    watched.load()
    assert watched.look() == [(asd.SOURCE, "three")]
    assert watched.settled() == {name: ["three"] for name in WHOLE_LINE}
    assert watched.run(partition="three").success
    assert [watched.requested() for _ in range(3)] == [{}, {}, {}]


def test_the_nightly_tick_asks_once(unwatched):
    for name in ("one", "two"):
        unwatched.run(partition=name)
    assert unwatched.requested(NIGHT) == {}
    assert unwatched.requested(NIGHT + datetime.timedelta(minutes=59)) == {}
    assert unwatched.settled(NIGHT + datetime.timedelta(minutes=61)) == EVERYTHING
    assert unwatched.settled(NIGHT + datetime.timedelta(minutes=62)) == {}


def test_a_failed_manifest_holds_back_what_follows_until_it_is_mended(watched):
    watched.corpus.rows[0]["labels"] = "[]"
    watched.corpus.write("one.tsv")
    watched.look()
    assert watched.settled() == WHOLE_LINE
    assert not watched.run(partition="one").success
    assert watched.requested() == {}
    watched.corpus.rows.pop(0)
    watched.corpus.write("one.tsv")
    watched.look()
    asked = watched.settled()
    assert asked["manifest"] == ["one"]
    for _ in range(4):
        if not asked:
            break
        keys = [dg.AssetKey(["asd", name]) for name in asked]
        assert watched.run(*keys, partition="one").success
        asked = watched.requested()
    assert asked == {}
    latest = watched.instance.get_latest_materialization_event(asd.PACKED_SHARDS)
    assert latest.run_id in {run.run_id for run in watched.instance.get_runs(limit=3)}


def test_a_wrong_cron_is_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match="nightly_cron is 'every night'; required: a cron expression"):
        automation.check_cron("every night")


def test_gpu_runs_carry_the_tag_of_their_queue_and_schedules_wait_to_be_started():
    defs = build_defs()
    gpu = next(sensor for sensor in defs.sensors if sensor.name == "automation_gpu")
    assert gpu.run_tags["dagster-celery/queue"] == "gpu"
    assert gpu.asset_selection.resolve(defs.resolve_asset_graph()) == {ref2va.ENCODED_LATENTS}
    assert {schedule.default_status for schedule in defs.schedules} == {dg.DefaultScheduleStatus.STOPPED}


def test_every_asset_with_a_condition_is_watched_by_exactly_one_sensor():
    defs = build_defs()
    graph = defs.resolve_asset_graph()
    sensors = [s for s in defs.sensors if isinstance(s, dg.AutomationConditionSensorDefinition)]
    targets = [key for sensor in sensors for key in sensor.asset_selection.resolve(graph)]
    assert len(targets) == len(set(targets))
    assert {key for key in graph.get_all_asset_keys() if graph.get(key).automation_condition} <= set(targets)


def test_a_schedule_requests_each_partition_of_its_line():
    defs = build_defs()
    (schedule,) = [schedule for schedule in defs.schedules if schedule.name == "asd_nightly"]
    context = dg.build_schedule_context(scheduled_execution_time=NIGHT, repository_def=defs.get_repository_def())
    with context:
        data = schedule.evaluate_tick(context)
    assert [request.partition_key for request in data.run_requests] == ["demo_train", "demo_val"]


def test_the_observe_button_reports_the_same_version_as_the_sensor(watched):
    watched.run(asd.SOURCE, partition="one")
    events = watched.instance.fetch_observations(dg.AssetRecordsFilter(asd.SOURCE, asset_partitions=["one"]), limit=2)
    versions = [record.asset_observation.tags["dagster/data_version"] for record in events.records]
    assert len(versions) == 2
    assert len(set(versions)) == 1
    assert watched.requested() == {}
