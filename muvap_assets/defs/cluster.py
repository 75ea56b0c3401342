"""Runs on other machines: the worker's Celery app, and the launcher that notices when such a machine dies.

Needs the ``cluster`` extra; nothing else imports this module. ``deploy/cluster/dagster.yaml`` names the launcher, and each
worker runs ``celery -A muvap_assets.defs.cluster worker``: see ``docs/operations.md`` and
https://docs.dagster.io/guides/deploy/execution/run-launchers.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from celery import Celery, Task
from celery.exceptions import CeleryError
from dagster import DagsterInstance, DagsterRun, DagsterRunStatus
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import unpack_value
from dagster_celery.launcher import CeleryRunLauncher
from dagster_celery.make_app import make_app
from dagster_celery.tags import DAGSTER_CELERY_QUEUE_TAG, DAGSTER_CELERY_TASK_ID_TAG
from dagster_celery.tasks import create_execute_job_task
from dagster_postgres.utils import DagsterPostgresException
from kombu.exceptions import KombuError
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from muvap_assets.defs import ref2va
from muvap_assets.defs.conditions import GPU_RUN_TAGS

BROKER_VARIABLE, RESULTS_VARIABLE = "MUVAP_CELERY_BROKER", "MUVAP_CELERY_RESULTS"
GPU_QUEUE, CPU_QUEUE = GPU_RUN_TAGS[DAGSTER_CELERY_QUEUE_TAG], "cpu"
MISSES = 3
"""How many looks in a row have to find a run with no worker before it counts as lost."""

RECONNECT_SEC = 45.0
"""How long after the broker was away a missing answer says nothing: a worker tries again every 30 s at the latest."""

SETTLE_SEC = 75.0
"""How long after the database was away a run that died of it is reported."""

T = TypeVar("T")

_ANSWER_SEC, _REMEMBER_SEC, _BROKER_SEC, _RECORDS_SEC = 2.0, 5.0, 300.0, 2.0


def worker_app(broker: str, results: str) -> Celery:
    """The app of a worker: one run at a time a process, a fresh process for each, nothing taken ahead."""
    app: Celery = make_app({"broker": broker, "backend": results})  # type: ignore[no-untyped-call]  # has no annotations
    app.conf.update(
        # A run taken ahead would wait behind a long one while another machine idles. The multiplier alone leaves one: a run
        # that was begun no longer counts.
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_max_tasks_per_child=1,  # memory of a GPU and of its libraries is given back with the process
        worker_hijack_root_logger=False,
        task_default_queue=CPU_QUEUE,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,  # a worker that gave up would take the run in progress with it
    )
    create_execute_job_task(app, base=RunTask)  # type: ignore[arg-type]  # says that each option is a dict
    return app


class RunTask(Task):  # type: ignore[misc]  # has no annotations
    """A run on a worker, with Dagster's database gone for a while: it begins once that answers, and never seems to go on.

    A run whose events cannot be written dies, and its task ends like any other: nobody would ever hear of it.
    """

    _begun: str | None = None

    def before_start(self, task_id: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Wait for the database; a run that another task began is left to that one."""
        run_id = unpack_value(kwargs["execute_job_args_packed"], as_type=ExecuteRunArgs).run_id
        run = _with_records(lambda instance: instance.get_run_by_id(run_id))
        self._begun = run_id if run is not None and run.status is DagsterRunStatus.STARTING else None

    def after_return(self, *_: Any) -> None:
        """Report the run as failed if it ended without a word."""
        run_id, self._begun = self._begun, None
        if run_id is not None and _with_records(lambda instance: _going_on(instance, run_id)):
            # The daemon tries a run again that failed while its code is loaded; what it could not load it loads every minute.
            time.sleep(SETTLE_SEC)
            _with_records(lambda instance: _report_if_going_on(instance, run_id))


def _going_on(instance: DagsterInstance, run_id: str) -> DagsterRun | None:
    run = instance.get_run_by_id(run_id)
    return None if run is None or run.is_finished else run


def _report_if_going_on(instance: DagsterInstance, run_id: str) -> None:
    run = _going_on(instance, run_id)
    if run is not None:
        instance.report_run_failed(run, "The run's task ended and could not say how: the database was away.")


def _with_records(ask: Callable[[DagsterInstance], T]) -> T:
    """Ask Dagster's database, for as long as it takes to be answered."""
    while True:
        try:
            with DagsterInstance.get() as instance:
                return ask(instance)
        except (DagsterPostgresException, SQLAlchemyError) as error:
            logging.getLogger(__name__).warning("Dagster's database does not answer, asked again: %s", error)
            time.sleep(_RECORDS_SEC)


class WatchfulCeleryRunLauncher(CeleryRunLauncher):
    """Launches a run as a task on a queue, and asks the live workers for it for as long as it goes on.

    A worker whose machine died leaves its task marked as started for ever: that alone says nothing. A run that no live
    worker knows of, looked for several times in a row, has failed. Runs of assets that need a GPU go to its queue, also
    where whoever launched them did not say so.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._misses: dict[str, int] = {}
        self._asked, self._tasks = 0.0, frozenset[str]()
        self._away = float("-inf")

    def launch_run(self, context: LaunchRunContext) -> None:
        """Put a run on its queue; while the broker is away, wait for it: a launch that fails is a run that failed."""
        run = context.dagster_run
        needs_gpu = ref2va.ENCODED_LATENTS in (run.asset_selection or ())
        if needs_gpu and DAGSTER_CELERY_QUEUE_TAG not in run.tags:
            self._instance.add_run_tags(run.run_id, GPU_RUN_TAGS)
            run = run.with_tags({**run.tags, **GPU_RUN_TAGS})
            context = LaunchRunContext(dagster_run=run, workspace=context.workspace)
        with self.celery.connection_for_write() as connection:
            connection.ensure_connection(interval_start=1, interval_step=1, interval_max=5, timeout=_BROKER_SEC)
        super().launch_run(context)

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Whether a run is still being worked on, by what the live workers say."""
        if DAGSTER_CELERY_TASK_ID_TAG not in run.tags:
            return CheckRunHealthResult(WorkerStatus.RUNNING, "Not yet on a queue.")
        try:
            reported = super().check_run_worker_health(run)
            known = run.tags[DAGSTER_CELERY_TASK_ID_TAG] in self._live_tasks()
        except (CeleryError, KombuError, RedisError, OSError) as error:
            self._away = time.monotonic()
            return CheckRunHealthResult(
                WorkerStatus.RUNNING, f"The broker does not answer ({error}): nothing is known."
            )
        if known:  # also one with a result: its worker is about to report the run
            self._misses.pop(run.run_id, None)
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        if reported.status is WorkerStatus.FAILED:
            self._misses.pop(run.run_id, None)
            return reported
        ended = reported.status is WorkerStatus.SUCCESS
        if not ended and time.monotonic() - self._away < RECONNECT_SEC:
            return CheckRunHealthResult(WorkerStatus.RUNNING, "The broker was away: workers are coming back to it.")
        misses = self._misses[run.run_id] = self._misses.get(run.run_id, 0) + 1
        if misses < MISSES:
            return CheckRunHealthResult(WorkerStatus.RUNNING, f"No live worker has it ({misses} of {MISSES}).")
        self._misses.pop(run.run_id, None)
        reason = "its task ended, and never said how" if ended else "its machine or its worker died"
        return CheckRunHealthResult(WorkerStatus.FAILED, f"No live worker had the run in {MISSES} looks: {reason}.")

    def _live_tasks(self) -> frozenset[str]:
        """Tasks that live workers are working on or have taken, asked for once for all runs of a look."""
        if time.monotonic() - self._asked > _REMEMBER_SEC:
            inspect = self.celery.control.inspect(timeout=_ANSWER_SEC)
            answers: list[Mapping[str, list[Mapping[str, Any]]] | None] = [inspect.active(), inspect.reserved()]
            found = (task["id"] for answer in answers for tasks in (answer or {}).values() for task in tasks)
            self._tasks, self._asked = frozenset(found), time.monotonic()
        return self._tasks


if BROKER_VARIABLE in os.environ:
    app = worker_app(os.environ[BROKER_VARIABLE], os.environ[RESULTS_VARIABLE])
