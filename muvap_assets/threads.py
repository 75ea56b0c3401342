"""Threads that a run can leave: pools that drop what has not begun, and decoders that are given up where they hang.

A decoder in native code cannot be interrupted. So it runs in a thread of its own (:func:`watched`), tells of everything it
delivers (:func:`delivered`), and where it reports nothing for ``item_timeout_sec`` nobody waits for it any longer: its thread
is left behind, and ends when the decoder returns and reports something.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding

T = TypeVar("T")

ITEM_TIMEOUT_SEC = 600.0
_LOOK_SEC = 1.0
_limit_sec: ContextVar[float] = ContextVar("item_timeout_sec", default=ITEM_TIMEOUT_SEC)


@contextmanager
def thread_pool(workers: int | None, name: str = "") -> Iterator[ThreadPoolExecutor]:
    """A pool for the block; leaving it, by an error or Ctrl-C too, drops what has not begun and waits for what runs.

    Decoders that run are left behind where the block raises.
    """
    left, limit_sec = threading.Event(), _limit_sec.get()

    def begin() -> None:
        _limit_sec.set(limit_sec)
        _here.left = left

    pool = ThreadPoolExecutor(workers, thread_name_prefix=name, initializer=begin)
    try:
        yield pool
    except BaseException:
        left.set()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


# --- decoders ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Decoding:
    """One piece of work that decodes; ``path`` is the file it is at."""

    path: Path | None = None
    began_sec: float = field(default_factory=time.monotonic)
    told_sec: float = field(default_factory=time.monotonic)
    is_left: bool = False


class _Here(threading.local):
    """What a thread is about: the decoding that it does, or the pool it is of."""

    decoding: _Decoding | None = None
    left: threading.Event | None = None


class _Left(BaseException):
    """Nobody waits for this decoding any longer."""


_here = _Here()
_running: dict[_Decoding, None] = {}
_lock = threading.Lock()


@contextmanager
def item_timeout(seconds: float) -> Iterator[None]:
    """Give decoders up after ``seconds`` without a frame or sample, within the block and the pools that begin in it."""
    token = _limit_sec.set(seconds)
    try:
        yield
    finally:
        _limit_sec.reset(token)


def watched(work: Callable[[], T]) -> T:
    """What ``work`` returns, which runs in a thread that can be left behind; within another such work, in its thread.

    Raises:
        ValidationError: it delivered nothing (:func:`delivered`) for ``item_timeout_sec``.
    """
    if _here.decoding is not None:
        return work()
    decoding, answer, limit_sec = _Decoding(), SimpleQueue[tuple[bool, T | BaseException]](), _limit_sec.get()

    def decode() -> None:
        _here.decoding = decoding
        try:
            answer.put((True, work()))
        except BaseException as error:  # raised again in the thread that waits
            answer.put((False, error))
        finally:
            _here.decoding = None

    with _lock:
        _running[decoding] = None
    try:
        _hand_over(decode)
        came, value = _awaited(answer, decoding, limit_sec)
    finally:
        decoding.is_left = True
        with _lock:
            del _running[decoding]
    if came:
        return value  # type: ignore[return-value]  # of the work itself
    raise value  # type: ignore[misc]  # what it raised


_idle: deque[SimpleQueue[Callable[[], None]]] = deque()
"""Of threads that wait for the next file: to start one for each would cost more than to decode a short file."""

os.register_at_fork(after_in_child=_idle.clear)  # a child has none of these threads


def _hand_over(work: Callable[[], None]) -> None:
    """Let a thread that nobody has to wait for do it."""
    try:
        works = _idle.pop()
    except IndexError:
        works = SimpleQueue()
        threading.Thread(target=_serve, args=(works,), name="decoder", daemon=True).start()
    works.put(work)


def _serve(works: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        works.get()()
        _idle.append(works)


def _awaited(
    answer: SimpleQueue[tuple[bool, T | BaseException]], decoding: _Decoding, limit_sec: float
) -> tuple[bool, T | BaseException]:
    while True:
        try:
            return answer.get(timeout=min(_LOOK_SEC, limit_sec))
        except Empty:
            if _here.left is not None and _here.left.is_set():
                raise RuntimeError("the pool was left while this was decoded") from None
            if time.monotonic() - decoding.told_sec >= limit_sec:
                found = f"nothing more decoded within {limit_sec:g} s"
                raise ValidationError(Finding(Code.DECODER_STUCK, decoding.path, found)) from None


def delivered(path: Path | None = None) -> None:
    """Tell that this thread's decoding lives: as ``path`` is opened, and with each piece of it, before that is used."""
    decoding = _here.decoding
    if decoding is None:
        return
    if decoding.is_left:
        raise _Left
    decoding.path, decoding.told_sec = path or decoding.path, time.monotonic()


def being_decoded() -> list[tuple[Path, float]]:
    """The files that are being decoded, and for how many seconds; those that take longest first."""
    now_sec = time.monotonic()
    with _lock:
        found = [(each.path, now_sec - each.began_sec) for each in _running if each.path is not None]
    return sorted(found, key=lambda each: -each[1])
