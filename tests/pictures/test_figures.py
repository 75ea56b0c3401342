"""Every figure: readable fonts, units on the axes, nothing cut off; and its values against a count of the test's own."""

from io import BytesIO

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from picture_figures import AXES_UNITS, FIGURES, FONT_PX_MIN, axis_labels, font_px, latent_arrays, strip, texts
from PIL import Image

from muvap_assets.asd.loudness import LoudnessStats
from muvap_assets.pictures import faces, latents, levels
from muvap_assets.pictures.canvas import PNG_BYTES_MAX, WIDTH_PX_MAX, encoded
from muvap_assets.ref2va.encoder_spec import LatentStatistics


def drawn(name):
    figure = FIGURES[name]()
    FigureCanvasAgg(figure).draw()
    return figure


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_is_smaller_than_nine_pixels(name):
    figure = drawn(name)
    assert len(texts(figure)) > 3
    assert min(font_px(text, figure) for text in texts(figure)) >= FONT_PX_MIN


@pytest.mark.parametrize("name", FIGURES)
def test_the_axes_say_what_they_measure_and_in_which_unit(name):
    assert axis_labels(drawn(name)) == AXES_UNITS[name]


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_is_cut_off_at_an_edge(name):
    figure = drawn(name)
    renderer = figure.canvas.get_renderer()
    width, height = figure.canvas.get_width_height()
    for text in texts(figure):
        box = text.get_window_extent(renderer)
        inside = box.x0 >= -1 and box.x1 <= width + 1 and box.y0 >= -1 and box.y1 <= height + 1
        # Ticks outside of an axis' limits exist, and are not drawn.
        ticks = {label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for label in axis.get_ticklabels()}
        assert inside or text in ticks, text


@pytest.mark.parametrize("name", FIGURES)
def test_a_picture_fits_a_page_and_is_the_same_bytes_each_time(name):
    png = encoded(FIGURES[name]())
    assert len(png) <= PNG_BYTES_MAX
    assert Image.open(BytesIO(png)).width <= WIDTH_PX_MAX
    assert encoded(FIGURES[name]()) == png


# --- asd ----------------------------------------------------------------------------------------------------------------


def test_bars_of_rates_are_in_the_order_of_their_values_and_count_each_rate_as_given():
    axes = drawn("clips").axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["12.5", "23.976", "25", "29.97", "30000/1001"]
    assert [bar.get_height() for bar in axes.patches] == [3, 60, 400, 130, 20]


def test_too_many_rates_for_bars_become_a_histogram_of_all_of_them():
    (steps,) = drawn("many_rates").axes[0].patches
    assert steps.get_data().values.sum() == sum(range(1, 41))


def test_a_speaking_face_is_told_from_a_silent_one_by_a_sign_and_by_colour():
    tiles = [
        faces.FaceTile(sample_id=f"s{i}", frame=i, face=np.zeros((8, 8), np.uint8), speaking=label)
        for i, label in enumerate((True, False, None))
    ]
    figure = faces.faces_figure(tiles)
    (axes,) = figure.axes
    borders = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    signs = [text.get_text() for text in axes.texts if len(text.get_text()) == 1]
    assert signs == ["S", "N", "?"]
    assert len({to_hex(patch.get_edgecolor()) for patch in borders}) == 3
    assert any("speaking" in text.get_text() and "not known" in text.get_text() for text in axes.texts)
    assert [text.get_text() for text in axes.texts if "#" in text.get_text()] == ["s0 #0", "s1 #1", "s2 #2"]


def test_the_rows_of_the_strip_share_one_time_axis_and_show_the_labels_they_were_given():
    given, figure = strip(), drawn("alignment")
    sound, native, model = figure.axes[1:]
    assert {axes.get_xlim() for axes in figure.axes} == {(0.0, given.seconds)}
    for axes, labels, rate in ((native, given.labels, 29.97), (model, given.model_labels, 25)):
        data = axes.patches[0].get_data()
        assert np.array_equal(data.values, labels)
        assert np.allclose(np.diff(data.edges), 1 / rate)
    (envelope,) = sound.collections
    heights = envelope.get_paths()[0].vertices[:, 1]
    assert heights.max() == pytest.approx(given.audio.max() / 32768, abs=1e-4)
    assert heights.min() == pytest.approx(given.audio.min() / 32768, abs=1e-4)


def test_faces_of_the_strip_stand_over_their_own_time():
    given, axes = strip(), drawn("alignment").axes[0]
    for image, time in zip(axes.images, given.face_times, strict=True):
        left, right, *_ = image.get_extent()
        assert left <= time <= right


def test_silent_recordings_are_left_out_of_the_levels_and_counted_in_the_caption():
    def recording(dbfs):
        rms = 0.0 if dbfs is None else 10 ** (dbfs / 20)
        return LoudnessStats(
            recording_id="a",
            audio_path="a.wav",
            sha256="a",
            duration_sec=1.0,
            rate_hz=16_000,
            channels=1,
            samples_16k=16_000,
            mean=0.0,
            rms=rms,
            peak=rms * 2,
            dbfs=dbfs,
            clipped_samples=0,
            silent=dbfs is None,
        )

    picture = levels.levels_picture([recording(-30.0), recording(None), recording(-50.0)])
    assert picture.caption.startswith("2 recordings, each whole; 1 silent ones are left out.")
    assert levels.levels_picture([recording(None)]).png


# --- ref2va -------------------------------------------------------------------------------------------------------------


def test_figures_of_latents_are_those_of_all_values_together():
    first, sound = latent_arrays()
    second = first * 2 + 1
    figures = latents.Figures()
    figures.add(first, sound)
    figures.add(second, sound)
    together = np.concatenate([first.reshape(24, -1), second.reshape(24, -1)], axis=1).astype(np.float64)
    assert np.allclose(figures.mean, together.mean(axis=1))
    assert np.allclose(figures.std, together.std(axis=1))
    assert figures.video.sum() == together.size
    assert figures.sound.sum() == 2 * sound.size


def test_channels_are_compared_with_the_checkpoint_in_its_own_units():
    figures = latents.Figures()
    figures.add(*latent_arrays())
    own = LatentStatistics(tuple(np.linspace(-1, 1, 24)), tuple(np.linspace(1, 3, 24)))
    means, deviations = latents.statistics_figure(figures, own).axes[:2]
    theirs, ours = means.get_lines()
    assert np.allclose(theirs.get_ydata(), own.mean)
    assert np.allclose(ours.get_ydata(), figures.mean * np.array(own.std) + np.array(own.mean))
    theirs, ours = deviations.get_lines()
    assert np.allclose(theirs.get_ydata(), own.std)
    assert np.allclose(ours.get_ydata(), figures.std * np.array(own.std))


def test_without_statistics_of_the_checkpoint_the_axes_say_that_latents_are_normalized():
    figures = latents.Figures()
    figures.add(*latent_arrays())
    assert "mean (normalized)" in axis_labels(latents.statistics_figure(figures, None))


def test_the_first_latent_frame_shows_every_channel_on_one_symmetric_scale():
    values = latent_arrays()[0][:, 0]
    *channels, ramp = drawn("frame").axes[0].images
    assert np.array_equal(np.stack([image.get_array() for image in channels]), values)
    limit = np.abs(values).max()
    assert {image.get_clim() for image in (*channels, ramp)} == {(-limit, limit)}


def test_buckets_show_rows_and_repeats_the_largest_first():
    axes = drawn("buckets").axes[0]
    widths = [bar.get_width() for bar in axes.patches]
    assert widths[:5] == [420, 260, 131, 60, 29]
    assert widths[5:] == [-rows % 32 for rows in (420, 260, 131, 60, 29)]
    assert axes.get_yticklabels()[0].get_text() == "1344x768-124f"


def test_capacities_are_lines_with_their_length():
    axes = drawn("buckets").axes[1]
    lines = sorted({line.get_xdata()[0] for line in axes.get_lines() if len(line.get_xdata())})
    assert all(value % 256 == 0 for value in lines) and len(lines) == 4
    assert sorted(int(text.get_text()) for text in axes.texts) == lines
