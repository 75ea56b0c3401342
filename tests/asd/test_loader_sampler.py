"""Batches of about a budget of frames: what is in them, in which order, for which rank, and after a restart."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muvap_assets.asd.batch_sampler import EpochBatch, FrameBudgetBatchSampler
from muvap_assets.asd.chunks import ChunkOptions, ChunkPlan
from muvap_assets.draws import Stream, draws
from muvap_assets.errors import ConfigError


def ava_like(count, sigma=0.8, seed=0):
    lengths = np.random.default_rng(seed).lognormal(np.log(64), sigma, count)
    return np.clip(np.round(lengths), 1, 3000).astype(np.int64)


class Chunked:
    """A dataset whose items differ from epoch to epoch."""

    def __init__(self, lengths, version="v1"):
        self._lengths, self._version = lengths, version

    def lengths(self, epoch=0):
        return self._lengths(epoch)

    def fingerprint(self):
        return {"version": self._version}


def epochs(lengths, epoch=0, **options):
    sampler = FrameBudgetBatchSampler(lengths, **options)
    sampler.set_epoch(epoch)
    return list(sampler)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(1, 900), min_size=1, max_size=200), st.integers(1, 5), st.integers(1, 4), st.integers(4, 20),
    st.booleans(), st.integers(0, 3),
)  # fmt: skip
def test_every_item_is_in_one_batch_of_one_rank_and_all_ranks_take_equal_steps(
    lengths, world, least, most, shuffle, epoch
):
    options = {"min_batch": least, "max_batch": most, "frame_budget": 1000, "shuffle": shuffle, "world": world}
    if len(lengths) < world:
        with pytest.raises(ConfigError, match="required: one positive length an item"):
            epochs(lengths, rank=0, **options)
        return
    ranks = [epochs(lengths, epoch, rank=rank, **options) for rank in range(world)]
    assert len({len(batches) for batches in ranks}) == 1
    sampler = FrameBudgetBatchSampler(lengths, **options)
    sampler.set_epoch(epoch)
    assert len(ranks[0]) == len(sampler)
    batches = [batch for rank in ranks for batch in rank]
    assert sorted(item for batch in batches for item in batch) == list(range(len(lengths)))
    odd = {
        step
        for step, parts in enumerate(zip(*ranks, strict=True))
        if any(not least <= len(batch) <= most for batch in parts)
    }
    assert len(odd) <= 2  # that whose items are dealt, and the last batch cut in two
    assert all(1 <= len(batch) <= most + 1 for batch in batches)
    assert not sampler.repeats


def test_batches_stay_at_the_budget_between_the_fewest_and_the_most_items():
    lengths = ava_like(8000)
    batches = epochs(lengths)
    frames = [len(batch) * int(lengths[batch].max()) for batch in batches]
    assert all(4 <= len(batch) <= 16 for batch in batches)
    assert all(n <= 2048 or len(batch) == 4 for n, batch in zip(frames, batches, strict=True))
    unclamped = [n for n, batch in zip(frames, batches, strict=True) if 128 <= lengths[batch].max() <= 512]
    assert np.mean(unclamped) > 0.75 * 2048


@pytest.mark.parametrize("count", [8_000, 30_000])
@pytest.mark.parametrize("sigma", [0.6, 0.8, 1.0])
def test_over_999_in_1000_frames_of_an_ava_like_corpus_are_used(count, sigma):
    track_frames, options = ava_like(count, sigma), ChunkOptions(window=250, context=50, jitter=True)
    planned = [ChunkPlan(track_frames, options, epoch).lengths() for epoch in range(2)]
    sampler = FrameBudgetBatchSampler(Chunked(lambda epoch: planned[epoch]))
    for epoch in range(2):
        sampler.set_epoch(epoch)
        cropped, padded = sampler.utilisation("crop"), sampler.utilisation("pad")
        assert cropped.share > 0.999
        assert padded.share > 0.998
        used = sum(len(batch) * int(planned[epoch][batch].min()) for batch in sampler)
        assert cropped.frames == int(planned[epoch].sum())
        assert cropped.share == used / cropped.frames
        assert cropped.mean_batch_frames * cropped.batches == pytest.approx(used)
        assert cropped.items == len(planned[epoch])


def test_composition_and_order_change_with_the_epoch_and_the_seed_and_with_nothing_else():
    for lengths in (np.minimum(ava_like(500), 250), np.arange(1, 400)):
        first = epochs(lengths)
        assert first == epochs(lengths)
        for other in (epochs(lengths, 1), epochs(lengths, seed=1)):
            assert first != other
            shared = {frozenset(batch) for batch in first} & {frozenset(batch) for batch in other}
            assert len(shared) < len(first) / 2
    fixed = [epochs(ava_like(500), epoch, shuffle=False) for epoch in range(2)]
    assert fixed[0] == fixed[1]


def test_a_step_gives_every_rank_chunks_of_about_the_same_length():
    lengths = ava_like(20_000)
    ranks = [epochs(lengths, rank=rank, world=4) for rank in range(4)]
    longest = np.array([[lengths[batch].max() for batch in batches] for batches in ranks])
    assert np.median(longest.max(axis=0) - longest.min(axis=0)) <= 1


def test_batches_are_planned_from_the_lengths_of_the_epoch():
    track_frames = ava_like(300, 1.2)

    def lengths(epoch):
        return ChunkPlan(track_frames, ChunkOptions(window=60, context=10, jitter=True), epoch).lengths()

    sampler = FrameBudgetBatchSampler(Chunked(lengths), frame_budget=500)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert sorted(item for batch in batches for item in batch) == list(range(len(lengths(epoch))))
        assert {batch.epoch for batch in batches} == {epoch}
        for batch in batches:
            assert len(batch) == 4 or len(batch) * lengths(epoch)[batch].max() <= 500


# --- what is refused ---


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"min_batch": 0}, "min_batch 0"),
        ({"min_batch": 20}, "min_batch 20, max_batch 16; required"),
        ({"frame_budget": 0}, "frame_budget 0"),
        ({"rank": 1}, "rank 1 of world 1; required: 0 <= rank < world"),
        ({"dataset": [3, 0]}, "least 0; required: one positive length"),
        ({"dataset": []}, "least none; required"),
        ({"dataset": Chunked(len).lengths}, r"a function \(Chunked.lengths\); required: the dataset"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(options, match):
    with pytest.raises(ConfigError, match=match):
        list(FrameBudgetBatchSampler(**{"dataset": [1, 2, 3], **options}))


def test_a_batch_of_items_keeps_its_epoch_on_the_way_to_a_worker():
    batch = pickle.loads(pickle.dumps(EpochBatch([3, 1], 7)))
    assert (batch, batch.epoch) == ([3, 1], 7)


def test_draws_are_spread_and_pinned_so_that_an_epoch_can_be_repeated_years_later():
    numbers = draws(100_000, seed=1, epoch=2, stream=Stream.ITEM_ORDER)
    assert len(np.unique(numbers)) == 100_000
    assert np.bincount((numbers >> np.uint64(60)).astype(int)) / 6250 == pytest.approx(1, abs=0.06)
    assert draws(3, seed=7, epoch=5, stream=Stream.CHUNK_GRID, part=9).tolist() == plain_draws(3, 7, 5, 1, 9)
    for other in ({"seed": 2}, {"epoch": 1}, {"stream": Stream.STEP_ORDER}):
        assert numbers[0] != draws(1, **{"seed": 1, "epoch": 2, "stream": Stream.ITEM_ORDER, **other})[0]


def plain_draws(count, *numbers):
    """splitmix64 as it is published, one step at a time, over a key mixed of the numbers in turn."""
    key = 0
    for number in numbers:
        key = mixed(key ^ mixed(number + GOLDEN))
    return [mixed((key + place * GOLDEN) % 2**64) for place in range(count)]


def mixed(value):
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31


GOLDEN = 0x9E3779B97F4A7C15
