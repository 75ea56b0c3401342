"""Projection-window targets against plain loops over Fractions, frame by frame and bin by bin."""

import doctest
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muvap_assets.asd import targets
from muvap_assets.asd.targets import (
    INDEPENDENT_WINDOW,
    ROLE_FUTURE_WINDOW,
    ROLE_RELATIVE_WINDOW,
    SPEAKER_BASED_WINDOW,
    Convention,
    ProjectionWindow,
    independent,
    require_known_labels,
    role_future,
    role_relative,
    speaker_based,
)
from muvap_assets.errors import ConfigError, ValidationError

PAIRS = list(combinations_with_replacement(range(16), 2))


def slow_bins(activity, window, t):
    """The bins around frame ``t``, by listing the frames of each and asking each one."""
    lengths = [max(round(Fraction(str(s)) * Fraction(str(window.frame_hz))), 1) for s in window.bins_sec]
    split = window.num_hist_bins
    frame = (t - 1 if window.cut_center_frame else t) - sum(lengths[:split]) + 1
    at_the_frame = window.convention == "muvap" and (split == 0 or window.cut_center_frame)
    bins = []
    for i, length in enumerate(lengths):
        if i == split:
            frame = t if at_the_frame else t + 1
        inside = [activity[f] if 0 <= f < len(activity) else 0 for f in range(frame, frame + length)]
        bins.append(int(Fraction(sum(inside), length) >= Fraction(str(window.threshold))))
        frame += length
    return bins


def slow_speaker_based(activity, window, t):
    bits = [bit for speaker in activity for bit in slow_bins(speaker, window, t)[window.num_hist_bins :]]
    return int("".join(map(str, bits)), 2)


def slow_role_relative(activity, window, t):
    bins = [slow_bins(speaker, window, t) for speaker in activity]
    history, future = [sum(b[:2]) for b in bins], [sum(b[2:]) for b in bins]
    everyone = range(len(activity))
    current = min(everyone, key=lambda s: (-(10 * history[s] + future[s]), s))
    others = [s for s in everyone if s != current]
    following = min(others, key=lambda s: (-(10 * future[s] + history[s]), s))
    patterns = [int("".join(map(str, bins[s])), 2) for s in (current, following)]
    return PAIRS.index(tuple(sorted(patterns)))


def slow_role_future(activity, window, t):
    bins = [slow_bins(speaker, window, t) for speaker in activity]
    history = [2 * b[0] + b[1] for b in bins]
    future = [max(b[2], b[3]) + 2 * max(b[4], b[5]) for b in bins]
    everyone = range(len(activity))
    current = min(everyone, key=lambda s: (-(10 * history[s] + future[s]), s))
    others = [s for s in everyone if s != current]
    following = min(others, key=lambda s: (-(10 * future[s] + history[s]), s))
    patterns = [int("".join(map(str, bins[s][2:])), 2) for s in (current, following)]
    return PAIRS.index(tuple(sorted(patterns)))


rates = st.sampled_from([25, 10, 50, "12.5", "29.97", "30000/1001", 1])
seconds = st.one_of(
    st.sampled_from([0.2, 0.4, 0.6, 0.8, 1.4, 0.1, 0.3, 0.02]), st.decimals("0.001", 3, places=3).map(str)
)
thresholds = st.one_of(st.sampled_from([0.5, 1, 0.3, "1/3", Fraction(2, 3)]), st.decimals("0.01", 1, places=2).map(str))


def tracks(speakers):
    """Activity of [S, T] in runs, as speech is."""
    return st.integers(0, 120).flatmap(
        lambda length: st.lists(
            st.lists(st.tuples(st.integers(0, 1), st.integers(1, 25)), max_size=20).map(
                lambda runs: [bit for bit, count in runs for _ in range(count)]
            ),
            min_size=speakers[0],
            max_size=speakers[1],
        ).map(
            lambda rows: np.array([(row + [0] * length)[:length] for row in rows], np.uint8).reshape(len(rows), length)
        )
    )


@st.composite
def windows(draw, history=None, future=None):
    bins = tuple(draw(st.lists(seconds, min_size=1, max_size=6)))
    split = draw(st.integers(0, len(bins)))
    if history is not None:
        bins = tuple(draw(st.lists(seconds, min_size=history + future, max_size=history + future)))
        split = history
    return ProjectionWindow(
        bins_sec=bins,
        num_hist_bins=split,
        threshold=draw(thresholds),
        frame_hz=draw(rates),
        cut_center_frame=draw(st.booleans()),
        convention=draw(st.sampled_from(Convention)),
    )


@settings(deadline=None, max_examples=60)
@given(activity=tracks((1, 1)), window=st.one_of(st.just(INDEPENDENT_WINDOW), windows()))
def test_independent_bins_equal_a_plain_loop_over_fractions(activity, window):
    track = activity[0]
    assert independent(track, window).tolist() == [slow_bins(track.tolist(), window, t) for t in range(len(track))]


@settings(deadline=None, max_examples=60)
@given(activity=tracks((2, 2)), window=st.one_of(st.just(SPEAKER_BASED_WINDOW), windows(0, 4), windows(1, 2)))
def test_speaker_based_classes_equal_a_plain_loop_over_fractions(activity, window):
    expected = [slow_speaker_based(activity.tolist(), window, t) for t in range(activity.shape[1])]
    assert speaker_based(activity, window).tolist() == expected


@settings(deadline=None, max_examples=60)
@given(activity=tracks((2, 4)), window=st.one_of(st.just(ROLE_RELATIVE_WINDOW), windows(2, 2)))
def test_role_relative_classes_equal_a_plain_loop_over_fractions(activity, window):
    expected = [slow_role_relative(activity.tolist(), window, t) for t in range(activity.shape[1])]
    assert role_relative(activity, window).tolist() == expected


@settings(deadline=None, max_examples=60)
@given(activity=tracks((2, 4)), window=st.one_of(st.just(ROLE_FUTURE_WINDOW), windows(2, 4)))
def test_role_future_classes_equal_a_plain_loop_over_fractions(activity, window):
    expected = [slow_role_future(activity.tolist(), window, t) for t in range(activity.shape[1])]
    assert role_future(activity, window).tolist() == expected


@pytest.mark.parametrize("speakers", [2, 3, 4])
def test_role_future_classes_are_right_for_every_mix_of_patterns(speakers):
    window = ProjectionWindow(bins_sec=(1,) * 6, num_hist_bins=2, frame_hz=1)
    activity = np.random.default_rng(speakers).integers(0, 2, (speakers, 1500))
    expected = [slow_role_future([r[t - 1 : t + 5] for r in activity.tolist()], window, 1) for t in range(1, 1495)]
    assert role_future(activity, window)[1:1495].tolist() == expected
    assert len(set(expected)) > 100


FIRST_FUTURE_FRAME = [
    # preset, history bins, centre cut, the frame at which the first future bin of one frame is active when frame 2 is
    ("muvap", 0, False, 2),
    ("muvap", 0, True, 2),
    ("muvap", 1, False, 1),
    ("muvap", 1, True, 2),
    ("vap", 0, False, 1),
    ("vap", 0, True, 1),
    ("vap", 1, False, 1),
    ("vap", 1, True, 1),
]


@pytest.mark.parametrize(("preset", "history", "cut", "frame"), FIRST_FUTURE_FRAME)
def test_the_future_begins_where_the_preset_has_it(preset, history, cut, frame):
    make = getattr(ProjectionWindow, preset)
    window = make(bins_sec=(0.04,) * (history + 1), num_hist_bins=history, cut_center_frame=cut)
    bins = independent([0, 0, 1, 0, 0], window)
    assert np.flatnonzero(bins[:, -1]).tolist() == [frame]
    assert np.flatnonzero(bins[:, 0]).tolist() == ([frame] if not history else [3 if cut else 2])


def test_the_presets_are_the_windows_of_their_models_and_muvaps_is_the_default():
    assert (
        ProjectionWindow.muvap()
        == INDEPENDENT_WINDOW
        == ProjectionWindow(bins_sec=(0.8, 0.6, 0.4, 0.2, 0.2, 0.4), num_hist_bins=4, convention="muvap")
    )
    vap = ProjectionWindow.vap()
    assert (vap.bin_frames, vap.num_hist_bins, vap.future_start) == ((5, 10, 15, 20), 0, 1)
    assert ProjectionWindow.vap(frame_hz=50).bin_frames == (10, 20, 30, 40)
    for window in (INDEPENDENT_WINDOW, SPEAKER_BASED_WINDOW, ROLE_RELATIVE_WINDOW, ROLE_FUTURE_WINDOW):
        assert window.convention is Convention.MUVAP
    with pytest.raises(ConfigError, match="convention: 'other'; required: one of muvap, vap"):
        ProjectionWindow(bins_sec=(0.2,), num_hist_bins=0, convention="other")


def test_without_history_the_two_presets_differ_by_one_frame():
    activity = np.random.default_rng(0).integers(0, 2, (2, 80)).repeat(11, axis=1)
    muvap = speaker_based(activity, ProjectionWindow.muvap(bins_sec=(0.2, 0.4, 0.6, 0.8), num_hist_bins=0))
    vap = speaker_based(activity, ProjectionWindow.vap())
    assert np.array_equal(muvap, speaker_based(activity))
    assert np.array_equal(muvap[1:], vap[:-1])
    assert 0.1 < np.mean(muvap != vap) < 0.6


def test_the_default_windows_take_the_frames_that_their_definitions_name():
    assert INDEPENDENT_WINDOW.bin_frames == (20, 15, 10, 5, 5, 10)
    assert (INDEPENDENT_WINDOW.history_frames, INDEPENDENT_WINDOW.future_frames) == (50, 15)
    assert SPEAKER_BASED_WINDOW.bin_frames == (5, 10, 15, 20)
    assert SPEAKER_BASED_WINDOW.history_frames == 0
    assert ROLE_RELATIVE_WINDOW.bin_frames == (35, 15, 15, 35)
    assert ROLE_FUTURE_WINDOW.bin_frames == (35, 15, 5, 10, 15, 20)


def test_bins_are_read_as_the_decimals_they_are_written_as():
    # Halves go to the even number of frames, and a half is what the decimal says, not what the product of doubles does.
    for written, frames in ((0.6, 15), (1.1, 28), (0.58, 14), (0.14, 4), (0.1, 2), (0.001, 1), ("1/3", 8)):
        assert ProjectionWindow(bins_sec=(written,), num_hist_bins=0).bin_frames == (frames,)
    assert round(0.575 * 100) == 57
    assert ProjectionWindow(bins_sec=(0.575,), num_hist_bins=0, frame_hz=100).bin_frames == (58,)


def test_a_threshold_is_met_by_its_exact_share_and_missed_by_one_frame_less():
    # 7 of 10 against 0.7: in float32 the mean is below the double 0.7.
    window = ProjectionWindow(bins_sec=(1,), num_hist_bins=0, threshold=0.7, frame_hz=10)
    assert independent([0] + [1] * 7 + [0] * 3, window)[0].tolist() == [1]
    assert independent([0] + [1] * 6 + [0] * 4, window)[0].tolist() == [0]


def test_history_includes_the_frame_itself_unless_the_centre_is_cut():
    window = ProjectionWindow(bins_sec=(0.04, 0.04), num_hist_bins=1)
    activity = [0, 0, 1, 0, 0]
    assert independent(activity, window)[:, 0].tolist() == [0, 0, 1, 0, 0]
    assert independent(activity, window)[:, 1].tolist() == [0, 1, 0, 0, 0]
    cut = replace(window, cut_center_frame=True)
    assert independent(activity, cut)[:, 0].tolist() == [0, 0, 0, 1, 0]
    assert independent(activity, cut)[:, 1].tolist() == [0, 0, 1, 0, 0]


def test_targets_come_of_the_whole_track_and_not_of_a_chunk():
    track = np.ones(120, np.uint8)
    whole, chunk = independent(track), independent(track[60:])
    assert whole[60].tolist() == [1] * 6
    assert chunk[0].tolist() != whole[60].tolist()


def test_pairs_of_patterns_are_numbered_in_order_and_there_are_136():
    low, high = np.array(PAIRS).T
    assert targets._pair_index(low, high).tolist() == list(range(136))
    assert targets._pair_index(high, low).tolist() == list(range(136))


@pytest.mark.parametrize("speakers", [2, 3, 4])
def test_role_relative_classes_are_right_for_every_mix_of_patterns(speakers):
    # Bins of one frame, so that random frames pass through all patterns of all speakers.
    window = ProjectionWindow(bins_sec=(1, 1, 1, 1), num_hist_bins=2, frame_hz=1)
    activity = np.random.default_rng(speakers).integers(0, 2, (speakers, 1500))
    classes = role_relative(activity, window)
    rows = activity.tolist()
    expected = [slow_role_relative([r[t - 1 : t + 3] for r in rows], window, 1) for t in range(1, 1498)]
    assert classes[1:1498].tolist() == expected
    assert speakers > 2 or len(set(expected)) > 130


def test_a_silent_room_has_class_zero_and_ties_go_to_the_first_speaker():
    assert role_relative(np.zeros((3, 4), np.uint8)).tolist() == [0] * 4
    # The first two speak alike, the third is silent: current is 0, next is 1, never 0 twice.
    together = np.array([[1] * 200, [1] * 200, [0] * 200])
    assert role_relative(together)[100] == PAIRS.index((15, 15))


def test_dtypes_and_shapes_are_those_of_the_docstrings():
    assert independent(np.zeros(0, bool)).shape == (0, 6)
    assert independent(np.zeros(3, np.float32)).dtype == np.uint8
    assert speaker_based(np.zeros((2, 3), bool)).dtype == np.int64
    assert role_relative(np.zeros((2, 0), np.int8)).shape == (0,)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bins_sec": ()}, "bins_sec: no bins; required: at least one"),
        ({"bins_sec": (0.2, 0.0)}, "bins_sec: 0.0; required: seconds above 0"),
        ({"bins_sec": (0.2, float("nan"))}, "bins_sec: nan; required: a number"),
        ({"bins_sec": (0.2, "soon")}, "bins_sec: 'soon'; required: a number"),
        ({"bins_sec": (0.2, "1/0")}, "bins_sec: '1/0'"),
        ({"num_hist_bins": 3}, "num_hist_bins: 3; required: 0 to 2"),
        ({"num_hist_bins": -1}, "num_hist_bins: -1"),
        ({"threshold": 0}, "threshold: 0; required: a share"),
        ({"threshold": 1.5}, "threshold: 1.5"),
        ({"frame_hz": 0}, "frame rate '0'"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused_by_its_field(fields, message):
    with pytest.raises(ConfigError, match=message):
        ProjectionWindow(**{"bins_sec": (0.2, 0.2), "num_hist_bins": 1, **fields})


@pytest.mark.parametrize(
    ("make", "activity", "message"),
    [
        (independent, [[0, 1]], r"int64 \[1, 2\]; required: 0 or 1 of one speaker, \[T\]"),
        (independent, ["0", "1"], r"<U1 \[2\]"),
        (speaker_based, [[0], [1], [1]], r"\[3, 1\]; required: 0 or 1 of two speakers"),
        (speaker_based, [0, 1], r"\[2\]"),
        (role_relative, [[0, 1]], r"\[1, 2\]; required: 0 or 1 of two or more"),
    ],
)
def test_activity_of_another_shape_is_refused_with_the_shape(make, activity, message):
    with pytest.raises(ConfigError, match=message):
        make(activity)


@pytest.mark.parametrize(("value", "found"), [(2, "2"), (-1, "-1"), (0.5, "0.5"), (float("nan"), "nan")])
def test_activity_other_than_zero_and_one_is_refused_with_its_place(value, found):
    with pytest.raises(ValidationError, match=rf"activity: {found}.* at \[1\]; required: 0 or 1 everywhere"):
        independent([0, value, 1])


def test_codebooks_refuse_a_window_of_other_bins():
    with pytest.raises(ConfigError, match="4 history and 2 future bins; required: two of each"):
        role_relative(np.zeros((2, 5)), INDEPENDENT_WINDOW)
    with pytest.raises(ConfigError, match="2 history and 2 future bins; required: two and four"):
        role_future(np.zeros((2, 5)), ROLE_RELATIVE_WINDOW)
    with pytest.raises(ConfigError, match="0 future bins; required: 1 to 31"):
        speaker_based(np.zeros((2, 5)), ProjectionWindow(bins_sec=(0.2,), num_hist_bins=1))


def test_labels_marked_unknown_make_no_targets():
    require_known_labels(True, "ava/test (a:1)")
    with pytest.raises(ValidationError, match=r"ava/test \(a:1\): labels: marked unknown.*annotated labels for"):
        require_known_labels(False, "ava/test (a:1)")


def test_the_worked_example_holds():
    assert doctest.testmod(targets).failed == 0
