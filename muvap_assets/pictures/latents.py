"""What the encoded latents of a part look like: by channel, as a distribution, and the first latent frame itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from muvap_assets.pictures.canvas import (
    BLUE,
    FONT_PT,
    INK,
    ORANGE,
    WIDTH_PX,
    Picture,
    add_legend,
    encoded,
    label_axes,
    new_figure,
    own_style,
    shortened,
    spread,
)
from muvap_assets.ref2va.contract import VIDEO_CHANNELS
from muvap_assets.ref2va.encode import EncodedRow
from muvap_assets.ref2va.encoder_spec import LatentStatistics
from muvap_assets.ref2va.records import read_tensors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 8
_EDGES = np.linspace(-6, 6, 121)
_STATISTICS_PX = 600
_FRAME_COLUMNS, _TILE_PX, _GAP_PX, _NAME_PX, _HEAD_PX = 8, 98, 10, 26, 56
Floats = npt.NDArray[np.float64]


@dataclass(slots=True)
class Figures:
    """Running figures of normalized latents: by channel for video, values alone for sound. Holds no latent."""

    count: int = 0
    sums: Floats = field(default_factory=lambda: np.zeros(VIDEO_CHANNELS))
    squares: Floats = field(default_factory=lambda: np.zeros(VIDEO_CHANNELS))
    video: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(_EDGES) - 1, np.int64))
    sound: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(_EDGES) - 1, np.int64))

    def add(self, video: npt.NDArray[np.float32], sound: npt.NDArray[np.float32]) -> None:
        """A target's latents, float32 [24, T, H, W] and [2, 32, T]; values beyond six deviations count at the ends."""
        flat = video.reshape(len(video), -1).astype(np.float64)
        self.count += flat.shape[1]
        self.sums += flat.sum(axis=1)
        self.squares += np.square(flat).sum(axis=1)
        self.video += np.histogram(np.clip(flat, _EDGES[0], _EDGES[-1]), _EDGES)[0]
        self.sound += np.histogram(np.clip(sound, _EDGES[0], _EDGES[-1]), _EDGES)[0]

    @property
    def mean(self) -> Floats:
        """float64 [24]."""
        return self.sums / max(self.count, 1)

    @property
    def std(self) -> Floats:
        """float64 [24]."""
        return np.sqrt(np.maximum(self.squares / max(self.count, 1) - self.mean**2, 0))


@own_style()
def latent_pictures(rows: Sequence[EncodedRow], statistics: LatentStatistics | None) -> list[Picture]:
    """Figures of at most eight rows, evenly spread, and the first latent frame of the first; none where there is no row.

    Raises:
        FormatError: a row's file cannot be read.
    """
    chosen = [rows[index] for index in spread(len(rows), MOST_ROWS)]
    if not chosen:
        return []
    figures, first = Figures(), None
    for row in chosen:
        video, sound = _latents(row.path)
        figures.add(video, sound)
        first = np.array(video[:, 0]) if first is None else first
    own = "" if statistics else " The checkpoint's config has no statistics to compare with."
    shown = Picture(
        name="latent_figures",
        title="Latents by channel, and how their values are spread",
        caption=f"{len(chosen)} of {len(rows)} rows, evenly spread. Rows hold latents with the checkpoint's mean taken out "
        f"and divided by its deviation: the nearer to 0 and 1, the better its statistics fit these media.{own}",
        png=encoded(statistics_figure(figures, statistics)),
    )
    if first is None:
        return [shown]
    sides = f"{chosen[0].geometry.width}x{chosen[0].geometry.height}"
    frame = Picture(
        name="latent_frame",
        title="The first latent frame",
        caption=f"Row {chosen[0].sample_id}, {sides}: its {len(first)} channels as they are stored, {first.shape[2]}x"
        f"{first.shape[1]} latent pixels.",
        png=encoded(frame_figure(chosen[0].sample_id, first)),
    )
    return [shown, frame]


def _latents(path: Path) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    tensors = read_tensors(path, ["vae_latent", "audio_latent"])
    return tensors["vae_latent"], tensors["audio_latent"]


def statistics_figure(figures: Figures, statistics: LatentStatistics | None) -> Figure:
    """Four panels: mean and deviation by channel in the VAE's own units, values of video and of sound."""
    figure = new_figure(WIDTH_PX, _STATISTICS_PX)
    (means, deviations), (video, sound) = figure.subplots(2, 2)
    own = statistics or LatentStatistics((0.0,) * VIDEO_CHANNELS, (1.0,) * VIDEO_CHANNELS)
    mean, std = np.array(own.mean), np.array(own.std)
    unit = "VAE units" if statistics else "normalized"
    _draw_channels(means, figures.mean * std + mean, mean, "the checkpoint's" if statistics else "0, as normalized")
    label_axes(means, title="Mean of each video channel", x="latent channel", y=f"mean ({unit})")
    _draw_channels(deviations, figures.std * std, std, "the checkpoint's" if statistics else "1, as normalized")
    label_axes(deviations, title="Deviation of each video channel", x="latent channel", y=f"deviation ({unit})")
    for axes, counts, title in ((video, figures.video, "Video latents"), (sound, figures.sound, "Sound latents")):
        _draw_values(axes, counts)
        label_axes(axes, title=title, x="stored value (standard deviations)", y="share of values (%)")
    return figure


def _draw_channels(axes: Axes, found: Floats, own: Floats, name: str) -> None:
    channels = np.arange(len(found))
    axes.plot(channels, own, color=ORANGE, marker="_", markersize=11, markeredgewidth=2, linestyle="none", label=name)
    axes.plot(channels, found, color=BLUE, marker="o", markersize=5, linestyle="none", label="these rows")
    axes.set_xticks(range(0, len(found), 4))
    axes.margins(y=0.25)
    add_legend(axes)


def _draw_values(axes: Axes, counts: npt.NDArray[np.int64]) -> None:
    """Bars, and what a normal distribution of mean 0 and deviation 1 would give."""
    width, total = float(_EDGES[1] - _EDGES[0]), max(int(counts.sum()), 1)
    centres = (_EDGES[:-1] + _EDGES[1:]) / 2
    axes.stairs(counts * (100 / total), _EDGES, fill=True, color=BLUE, label="these rows")
    normal = np.exp(-(centres**2) / 2) / np.sqrt(2 * np.pi) * width * 100
    axes.plot(centres, normal, color=ORANGE, linewidth=2, label="mean 0, deviation 1")
    add_legend(axes)


def frame_figure(sample_id: str, channels: npt.NDArray[np.float32]) -> Figure:
    """Every channel of one latent frame, float32 [24, H, W], on one scale of grey that is symmetric about zero."""
    count, height, width = channels.shape
    tile = _TILE_PX / max(height, width)
    tile_width, tile_height = width * tile, height * tile
    rows = -(-count // _FRAME_COLUMNS)
    full_height = round(_HEAD_PX + rows * (tile_height + _NAME_PX))
    figure = new_figure(WIDTH_PX, full_height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    text = f"First latent frame of {shortened(sample_id, 50)}"
    axes.text(_GAP_PX, 18, text, fontsize=FONT_PT + 1, color=INK, va="center", parse_math=False)
    limit = max(float(np.abs(channels).max(initial=0)), 1e-6)
    for channel in range(count):
        row, column = divmod(channel, _FRAME_COLUMNS)
        left, top = _GAP_PX + column * (_TILE_PX + _GAP_PX), _HEAD_PX + row * (tile_height + _NAME_PX)
        axes.text(left, top - 10, f"channel {channel}", fontsize=FONT_PT, color=INK, va="center")
        extent = (left, left + tile_width, top + tile_height, top)
        axes.imshow(
            channels[channel],
            cmap="gray",
            vmin=-limit,
            vmax=limit,
            extent=extent,
            aspect="auto",
            interpolation="nearest",
        )
    _draw_scale(axes, limit, full_height)
    axes.set_xlim(0, WIDTH_PX)
    axes.set_ylim(full_height, 0)
    return figure


def _draw_scale(axes: Axes, limit: float, height: float) -> None:
    """The scale of grey at the right, black below, white above; matplotlib's own would need its layout, which is slow here."""
    left, top, bottom = WIDTH_PX - 80, _HEAD_PX, height - 20
    ramp = np.linspace(limit, -limit, 64)[:, None]
    extent = (left, left + 14, bottom, top)
    axes.imshow(ramp, cmap="gray", vmin=-limit, vmax=limit, extent=extent, aspect="auto")
    for value, place in ((limit, top + 6), (0.0, (top + bottom) / 2), (-limit, bottom - 6)):
        axes.text(left + 19, place, f"{value:.1f}", fontsize=FONT_PT, color=INK, va="center")
    axes.text(
        WIDTH_PX - 16,
        (top + bottom) / 2,
        "stored value (deviations)",
        fontsize=FONT_PT,
        color=INK,
        rotation=90,
        ha="center",
        va="center",
    )
