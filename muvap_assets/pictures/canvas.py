"""What all pictures share: size, paper, fonts, colours, and how a figure becomes PNG bytes.

A picture brings its own opaque, light paper, so that it reads the same on a light and on a dark page. Colours are told apart
by colour-blind readers as well, and nothing is said by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from muvap_assets.errors import PictureError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_PX, WIDTH_PX_MAX = 960, 1000
PNG_BYTES_MAX = 90_000
"""Of one picture: three of them, as text, stay well under half a megabyte of a materialization's record."""

DPI = 100
FONT_PT = 9.0
"""12.5 px at 100 dots an inch."""

PAPER, INK, FAINT = "#fbfbf8", "#1c1c1e", "#c9c9c4"
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
_BARS = 30
_GREYS = (128, 64, 32, 16, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A PNG and what is said below it. ``title`` is also its text where pictures are not shown, ``name`` its key."""

    name: str
    title: str
    caption: str
    png: bytes


@contextmanager
def own_style() -> Iterator[None]:
    """matplotlib's own settings while a picture is made, whatever a user's file of settings says. Also a decorator."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        yield


def new_figure(width_px: int, height_px: int) -> Figure:
    """An empty figure of this size.

    Raises:
        PictureError: it would be wider than :data:`WIDTH_PX_MAX`.
    """
    from matplotlib.figure import Figure

    if width_px > WIDTH_PX_MAX:
        raise PictureError(
            f"picture: {width_px} px wide, required are at most {WIDTH_PX_MAX}, what a page has room for. Draw it smaller."
        )
    return Figure(figsize=(width_px / DPI, height_px / DPI), dpi=DPI, facecolor=PAPER, layout="constrained")


def label_axes(axes: Axes, *, title: str, x: str, y: str) -> None:
    """Title and axis labels in the one style; a label says the unit. To be called after :func:`add_legend`."""
    above_legend_pt = 24 if axes.get_legend() else 6
    axes.set_title(title, fontsize=FONT_PT + 1, color=INK, loc="left", pad=above_legend_pt)
    axes.set_xlabel(x, fontsize=FONT_PT, color=INK)
    axes.set_ylabel(y, fontsize=FONT_PT, color=INK)
    plain_axes(axes)


def plain_axes(axes: Axes) -> None:
    """Ticks and frame in the one style."""
    axes.set_facecolor(PAPER)
    axes.tick_params(labelsize=FONT_PT, colors=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)


def whole_counts(axes: Axes, *, of_x: bool = False) -> None:
    """Ticks at whole numbers only, from zero on: counts have no halves."""
    from matplotlib.ticker import MaxNLocator

    (axes.xaxis if of_x else axes.yaxis).set_major_locator(MaxNLocator(nbins=5, integer=True))
    if of_x:
        axes.set_xlim(left=0)
    else:
        axes.set_ylim(bottom=0)


def add_legend(axes: Axes) -> None:
    """A legend in one line above the axes, where it hides nothing."""
    axes.legend(
        fontsize=FONT_PT,
        labelcolor=INK,
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0.2,
        borderpad=0.2,
        ncols=4,
        columnspacing=1.2,
        handlelength=1.6,
    )


def histogram(axes: Axes, values: npt.NDArray[np.float64], step: float | None = None) -> None:
    """Bars of how many values lie where: thirty, or one for each ``step`` from zero on; a single value has one bar."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        axes.text(0.5, 0.5, "nothing to show", ha="center", va="center", fontsize=FONT_PT, transform=axes.transAxes)
        return
    low, high = float(finite.min()), float(finite.max())
    if step is not None:
        edges = np.arange(np.floor(low / step), np.floor(high / step) + 2) * step
    elif high > low:
        edges = np.linspace(low, high, _BARS + 1)
    else:
        scale = max(abs(low), 1.0)
        edges = low + np.array([-0.02, 0.02]) * scale
        axes.set_xlim(low - 0.5 * scale, low + 0.5 * scale)
    counts = np.histogram(finite, edges)[0]
    axes.stairs(counts, edges, fill=True, color=BLUE)
    whole_counts(axes)


def encoded(figure: Figure) -> bytes:
    """The figure as PNG of at most :data:`PNG_BYTES_MAX`, in fewer greys where it would be larger; no clock in it.

    Raises:
        PictureError: it is larger even with eight greys.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)  # its methods have no annotations
    canvas.draw()
    image = Image.fromarray(np.array(canvas.buffer_rgba())[..., :3])
    png = _png(image)
    for greys in _GREYS:
        if len(png) <= PNG_BYTES_MAX:
            break
        png = _png(image.quantize(palette=_palette(greys), dither=Image.Dither.NONE))
    if len(png) > PNG_BYTES_MAX:
        raise PictureError(
            f"picture: {len(png)} bytes with {_GREYS[-1]} greys, required are at most {PNG_BYTES_MAX}. Show less of it."
        )
    return png


def _palette(greys: int) -> Image.Image:
    """So many greys from black to white, and the colours of the style, pure and mixed with the paper: none gets a tinge."""
    values: list[tuple[int, ...]] = [(level,) * 3 for level in np.linspace(0, 255, greys).round().astype(int).tolist()]
    paper = _rgb(PAPER)
    for colour in (PAPER, INK, FAINT, BLUE, ORANGE, GREEN):
        for share in (1.0, 0.7, 0.35):
            values.append(tuple(round(share * a + (1 - share) * b) for a, b in zip(_rgb(colour), paper, strict=True)))
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for value in values for part in value])
    return palette


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour.removeprefix("#")))


def _png(image: Image.Image) -> bytes:
    stream = BytesIO()
    image.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def shortened(text: str, length: int) -> str:
    """``text``, or its beginning and an ellipsis."""
    return text if len(text) <= length else text[: length - 1] + "…"


def shortened_inside(text: str, length: int) -> str:
    """``text``, or its beginning, an ellipsis and its end: names of tracks differ at the end."""
    if len(text) <= length:
        return text
    end = (length - 1) * 2 // 3
    return f"{text[: length - 1 - end]}…{text[len(text) - end :]}"


def spread(count: int, most: int) -> list[int]:
    """At most ``most`` of ``range(count)``, evenly spread, first and last included."""
    if count <= most:
        return list(range(count))
    return [round(index * (count - 1) / (most - 1)) for index in range(most)]
