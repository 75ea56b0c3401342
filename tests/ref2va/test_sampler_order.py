"""The order of training: properties over generated sizes, and the very numbers of the contract's example."""

import logging
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muvap_assets.errors import ConfigError
from muvap_assets.ref2va.sampler import BucketBatchSampler, Schedule, global_order, group_of

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=6).map(tuple)
SCHEDULES = st.builds(
    Schedule,
    bucket_sizes=SIZES,
    batch_size=st.integers(1, 3),
    groups=st.integers(1, 9),
    seed=st.integers(0, 2**64 - 1),
)


@dataclass(frozen=True)
class Dataset:
    """What a sampler asks of a dataset."""

    sizes: tuple[int, ...]
    version: str = "v1"

    @property
    def buckets(self):
        return tuple((f"bucket=32x32-{17 * place + 5}f", size) for place, size in enumerate(self.sizes))


def buckets_of(schedule):
    """The bucket of every row, counted out."""
    return [bucket for bucket, size in enumerate(schedule.bucket_sizes) for _ in range(size)]


@settings(deadline=None)
@given(SCHEDULES, st.integers(0, 5))
def test_a_step_holds_one_shape_and_an_epoch_every_row(schedule, epoch):
    order, buckets = global_order(schedule, epoch), buckets_of(schedule)
    assert order.shape == (schedule.steps, schedule.batch_size * schedule.groups)
    assert all(len({buckets[row] for row in step}) == 1 for step in order.tolist())
    assert set(order.ravel().tolist()) == set(range(len(buckets)))


@settings(deadline=None)
@given(SCHEDULES, st.integers(0, 5))
def test_repeats_are_as_reported_and_spread_evenly_within_their_bucket(schedule, epoch):
    drawn = Counter(global_order(schedule, epoch).ravel().tolist())
    buckets, repeated = buckets_of(schedule), Counter()
    counts = [[] for _ in schedule.bucket_sizes]
    for row, times in drawn.items():
        repeated[buckets[row]] += times - 1
        counts[buckets[row]].append(times)
    assert tuple(repeated[bucket] for bucket in range(len(counts))) == schedule.repeats
    assert all(max(times) - min(times) <= 1 for times in counts)


@settings(deadline=None)
@given(SCHEDULES, st.integers(0, 3), st.integers(1, 4))
def test_every_rank_takes_as_many_steps_and_ranks_of_a_sequence_group_share_rows(schedule, epoch, sp_size):
    world = schedule.groups * sp_size
    parts = []
    for rank in range(world):
        sampler = BucketBatchSampler(
            Dataset(schedule.bucket_sizes),
            batch_size=schedule.batch_size,
            seed=schedule.seed,
            rank=rank,
            world_size=world,
            sp_size=sp_size,
        )
        sampler.set_epoch(epoch)
        parts.append(list(sampler))
    assert {len(part) for part in parts} == {schedule.steps}
    for first in range(0, world, sp_size):
        assert all(parts[first] == part for part in parts[first : first + sp_size])
    assert np.array_equal(np.concatenate(parts[::sp_size], axis=1), global_order(schedule, epoch))


@settings(deadline=None)
@given(SCHEDULES, st.integers(0, 5))
def test_the_order_is_a_function_of_its_arguments_alone(schedule, epoch):
    again = Schedule(
        bucket_sizes=schedule.bucket_sizes,
        batch_size=schedule.batch_size,
        groups=schedule.groups,
        seed=schedule.seed,
    )
    np.random.seed(epoch)
    assert np.array_equal(global_order(schedule, epoch), global_order(again, epoch))


def test_another_epoch_or_seed_is_another_order_of_rows_steps_and_company():
    schedule = Schedule(bucket_sizes=(40, 30), groups=4, seed=1)
    orders = [global_order(schedule, epoch) for epoch in range(4)]
    orders.append(global_order(Schedule(bucket_sizes=(40, 30), groups=4, seed=2), 0))
    assert len({order.tobytes() for order in orders}) == len(orders)
    company = [frozenset(map(frozenset, order.tolist())) for order in orders]
    assert len(set(company)) == len(orders)
    shapes = [tuple((order[:, 0] >= 40).tolist()) for order in orders]
    assert len(set(shapes)) == len(orders)


def test_seven_rare_rows_over_thirty_two_groups_are_repeated_twenty_five_times_and_reported_so():
    schedule = Schedule(bucket_sizes=(64, 7), groups=32)
    assert schedule.repeats == (0, 25)
    assert schedule.steps == 3
    order = global_order(schedule, 0)
    (rare,) = [step for step in order.tolist() if step[0] >= 64]
    assert sorted(Counter(rare).values()) == [4, 4, 4, 5, 5, 5, 5]


def test_the_order_never_changes_between_versions():
    """Seen once and kept: a run resumed under another version must go on in the same order."""
    schedule = Schedule(bucket_sizes=(3, 5), groups=2, batch_size=2, seed=7)
    assert global_order(schedule, 0).tolist() == [[7, 3, 4, 6], [2, 0, 1, 1], [5, 4, 7, 3]]


def test_every_row_comes_first_about_equally_often():
    first = [int(global_order(Schedule(bucket_sizes=(8,)), epoch)[0, 0]) for epoch in range(400)]
    assert min(Counter(first)[row] for row in range(8)) > 20  # 50 expected


@pytest.mark.parametrize(("world", "sp_size"), [(1, 1), (2, 1), (4, 2), (8, 1)])
def test_steps_and_repeats_of_an_epoch_are_those_of_the_released_sampler(world, sp_size):
    """Its rule, counted out: rows of a bucket are added until the bucket fills global batches, then split among groups."""
    sizes = (9, 16, 1, 23)
    groups = world // sp_size
    filled = []
    for size in sizes:
        rows = size
        while rows % groups:
            rows += 1
        filled.append(rows)
    sampler = BucketBatchSampler(Dataset(sizes), world_size=world, sp_size=sp_size)
    assert len(sampler) == len(list(sampler)) == sum(filled) // groups
    expected = {
        name: rows - size for (name, size), rows in zip(Dataset(sizes).buckets, filled, strict=True) if rows > size
    }
    assert sampler.repeats == expected


def test_a_buckets_steps_are_spread_over_the_epoch():
    """One in each part of the epoch: of 40 steps of 400, 9 to 11 are in each quarter."""
    steps = Schedule(bucket_sizes=(360, 40), seed=5).step_buckets(0)
    quarters = (steps == 1).reshape(4, -1).sum(axis=1)
    assert sum(quarters) == 40
    assert all(9 <= count <= 11 for count in quarters)


def test_buckets_rows_and_repeats_are_logged_by_name(caplog):
    caplog.set_level(logging.INFO, "muvap_assets.resuming")
    sampler = BucketBatchSampler(Dataset((7, 4)), world_size=4)
    assert len(sampler) == len(sampler) == 3
    (line,) = caplog.messages
    assert line == (
        "sampler: epoch 0: 11 of 11 rows in 2 buckets, 3 steps of 4 rows, 1 rows repeated to fill last batches: "
        "bucket=32x32-5f 7 rows + 1 repeated, bucket=32x32-22f 4 rows"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"groups": 0}, "groups is 0"),
        ({"bucket_sizes": ()}, "at least one bucket"),
        ({"bucket_sizes": (3, 0)}, "Leave empty buckets out"),
    ],
)
def test_numbers_off_their_rule_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        Schedule(**{"bucket_sizes": (3,), **change})


@pytest.mark.parametrize("numbers", [(0, 0, 1), (4, 4, 1), (-1, 4, 1), (0, 6, 4), (0, 4, 0)])
def test_ranks_that_do_not_fit_their_world_are_refused(numbers):
    with pytest.raises(ConfigError, match="Check the launcher's settings"):
        group_of(*numbers)


def test_a_seed_off_its_rule_is_refused():
    with pytest.raises(ConfigError, match="seed -1; required: 0 or more, in 64 bits"):
        list(BucketBatchSampler(Dataset((3,)), seed=-1))
