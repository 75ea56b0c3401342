"""A contact sheet of a pack: faces of clips all over it, each with its label as a sign and as the colour of its border."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.packs.reader import PackedSample, PackReader
from muvap_assets.errors import PictureError
from muvap_assets.pictures.canvas import (
    BLUE,
    FONT_PT,
    INK,
    ORANGE,
    PAPER,
    Picture,
    encoded,
    new_figure,
    own_style,
    shortened_inside,
    spread,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS, _ROWS = 7, 3
_TILE_PX, _GAP_PX, _LINE_PX, _HEAD_PX = 112, 20, 24, 34
_NAME_CHARACTERS = 15
_UNKNOWN = "#6b6b6b"
_SIGNS = {True: ("S", ORANGE, "-"), False: ("N", BLUE, "-"), None: ("?", _UNKNOWN, ":")}
LEGEND = "S  speaking        N  not speaking        ?  label not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaceTile:
    """One face, uint8 [H, W], and whether it speaks; ``None`` where the label is filler."""

    sample_id: str
    frame: int
    face: npt.NDArray[np.uint8]
    speaking: bool | None


@own_style()
def faces_picture(pack: PackReader) -> Picture:
    """Faces of at most 21 clips, evenly spread over the pack; only these frames are read.

    Raises:
        PictureError: not even one row of faces fits the bytes a picture may have.
    """
    for rows in range(_ROWS, 0, -1):
        positions = spread(len(pack), _COLUMNS * rows)
        tiles = [_tile(pack[position], wanted=index % 2 == 0) for index, position in enumerate(positions)]
        try:
            png = encoded(faces_figure(tiles))
            break
        except PictureError:  # faces full of noise do not compress
            if rows == 1:
                raise
    return Picture(
        name="faces",
        title="Faces and their labels",
        caption=f"{len(tiles)} of {len(pack)} clips, evenly spread; one native frame of each, with its label and its number. "
        "By turns a speaking and a silent frame was looked for.",
        png=png,
    )


def _tile(sample: PackedSample, *, wanted: bool) -> FaceTile:
    matching = np.flatnonzero(sample.labels == wanted)
    frame = int(matching[len(matching) // 2]) if len(matching) else len(sample.labels) // 2
    entry = sample.entry
    return FaceTile(
        sample_id=entry.sample_id,
        frame=frame,
        face=np.array(sample.faces[frame]),
        speaking=bool(sample.labels[frame]) if entry.labels_known else None,
    )


def faces_figure(tiles: Sequence[FaceTile]) -> Figure:
    """The sheet, in the order given; faces that are larger or smaller are brought to one size."""
    rows = max(1, -(-len(tiles) // _COLUMNS))
    pitch = _TILE_PX + _GAP_PX
    width, height = _COLUMNS * pitch + _GAP_PX, _HEAD_PX + rows * (pitch + _LINE_PX)
    figure = new_figure(width, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    axes.text(_GAP_PX, _HEAD_PX / 2, LEGEND, fontsize=FONT_PT + 1, color=INK, va="center")
    for index, tile in enumerate(tiles):
        row, column = divmod(index, _COLUMNS)
        _draw_tile(axes, tile, left=_GAP_PX + column * pitch, top=_HEAD_PX + 4 + row * (pitch + _LINE_PX))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    return figure


def _draw_tile(axes: Axes, tile: FaceTile, *, left: float, top: float) -> None:
    from matplotlib.patches import Rectangle

    sign, colour, line = _SIGNS[tile.speaking]
    extent = (left, left + _TILE_PX, top + _TILE_PX, top)
    axes.imshow(tile.face, cmap="gray", vmin=0, vmax=255, extent=extent, aspect="auto", interpolation="nearest")
    axes.add_patch(
        Rectangle(
            (left - 2, top - 2), _TILE_PX + 4, _TILE_PX + 4, fill=False, edgecolor=colour, linewidth=3, linestyle=line
        )
    )
    axes.text(
        left + 10,
        top + 12,
        sign,
        fontsize=FONT_PT + 2,
        fontweight="bold",
        color="white",
        ha="center",
        va="center",
        bbox={"boxstyle": "square,pad=0.25", "facecolor": colour, "edgecolor": PAPER},
    )
    number = f" #{tile.frame}"
    text = shortened_inside(tile.sample_id, max(6, _NAME_CHARACTERS - len(number))) + number
    axes.text(left, top + _TILE_PX + 14, text, fontsize=FONT_PT, color=INK, va="center", parse_math=False)
