"""The disk that holds DAGSTER_HOME is full: one line says so, before the work, in the middle of it, and in our own commands."""

import os
import subprocess

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster_processes import process, until, write_instance
from skipping import skip_or_fail

from muvap_assets.defs import ops, pools
from muvap_assets.defs.gate import check_specs, gate
from muvap_assets.layout import Layout

LOCATION = """
import os
from pathlib import Path
import dagster as dg
from muvap_assets.defs import pools

@dg.op
def fills():
    with Path(os.environ["DAGSTER_HOME"], "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass

@dg.job(executor_def=pools.one_process_executor)
def fill():
    fills()

defs = dg.Definitions(jobs=[fill])
"""


@pytest.fixture
def small_home(tmp_path, monkeypatch):
    """A DAGSTER_HOME on a disk of its own."""
    home = tmp_path / "home"
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(home)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        skip_or_fail("a file system can be mounted by root only")
    try:
        monkeypatch.setenv("DAGSTER_HOME", str(write_instance(home)))
        yield home
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


@pytest.mark.slow
def test_a_disk_that_fills_up_during_a_run_ends_it_in_one_line_and_the_run_is_found_dead(small_home, tmp_path):
    (tmp_path / "location.py").write_text(LOCATION)
    command = ["dagster", "job", "execute", "-f", str(tmp_path / "location.py"), "-j", "fill"]
    log = tmp_path / "run.log"
    with process(command, log) as started:
        assert started.wait(120) == 1
    text = log.read_text()
    assert f"\nerror: DAGSTER_HOME {small_home}: the disk that holds it is full" in text
    assert "Traceback" not in text

    refused = CliRunner().invoke(ops.ops, ["prune-runs"])
    assert (refused.exit_code, refused.output.count("\n")) == (1, 1)
    assert refused.output.startswith(f"error: DAGSTER_HOME {small_home}: ")

    (small_home / "filler").unlink()
    with dg.DagsterInstance.get() as instance:
        [line] = until(lambda: pools.release_dead(instance), 20, "its lock is free")
        assert "its process was killed" in line
        assert [run.status for run in instance.get_runs()] == [dg.DagsterRunStatus.FAILURE]


def test_work_whose_records_have_no_room_is_refused_before_it_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(pools, "RECORD_BYTES", 10**18)
    partitions = dg.StaticPartitionsDefinition(["part"])
    key = dg.AssetKey(["asd", "thing"])

    @dg.asset(key=key, partitions_def=partitions, check_specs=check_specs(key, {"good": "It is."}, partitions))
    def thing(context: dg.AssetExecutionContext):
        yield from gate(
            context,
            Layout(tmp_path / "root").artifact("asd", "thing", "part"),
            ["good"],
            lambda progress: pytest.fail("it began"),
            lambda *made: pytest.fail("it was published"),
        )

    home = tmp_path / "home"
    write_instance(home)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        result = dg.materialize([thing], partition_key="part", instance=instance, raise_on_error=False)
    assert [evaluation.passed for evaluation in result.get_asset_check_evaluations()] == [False]
    [failure] = [event for event in result.all_events if event.is_step_failure]
    said = failure.step_failure_data.user_failure_data.description
    assert said.startswith(f"DAGSTER_HOME {home}: records of this run: ")
    assert "required: 1,000,000,000.000 GB" in said
