"""A pool of threads that an interrupted run leaves at once, where the library's own first works off all that waits."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def thread_pool(workers: int | None, name: str = "") -> Iterator[ThreadPoolExecutor]:
    """A pool for the block; leaving it, by an error or Ctrl-C too, waits for what runs and drops what has not begun."""
    pool = ThreadPoolExecutor(workers, thread_name_prefix=name)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
