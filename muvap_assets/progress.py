"""Progress of long work: done, total, rate and time left, at a bounded rate. Knows no framework and no terminal."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import TypeAlias

from muvap_assets.text_lines import line
from muvap_assets.threads import being_decoded

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with (done, total, current item) after each item. Work in phases begins again at a smaller ``done``."""


def no_progress(done: int, total: int, item: str) -> None:
    """For callers that do not watch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a run did, counted in ``item``s: ``done`` of them stand now, of which ``reused`` were not made again.

    ``skipped`` are those that were set aside or refused.
    """

    item: str
    done: int
    reused: int = 0
    skipped: int = 0


NAMED_SEC = 30.0
"""How often what is being worked on is named at least."""

_NAMED = 4


class ProgressLog:
    """Turns progress calls into at most one line every ``interval_sec``, and a last one as each phase is done.

    A phase is work towards one total; its rate and the time left count from its own beginning. While nothing is done, what is
    being worked on is named every :data:`NAMED_SEC`, until the log is closed or nobody has it any longer.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        what: str,
        interval_sec: float = 10.0,
        clock_sec: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._what, self._interval_sec, self._clock_sec = write, what, interval_sec, clock_sec
        self._lock = Lock()
        self._started = self._written = clock_sec()
        self._done, self._total = 0, -1
        self._item = ""
        self._closed = Event()
        Thread(target=_name_work, args=(weakref.ref(self), self._closed), name="progress", daemon=True).start()

    def close(self) -> None:
        """Name nothing any more."""
        self._closed.set()

    def __del__(self) -> None:
        self._closed.set()

    def name_work(self) -> None:
        """Write a line about what is being worked on, unless a line was written a moment ago."""
        with self._lock:
            quiet_sec = self._clock_sec() - self._written
            files = [f"{path} for {format_seconds(seconds)}" for path, seconds in being_decoded()]
            if quiet_sec < NAMED_SEC / 2 or (self._done >= self._total >= 0 and not files):
                return
            state = "" if self._total < 0 else f" {self._done}/{self._total},"
            more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
            at = (
                f"decoding {', '.join(files[:_NAMED])}{more}"
                if files
                else f"working on {self._item or 'the first item'}"
            )
        with suppress(OSError, ValueError):  # whoever read it has left
            self._write(line(f"{self._what}:{state} {at}"))

    def __call__(self, done: int, total: int, item: str) -> None:
        """Write a line if one is due. May be called from several threads."""
        with self._lock:
            now = self._clock_sec()
            if total != self._total or (done < self._done and self._done >= self._total):
                if self._total >= 0:  # the first phase began with the log
                    self._started = now
                self._total, self._done = total, 0
            repeated, self._done, self._item = done == self._done, max(done, self._done), item
            if now - self._written < self._interval_sec and (done < total or repeated):
                return
            self._written = now
            text = self._line(done, total, item, now - self._started)
        self._write(line(text))

    def _line(self, done: int, total: int, item: str, seconds: float) -> str:
        if not done or seconds <= 0:
            return f"{self._what}: {done}/{total}, {item}"
        rate = done / seconds
        left = "" if done >= total else f", about {format_seconds((total - done) / rate)} left"
        return f"{self._what}: {done}/{total} ({rate:.1f}/s{left}), {item}"


def _name_work(log: weakref.ref[ProgressLog], closed: Event) -> None:
    while not closed.wait(NAMED_SEC):
        known = log()
        if known is None:
            return
        known.name_work()
        del known


def format_seconds(seconds: float) -> str:
    """``75`` as ``1m15s``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
