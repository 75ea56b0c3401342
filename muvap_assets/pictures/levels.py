"""How loud the recordings of a loudness index are, and what gain a loader will give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.level_report import LOUDEST_DBFS, quietest_dbfs
from muvap_assets.asd.levels import LoudnessTarget
from muvap_assets.asd.loudness import LoudnessStats
from muvap_assets.pictures.canvas import (
    GREEN,
    ORANGE,
    WIDTH_PX,
    Picture,
    add_legend,
    encoded,
    histogram,
    label_axes,
    new_figure,
    own_style,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEIGHT_PX = 340


@own_style()
def levels_picture(stats: Sequence[LoudnessStats], target: LoudnessTarget | None = None) -> Picture:
    """Histograms over every recording that is not silent."""
    target = target or LoudnessTarget()
    heard = [each for each in stats if each.dbfs is not None]
    rms, peak = np.array([each.rms for each in heard]), np.array([each.peak for each in heard])
    dbfs = np.array([each.dbfs for each in heard], np.float64)
    gain_db = 20 * np.log10(target.gains(rms, peak)) if heard else np.empty(0)
    return Picture(
        name="levels",
        title="Level of the recordings, and the gain a loader gives them",
        caption=f"{len(heard)} recordings, each whole; {len(stats) - len(heard)} silent ones are left out. The gain brings a "
        f"recording to {target.rms_dbfs:g} dBFS, by at most {target.max_gain_db:g} dB and up to a peak of {target.max_peak:g}.",
        png=encoded(levels_figure(dbfs, gain_db, target)),
    )


def levels_figure(dbfs: npt.NDArray[np.float64], gain_db: npt.NDArray[np.float64], target: LoudnessTarget) -> Figure:
    """``dbfs`` and ``gain_db`` are float64 [recordings]."""
    figure = new_figure(WIDTH_PX, _HEIGHT_PX)
    left, right = figure.subplots(1, 2)
    histogram(left, dbfs, step=1)
    left.axvline(target.rms_dbfs, color=ORANGE, linewidth=2, label=f"target {target.rms_dbfs:g}")
    left.axvline(quietest_dbfs(target), color=GREEN, linestyle="--", label=f"quiet below {quietest_dbfs(target):g}")
    left.axvline(LOUDEST_DBFS, color=GREEN, linestyle=":", label=f"loud above {LOUDEST_DBFS:g}")
    add_legend(left)
    label_axes(left, title="Level", x="level of the whole recording (dBFS)", y="recordings")
    histogram(right, gain_db, step=1)
    right.axvline(target.max_gain_db, color=ORANGE, linewidth=2, label=f"largest gain {target.max_gain_db:g}")
    add_legend(right)
    label_axes(right, title="Gain", x="gain a loader applies (dB)", y="recordings")
    return figure
