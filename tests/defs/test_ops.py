"""A killed command still holds the GPU's place: it is released by hand, and only if it is dead."""

import os
import signal
import time

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster_processes import process, until, write_instance

from muvap_assets.defs import ops

LOCATION = """
import time
import dagster as dg

@dg.asset(pool="gpu")
def slow():
    time.sleep(600)

@dg.asset(pool="gpu")
def quick():
    pass

defs = dg.Definitions([slow, quick], executor=dg.in_process_executor)
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


@pytest.mark.slow
def test_a_killed_command_keeps_its_place_until_it_is_released(instance, tmp_path, monkeypatch):
    command = ["dagster", "asset", "materialize", "-f", str(tmp_path / "location.py"), "--select"]
    with process([*command, "slow"], tmp_path / "slow.log") as started:
        until(lambda: claimed(instance), 120, "the pool's place is taken")
        os.killpg(started.pid, signal.SIGKILL)
    (run,) = instance.get_runs()
    assert run.status is dg.DagsterRunStatus.STARTED
    assert len(claimed(instance)) == 1

    early = CliRunner().invoke(ops.ops, ["release-run", run.run_id])
    assert early.exit_code == 1
    assert "it wrote to its log" in early.output

    now = time.time()
    monkeypatch.setattr("muvap_assets.defs.ops.time.time", lambda: now + ops.QUIET_SEC + 1)
    assert CliRunner().invoke(ops.ops, ["release-run", run.run_id]).exit_code == 0
    assert instance.get_run_by_id(run.run_id).status is dg.DagsterRunStatus.FAILURE
    assert not claimed(instance)
    with process([*command, "quick"], tmp_path / "quick.log") as following:
        assert following.wait(120) == 0


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
