"""``muvap ops``: verbs for whoever runs the platform that need Dagster's own records.

Belongs here: commands about runs. Commands about data know no Dagster and are in ``muvap_assets/cli``. See
https://docs.dagster.io/guides/operate/managing-concurrency.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import click
import dagster as dg
from sqlalchemy.exc import OperationalError

from muvap_assets.defs import pools, pruning
from muvap_assets.disk import free_bytes, sizes

QUIET_SEC = 120
"""A run of another machine that wrote to its log this recently may well be alive: one that encodes writes every few seconds."""


@click.group()
def ops() -> None:
    """Look after runs; needs DAGSTER_HOME."""


@ops.command("release-run")
@click.argument("run_id")
@click.option("--force", is_flag=True, help="Also a run that may be alive.")
def release_run(run_id: str, force: bool) -> None:
    """Release what RUN_ID holds: for a run whose process was killed, which still holds the GPU's place.

    Its place in every pool is freed, and where it was not over yet it is reported failed. Its data need nothing: what was
    not published is cleaned up by the next run, rows that were encoded are kept. A run that is alive must be terminated
    instead (in the UI), or two runs would share one GPU. One whose process on this machine is seen to be dead is released
    at once, and by the next run that waits for its place; this is for one of another machine.
    """
    with _platform() as instance:
        error = release(instance, run_id, force=force)
    if error:
        _refuse(error)
    click.echo(f"{run_id}: released")


@ops.command("prune-runs")
@click.option(
    "--days",
    type=click.FloatRange(min=0),
    default=pruning.DEFAULT_DAYS,
    show_default=True,
    help="How long runs and ticks are kept.",
)
@click.option("--dry-run", is_flag=True, help="Say how much would be removed, and remove nothing.")
def prune_runs(days: float, dry_run: bool) -> None:
    """Remove runs, their logs and the ticks of sensors from DAGSTER_HOME once they are old.

    Never a run that is not over, nor one that made what a page shows last of a partition or a check.
    """
    with _platform() as instance:
        report = pruning.prune(instance, days, dry_run=dry_run)
    for line in report.lines():
        click.echo(line)


@contextmanager
def _platform() -> Iterator[dg.DagsterInstance]:
    """The instance of DAGSTER_HOME; where it cannot be opened, read or written the command ends in one line."""
    home = os.environ.get("DAGSTER_HOME")
    folder = Path(home or "").expanduser()
    if not home or not folder.is_absolute() or not folder.is_dir():
        # Dagster would raise, and for a run there is no other place to look.
        found = repr(home) if home else "not set"
        _refuse(
            f"DAGSTER_HOME: {found}; required: the absolute path of the platform's Dagster folder. Set it to the daemon's."
        )
    try:
        with dg.DagsterInstance.get() as instance:
            yield instance
    except OperationalError as error:
        [free] = sizes(free_bytes(folder))
        _refuse(
            f"DAGSTER_HOME {folder}: {error.orig}; required: a database that can be read and written, and room for it ({free} "
            "free on the disk). Free some space by other means first, or see to the database."
        )


def _refuse(error: str) -> NoReturn:
    click.echo(f"error: {error}", err=True)
    sys.exit(1)


def release(instance: dg.DagsterInstance, run_id: str, *, force: bool = False) -> str | None:
    """Free what a dead run holds and report it failed.

    Returns:
        Why it was left alone, or ``None``.
    """
    run = instance.get_run_by_id(run_id)
    if run is None:
        return f"run {run_id}: not in this instance; required: a run's id, as the UI and the log name it. Is DAGSTER_HOME right?"
    life, known = pools.life_of(instance, run_id)
    if life is pools.Life.ALIVE and not force:
        return f"run {run_id}: {known}; required: a dead one. Terminate it in the UI, or with `kill`, first."
    if life is pools.Life.UNKNOWN and not run.is_finished and not force:
        quiet = _quiet_sec(instance, run_id)
        if quiet < QUIET_SEC:
            return (
                f"run {run_id}: it wrote to its log {quiet:.0f} s ago, required: {QUIET_SEC} s of silence, for it has {known}. "
                "If its process is dead, use --force; if it is alive, terminate it in the UI."
            )
    pools.give_back(instance, run, "Released by hand (muvap ops release-run): its process was gone.")
    pools.forget(instance, run_id)
    return None


def _quiet_sec(instance: dg.DagsterInstance, run_id: str) -> float:
    records = instance.get_records_for_run(run_id, limit=1, ascending=False).records
    return time.time() - records[0].timestamp if records else float("inf")
