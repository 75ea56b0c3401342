"""Interrupted epochs of both lines: whatever the worlds, what was not trained on is, and a refused state changes nothing."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muvap_assets.asd.batch_sampler import FrameBudgetBatchSampler
from muvap_assets.errors import ConfigError
from muvap_assets.ref2va.sampler import BucketBatchSampler


@dataclass(frozen=True)
class Rows:
    """Rows in buckets, as ref2va's sampler asks for them."""

    sizes: tuple[int, ...]
    version: str = "v1"

    @property
    def buckets(self):
        return tuple((f"b{place}", size) for place, size in enumerate(self.sizes))

    def bucket_rows(self):
        """Name and row numbers of each bucket."""
        bounds = np.cumsum([0, *self.sizes])
        return {name: range(*bound) for (name, _), bound in zip(self.buckets, pairwise(bounds.tolist()), strict=True)}


@dataclass(frozen=True)
class Tracks:
    """Chunks whose lengths differ from epoch to epoch, as those of jitter do."""

    frames: tuple[int, ...]
    window: int = 100

    def lengths(self, epoch=0):
        return np.array([1 + (frames + 7 * epoch) % 300 for frames in self.frames])

    def fingerprint(self):
        return {"versions": ["v1"], "window": self.window}


def ranks_of(make, world):
    return [make(rank, world) for rank in range(world)]


def one_epoch(make, epoch, segments):
    """The steps of every segment [steps][rank][rows] and its repeats: (world, share of the steps that are left) each.

    Between two segments all that goes on is the state, through JSON. The last segment goes to the end.
    """
    trained, state = [], None
    for number, (world, share) in enumerate(segments):
        samplers = ranks_of(make, world)
        for sampler in samplers:
            sampler.set_epoch(epoch)
            if state is not None:
                sampler.load_state_dict(json.loads(state))
                sampler.set_epoch(epoch)
        assert len({len(sampler) for sampler in samplers}) == 1
        steps = len(samplers[0]) if number == len(segments) - 1 else int(share * len(samplers[0]))
        batches = [list(sampler) for sampler in samplers]
        assert all(len(each) == len(samplers[0]) for each in batches)
        states = {json.dumps(sampler.state_dict(consumed=steps)) for sampler in samplers}
        assert len(states) == 1
        trained.append((list(zip(*batches, strict=True))[:steps], samplers[0].repeats))
        (state,) = states
    return trained


SEGMENTS = st.lists(st.tuples(st.integers(1, 9), st.floats(0, 1)), min_size=1, max_size=5)


# --- ref2va ---


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=5).map(tuple), SEGMENTS,
    st.integers(1, 3), st.integers(1, 2), st.integers(0, 2**64 - 1), st.integers(0, 3),
)  # fmt: skip
def test_each_row_is_trained_on_once_an_epoch_and_each_repeat_is_named(
    sizes, segments, batch_size, sp_size, seed, epoch
):
    data = Rows(sizes)

    def make(rank, world):
        return BucketBatchSampler(
            data, batch_size=batch_size, seed=seed, rank=rank * sp_size, world_size=world * sp_size, sp_size=sp_size
        )

    trained = one_epoch(make, epoch, segments)
    alone = BucketBatchSampler(data, seed=seed)
    alone.set_epoch(epoch)
    order = [row for (row,) in alone]
    for name, rows in data.bucket_rows().items():
        seen, named = [], 0
        for steps, repeats in trained:
            here = [row for step in steps for batch in step for row in batch if row in rows]
            if here and len(seen) + len(here) >= len(rows):  # the bucket's last batch is in this segment
                named = repeats.get(name, 0)
            seen += here
        assert len(seen) == len(rows) + named
        # Without the repeats, which come last, the bucket's rows in the order that a world of one has them.
        assert seen[: len(rows)] == [row for row in order if row in rows]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=5).map(tuple), st.integers(1, 9), st.integers(1, 3),
    st.integers(0, 3), st.data(),
)  # fmt: skip
def test_in_the_same_world_rows_go_on_as_if_never_interrupted(sizes, world, batch_size, epoch, data):
    rank = data.draw(st.integers(0, world - 1))

    def make():
        return BucketBatchSampler(Rows(sizes), batch_size=batch_size, rank=rank, world_size=world)

    check_same_world(make, epoch, data)


def check_same_world(make, epoch, data):
    """Two interruptions at drawn places leave the batches what they are."""
    whole = make()
    whole.set_epoch(epoch)
    expected, done, state = list(whole), 0, None
    for _ in range(2):
        sampler = make()
        if state is None:
            sampler.set_epoch(epoch)
        else:
            sampler.load_state_dict(state)
        assert list(sampler) == expected[done:]
        steps = data.draw(st.integers(0, len(expected) - done))
        state, done = sampler.state_dict(consumed=steps), done + steps
    resumed = make()
    resumed.load_state_dict(state)
    assert list(resumed) == expected[done:]


# --- asd ---

LENGTHS = st.lists(st.integers(0, 1000), min_size=9, max_size=120).map(tuple)
BUDGETS = st.tuples(st.integers(1, 4), st.integers(4, 20))


@settings(max_examples=60, deadline=None)
@given(LENGTHS, SEGMENTS, BUDGETS, st.booleans(), st.integers(0, 3))
def test_each_chunk_is_trained_on_once_an_epoch_whatever_the_worlds(frames, segments, sizes, shuffle, epoch):
    least, most = sizes

    def make(rank, world):
        return FrameBudgetBatchSampler(
            Tracks(frames), frame_budget=1000, min_batch=least, max_batch=most, rank=rank, world=world, shuffle=shuffle
        )

    trained = one_epoch(make, epoch, segments)
    seen = Counter(item for steps, _ in trained for step in steps for batch in step for item in batch)
    assert set(seen) == set(range(len(frames)))
    # Only a world of more ranks than chunks are left repeats any, and says how many.
    assert seen.total() - len(frames) == sum(sum(repeats.values()) for steps, repeats in trained if steps)
    assert all(1 <= len(batch) <= most + 1 for steps, _ in trained for step in steps for batch in step)


@settings(max_examples=40, deadline=None)
@given(LENGTHS, st.integers(1, 9), BUDGETS, st.booleans(), st.integers(0, 3), st.data())
def test_in_the_same_world_chunks_go_on_as_if_never_interrupted(frames, world, sizes, shuffle, epoch, data):
    least, most = sizes
    rank = data.draw(st.integers(0, world - 1))

    def make():
        return FrameBudgetBatchSampler(
            Tracks(frames), frame_budget=1000, min_batch=least, max_batch=most, rank=rank, world=world, shuffle=shuffle
        )

    check_same_world(make, epoch, data)


def test_more_ranks_than_chunks_are_left_repeat_some_and_say_so():
    frames = tuple(range(40))
    sampler = FrameBudgetBatchSampler(Tracks(frames), min_batch=2, max_batch=2)
    state = sampler.state_dict(consumed=len(sampler) - 1)
    samplers = ranks_of(
        lambda rank, world: FrameBudgetBatchSampler(Tracks(frames), min_batch=2, max_batch=2, rank=rank, world=world), 5
    )
    for each in samplers:
        each.load_state_dict(state)
    assert samplers[0].repeats == {"last step": 3}
    left = {item for each in samplers for batch in each for item in batch}
    assert left == set(list(sampler)[-1])


# --- both ---


def ref2va_sampler(**changed):
    options = {"sizes": (9, 5), "version": "v1", "seed": 0, "world_size": 1, "batch_size": 2, **changed}
    data = Rows(options.pop("sizes"), options.pop("version"))
    return BucketBatchSampler(data, **options)


def asd_sampler(**changed):
    options = {"frames": tuple(range(0, 700, 23)), "window": 100, "seed": 0, **changed}
    data = Tracks(options.pop("frames"), options.pop("window"))
    return FrameBudgetBatchSampler(data, **options)


@pytest.mark.parametrize(
    ("make", "changed", "named"),
    [
        (ref2va_sampler, {"version": "v2"}, "version was v1, is v2"),
        (ref2va_sampler, {"seed": 1}, "seed was 0, is 1"),
        (ref2va_sampler, {"sizes": (9, 6)}, "buckets.b1 was 5, is 6"),
        (ref2va_sampler, {"sizes": (9, 5, 1)}, "buckets.b2 was none, is 1"),
        (ref2va_sampler, {"version": "v2", "seed": 1}, "version was v1, is v2; seed was 0, is 1"),
        (asd_sampler, {"window": 50}, "data.window was 100, is 50"),
        (asd_sampler, {"seed": 1}, "seed was 0, is 1"),
        (asd_sampler, {"frame_budget": 100}, "frame_budget was 2048, is 100"),
        (asd_sampler, {"max_batch": 5}, "max_batch was 16, is 5"),
        (asd_sampler, {"shuffle": False}, "shuffle was True, is False"),
    ],
)
def test_a_state_of_another_plan_is_refused_by_name_and_changes_nothing(make, changed, named):
    state = make().state_dict(consumed=2)
    state["epoch"] = 3
    sampler = make(**changed)
    before = list(make(**changed))
    with pytest.raises(ConfigError, match=f"sampler state of another plan: {named}; required: the plan it was saved"):
        sampler.load_state_dict(state)
    assert sampler.epoch == 0
    assert list(sampler) == before


@pytest.mark.parametrize("make", [ref2va_sampler, asd_sampler])
@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"epoch": -1}, "epoch -1; required: a whole number"),
        ({"epoch": "0"}, "epoch '0'"),
        ({"consumed": None}, "consumed "),
        ({"consumed": [[0, 1]]}, "consumed "),
        ({"consumed": [[0.5, 4]]}, "consumed "),
        ({"consumed": [[0, 4], [5]]}, "consumed "),
        ({"consumed": [[4, 0]]}, "consumed "),
        ({"consumed": {"b0": 10, "b1": 0}}, "consumed "),
        ({"consumed": {"b0": -1, "b1": 0}}, "consumed "),
        ({"consumed": {"b0": 1.5, "b1": 0}}, "consumed "),
        ({"consumed": {"b0": 1}}, "consumed "),
        ({"position": 3}, "holds .*required: .'consumed', 'epoch', 'plan'"),
    ],
)
def test_a_state_that_no_sampler_gave_is_refused_and_changes_nothing(make, change, match):
    sampler = make()
    with pytest.raises(ConfigError, match=f"sampler state: {match}"):
        sampler.load_state_dict({**make().state_dict(), **change})
    assert (sampler.epoch, list(sampler)) == (0, list(make()))


@pytest.mark.parametrize("make", [ref2va_sampler, asd_sampler])
def test_a_second_pass_begins_at_the_beginning(make):
    whole = list(make())
    sampler = make()
    sampler.load_state_dict(make().state_dict(consumed=2))
    assert len(sampler) == len(whole) - 2
    assert list(sampler) == whole[2:]
    assert list(sampler) == whole
    assert len(sampler) == len(whole)
    assert sampler.state_dict(consumed=3) == make().state_dict(consumed=3)


@pytest.mark.parametrize("make", [ref2va_sampler, asd_sampler])
def test_an_epoch_that_was_trained_on_to_its_end_has_nothing_left_and_the_next_has_all(make):
    finished = make()
    sampler = make()
    sampler.load_state_dict(finished.state_dict(consumed=len(finished)))
    sampler.set_epoch(0)
    assert list(sampler) == []
    sampler.set_epoch(1)
    finished.set_epoch(1)
    assert list(sampler) == list(finished) != []


@pytest.mark.parametrize("make", [ref2va_sampler, asd_sampler])
def test_a_finished_epochs_state_leaves_the_next_epoch_whole_where_that_was_chosen_before(make):
    """A StatefulDataLoader loads its state when it is iterated, after ``set_epoch``."""
    finished, sampler = make(), make()
    sampler.set_epoch(1)
    sampler.load_state_dict(finished.state_dict(consumed=len(finished)))
    finished.set_epoch(1)
    assert (sampler.epoch, list(sampler)) == (1, list(finished))


@pytest.mark.parametrize("make", [ref2va_sampler, asd_sampler])
def test_a_state_counts_the_batches_handed_out_or_those_it_is_told(make):
    sampler = make()
    assert sampler.state_dict() == make().state_dict(consumed=0)
    batches = iter(sampler)
    next(batches), next(batches)
    assert sampler.state_dict() == make().state_dict(consumed=2)
    assert sampler.state_dict(consumed=1) == make().state_dict(consumed=1)
    for consumed in (-1, len(sampler) + 1):
        with pytest.raises(ConfigError, match=f"{consumed} batches consumed; required: 0 to {len(sampler)}"):
            sampler.state_dict(consumed)


@pytest.mark.parametrize("make", [ref2va_sampler, asd_sampler])
def test_going_back_to_a_finished_epoch_leaves_none_of_the_next_out(make):
    finished, sampler = make(), make()
    end = finished.state_dict(consumed=len(finished))
    finished.set_epoch(1)
    sampler.load_state_dict(finished.state_dict(consumed=2))
    sampler.load_state_dict(end)
    assert sampler.state_dict() == finished.state_dict(consumed=0)
    assert list(sampler) == list(finished)


@pytest.mark.parametrize("make", [ref2va_sampler, asd_sampler])
def test_a_state_is_json_whatever_whole_numbers_the_settings_are(make):
    sampler = make(seed=np.int64(0))
    sampler.set_epoch(np.int64(1))
    make().load_state_dict(json.loads(json.dumps(sampler.state_dict(consumed=1))))


@pytest.mark.parametrize("consumed", [0, False, "", {}])
def test_no_chunk_consumed_is_written_as_an_empty_list_alone(consumed):
    with pytest.raises(ConfigError, match="consumed "):
        asd_sampler().load_state_dict({**asd_sampler().state_dict(), "consumed": consumed})
