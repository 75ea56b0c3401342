"""A killed run still holds the GPU's place: who waits for it takes it where it is provably dead, and says whom it waits for."""

import os
import signal
import time
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster_processes import process, until, write_instance

from muvap_assets.defs import ops, pools

LOCATION = """
import time
import dagster as dg
from muvap_assets.defs import pools

pools.TELL_SEC = 2.0

@dg.asset(pool="gpu")
def slow():
    time.sleep(600)

@dg.asset(pool="gpu")
def quick():
    pass

defs = dg.Definitions([slow, quick], executor=pools.one_process_executor)
"""


@pytest.fixture
def instance(tmp_path, monkeypatch):
    home = write_instance(tmp_path / "home")
    (tmp_path / "location.py").write_text(LOCATION)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with dg.DagsterInstance.get() as opened:
        yield opened


def claimed(instance):
    return instance.event_log_storage.get_concurrency_info("gpu").claimed_slots


def materialize(tmp_path, asset):
    command = ["dagster", "asset", "materialize", "-f", str(tmp_path / "location.py"), "--select", asset]
    return process(command, tmp_path / f"{asset}.log")


def warnings(log):
    return [line for line in log.read_text().splitlines() if " - WARNING - " in line]


def killed(instance, tmp_path):
    """The run of a command that was killed while it held the pool's only place."""
    with materialize(tmp_path, "slow") as started:
        until(lambda: claimed(instance), 60, "the pool's place is taken")
        os.kill(started.pid, signal.SIGKILL)
        started.wait(20)
    (run,) = instance.get_runs()
    assert run.status is dg.DagsterRunStatus.STARTED
    assert len(claimed(instance)) == 1
    return run


def cpu_sec(process_id):
    user, system = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_the_next_run_takes_the_place_of_a_killed_one_by_itself_and_says_so(instance, tmp_path):
    run = killed(instance, tmp_path)
    with materialize(tmp_path, "quick") as following:
        assert following.wait(120) == 0
    [line] = warnings(tmp_path / "quick.log")
    assert f"run {run.run_id} (slow): its process was killed" in line
    assert instance.get_run_by_id(run.run_id).status is dg.DagsterRunStatus.FAILURE
    assert not claimed(instance)
    assert list((tmp_path / "home" / "run_processes").iterdir()) == []


@pytest.mark.slow
def test_a_killed_run_is_released_by_hand_at_once(instance, tmp_path):
    run = killed(instance, tmp_path)
    assert CliRunner().invoke(ops.ops, ["release-run", run.run_id]).exit_code == 0
    assert instance.get_run_by_id(run.run_id).status is dg.DagsterRunStatus.FAILURE
    assert not claimed(instance)


@pytest.mark.slow
def test_a_run_that_waits_names_the_one_it_waits_for_again_and_again_and_leaves_the_processor_alone(instance, tmp_path):
    log = tmp_path / "quick.log"
    with materialize(tmp_path, "slow") as holder:
        until(lambda: claimed(instance), 60, "the pool's place is taken")
        [slot] = claimed(instance)
        with materialize(tmp_path, "quick") as waiting:
            until(lambda: log.exists() and warnings(log), 60, "it says that it waits")
            before, start = cpu_sec(waiting.pid), time.monotonic()
            until(lambda: len(warnings(log)) > 2, 60, "it says so again")
            time.sleep(5)  # a span to measure over, whatever the machine does meanwhile
            assert (cpu_sec(waiting.pid) - before) / (time.monotonic() - start) < 0.2
            [line, *_] = warnings(log)
            assert f"quick waits for a place in pool 'gpu' (limit 1), held by run {slot.run_id} (slow, since " in line
            assert f"its process {holder.pid} on this machine is alive" in line
            assert f"`muvap ops release-run {slot.run_id}` frees it if its process is dead" in line

            refused = CliRunner().invoke(ops.ops, ["release-run", slot.run_id])
            assert refused.exit_code == 1
            assert f"its process {holder.pid} on this machine is alive" in refused.output

            os.kill(holder.pid, signal.SIGKILL)
            assert waiting.wait(120) == 0


@pytest.mark.slow
def test_a_run_that_waits_ends_when_it_is_told_to(instance, tmp_path):
    log = tmp_path / "quick.log"
    with materialize(tmp_path, "slow"):
        until(lambda: claimed(instance), 60, "the pool's place is taken")
        with materialize(tmp_path, "quick") as waiting:
            until(lambda: log.exists() and warnings(log), 60, "it says that it waits")
            os.kill(waiting.pid, signal.SIGTERM)
            assert waiting.wait(60) == 1
        assert instance.event_log_storage.get_concurrency_info("gpu").pending_run_ids == set()


# --- what is known of a run, without its process ---


def started(instance, *, dead):
    """A run that holds the pool's place, as a killed process of this machine left it, or as one of another machine has it."""
    run = instance.create_run_for_job(_nothing(), status=dg.DagsterRunStatus.STARTED)
    instance.report_engine_event("It works.", run)
    instance.event_log_storage.initialize_concurrency_limit_to_default("gpu")
    instance.event_log_storage.claim_concurrency_slot("gpu", run.run_id, "slow")
    if dead:
        folder = pools._processes(instance)
        folder.mkdir()
        (folder / f"{run.run_id}-{'0' * 32}.lock").touch()
        (folder / f"{run.run_id}-{'0' * 32}").write_text("1")
    assert len(claimed(instance)) == 1
    return run.run_id


def test_a_run_of_another_machine_is_released_when_it_is_quiet_or_by_force(instance, monkeypatch):
    run_id = started(instance, dead=False)
    early = CliRunner().invoke(ops.ops, ["release-run", run_id])
    assert early.exit_code == 1
    assert "it wrote to its log" in early.output
    now = time.time()
    monkeypatch.setattr("muvap_assets.defs.ops.time.time", lambda: now + ops.QUIET_SEC + 1)
    assert ops.release(instance, run_id) is None
    assert instance.get_run_by_id(run_id).status is dg.DagsterRunStatus.FAILURE
    assert not claimed(instance)


@pytest.mark.parametrize("dead", [True, False])
def test_the_daemon_releases_dead_runs_and_no_others(instance, dead):
    run_id = started(instance, dead=dead)
    instance.event_log_storage.claim_concurrency_slot("gpu", "waits", "quick")
    with dg.build_sensor_context(instance=instance) as context:
        skipped = pools.build_dead_run_sensor()(context)
    assert instance.get_run_by_id(run_id).is_failure == dead
    assert bool(claimed(instance)) != dead
    assert (f"run {run_id} (nothing): its process was killed" in skipped.skip_message) == dead


def test_a_run_that_died_while_it_waited_is_not_given_the_place(instance):
    run_id = started(instance, dead=True)
    instance.event_log_storage.free_concurrency_slots_for_run(run_id)
    instance.event_log_storage.claim_concurrency_slot("gpu", "other", "slow")
    instance.event_log_storage.claim_concurrency_slot("gpu", run_id, "quick")
    assert instance.event_log_storage.get_concurrency_info("gpu").pending_step_count == 1
    assert len(pools.release_dead(instance)) == 1
    assert instance.event_log_storage.get_concurrency_info("gpu").pending_step_count == 0


def test_a_run_whose_process_is_only_about_to_take_its_lock_is_not_dead(instance):
    run_id = started(instance, dead=True)
    (pools._processes(instance) / f"{run_id}-{'0' * 32}").unlink()
    assert pools.release_dead(instance) == []
    assert pools.life_of(instance, run_id)[0] is pools.Life.UNKNOWN
    assert len(list(pools._processes(instance).iterdir())) == 1


def test_the_lock_of_a_run_that_is_over_and_holds_nothing_goes_without_a_word(instance):
    run_id = started(instance, dead=True)
    instance.report_run_failed(instance.get_run_by_id(run_id))
    instance.event_log_storage.free_concurrency_slots_for_run(run_id)
    assert pools.release_dead(instance) == []
    assert list(pools._processes(instance).iterdir()) == []


def test_a_run_that_is_over_only_gives_its_place_back(instance):
    run_id = instance.create_run_for_job(_nothing(), status=dg.DagsterRunStatus.SUCCESS).run_id
    assert ops.release(instance, run_id) is None
    assert instance.get_run_by_id(run_id).status is dg.DagsterRunStatus.SUCCESS


def test_an_unknown_run_is_named(instance):
    result = CliRunner().invoke(ops.ops, ["release-run", "none"])
    assert result.exit_code == 1
    assert "run none: not in this instance" in result.output


@pytest.mark.parametrize(
    ("home", "found"), [(None, "not set"), ("", "not set"), ("home", "'home'"), ("/none", "'/none'")]
)
def test_without_a_home_of_dagsters_the_command_says_to_set_it(monkeypatch, home, found):
    monkeypatch.setenv("DAGSTER_HOME", home or "")
    if home is None:
        monkeypatch.delenv("DAGSTER_HOME")
    result = CliRunner().invoke(ops.ops, ["release-run", "none"])
    assert result.exit_code == 1
    assert result.output.startswith(f"error: DAGSTER_HOME: {found}; required: the absolute path")


def test_a_lazy_group_finds_its_verbs():
    from muvap_assets.cli.lazy import LazyGroup

    lazy = LazyGroup("ops", "muvap_assets.defs.ops", "ops", "Look after runs.")
    result = CliRunner().invoke(lazy, ["release-run", "--help"])
    assert "Release what RUN_ID holds" in result.output


def _nothing():
    @dg.job
    def nothing():
        pass

    return nothing
