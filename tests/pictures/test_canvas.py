"""What every picture keeps to: size, bytes, fonts, and the same PNG for the same figure."""

from io import BytesIO

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from muvap_assets.errors import PictureError
from muvap_assets.pictures.canvas import (
    PNG_BYTES_MAX,
    WIDTH_PX,
    WIDTH_PX_MAX,
    encoded,
    histogram,
    label_axes,
    new_figure,
    own_style,
    shortened,
    shortened_inside,
    spread,
)


def noise(width, height, seed=0):
    figure = new_figure(width, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    axes.imshow(np.random.default_rng(seed).integers(0, 256, (height, width)), cmap="gray", aspect="auto")
    return figure


def test_a_picture_of_pure_noise_is_brought_below_the_limit_by_fewer_colours():
    png = encoded(noise(400, 400))
    assert len(png) <= PNG_BYTES_MAX
    image = Image.open(BytesIO(png))
    assert image.size == (400, 400)
    assert image.mode == "P"


def test_a_picture_that_stays_too_large_is_refused():
    with pytest.raises(PictureError, match="with 8 greys, required are at most 90000"):
        encoded(noise(WIDTH_PX, 1200))


def test_a_figure_wider_than_a_page_is_refused():
    with pytest.raises(PictureError, match=f"{WIDTH_PX_MAX + 1} px wide, required are at most {WIDTH_PX_MAX}"):
        new_figure(WIDTH_PX_MAX + 1, 100)


def test_the_same_figure_gives_the_same_bytes_and_no_text_chunk_that_could_hold_a_clock():
    first, second = encoded(noise(300, 200)), encoded(noise(300, 200))
    assert first == second
    assert not Image.open(BytesIO(first)).text
    assert encoded(noise(300, 200, seed=1)) != first


def test_the_paper_is_opaque_to_the_corners():
    image = Image.open(BytesIO(encoded(new_figure(200, 100)))).convert("RGBA")
    assert {image.getpixel(place) for place in ((0, 0), (199, 0), (0, 99), (199, 99))} == {(251, 251, 248, 255)}


def test_the_style_of_a_users_own_matplotlib_settings_does_not_show():

    @own_style()
    def drawn():
        figure = new_figure(300, 200)
        axes = figure.subplots()
        histogram(axes, np.arange(10.0))
        label_axes(axes, title="a", x="b (s)", y="c")
        return encoded(figure)

    usual = drawn()
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black", "axes.grid": True, "lines.linewidth": 9}):
        assert drawn() == usual
        assert matplotlib.rcParams["font.size"] == 30


def test_a_histogram_counts_every_finite_value_once():
    axes = new_figure(300, 200).subplots()
    values = np.array([-38.2, -38.9, -25.0, -24.0, np.nan])
    histogram(axes, values, step=1)
    (steps,) = axes.patches
    counts, edges, _ = steps.get_data()
    assert counts.sum() == 4
    assert dict(zip(edges[:-1], counts, strict=True))[-39.0] == 2
    assert dict(zip(edges[:-1], counts, strict=True))[-25.0] == 1


def test_a_histogram_of_one_value_or_of_none_can_be_drawn():
    for values in (np.array([3.0, 3.0]), np.empty(0), np.array([0.0])):
        figure = new_figure(300, 200)
        histogram(figure.subplots(), values)
        assert encoded(figure)


@given(st.integers(0, 500), st.integers(2, 50))
def test_what_is_shown_is_spread_from_the_first_to_the_last(count, most):
    shown = spread(count, most)
    assert len(shown) == min(count, most)
    assert shown == sorted(set(shown))
    if shown:
        assert (shown[0], shown[-1]) == (0, count - 1)


def test_long_names_are_cut():
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcde…"
    assert shortened_inside("abcdef", 6) == "abcdef"
    assert shortened_inside("video_0012:3", 9) == "vid…012:3"
    assert len(shortened_inside("x" * 50, 9)) == 9
