"""What of Dagster's own records may go: old runs with their logs, and old ticks of sensors and schedules.

| removed, once older than asked                  | unless                                                                 |
|-------------------------------------------------|------------------------------------------------------------------------|
| a run, its events, its captured output          | it is not over, or an asset's page or automation needs it: see below   |
| a tick of a sensor or a schedule, with its log  |                                                                        |

A run stays as a whole where it holds, of any partition of any asset, the latest materialization, observation or attempt, or the
latest evaluation of a check: pages show these, and automation conditions compare against them. Cursors are no part of runs.

Each run of SQLite's has a file, which goes with it. What is removed from the files that all runs share leaves free pages there,
which later records use: such a file does not grow, and is made smaller where that takes a moment and harms nobody.
See https://docs.dagster.io/guides/deploy/dagster-instance-configuration.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import sqlalchemy as db
from dagster._core.scheduler.instigation import InstigatorState
from dagster._core.storage.dagster_run import FINISHED_STATUSES
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable, SqlEventLogStorageTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from muvap_assets.disk import file_states, free_bytes

DAY_SEC = 86_400.0
DEFAULT_DAYS = 90.0
"""How long runs and ticks are kept where nobody says otherwise."""

_KEPT_EVENTS = (
    dg.DagsterEventType.ASSET_MATERIALIZATION,
    dg.DagsterEventType.ASSET_OBSERVATION,
    dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
    dg.DagsterEventType.ASSET_FAILED_TO_MATERIALIZE,
)
_AT_ONCE = 100
_SHARED = {"index.db", "runs.db", "schedules.db"}
_SHRUNK_BYTES = 256 * 2**20
"""A file of this size is rewritten in a few seconds; other processes wait 30 s for it before they fail."""


@dataclass(slots=True)
class PruneReport:
    """What was removed, or would be, and what ``DAGSTER_HOME`` held before and after."""

    dry_run: bool
    runs: list[str] = field(default_factory=list)
    ticks: int = 0
    kept: int = 0
    """Old runs that stay since a page or a condition needs them."""
    before_bytes: int = 0
    after_bytes: int = 0
    left: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """The report for people."""
        yield from (f"left: {line}" for line in self.left)
        done = "would be removed" if self.dry_run else "removed"
        yield (
            f"{len(self.runs)} runs and {self.ticks} ticks {done}, {self.kept} old runs kept (latest of a partition or a check); "
            f"DAGSTER_HOME: {self.before_bytes:,} bytes before, {self.after_bytes:,} after"
        )


def prune(
    instance: dg.DagsterInstance, days: float, *, dry_run: bool = False, now_sec: float | None = None
) -> PruneReport:
    """Remove runs and ticks that are older than ``days``.

    Args:
        instance: whose records.
        days: how long they are kept.
        dry_run: change nothing.
        now_sec: the time ages are counted to, in seconds since the epoch.
    """
    before_sec = (time.time() if now_sec is None else now_sec) - days * DAY_SEC
    home = Path(instance.root_directory)
    report = PruneReport(dry_run, before_bytes=_bytes(home))
    needed = _needed_runs(instance)
    old = _old_runs(instance, before_sec)
    report.runs = [run_id for run_id in old if run_id not in needed]
    report.kept = len(old) - len(report.runs)
    if not dry_run:
        for run_id in report.runs:
            _remove_run(instance, run_id)
    for state in instance.all_instigator_state() if instance.schedule_storage else ():
        report.ticks += _remove_ticks(instance, state, before_sec, dry_run=dry_run)
    if not dry_run:
        report.left += [line for path in sorted(home.rglob("*.db")) if path.name in _SHARED and (line := _shrink(path))]
    report.after_bytes = _bytes(home)
    return report


def _bytes(home: Path) -> int:
    return sum(state.st_size for state in file_states(home))


# --- runs -------------------------------------------------------------------------------------------------------------


def _old_runs(instance: dg.DagsterInstance, before_sec: float) -> list[str]:
    """Runs that ended, or were given up without a beginning, before a time."""
    # What is stored was written at the latest when it ended.
    filters = dg.RunsFilter(statuses=FINISHED_STATUSES, created_before=datetime.fromtimestamp(before_sec, UTC))
    found: list[str] = []
    cursor = None
    while records := instance.get_run_records(filters, limit=_AT_ONCE, cursor=cursor):
        ended = [(record, record.end_time or record.update_timestamp.timestamp()) for record in records]
        found += [record.dagster_run.run_id for record, end_sec in ended if end_sec < before_sec]
        cursor = records[-1].dagster_run.run_id
    return found


def _needed_runs(instance: dg.DagsterInstance) -> set[str]:
    """Runs that hold the latest of what is known of a partition of an asset or of one of its checks."""
    events, checks = SqlEventLogStorageTable.c, AssetCheckExecutionsTable.c
    by_event = (events.asset_key, events.partition, events.dagster_event_type)
    by_check = (checks.asset_key, checks.check_name, checks.partition)
    kept = [kind.value for kind in _KEPT_EVENTS]
    latest_events = (
        db.select(db.func.max(events.id))
        .where(events.asset_key.is_not(None), events.dagster_event_type.in_(kept))
        .group_by(*by_event)
    )
    latest_checks = db.select(db.func.max(checks.id)).group_by(*by_check, checks.execution_status)
    queries = (
        db.select(events.run_id).where(events.id.in_(latest_events)).distinct(),
        db.select(checks.run_id).where(checks.id.in_(latest_checks)).distinct(),
    )
    with _storage(instance).index_connection() as connection:
        return {run_id for query in queries for (run_id,) in connection.execute(query)}


def _remove_run(instance: dg.DagsterInstance, run_id: str) -> None:
    storage = _storage(instance)
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    instance.delete_run(run_id)
    with storage.index_connection() as connection:
        connection.execute(AssetCheckExecutionsTable.delete().where(AssetCheckExecutionsTable.c.run_id == run_id))
    if isinstance(storage, SqliteEventLogStorage):
        for suffix in ("", "-wal", "-shm"):
            Path(storage.path_for_shard(run_id) + suffix).unlink(missing_ok=True)


def _storage(instance: dg.DagsterInstance) -> SqlEventLogStorage:
    storage = instance.event_log_storage
    if not isinstance(storage, SqlEventLogStorage):
        raise TypeError(f"event log storage: found {type(storage).__name__}; required: SQLite or PostgreSQL")
    return storage


# --- ticks ------------------------------------------------------------------------------------------------------------


def _remove_ticks(instance: dg.DagsterInstance, state: InstigatorState, before_sec: float, *, dry_run: bool) -> int:
    """Remove the old ticks of one sensor or schedule, with what was logged in them; returns how many."""
    ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, before=before_sec)
    if ticks and not dry_run:
        for tick in ticks:
            if tick.log_key:
                instance.compute_log_manager.delete_logs(log_key=tick.log_key)
        instance.purge_ticks(state.instigator_origin_id, state.selector_id, before_sec)
    return len(ticks)


# --- files ------------------------------------------------------------------------------------------------------------


def _shrink(path: Path) -> str | None:
    """Give the free pages of a SQLite file back to the disk; returns why they stay, where they are worth it."""
    with closing(sqlite3.connect(path, timeout=5)) as file:
        size, free = (
            file.execute("PRAGMA page_size").fetchone()[0] * file.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count")
        )
        if free < size / 4:
            return None
        kept = f"{path.name}: {free:,} of its {size:,} bytes are free, and used again by later records"
        if size - free > _SHRUNK_BYTES or free_bytes(path) < 2 * size:
            return f"{kept}. To have them back, stop everything and run `sqlite3 {path} VACUUM`."
        try:
            file.execute("VACUUM")
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.OperationalError as error:
            return f"{kept}: {error}. Run it again when fewer runs are in progress."
    return None
