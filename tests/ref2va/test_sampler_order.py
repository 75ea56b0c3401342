"""The order of training: properties over generated sizes, and the very numbers of the contract's example."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muvap_assets.errors import ConfigError
from muvap_assets.ref2va.sampler import Schedule, bucket_sizes, global_order, group_of, group_order
from muvap_assets.ref2va.torch_sampler import BucketBatchSampler

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=6).map(tuple)
SCHEDULES = st.builds(
    Schedule,
    bucket_sizes=SIZES,
    batch_size=st.integers(1, 3),
    groups=st.integers(1, 9),
    seed=st.integers(0, 2**64 - 1),
)


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
        group, groups = group_of(rank, world, sp_size)
        assert groups == schedule.groups
        parts.append(group_order(schedule, epoch, group))
    assert {len(part) for part in parts} == {schedule.steps}
    for first in range(0, world, sp_size):
        assert all(np.array_equal(parts[first], part) for part in parts[first : first + sp_size])
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
    assert global_order(schedule, 0).tolist() == [[2, 0, 1, 1], [7, 3, 4, 6], [5, 4, 7, 3]]


def test_every_row_comes_first_about_equally_often():
    first = [int(global_order(Schedule(bucket_sizes=(8,)), epoch)[0, 0]) for epoch in range(400)]
    assert min(Counter(first)[row] for row in range(8)) > 20  # 50 expected


@settings(deadline=None)
@given(SCHEDULES, st.integers(0, 3), st.data())
def test_a_resumed_sampler_goes_on_exactly_where_it_stopped(schedule, epoch, data):
    world = schedule.groups
    rank, step = data.draw(st.integers(0, world - 1)), data.draw(st.integers(0, schedule.steps))
    whole, resumed = (BucketBatchSampler(schedule, rank=rank, world_size=world) for _ in range(2))
    whole.start_at(epoch)
    resumed.start_at(epoch, step)
    assert len(resumed) == schedule.steps - step
    assert list(resumed) == list(whole)[step:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"groups": 0}, "groups is 0"),
        ({"bucket_sizes": ()}, "at least one bucket"),
        ({"bucket_sizes": (3, 0)}, "Leave empty buckets out"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_numbers_off_their_rule_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        Schedule(**{"bucket_sizes": (3,), **change})


@pytest.mark.parametrize("numbers", [(0, 0, 1), (4, 4, 1), (-1, 4, 1), (0, 6, 4), (0, 4, 0)])
def test_ranks_that_do_not_fit_their_world_are_refused(numbers):
    with pytest.raises(ConfigError, match="Check the launcher's settings"):
        group_of(*numbers)


def test_a_schedule_of_another_world_and_a_step_past_the_end_are_refused():
    schedule = Schedule(bucket_sizes=(3,), groups=2)
    with pytest.raises(ConfigError, match="required are 4 for 8 ranks with sequence-parallel size 2"):
        BucketBatchSampler(schedule, rank=0, world_size=8, sp_size=2)
    sampler = BucketBatchSampler(schedule, rank=0, world_size=2)
    with pytest.raises(ConfigError, match="a step of at most 2"):
        sampler.start_at(0, 3)


def test_buckets_are_runs_of_rows():
    assert bucket_sizes(["a", "a", "b", "c", "c"]) == (("a", 2), ("b", 1), ("c", 2))
    assert bucket_sizes([]) == ()
