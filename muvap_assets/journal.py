"""Which version of an artifact became current when: an append-only file an artifact.

Versions are digests and have no order of their own. A folder's time is no order either: refreshing a location-dependent
file changes it, and copying a data root sets them all anew. So each move of ``current`` is written down, one JSON line.
The journal is safe to lose: what it does not name counts as older than what it does, ordered by the folders' times.

    {"version": "2f0c6b1f4a0e9d37", "at_sec": 1767225600.25}

Whoever publishes, rolls back or removes a version holds the lock on this file meanwhile.
What is kept is ``retention``'s, what is shown ``versions``'.
"""

from __future__ import annotations

import errno
import json
import math
import os
import time
from dataclasses import dataclass

from muvap_assets.layout import Artifact


@dataclass(frozen=True, slots=True)
class Event:
    """``version`` became current at ``at_sec``, in seconds since the epoch."""

    version: str
    at_sec: float


def wall_clock_sec() -> float:
    """The time that is written down."""
    return time.time()


def record(artifact: Artifact, version: str) -> None:
    """Write down that ``version`` is current, unless the last line says so; called under the lock.

    Whoever moved ``current`` may have died before writing it down, so that the last line decides and not who moved it.
    """
    if (last := events(artifact)[-1:]) and last[0].version == version:
        return
    line = json.dumps({"version": version, "at_sec": wall_clock_sec()}).encode() + b"\n"
    descriptor = os.open(artifact.journal, os.O_RDWR | os.O_APPEND)  # it is there: its lock is held
    try:
        size = os.fstat(descriptor).st_size
        # A line that a killed process or a full disk cut short must not swallow this one.
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        whole = b"\n" + line if torn else line
        if os.write(descriptor, whole) < len(whole):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(artifact.journal))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def events(artifact: Artifact) -> list[Event]:
    """Every move of ``current``, oldest first; lines that are not whole are left out."""
    try:
        lines = artifact.journal.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            values = json.loads(line)
            event = Event(str(values["version"]), float(values["at_sec"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue
        if math.isfinite(event.at_sec):
            found.append(event)
    return found
