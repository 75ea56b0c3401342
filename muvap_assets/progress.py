"""Progress of long work: done, total, rate and time left, at a bounded rate. Knows no framework and no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with (done, total, current item) after each item."""


def no_progress(done: int, total: int, item: str) -> None:
    """For callers that do not watch."""


class ProgressLog:
    """Turns progress calls into at most one line every ``interval_sec``, and a last one when everything is done."""

    def __init__(self, write: Callable[[str], None], what: str, interval_sec: float = 10.0) -> None:
        self._write, self._what, self._interval_sec = write, what, interval_sec
        self._started = self._written = time.monotonic()

    def __call__(self, done: int, total: int, item: str) -> None:
        """Write a line if one is due. May be called from several threads; a line too many does no harm."""
        now = time.monotonic()
        if done < total and now - self._written < self._interval_sec:
            return
        self._written = now
        rate = done / max(now - self._started, 1e-9)
        left = "" if done >= total or not done else f", about {format_seconds((total - done) / rate)} left"
        self._write(f"{self._what}: {done}/{total} ({rate:.1f}/s{left}), {item}")


def format_seconds(seconds: float) -> str:
    """``75`` as ``1m15s``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
