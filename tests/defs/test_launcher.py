"""When a run counts as lost: what the launcher makes of what live workers say. No services; ``test_cluster`` has them."""

import dagster as dg
import pytest
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.launcher import WorkerStatus
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import pack_value
from dagster_processes import write_instance
from kombu.exceptions import OperationalError

from muvap_assets.defs import cluster
from muvap_assets.defs.cluster import MISSES, RunTask, WatchfulCeleryRunLauncher

RUN_ID = "00000000-0000-0000-0000-000000000000"
RUN = dg.DagsterRun("job", run_id="run", tags={"dagster-celery/task_id": "task"}, status=dg.DagsterRunStatus.STARTED)


class Workers(WatchfulCeleryRunLauncher):
    """The launcher with live workers that answer what a test says; an exception stands for a broker that does not."""

    def __init__(self):
        super().__init__(default_queue="cpu", broker="memory://", backend="cache+memory://")
        self.answer = frozenset()

    def _live_tasks(self):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def looks(self, count):
        return [self.check_run_worker_health(RUN).status for _ in range(count)]


@pytest.fixture
def workers():
    launcher = Workers()
    yield launcher
    launcher.celery.backend.forget("task")  # results in memory are those of all launchers


def test_a_run_that_no_live_worker_has_is_lost_after_several_looks_in_a_row(workers):
    assert workers.looks(MISSES) == [WorkerStatus.RUNNING] * (MISSES - 1) + [WorkerStatus.FAILED]


def test_a_worker_that_was_slow_to_answer_is_forgiven(workers):
    assert workers.looks(MISSES - 1) == [WorkerStatus.RUNNING] * (MISSES - 1)
    workers.answer = frozenset({"task"})
    assert workers.looks(1) == [WorkerStatus.RUNNING]
    workers.answer = frozenset()
    assert workers.looks(MISSES - 1) == [WorkerStatus.RUNNING] * (MISSES - 1)


def test_a_broker_that_does_not_answer_says_nothing_about_a_run(workers):
    workers.answer = OperationalError("connection refused")
    assert workers.looks(2 * MISSES) == [WorkerStatus.RUNNING] * (2 * MISSES)


def test_a_task_that_failed_is_a_failed_run_at_once(workers):
    workers.celery.backend.store_result("task", RuntimeError("killed"), "FAILURE")
    assert workers.looks(1) == [WorkerStatus.FAILED]


def test_a_task_that_ended_while_its_run_seems_to_go_on_is_a_lost_run_after_several_looks(workers):
    workers.celery.backend.store_result("task", 1, "SUCCESS")
    workers.answer = frozenset({"task"})
    assert workers.looks(2 * MISSES) == [WorkerStatus.RUNNING] * (2 * MISSES)
    workers.answer = frozenset()
    assert workers.looks(MISSES) == [WorkerStatus.RUNNING] * (MISSES - 1) + [WorkerStatus.FAILED]


def test_workers_have_time_to_come_back_to_a_broker_that_was_away(workers, monkeypatch):
    workers.answer = OperationalError("connection refused")
    workers.looks(1)
    workers.answer = frozenset()
    assert workers.looks(2 * MISSES) == [WorkerStatus.RUNNING] * (2 * MISSES)
    monkeypatch.setattr(cluster, "RECONNECT_SEC", 0.0)
    assert workers.looks(MISSES)[-1] == WorkerStatus.FAILED


@pytest.fixture
def instance(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(write_instance(tmp_path / "home")))
    monkeypatch.setattr(cluster, "SETTLE_SEC", 0.0)
    with dg.DagsterInstance.get() as opened:
        yield opened


def task_of(run):
    """What a worker is told of a run."""
    module = ModuleCodePointer("muvap_assets.definitions", "defs", None)
    origin = JobPythonOrigin("job", RepositoryPythonOrigin("python", module))
    arguments = ExecuteRunArgs(origin, run.run_id, instance_ref=None, set_exit_code_on_failure=True)
    return {"execute_job_args_packed": pack_value(arguments)}


def ended(instance, begun_as, ended_as):
    """The status of a run after a task of it that found it in one state and left it in another."""
    run = instance.add_run(dg.DagsterRun("job", run_id=RUN_ID, status=begun_as))
    task = RunTask()
    task.before_start("task", (), task_of(run))
    instance.delete_run(run.run_id)
    instance.add_run(dg.DagsterRun("job", run_id=RUN_ID, status=ended_as))
    task.after_return()
    return instance.get_run_by_id(run.run_id).status


@pytest.mark.parametrize("left", [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED])
def test_a_task_that_ends_without_a_word_on_its_run_reports_it_failed(instance, left):
    assert ended(instance, dg.DagsterRunStatus.STARTING, left) is dg.DagsterRunStatus.FAILURE


def test_a_task_leaves_a_run_alone_that_has_an_end(instance):
    assert ended(instance, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.SUCCESS) is dg.DagsterRunStatus.SUCCESS


def test_a_task_that_comes_twice_leaves_the_run_to_the_first(instance):
    assert ended(instance, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.STARTED) is dg.DagsterRunStatus.STARTED
