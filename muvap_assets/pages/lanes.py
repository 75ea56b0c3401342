"""What lies along a time axis, as SVG: places are shares of the axis, so that a lane is as wide as its page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from muvap_assets.pages.document import Markup, element

_COLUMNS = 1200
_LARGEST_TICKS = 10
_MAX_EDGES = 400


@dataclass(frozen=True, slots=True)
class Axis:
    """Seconds [start, stop) of a sample, exactly."""

    start: Fraction
    stop: Fraction

    def percent(self, at: Fraction) -> str:
        """Where a time lies, cut to the axis."""
        share = (min(max(at, self.start), self.stop) - self.start) / (self.stop - self.start)
        return f"{float(share * 100):.4f}%"

    def width(self, first: Fraction, last: Fraction) -> str:
        """How much of the axis lies between two times."""
        first, last = (min(max(at, self.start), self.stop) for at in (first, last))
        return f"{float((last - first) / (self.stop - self.start) * 100):.4f}%"


@dataclass(frozen=True, slots=True)
class Frames:
    """Values of the frames ``first``, ``first + 1``, ... of a timeline of ``fps``."""

    values: npt.NDArray[np.uint8]
    first: int
    fps: Fraction

    def runs(self) -> Iterator[tuple[int, Fraction, Fraction]]:
        """(value, start, stop) in seconds of each run of equal values."""
        cuts = np.flatnonzero(np.diff(self.values)) + 1
        edges = [0, *cuts.tolist(), len(self.values)]
        for begin, end in pairwise(edges):
            if end > begin:
                yield int(self.values[begin]), (self.first + begin) / self.fps, (self.first + end) / self.fps


def lane(*content: Markup, kind: str, label: str) -> Markup:
    """A lane with a name for who does not see it."""
    return element("svg", *content, class_=f"lane {kind}", role="img", aria_label=label, width="100%")


def activity_lane(axis: Axis, frames: Frames, *, kind: str, label: str) -> Markup:
    """Bars of the whole height where frames are 1, thin ones where they are 0, and the frames' edges where there is room."""
    bars = [
        element(
            "rect",
            x=axis.percent(start),
            y="0%" if value else "78%",
            width=axis.width(start, stop),
            height="100%" if value else "22%",
            class_="on" if value else "off",
        )
        for value, start, stop in frames.runs()
    ]
    return lane(*bars, *_frame_edges(axis, frames), kind=kind, label=label)


def _frame_edges(axis: Axis, frames: Frames) -> Iterator[Markup]:
    if len(frames.values) > _MAX_EDGES:
        return
    for number in range(frames.first, frames.first + len(frames.values) + 1):
        place = axis.percent(number / frames.fps)
        yield element("line", x1=place, x2=place, y1="0%", y2="100%", class_="edge")


def wave_lane(
    axis: Axis, samples: npt.NDArray[np.int16], first: int, rate_hz: int, *, silent_from: int, label: str
) -> Markup:
    """The least and the largest sample of each column, scaled to the loudest of all.

    Args:
        axis: the time axis.
        samples: int16 [n].
        first: the number of the first of them.
        rate_hz: their rate.
        silent_from: the number of the first sample past the recording's end.
        label: the lane's name.
    """
    columns = min(_COLUMNS, len(samples))
    marks: list[Markup] = []
    if silent_from < first + len(samples):
        start, stop = Fraction(max(silent_from, first), rate_hz), Fraction(first + len(samples), rate_hz)
        marks.append(
            element("rect", x=axis.percent(start), width=axis.width(start, stop), height="100%", class_="past")
        )
    if columns:
        edges = np.arange(columns) * len(samples) // columns
        lows, highs = (ufunc.reduceat(samples.astype(np.int32), edges) for ufunc in (np.minimum, np.maximum))
        peak = max(int(highs.max()), -int(lows.min()), 1)
        points = [f"{x},{round(-100 * high / peak)}" for x, high in enumerate(highs.tolist())]
        points += [f"{x},{round(-100 * low / peak)}" for x, low in reversed(list(enumerate(lows.tolist())))]
        path = element("path", d=f"M{' L'.join(points)} Z", class_="wave")
        box = f"0 -105 {max(columns - 1, 1)} 210"
        start, stop = Fraction(first, rate_hz), Fraction(first + len(samples), rate_hz)
        place = {"x": axis.percent(start), "width": axis.width(start, stop), "height": "100%"}
        marks.append(element("svg", path, viewBox=box, preserveAspectRatio="none", **place))
    return lane(*marks, kind="sound", label=label)


def ticks_lane(axis: Axis) -> Markup:
    """Numbered seconds at round places."""
    step = _tick_step(axis.stop - axis.start)
    decimals = max(0, len(f"{float(step):.10f}".rstrip("0").partition(".")[2]))
    marks: list[Markup] = []
    number = -(-axis.start // step)
    while number * step <= axis.stop:
        place = axis.percent(number * step)
        marks.append(element("line", x1=place, x2=place, y1="0", y2="5", class_="tick"))
        share = float((number * step - axis.start) / (axis.stop - axis.start))
        anchor = "start" if share < 0.02 else "end" if share > 0.98 else "middle"
        marks.append(element("text", f"{float(number * step):.{decimals}f}", x=place, y="18", text_anchor=anchor))
        number += 1
    return lane(*marks, kind="ticks", label="seconds of the sample")


def _tick_step(span: Fraction) -> Fraction:
    step = Fraction(1, 1000)
    while True:
        for factor in (1, 2, 5):
            if span / (step * factor) <= _LARGEST_TICKS:
                return step * factor
        step *= 10


def share_lane(parts: Sequence[tuple[str, int, str]], *, label: str) -> Markup:
    """Counts beside each other, each as wide as its share: (name, count, class)."""
    total = sum(count for _, count, _ in parts)
    marks, before = [], 0
    for name, count, kind in parts:
        if count:
            title = element("title", f"{name}: {count}")
            place = {"x": _share(before, total), "width": _share(count, total)}
            marks.append(element("svg", title, element("rect", width="100%", height="100%", class_=kind), **place))
        before += count
    return lane(*marks, kind="shares", label=label)


def _share(count: int, total: int) -> str:
    return f"{100 * count / total:.4f}%"
