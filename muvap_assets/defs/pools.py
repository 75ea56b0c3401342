"""Runs and their places in pools: which process of this machine a run lives in, what dead runs hold, how others wait for it.

Each run holds a lock in ``DAGSTER_HOME/run_processes`` for as long as its process lives: the kernel releases it however that
process ends, so that a lock nobody holds proves that its run is dead. A run without one is of another machine, or is over:
of that nothing is known here. What dead runs hold is given back by whichever run waits for it, by a sensor of the daemon, and
by ``muvap ops release-run``.

Dagster's own executor of one process asks for a place without a pause between, and says nothing. The one here sleeps as its
multiprocess executor does, and says whom it waits for. See https://docs.dagster.io/guides/operate/managing-concurrency.
"""

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from enum import Enum, auto
from pathlib import Path
from typing import Any, NoReturn

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.events import DagsterEvent, EngineEventData
from dagster._core.execution.api import ExecuteRunWithPlanIterable
from dagster._core.execution.context.system import PlanExecutionContext, PlanOrchestrationContext
from dagster._core.execution.context_creation_job import PlanExecutionContextManager
from dagster._core.execution.plan.execute_plan import inner_plan_execution_iterator
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.in_process import InProcessExecutor
from dagster._utils.interrupts import pop_captured_interrupt
from sqlalchemy.exc import OperationalError

from muvap_assets.disk import free_bytes, require_space
from muvap_assets.storage.locks import PrivatePlace, private_place, private_places

TELL_SEC = 60.0
"""How often a run that waits says so."""

LOOK_SEC = 30
"""How often the daemon looks for dead runs."""

RECORD_BYTES = 32 * 10**6
"""What has to be free for the records of a run before it begins; they take less than a tenth of it."""

_RUN_ID_LENGTH, _NAP_SEC, _LAST_BYTES = 36, 1.0, 10**6


class Life(Enum):
    """What this machine knows of a run's process."""

    ALIVE = auto()
    DEAD = auto()
    UNKNOWN = auto()


# --- which runs are alive ---------------------------------------------------------------------------------------------


@contextmanager
def _living(instance: dg.DagsterInstance, run_id: str) -> Iterator[None]:
    """Hold the lock that says that a run's process, this one, is alive."""
    with private_place(_processes(instance), run_id) as place:
        place.write_text(str(os.getpid()), encoding="ascii")
        yield


def life_of(instance: dg.DagsterInstance, run_id: str) -> tuple[Life, str]:
    """Whether a run's process is alive, and how to say it."""
    for place in private_places(_processes(instance), f"{run_id}-"):
        if place.in_use:
            return Life.ALIVE, f"its process {_process_id(place)} on this machine is alive"
        if _was_held(place):
            return Life.DEAD, "its process is dead"
    return Life.UNKNOWN, "no process of this machine"


def _was_held(place: PrivatePlace) -> bool:
    """Whether a lock that nobody holds was ever held: the number is written under it. Else its process is only starting."""
    return place.path.exists()


def release_dead(instance: dg.DagsterInstance) -> list[str]:
    """Release whatever runs of this machine whose process is dead; returns a line on each."""
    released = []
    for place in private_places(_processes(instance)):
        # Its lock is held here meanwhile: no other process releases the same run.
        dead = not place.in_use and _was_held(place)
        run = instance.get_run_by_id(place.path.name[:_RUN_ID_LENGTH]) if dead else None
        if run is not None and (
            not run.is_finished or run.run_id in instance.event_log_storage.get_concurrency_run_ids()
        ):
            give_back(instance, run, "Its process was killed: found by its lock, which nobody held.")
            released.append(
                f"run {run.run_id} ({subject(run)}): its process was killed. Its place in every pool is free"
                f"{'' if run.is_finished else ', it is reported failed'}; what it had encoded is kept."
            )
        if dead:
            place.remove()
    return released


def give_back(instance: dg.DagsterInstance, run: dg.DagsterRun, reason: str) -> None:
    """Free a run's places in all pools, and report it failed unless it is over."""
    if not run.is_finished:
        instance.report_run_failed(run, reason)
    instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)


def forget(instance: dg.DagsterInstance, run_id: str) -> None:
    """Remove the lock that a dead run left."""
    for place in private_places(_processes(instance), f"{run_id}-"):
        if not place.in_use:
            place.remove()


def subject(run: dg.DagsterRun) -> str:
    """What a run makes, for people."""
    assets = sorted(key.to_user_string() for key in run.asset_selection or ())
    partition = run.tags.get("dagster/partition")
    return f"{', '.join(assets) or run.job_name}{f' [{partition}]' if partition else ''}"


def _processes(instance: dg.DagsterInstance) -> Path:
    return Path(instance.root_directory, "run_processes")


def _process_id(place: PrivatePlace) -> str:
    try:
        return place.path.read_text(encoding="ascii")
    except OSError:
        return "of unknown number"  # it is only just starting, or done


# --- waiting ----------------------------------------------------------------------------------------------------------


class _Places(InstanceConcurrencyContext):
    """Claims places for the steps of a run: gives back what dead runs hold, and says whom it waits for."""

    def __init__(self, context: PlanExecutionContext) -> None:
        super().__init__(context.instance, context.dagster_run)
        self._log, self._told_sec = context.log, float("-inf")

    def claim(self, concurrency_key: str, step_key: str, step_priority: int = 0) -> bool:
        """Whether a step has its place in a pool now.

        Raises:
            DagsterExecutionInterruptedError: the run was told to end while it waited.
        """
        if pop_captured_interrupt():
            raise DagsterExecutionInterruptedError(
                f"{step_key}: interrupted while it waited for pool '{concurrency_key}'"
            )
        attempts = self._pending_claim_counts[step_key]
        if super().claim(concurrency_key, step_key, step_priority):
            return True
        if self._pending_claim_counts[step_key] > attempts:  # it was asked for, not only waited
            released = release_dead(self._instance)
            for line in released:
                self._log.warning(line)
            if released:
                self._pending_timeouts[step_key] = 0.0
            elif time.monotonic() - self._told_sec >= TELL_SEC:
                self._told_sec = time.monotonic()
                self._log.warning(f"{step_key} waits for {_held(self._instance, concurrency_key)}")
        return False

    def interval_to_next_pending_claim_check(self) -> float:
        """Seconds to sleep until it is worth asking again, or whether to end; Dagster's own is never more than none."""
        return min(_NAP_SEC, max(0.0, min(self._pending_timeouts.values(), default=0.0) - time.time()))


def _held(instance: dg.DagsterInstance, pool: str) -> str:
    """Who holds a pool, since when, and what frees it."""
    info = instance.event_log_storage.get_concurrency_info(pool)
    taken = [slot.run_id for slot in info.claimed_slots]
    taken += [step.run_id for step in info.pending_steps if step.assigned_timestamp is not None]
    holders = "; ".join(_holder(instance, run_id) for run_id in dict.fromkeys(taken)) or "no run"
    return f"a place in pool '{pool}' (limit {info.limit}), held by {holders}"


def _holder(instance: dg.DagsterInstance, run_id: str) -> str:
    record = instance.get_run_record_by_id(run_id)
    if record is None:
        return f"run {run_id}, which is not in this instance any more"
    start = record.start_time
    since = "" if start is None else f", since {datetime.fromtimestamp(start, UTC):%Y-%m-%d %H:%M:%S} UTC"
    _, known = life_of(instance, run_id)
    return (
        f"run {run_id} ({subject(record.dagster_run)}{since}; {known}): `muvap ops release-run {run_id}` frees it if its process "
        "is dead"
    )


# --- the executor and the sensor --------------------------------------------------------------------------------------


class _OneProcess(InProcessExecutor):
    """Dagster's executor of one process, with its own way to wait for a place."""

    def execute(self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan) -> Iterator[DagsterEvent]:
        """Run the steps of a plan, one after the other."""
        steps = execution_plan.step_keys_to_execute
        yield DagsterEvent.engine_event(
            plan_context,
            f"Executing steps in process (pid: {os.getpid()})",
            event_specific_data=EngineEventData.in_process(os.getpid(), steps),
        )
        events = iter(
            ExecuteRunWithPlanIterable(
                execution_plan=plan_context.execution_plan,
                iterator=_execute,
                execution_context_manager=PlanExecutionContextManager(
                    job=plan_context.job,
                    retry_mode=plan_context.retry_mode,
                    execution_plan=plan_context.execution_plan,
                    run_config=plan_context.run_config,
                    dagster_run=plan_context.dagster_run,
                    instance=plan_context.instance,
                    raise_on_error=plan_context.raise_on_error,
                    output_capture=plan_context.output_capture,
                    step_dependency_config=self.step_dependency_config,
                ),
            )
        )
        if plan_context.instance.is_ephemeral:  # nobody else sees its runs, and it would make a folder to lock them in
            yield from events
            return
        home = Path(plan_context.instance.root_directory)
        with ExitStack() as living:
            try:
                living.enter_context(_living(plan_context.instance, plan_context.run_id))
                for event in events:
                    yield event
                    if free_bytes(home) < _LAST_BYTES:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(home))
            except (OSError, OperationalError):
                if free_bytes(home) >= _LAST_BYTES:
                    raise
                _end_without_records(home, plan_context.run_id, events)


def require_record_space(instance: dg.DagsterInstance) -> None:
    """Refuse to begin what could not be recorded to its end.

    Raises:
        PublishError: the disk that holds ``DAGSTER_HOME`` is nearly full.
    """
    if instance.is_ephemeral:
        return
    home = Path(instance.root_directory)
    remedy = "Free some space (`muvap ops prune-runs` removes old runs), or move DAGSTER_HOME."
    require_space(home, RECORD_BYTES, f"DAGSTER_HOME {home}: records of this run", remedy)


def _end_without_records(home: Path, run_id: str, events: Iterator[DagsterEvent]) -> NoReturn:
    """End a run whose records cannot be written: Dagster would go on and lose them, and end in a traceback.

    The process ends as if it were killed, so that its lock tells that the run is dead.
    """
    with suppress(Exception):
        events.close()  # type: ignore[attr-defined]  # a generator; what the process prints goes to files until then
    sys.stderr.write(
        f"error: DAGSTER_HOME {home}: the disk that holds it is full: records of run {run_id} are lost; required: "
        f"{RECORD_BYTES / 1e6:.0f} MB free. Free some space, then materialize it again: what was published stands, and the run is "
        "reported failed by the next that looks.\n"
    )
    sys.stderr.flush()
    os._exit(1)


def _execute(job_context: PlanExecutionContext, execution_plan: ExecutionPlan) -> Iterator[DagsterEvent]:
    with _Places(job_context) as places:
        yield from inner_plan_execution_iterator(job_context, execution_plan, places)


@dg.executor(name="in_process")
def one_process_executor(context: dg.InitExecutorContext) -> Any:
    """Run all steps in the run's own process: a child a step costs an import of everything, and dies under Celery."""
    return _OneProcess(retries=RetryMode.ENABLED)


def build_dead_run_sensor() -> dg.SensorDefinition:
    """The sensor that releases what dead runs hold: a run in the queue does not look for itself."""

    @dg.sensor(
        name="dead_runs",
        minimum_interval_seconds=LOOK_SEC,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports runs failed whose process on this machine was killed, and frees their place in every pool.",
    )
    def dead_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        released = release_dead(context.instance)
        for line in released:
            context.log.warning(line)
        return dg.SkipReason(" ".join(released) or _queued(context.instance))

    return dead_runs


def _queued(instance: dg.DagsterInstance) -> str:
    """Whom the runs in Dagster's queue wait for."""
    queued = instance.get_runs(filters=dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]))
    infos = instance.event_log_storage.get_concurrency_infos(
        sorted({pool for run in queued if run.run_op_concurrency for pool in run.run_op_concurrency.root_key_counts})
    )
    full = [pool for pool, info in infos.items() if len(info.claimed_slots) >= (info.limit or 0)]
    return " ".join(f"Runs in the queue wait for {_held(instance, pool)}." for pool in full) or "No dead run."
