"""Hold, shift and the next speaker from class logits, against a loop over the classes in plain Python."""

import math
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muvap_assets.asd.readout import next_speaker, role_shift, speaker_shift
from muvap_assets.asd.targets import ProjectionWindow, role_relative, speaker_based
from muvap_assets.errors import ConfigError

PATTERNS = list(combinations_with_replacement(range(16), 2))


def bits(number, count):
    return [number >> shift & 1 for shift in reversed(range(count))]


def softmax(logits):
    powers = [math.exp(value - max(logits)) for value in logits]
    return [power / sum(powers) for power in powers]


def shift_share(hold, shift, scale):
    # Where next to nobody is expected to speak, the turn holds: sums below 1e-8 count as that, in both divisions.
    hold, shift = (value / max(hold + shift, 1e-8) for value in (hold, shift))
    return scale * shift / max(hold + scale * shift, 1e-8)


def slow_role_shift(logits, scale):
    hold = shift = 0.0
    for chance, pair in zip(softmax(logits), PATTERNS, strict=True):
        roles = [bits(pattern, 4) for pattern in pair]
        rank = [10 * sum(role[:2]) + sum(role[2:]) for role in roles]
        current = 0 if rank[0] >= rank[1] else 1
        hold += chance * sum(roles[current][2:])
        shift += chance * sum(roles[1 - current][2:])
    return shift_share(hold, shift, scale)


def slow_speaker_shift(logits, previous, count, first, scale):
    speaking = [0.0, 0.0]
    for number, chance in enumerate(softmax(logits)):
        values = bits(number, 2 * count)
        for speaker in (0, 1):
            speaking[speaker] += chance * sum(values[speaker * count : speaker * count + count][first:])
    return shift_share(speaking[previous], speaking[1 - previous], scale)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6), spread=st.sampled_from([0.5, 3, 30]), scale=st.sampled_from([1, 2, 2.6]))
def test_the_shift_of_role_relative_logits_is_that_of_a_loop_over_the_classes(seed, spread, scale):
    logits = np.random.default_rng(seed).normal(0, spread, (3, 136))
    expected = [slow_role_shift(row, scale) for row in logits.tolist()]
    assert role_shift(logits, scale).tolist() == pytest.approx(expected, abs=1e-9)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 4), first=st.integers(-4, 3), scale=st.sampled_from([1, 2]))
def test_the_shift_of_speaker_based_logits_is_that_of_a_loop_over_the_classes(seed, count, first, scale):
    first = max(-count, min(first, count - 1))
    random = np.random.default_rng(seed)
    logits, previous = random.normal(0, 3, (4, 4**count)), random.integers(0, 2, 4)
    window = ProjectionWindow.vap(bins_sec=(0.2,) * count)
    found = speaker_shift(logits, previous, window, first_bin=first, shift_scale=scale)
    rows = zip(logits.tolist(), previous.tolist(), strict=True)
    expected = [slow_speaker_shift(row, before, count, first % count, scale) for row, before in rows]
    assert found.tolist() == pytest.approx(expected, abs=1e-9)


def test_shifts_count_double_for_roles_and_once_for_speakers_unless_told_otherwise():
    logits = np.random.default_rng(0).normal(0, 1, (2, 5, 136))
    assert np.array_equal(role_shift(logits), role_shift(logits, 2.0))
    assert role_shift(logits).shape == (2, 5)
    two = np.random.default_rng(1).normal(0, 1, (5, 256)).astype(np.float32)
    before = np.zeros(5, np.int64)
    assert np.array_equal(speaker_shift(two, before), speaker_shift(two, before, first_bin=3, shift_scale=1.0))


def certain(classes, count):
    return np.where(np.arange(count) == np.asarray(classes)[..., None], 50.0, 0.0)


def test_a_class_that_is_certain_says_what_its_targets_say():
    # Speaker 0 speaks up to frame 100, speaker 1 from frame 110 on: at frame 99 the turn is about to shift.
    activity = np.zeros((2, 300), np.uint8)
    activity[0, :100], activity[1, 110:] = 1, 1
    at = [20, 99]
    roles = role_shift(certain(role_relative(activity)[at], 136))
    speakers = speaker_shift(certain(speaker_based(activity)[at], 256), np.zeros(2, np.int64), first_bin=2)
    for shift in (roles, speakers):
        assert shift[0] == pytest.approx(0, abs=1e-6)
        assert shift[1] == pytest.approx(1, abs=1e-6)
        assert next_speaker(shift, [0, 0]).tolist() == [0, 1]


def test_where_nobody_is_expected_to_speak_the_turn_holds():
    silent = certain([0], 136)
    silent[..., 1:] = -1e6
    assert role_shift(silent).tolist() == [0.0]


@pytest.mark.parametrize(
    ("shift", "previous", "scores", "expected"),
    [
        ([0.5, 0.51], [1, 1], None, [1, 0]),
        ([0.2, 0.9, 0.9], [2, 2, 0], [[3, 1, 0], [3, 1, 9], [9, 1, 1]], [2, 0, 1]),
        (0.9, 0, [5.0, -1.0, -2.0], 1),
    ],
)
def test_the_next_speaker_had_the_turn_or_is_the_best_of_the_others(shift, previous, scores, expected):
    assert next_speaker(shift, previous, scores).tolist() == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: role_shift(np.zeros((2, 256))),
            r"logits: float64 \[2, 256\]; required: finite real numbers, \[..., 136\]",
        ),
        (lambda: role_shift(np.full(136, np.nan)), "logits"),
        (lambda: role_shift(np.zeros(136), 0), "shift_scale: 0; required: a factor above 0"),
        (lambda: speaker_shift(np.zeros((2, 256)), [0, 2]), "previous: .*required: whole numbers from 0 to 1"),
        (lambda: speaker_shift(np.zeros((2, 256)), 0), r"previous: int64 \[\]; required: .* \[2\]"),
        (lambda: speaker_shift(np.zeros(256), 0, first_bin=4), "first_bin: bin 4 of 4 future bins"),
        (lambda: next_speaker([0.1], [0], [[1.0]]), r"scores: \[1, 1\]"),
        (lambda: next_speaker([0.1], [3], [[1.0, 2.0, 3.0]]), "previous: .*required: whole numbers from 0 to 2"),
        (lambda: next_speaker([0.1], [0], [[1.0, np.nan]]), "scores"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused_by_its_argument(call, message):
    with pytest.raises(ConfigError, match=message):
        call()
