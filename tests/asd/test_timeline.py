"""The exact timeline against Fractions, frame by frame."""

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muvap_assets.asd.timeline import FrameRate, model_frame_count, model_indices, source_indices
from muvap_assets.errors import ConfigError

RATES = ["12.5", "15", "23.976", "24", "25", "29.97", "30000/1001", "30", "50", "59.94", "60", "100"]
FRAMES = 10_000

rates = st.one_of(
    st.sampled_from(RATES),
    st.integers(1, 240),
    st.fractions(min_value=Fraction(1, 2), max_value=240, max_denominator=1001),
    st.decimals(1, 200, places=3).map(str),
)


def exact_source_index(k, fps, model_fps=Fraction(25)):
    return floor((k + Fraction(1, 2)) / model_fps * fps)


def exact_model_index(j, fps, model_fps=Fraction(25)):
    return floor((j + Fraction(1, 2)) / fps * model_fps)


@pytest.mark.parametrize("rate", RATES)
def test_source_indices_equal_fractions(rate):
    fps = Fraction(rate)
    frames = floor(FRAMES / Fraction(25) * fps) + 1
    indices = source_indices(frames, rate)
    assert len(indices) >= FRAMES
    assert indices.tolist() == [exact_source_index(k, fps) for k in range(len(indices))]


@pytest.mark.parametrize("rate", RATES)
def test_model_indices_equal_fractions_and_only_the_tail_is_clamped(rate):
    fps = Fraction(rate)
    indices = model_indices(FRAMES, rate)
    last = model_frame_count(FRAMES, rate) - 1
    exact = [exact_model_index(j, fps) for j in range(FRAMES)]
    assert indices.tolist() == [min(index, last) for index in exact]
    clamped = sum(index > last for index in exact)
    assert clamped <= 1 if fps < 50 else clamped <= -(-fps // 25)


@pytest.mark.parametrize(("rate", "first_wrong"), [("30", 102), ("60", 102), ("50", 14), ("30000/1001", 3503)])
def test_float64_is_wrong_at_the_frames_where_ours_is_right(rate, first_wrong):
    fps = Fraction(rate)
    naive = np.floor((np.arange(FRAMES) + 0.5) / 25 * float(fps)).astype(int)
    ours = source_indices(floor(FRAMES / Fraction(25) * fps), rate)
    differs = np.flatnonzero(naive[: len(ours)] != ours)
    assert differs[0] == first_wrong
    assert all(ours[k] == exact_source_index(int(k), fps) for k in differs)


def test_model_indices_at_12_5_fps_are_exact_where_float64_is_not():
    naive = np.floor((np.arange(FRAMES) + 0.5) / 12.5 * 25).astype(int)
    exact = np.array([exact_model_index(j, Fraction("12.5")) for j in range(FRAMES)])
    assert model_indices(FRAMES, 12.5).tolist() == exact.tolist()
    assert (naive != exact).any()


def test_two_rates_that_round_alike_stay_two():
    frames = floor(36 * 60 * Fraction("29.97"))
    decimal, ntsc = source_indices(frames, "29.97"), source_indices(frames, "30000/1001")
    shared = min(len(decimal), len(ntsc))
    assert int((decimal[:shared] != ntsc[:shared]).sum()) == 1771
    assert int((decimal[:9000] != ntsc[:9000]).sum()) == 52


@given(frames=st.integers(0, 3000), fps=rates, model_fps=rates)
def test_indices_stay_in_range_and_never_go_back(frames, fps, model_fps):
    source, model = source_indices(frames, fps, model_fps), model_indices(frames, fps, model_fps)
    assert len(source) == model_frame_count(frames, fps, model_fps)
    assert len(model) == frames
    for indices, size in ((source, frames), (model, len(source))):
        assert (np.diff(indices) >= 0).all()
        assert size == 0 or len(indices) == 0 or (indices[0] >= 0 and indices[-1] < size)


@given(frames=st.integers(1, 3000), fps=rates, model_fps=rates)
def test_model_frame_count_is_the_floor_and_at_least_one(frames, fps, model_fps):
    exact = floor(frames / FrameRate.parse(fps).value * FrameRate.parse(model_fps).value)
    assert model_frame_count(frames, fps, model_fps) == max(exact, 1)


@given(frames=st.integers(2, 3000), fps=st.sampled_from(["12.5", "15", "23.976", "24"]))
def test_below_the_model_rate_lifting_undoes_sampling_except_for_the_clamped_frame(frames, fps):
    source, model = source_indices(frames, fps), model_indices(frames, fps)
    lifted = source[model]
    unclamped = [j for j in range(frames) if exact_model_index(j, Fraction(fps)) < len(source)]
    assert lifted[unclamped].tolist() == unclamped


def test_a_rate_keeps_its_text_and_its_exact_value():
    assert [(FrameRate.parse(rate).text, FrameRate.parse(rate).value) for rate in (29.97, "30000/1001", 25, 25.0)] == [
        ("29.97", Fraction(2997, 100)),
        ("30000/1001", Fraction(30000, 1001)),
        ("25", Fraction(25)),
        ("25", Fraction(25)),
    ]
    assert FrameRate.parse(Fraction(30000, 1001)).text == "30000/1001"


def test_rates_with_huge_denominators_are_exact_too():
    rate = "29.970029970029970029"
    fps = Fraction(rate)
    assert source_indices(40_000, rate).tolist() == [
        exact_source_index(k, fps) for k in range(model_frame_count(40_000, rate))
    ]


@pytest.mark.parametrize(
    "rate", ["", "abc", "0", "-25", "25,0", "nan", "inf", "30000/0", "1e3", "1001", "25 fps", True]
)
def test_what_is_not_a_rate_is_refused_with_the_value(rate):
    with pytest.raises(ConfigError, match=f"frame rate '{rate}'"):
        FrameRate.parse(rate)


@pytest.mark.parametrize("text", ["1/\u0660", "\u0662\u0665", "30/\uff11", "1/00"])
def test_digits_of_other_scripts_are_no_rate_and_divide_by_no_zero(text):
    with pytest.raises(ConfigError, match="not a rate"):
        FrameRate.parse(text)
