"""Which frame rates and lengths the clips of an asd manifest have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.contract import Clip
from muvap_assets.asd.line import frame_rate_histogram
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.pictures.canvas import (
    BLUE,
    FONT_PT,
    WIDTH_PX,
    Picture,
    encoded,
    histogram,
    label_axes,
    new_figure,
    own_style,
    whole_counts,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_RATES = 14
_HEIGHT_PX = 320


@own_style()
def clips_picture(clips: Sequence[Clip]) -> Picture:
    """Histograms over every clip."""
    seconds = np.array([float(clip.source_frames / clip.source_fps.value) for clip in clips])
    return Picture(
        name="clips",
        title="Frame rates and lengths of the clips",
        caption=f"All {len(clips)} clips. A rate is counted as it was given: 29.97 and 30000/1001 are two.",
        png=encoded(clips_figure(frame_rate_histogram(clips), seconds)),
    )


def clips_figure(rates: Mapping[str, int], seconds: npt.NDArray[np.float64]) -> Figure:
    """``rates`` counts clips by frame rate as given; ``seconds`` float64 [clips] are their lengths."""
    figure = new_figure(WIDTH_PX, _HEIGHT_PX)
    left, right = figure.subplots(1, 2)
    _draw_rates(left, rates)
    label_axes(left, title="Native frame rate", x="frame rate (frames/s)", y="clips")
    histogram(right, seconds)
    label_axes(right, title="Length", x="clip length (s)", y="clips")
    return figure


def _draw_rates(axes: Axes, rates: Mapping[str, int]) -> None:
    """A bar a rate as given; where there are too many of them, a histogram of their values."""
    exact = {text: FrameRate.parse(text).value for text in rates}
    if len(rates) > _MOST_RATES:
        histogram(axes, np.repeat([float(exact[text]) for text in rates], list(rates.values())), step=1)
        return
    ordered = sorted(rates, key=lambda text: (exact[text], text))
    axes.bar(range(len(ordered)), [rates[text] for text in ordered], color=BLUE)
    crowded = sum(map(len, ordered)) > 40
    axes.set_xticks(range(len(ordered)), ordered, fontsize=FONT_PT, rotation=45 if crowded else 0)
    for label in axes.get_xticklabels() if crowded else ():
        label.set_horizontalalignment("right")
        label.set_rotation_mode("anchor")
    whole_counts(axes)
