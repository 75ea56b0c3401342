"""Runs on other machines: the worker's Celery app, and the launcher that notices when such a machine dies.

Needs the ``cluster`` extra; nothing else imports this module. ``deploy/cluster/dagster.yaml`` names the launcher, and each
worker runs ``celery -A muvap_assets.defs.cluster worker``: see ``docs/operations.md`` and
https://docs.dagster.io/guides/deploy/execution/run-launchers.
"""

import os
import time
from collections.abc import Mapping
from typing import Any

from celery import Celery
from celery.exceptions import CeleryError
from dagster import DagsterRun
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster_celery.launcher import CeleryRunLauncher
from dagster_celery.make_app import make_app
from dagster_celery.tags import DAGSTER_CELERY_QUEUE_TAG, DAGSTER_CELERY_TASK_ID_TAG
from dagster_celery.tasks import create_execute_job_task
from kombu.exceptions import KombuError

from muvap_assets.defs import ref2va
from muvap_assets.defs.conditions import GPU_RUN_TAGS

BROKER_VARIABLE, RESULTS_VARIABLE = "MUVAP_CELERY_BROKER", "MUVAP_CELERY_RESULTS"
GPU_QUEUE, CPU_QUEUE = GPU_RUN_TAGS[DAGSTER_CELERY_QUEUE_TAG], "cpu"
MISSES = 3
"""How many looks in a row have to find a run with no worker before it counts as lost."""

_ANSWER_SEC, _REMEMBER_SEC = 2.0, 5.0


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
    )
    create_execute_job_task(app)
    return app


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

    def launch_run(self, context: LaunchRunContext) -> None:
        """Put a run on its queue."""
        run = context.dagster_run
        needs_gpu = ref2va.ENCODED_LATENTS in (run.asset_selection or ())
        if needs_gpu and DAGSTER_CELERY_QUEUE_TAG not in run.tags:
            self._instance.add_run_tags(run.run_id, GPU_RUN_TAGS)
            run = run.with_tags({**run.tags, **GPU_RUN_TAGS})
            context = LaunchRunContext(dagster_run=run, workspace=context.workspace)
        super().launch_run(context)

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Whether a run is still being worked on, by what the live workers say."""
        if DAGSTER_CELERY_TASK_ID_TAG not in run.tags:
            return CheckRunHealthResult(WorkerStatus.RUNNING, "Not yet on a queue.")
        reported = super().check_run_worker_health(run)
        if reported.status in (WorkerStatus.SUCCESS, WorkerStatus.FAILED):
            self._misses.pop(run.run_id, None)
            return reported
        try:
            known = run.tags[DAGSTER_CELERY_TASK_ID_TAG] in self._live_tasks()
        except (CeleryError, KombuError, OSError) as error:
            return CheckRunHealthResult(
                WorkerStatus.RUNNING, f"The broker does not answer ({error}): nothing is known."
            )
        if known:
            self._misses.pop(run.run_id, None)
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        misses = self._misses[run.run_id] = self._misses.get(run.run_id, 0) + 1
        if misses < MISSES:
            return CheckRunHealthResult(WorkerStatus.RUNNING, f"No live worker has it ({misses} of {MISSES}).")
        self._misses.pop(run.run_id, None)
        return CheckRunHealthResult(
            WorkerStatus.FAILED, f"No live worker had the run in {MISSES} looks: its machine or its worker died."
        )

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
