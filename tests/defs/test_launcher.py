"""When a run counts as lost: what the launcher makes of what live workers say. No services; ``test_cluster`` has them."""

import dagster as dg
import pytest
from dagster._core.launcher import WorkerStatus
from kombu.exceptions import OperationalError

from muvap_assets.defs import cluster
from muvap_assets.defs.cluster import MISSES, WatchfulCeleryRunLauncher

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
    assert workers.looks(MISSES) == [WorkerStatus.RUNNING] * (MISSES - 1) + [WorkerStatus.FAILED]


def test_workers_have_time_to_come_back_to_a_broker_that_was_away(workers, monkeypatch):
    workers.answer = OperationalError("connection refused")
    workers.looks(1)
    workers.answer = frozenset()
    assert workers.looks(2 * MISSES) == [WorkerStatus.RUNNING] * (2 * MISSES)
    monkeypatch.setattr(cluster, "RECONNECT_SEC", 0.0)
    assert workers.looks(MISSES)[-1] == WorkerStatus.FAILED
