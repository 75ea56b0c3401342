"""A pool of threads that is left by an error drops what has not begun."""

import time

import pytest

from muvap_assets.threads import thread_pool


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_leaving_by_an_error_drops_the_queue_and_waits_for_what_runs(error):
    begun, ended = [], []

    def work(number):
        begun.append(number)
        time.sleep(0.05)
        ended.append(number)
        return number

    def leave():
        with thread_pool(2, "test") as pool:
            results = pool.map(work, range(200))
            next(results)
            raise error

    with pytest.raises(error):
        leave()
    assert sorted(begun) == sorted(ended)
    assert len(begun) < 20


def test_leaving_at_the_end_has_done_everything():
    with thread_pool(3) as pool:
        results = list(pool.map(lambda number: number * 2, range(100)))
    assert results == list(range(0, 200, 2))
