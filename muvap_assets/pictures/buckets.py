"""What an epoch over a published dataset is made of: its buckets with their repeats, its lengths and their capacities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from muvap_assets.pictures.canvas import (
    BLUE,
    FAINT,
    FONT_PT,
    INK,
    ORANGE,
    PAPER,
    WIDTH_PX,
    Picture,
    add_legend,
    encoded,
    histogram,
    label_axes,
    new_figure,
    own_style,
    whole_counts,
)
from muvap_assets.ref2va.capacities import Proposal
from muvap_assets.ref2va.index_rows import DatasetIndex
from muvap_assets.ref2va.plan_report import BucketPlan, PlanReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_BUCKETS = 16


@own_style()
def buckets_picture(index: DatasetIndex, report: PlanReport) -> Picture:
    """Over every row of the index; of the buckets those with most rows."""
    world = max(report.steps)
    shown = min(len(report.buckets), _MOST_BUCKETS)
    return Picture(
        name="buckets",
        title="Buckets, repeats and sequence lengths",
        caption=f"{shown} of {len(report.buckets)} buckets, those with most rows; all {report.rows} rows. A bucket's last "
        f"batch is filled with rows drawn again, here for {world} ranks. {report.capacities.waste_share:.1%} of what is "
        "computed would be padding with the capacities proposed.",
        png=encoded(buckets_figure(report.buckets, world, index.lengths, report.capacities)),
    )


def buckets_figure(buckets: Sequence[BucketPlan], world: int, lengths: Sequence[int], capacities: Proposal) -> Figure:
    """``lengths`` are rows of each sample's joint sequence; ``world`` is the number of ranks the repeats are shown for."""
    shown = sorted(buckets, key=lambda bucket: (-bucket.rows, bucket.name))[:_MOST_BUCKETS]
    figure = new_figure(WIDTH_PX, 290 + 18 * max(0, len(shown) - 5))
    left, right = figure.subplots(1, 2)
    _draw_buckets(left, shown, world)
    label_axes(left, title="Buckets", x="rows drawn an epoch", y="width x height (px) - frames")
    histogram(right, np.array(lengths, np.float64))
    right.set_ylim(top=right.get_ylim()[1] * 1.3)  # room for the capacities
    for capacity in capacities.capacities:
        right.axvline(capacity, color=ORANGE, linestyle="--")
        right.annotate(
            f"{capacity}",
            (capacity, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-3, -3),
            textcoords="offset points",
            rotation=90,
            ha="right",
            va="top",
            fontsize=FONT_PT,
            color=INK,
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1},
        )
    right.plot([], [], color=ORANGE, linestyle="--", label="capacity proposed (rows)")
    add_legend(right)
    label_axes(right, title="Sequence lengths", x="joint sequence length (rows)", y="samples")
    return figure


def _draw_buckets(axes: Axes, buckets: Sequence[BucketPlan], world: int) -> None:
    places, rows = range(len(buckets)), [bucket.rows for bucket in buckets]
    repeats = [bucket.repeats[world] for bucket in buckets]
    axes.barh(places, rows, color=BLUE, height=0.6, label="rows")
    axes.barh(
        places,
        repeats,
        left=rows,
        color="none",
        edgecolor=ORANGE,
        hatch="///",
        height=0.6,
        label=f"drawn again, {world} ranks",
    )
    axes.set_yticks(places, [bucket.name.removeprefix("bucket=") for bucket in buckets], fontsize=FONT_PT)
    axes.invert_yaxis()
    axes.grid(axis="x", color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    whole_counts(axes, of_x=True)
    add_legend(axes)
