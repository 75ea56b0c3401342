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
_STATISTICS_PX, _FRAME_COLUMNS = 560, 8
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
        title="Latents by channel, and how their values are spread",
        caption=f"{len(chosen)} of {len(rows)} rows, evenly spread. Rows hold latents with the checkpoint's mean taken out "
        f"and divided by its deviation: the nearer to 0 and 1, the better its statistics fit these media.{own}",
        png=encoded(statistics_figure(figures, statistics)),
    )
    if first is None:
        return [shown]
    sides = f"{chosen[0].geometry.width}x{chosen[0].geometry.height}"
    frame = Picture(
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
    axes.bar(centres, counts * (100 / total), width=width, color=BLUE, label="these rows")
    normal = np.exp(-(centres**2) / 2) / np.sqrt(2 * np.pi) * width * 100
    axes.plot(centres, normal, color=ORANGE, linewidth=2, label="mean 0, deviation 1")
    add_legend(axes)


def frame_figure(sample_id: str, channels: npt.NDArray[np.float32]) -> Figure:
    """Every channel of one latent frame, float32 [24, H, W], on one scale of grey that is symmetric about zero."""
    count, height, width = channels.shape
    rows = -(-count // _FRAME_COLUMNS)
    tile_px = round(WIDTH_PX * 0.88 / _FRAME_COLUMNS)
    figure = new_figure(WIDTH_PX, max(260, min(760, round(rows * (tile_px * height / width + 34)) + 50)))
    figure.suptitle(
        f"First latent frame of {shortened(sample_id, 50)}", fontsize=FONT_PT + 1, color=INK, parse_math=False
    )
    grid = figure.subplots(rows, _FRAME_COLUMNS, squeeze=False)
    limit = max(float(np.abs(channels).max(initial=0)), 1e-6)
    image = None
    for axes in grid.flat:
        axes.axis("off")
    for channel, axes in zip(range(count), grid.flat, strict=False):
        image = axes.imshow(channels[channel], cmap="gray", vmin=-limit, vmax=limit, interpolation="nearest")
        axes.set_title(f"channel {channel}", fontsize=FONT_PT, color=INK, pad=3)
    if image is not None:
        bar = figure.colorbar(image, ax=grid, fraction=0.03, pad=0.01)
        bar.set_label("stored value (standard deviations)", fontsize=FONT_PT, color=INK)
        bar.ax.tick_params(labelsize=FONT_PT, colors=INK)
    return figure
