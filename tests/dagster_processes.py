"""A Dagster daemon with its code server, as an operator runs it: real processes, real storage, stopped as a group."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import yaml

ROOT = Path(__file__).parents[1]


def _default_signals():
    # a process started in the background of a shell may have been told to ignore these
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def process(command, log, **environment):
    """A command in a process group of its own, the whole group stopped at the end."""
    with log.open("ab") as stream:
        started = subprocess.Popen(
            [sys.executable, "-m", *command],
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            cwd=log.parent,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_default_signals,
        )
    try:
        yield started
    finally:
        stop(started)


def stop(started, wait_sec=20):
    """End a group: politely, then for good."""
    for number, patience in ((signal.SIGTERM, wait_sec), (signal.SIGKILL, 10)):
        try:
            os.killpg(started.pid, number)
        except ProcessLookupError:
            break
        try:
            started.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    started.wait(10)


def write_instance(home, **settings):
    """The local instance file, with ``settings`` over it."""
    home.mkdir(exist_ok=True)
    local = yaml.safe_load((ROOT / "deploy" / "local" / "dagster.yaml").read_text())
    (home / "dagster.yaml").write_text(yaml.safe_dump({**local, **settings}))
    return home


def until(condition, within, what, every=0.5):
    """Wait for ``condition``, looked at ``every`` so many seconds, to become true; what it returned.

    ``within`` seconds are meant for a machine with nothing else to do; one that runs other tests beside this is given more.
    ``what`` is for the message: a text, or what is called for one.
    """
    within *= max(3.0, 2 * os.getloadavg()[0] / os.cpu_count())
    end = time.monotonic() + within
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(every)
    raise TimeoutError(f"{what() if callable(what) else what}: not within {within:.0f} s")


def versions(instance, key, partition):
    """How often a partition was materialized."""
    records = dg.AssetRecordsFilter(key, asset_partitions=[partition])
    return len(instance.fetch_materializations(records, limit=100).records)
