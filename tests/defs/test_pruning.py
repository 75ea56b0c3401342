"""Old runs and ticks go from a real instance, and what its pages show and automation compares against stays."""

import datetime
import time
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner
from cluster_services import postgres
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, TickData, TickStatus
from dagster._core.storage.runs.schema import RunsTable
from dagster._core.test_utils import create_run_for_test
from dagster_processes import write_instance

from muvap_assets.defs import conditions, ops, pruning
from muvap_assets.defs.gate import check_specs

PARTITIONS = dg.StaticPartitionsDefinition(["a", "b"])
MADE, NEXT, SOURCE = dg.AssetKey("made"), dg.AssetKey("next"), dg.AssetKey("source")
OLD_DAYS = 100


@dg.asset(
    key=MADE,
    partitions_def=PARTITIONS,
    automation_condition=conditions.root("0 3 1 1 *"),
    check_specs=check_specs(MADE, {"good": "It is."}, PARTITIONS),
)
def made(context: dg.AssetExecutionContext):
    if "fail" in context.run.tags:
        yield dg.AssetCheckResult(check_name="good", passed=False)
        raise dg.Failure("not good", allow_retries=False)
    yield dg.MaterializeResult(check_results=[dg.AssetCheckResult(check_name="good", passed=True)])


@dg.asset(key=NEXT, deps=[MADE], partitions_def=PARTITIONS, automation_condition=conditions.downstream())
def following() -> None:
    pass


DEFS = dg.Definitions(assets=[made, following])


@pytest.fixture
def instance(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(write_instance(tmp_path / "home")))
    with dg.DagsterInstance.get() as opened:
        yield opened


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def any_instance(request, tmp_path, monkeypatch):
    """An instance as one machine has it, and as several have."""
    if request.param == "sqlite":
        yield request.getfixturevalue("instance")
        return
    with postgres() as server:
        home = write_instance(tmp_path / "home", storage={"postgres": {"postgres_url": server.address}})
        monkeypatch.setenv("DAGSTER_HOME", str(home))
        with dg.DagsterInstance.get() as opened:
            yield opened


def run(instance, asset, partition, **tags):
    job = DEFS.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(
        asset_selection=[asset], partition_key=partition, instance=instance, tags=tags, raise_on_error=False
    ).run_id


def backdate(instance, run_ids, days=OLD_DAYS):
    """As if the runs had been made so long ago."""
    moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days)
    times = {"start_time": moment.timestamp(), "end_time": moment.timestamp()}
    stamps = dict.fromkeys(("create_timestamp", "update_timestamp"), moment.replace(tzinfo=None))
    with instance.run_storage.connect() as connection:
        connection.execute(RunsTable.update().where(RunsTable.c.run_id.in_(run_ids)).values(**times, **stamps))


def runs(instance):
    return {each.run_id for each in instance.get_runs()}


def shown(instance):
    """What the pages of the assets show of each partition."""
    page = {}
    for key in (MADE, NEXT):
        for partition in PARTITIONS.get_partition_keys():
            latest = dg.AssetRecordsFilter(key, asset_partitions=[partition])
            records = instance.fetch_materializations(latest, limit=1).records
            page[key, partition] = [(each.run_id, each.storage_id) for each in records]
    history = instance.event_log_storage.get_asset_check_execution_history(dg.AssetCheckKey(MADE, "good"), limit=100)
    for check in history:
        page.setdefault(check.partition, (check.run_id, check.status.value))  # the newest comes first
    return page


def evaluate(instance, cursor=None):
    selected = dg.AssetSelection.assets(MADE, NEXT)
    return dg.evaluate_automation_conditions(DEFS, instance, asset_selection=selected, cursor=cursor)


def test_old_runs_go_but_for_the_latest_of_each_partition_and_what_is_not_over(any_instance):
    instance = any_instance
    first, second = run(instance, MADE, "a"), run(instance, MADE, "a")
    latest = [run(instance, MADE, "a"), run(instance, MADE, "b"), run(instance, NEXT, "a")]
    overtaken = run(instance, NEXT, "b", other="")
    latest.append(run(instance, NEXT, "b"))
    failed = run(instance, MADE, "b", fail="")
    unfinished = create_run_for_test(instance, "other", status=dg.DagsterRunStatus.STARTED).run_id
    over = create_run_for_test(instance, "other", status=dg.DagsterRunStatus.FAILURE).run_id
    recent = create_run_for_test(instance, "other", status=dg.DagsterRunStatus.SUCCESS).run_id
    logs = Path(instance.root_directory, "storage")
    assert {each.name for each in logs.iterdir()} >= {first, second}
    backdate(instance, runs(instance) - {recent})
    before, evaluated = shown(instance), evaluate(instance)

    dry = pruning.prune(instance, 90, dry_run=True)
    assert runs(instance) == {first, second, *latest, overtaken, failed, unfinished, over, recent}
    report = pruning.prune(instance, 90)
    assert set(report.runs) == set(dry.runs) == {first, second, overtaken, over}
    assert runs(instance) == {*latest, failed, unfinished, recent}
    assert (report.kept, report.left) == (5, [])
    assert report.after_bytes < report.before_bytes == dry.after_bytes

    assert shown(instance) == before
    assert not {each.name for each in logs.iterdir()} & set(report.runs)
    assert not {path.name[:36] for path in Path(instance.root_directory).rglob("*")} & set(report.runs)
    assert all(instance.all_logs(each) for each in latest)
    assert evaluate(instance, evaluated.cursor).total_requested == 0
    assert pruning.prune(instance, 90).runs == []


def test_what_shared_files_no_longer_need_goes_back_to_the_disk(instance):
    ids = [create_run_for_test(instance, "other", status=dg.DagsterRunStatus.SUCCESS).run_id for _ in range(8)]
    for each in ids:
        instance.add_run_tags(each, {"long": "x" * 60_000})
    backdate(instance, ids)
    file = Path(instance.root_directory, "history", "runs.db")
    size = file.stat().st_size
    assert len(pruning.prune(instance, 90).runs) == 8
    assert file.stat().st_size < size / 2


def test_old_ticks_go_and_the_cursor_stays(instance):
    location = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("location"), "repository")
    origin = RemoteInstigatorOrigin(repository_origin=location, instigator_name="watch")
    state = InstigatorState(origin, InstigatorType.SENSOR, InstigatorStatus.RUNNING)
    instance.add_instigator_state(state)
    now = time.time()
    for days in (100, 95, 1):
        when = now - days * pruning.DAY_SEC
        tick = TickData(
            origin.get_id(), "watch", state.instigator_type, TickStatus.SKIPPED, when, selector_id=state.selector_id
        )
        instance.create_tick(tick)
    report = pruning.prune(instance, 90)
    assert report.ticks == 2
    assert len(instance.get_ticks(state.instigator_origin_id, state.selector_id)) == 1
    assert len(instance.all_instigator_state()) == 1


def test_the_command_says_what_it_removed_and_how_large_the_folder_was(instance):
    run_id = create_run_for_test(instance, "other", status=dg.DagsterRunStatus.SUCCESS).run_id
    backdate(instance, [run_id])
    kept = CliRunner().invoke(ops.ops, ["prune-runs", "--days", "101"])
    assert kept.output.startswith("0 runs and 0 ticks removed, 0 old runs kept")
    done = CliRunner().invoke(ops.ops, ["prune-runs"])
    assert (done.exit_code, done.output[:6]) == (0, "1 runs")
    assert "DAGSTER_HOME: " in done.output
    assert runs(instance) == set()
