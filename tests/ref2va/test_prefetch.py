"""Media prepared ahead of the device: order, bounds, errors, and that the device does not wait."""

import threading
import time
from contextlib import closing

import numpy as np
import pytest
from encoder_rows import image, row
from hypothesis import given, settings
from hypothesis import strategies as st

from muvap_assets.ref2va.contract import ReferenceKind, Size
from muvap_assets.ref2va.encoder import MediaBlock, ReferenceInput, Stage
from muvap_assets.ref2va.prefetch import clips_of, prepared_ahead, stage_media


def block(value):
    return MediaBlock(None, np.array([value]))


def source(*values, seen=None):
    def make():
        for value in values:
            if seen is not None:
                seen.append(value)
            yield block(value)

    return make


def values(media):
    return [int(each.data[0]) for each in media]


@pytest.mark.parametrize("workers", [1, 3])
def test_every_source_is_read_in_order(workers):
    sources = [source(*range(10 * index, 10 * index + index)) for index in range(6)]
    found = [values(media) for media in prepared_ahead(sources, workers=workers, blocks=2)]
    assert found == [list(range(10 * index, 10 * index + index)) for index in range(6)]


def test_no_more_blocks_wait_than_the_bound_whatever_the_length():
    seen = []
    with closing(prepared_ahead([source(*range(1000), seen=seen)], blocks=3)) as ahead:
        media = next(ahead)
        for expected in range(5):
            assert int(next(media).data[0]) == expected
        time.sleep(0.2)
        # five read, three waiting, one in hand
        assert len(seen) <= 9


def test_the_next_source_is_prepared_while_the_first_is_used():
    started = threading.Event()

    def second():
        started.set()
        yield block(2)

    with closing(prepared_ahead([source(1), second])) as ahead:
        values(next(ahead))
        assert started.wait(5)


def test_an_error_is_raised_where_the_blocks_are_read_and_the_next_source_goes_on():
    def broken():
        yield block(1)
        raise OSError("torn file")

    with closing(prepared_ahead([broken, source(7)])) as ahead:
        media = next(ahead)
        assert int(next(media).data[0]) == 1
        with pytest.raises(OSError, match="torn file"):
            next(media)
        assert values(next(ahead)) == [7]


def test_a_source_left_early_is_dropped():
    with closing(prepared_ahead([source(*range(100)), source(5)], blocks=1)) as ahead:
        next(next(ahead))
        assert values(next(ahead)) == [5]


def test_the_next_source_is_ready_before_the_device_is_done_with_this_one():
    ready = [threading.Event() for _ in range(5)]

    def prepared(index):
        def make():
            yield block(index)
            ready[index].set()

        return make

    with closing(prepared_ahead([prepared(index) for index in range(5)])) as ahead:
        for index, media in enumerate(ahead):
            assert values(media) == [index]
            # Here the device works on this source: the next one gets ready meanwhile, asked for or not.
            assert all(event.wait(30) for event in ready[index + 1 : index + 2])


def test_a_long_source_is_begun_before_the_short_one_ahead_of_it_has_its_turn():
    begun = threading.Event()

    def second_target():
        begun.set()
        yield block(2)

    with closing(prepared_ahead([source(0), source(1), second_target])) as ahead:
        next(ahead)
        assert begun.wait(10)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.lists(st.integers(1, 25), min_size=1))
def test_blocks_of_any_length_become_clips_of_17(count, cuts):
    pixels = np.arange(count, dtype=np.uint8)[:, None, None, None] + np.zeros((1, 4, 4, 3), np.uint8)
    blocks, start = [], 0
    while start < count:
        blocks.append(pixels[start : start + cuts[len(blocks) % len(cuts)]])
        start += len(blocks[-1])
    clips = list(clips_of(iter(blocks), count, Size(4, 4), "row"))
    assert [len(clip) for clip in clips] == [17] * (count // 17) + [count % 17] * bool(count % 17)
    assert np.array_equal(np.concatenate(clips), pixels)


@settings(max_examples=60, deadline=None)
@given(st.integers(13, 60), st.integers(1, 25), st.data())
def test_the_text_stage_reads_the_frames_the_conditioner_asks_for_and_no_block_after_them(count, block_frames, data):
    indices = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    pixels = np.arange(count, dtype=np.uint8)[:, None, None, None] + np.zeros((1, 32, 32, 3), np.uint8)
    read = []

    def blocks():
        for start in range(0, count, block_frames):
            read.append(start)
            yield pixels[start : start + block_frames]

    reference = ReferenceInput(
        kind=ReferenceKind.VIDEO, size=Size(32, 32), num_frames=count, visual_digest="v", frames=blocks
    )
    media = stage_media(Stage.TEXT, row("a", image(), reference), lambda frames: tuple(indices))
    found = np.concatenate([each.data for each in media if each.reference == 1])
    assert np.array_equal(found, pixels[indices])
    assert read[-1] <= indices[-1]
