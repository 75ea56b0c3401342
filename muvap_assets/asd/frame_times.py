"""Crops named by their times, against the labels and the rate of their track: which are extra, missing, shifted or apart.

Counts alone do not show a crop too many beside one too few. Times do: from the annotations where the corpus has them, else
from the rate, at which neighbours lie ``1 / source_fps`` apart, give or take what the names are rounded by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.contract import ClipRow
from muvap_assets.asd.timeline import FrameRate, usual_rates
from muvap_assets.codes import Code
from muvap_assets.findings import Finding
from muvap_assets.media.faces import stamp_gaps

NAME_TOLERANCE_USEC = 5_000
"""Crops are named with two decimals: a name may lie this far from the time it was made from."""

_GRID_SEC = Fraction(2 * NAME_TOLERANCE_USEC, 1_000_000)

_SHOWN = 5


def check_frame_times(row: ClipRow, names: Sequence[str]) -> list[Finding]:
    """Hold the frame files of a row, in numeric order, to its labels, its annotated times and its rate.

    A gap is more than one and a half steps of the rate; less than half a step is a crop too many. Where the corpus does not
    say that files are named by seconds, decimals do; files that are numbered lie apart as most of them do.
    """
    if not names:
        return []
    if row.frame_times is None and not any(name.count(".") > 1 for name in names):
        return list(_numbered(row, names))
    times, annotated = stem_times(names), row.frame_times.annotated_usec if row.frame_times else None
    if annotated is None and len(names) == len(row.labels) and _regular(times, row.source_fps):
        return []
    if annotated is not None and len(annotated) == len(row.labels):
        found = _against_annotation(row, names, times, annotated)
        gaps = _gaps(row, annotated, [f"{time / 1e6:.2f}" for time in annotated.tolist()], "the annotation leaves")
    else:
        found = _against_count(row, names, times)
        gaps = _gaps(row, times, names, "the crops leave")
    advice = _coarse_names(row, names) or _rate_hint(row, times)
    return [finding.advised(advice) for finding in (*found, *gaps)] or list(_other_rate(row, times))


def _coarse_names(row: ClipRow, names: Sequence[str]) -> str:
    """What is wrong with times of two decimals at a rate that they cannot name the frames of."""
    limit = Fraction(1_000_000, 2 * NAME_TOLERANCE_USEC)
    if row.source_fps.value <= limit or any(len(name.rpartition(".")[0].partition(".")[2]) > 2 for name in names):
        return ""
    return (
        f"Or rather name the crops by number or with more decimals: two decimals name at most {limit} frames a second, and at "
        f"{row.source_fps.text} some were written over others."
    )


def _rate_hint(row: ClipRow, times: npt.NDArray[np.int64]) -> str:
    """A wrong rate makes every step a gap, or every crop one too many: the rates on whose grid all times are."""
    steps = np.arange(len(times)) * 1e6
    fit = [
        rate
        for rate in usual_rates(len(times) - 1, Fraction(int(times[-1] - times[0]), 1_000_000), _GRID_SEC)
        if np.abs(times - times[0] - steps / float(rate)).max() <= _GRID_SEC * 1_000_000
    ]
    if not fit or any(rate.value == row.source_fps.value for rate in fit):
        return ""
    return f"Or source_fps is wrong: {' or '.join(rate.text for rate in fit)} would fit."


def _numbered(row: ClipRow, names: Sequence[str]) -> Iterator[Finding]:
    first, last = (int(name.partition(".")[0]) for name in (names[0], names[-1]))
    if last - first == len(names) - 1:
        return
    numbers = np.array([int(name.partition(".")[0]) for name in names], np.int64)
    gaps = stamp_gaps(names)
    if gaps:
        yield _gap(row, "the crops leave", gaps, "numbers")
    step = int(np.median(np.diff(numbers)))
    # Milliseconds of the track's rate are no frame numbers.
    if step > 1 and abs(step - 1000 / row.source_fps.value) > 1:
        fps = row.source_fps.text
        found = f"{fps}, while the crops are numbered in steps of {step}"
        yield Finding(Code.SOURCE_FPS_DIFFERS, row.place("source_fps"), found, case="steps", fps=fps, step=step)


def _regular(times: npt.NDArray[np.int64], rate: FrameRate) -> bool:
    """Whether nothing can be wrong with times, told at little cost; where not, the rules below have to look."""
    step, closest, farthest = _limits(rate)
    if len(times) < 2:
        return True
    steps = np.diff(times)
    drift = abs(int(times[-1] - times[0]) - len(steps) * step)
    return bool(steps.min() >= closest and steps.max() <= farthest and drift <= step / 2)


@lru_cache(maxsize=1024)
def _limits(rate: FrameRate) -> tuple[float, float, float]:
    """The usual step, and the shortest and the longest one that is neither a crop too many nor a gap, in microseconds.

    Names are rounded to a grid, which at high rates is coarser than half a step: a step rounded up is no gap.
    """
    step, grid = 1_000_000 / rate.value, 2 * NAME_TOLERANCE_USEC
    longest = max(step * 3 / 2, Fraction(-(-step // grid) * grid))
    return float(step), float(step / 2), float(longest)


def stem_times(names: Sequence[str]) -> npt.NDArray[np.int64]:
    """int64 [frames]: the times in microseconds that ``12.48.jpg`` and its like are named by."""
    return np.array([_usec(name) for name in names], np.int64)


def _usec(name: str) -> int:
    whole, _, fraction = name.rpartition(".")[0].partition(".")
    return int(whole) * 1_000_000 + int(f"{fraction:0<6.6}")


def _against_annotation(
    row: ClipRow, names: Sequence[str], times: npt.NDArray[np.int64], annotated: npt.NDArray[np.int64]
) -> Iterator[Finding]:
    if len(times) == len(annotated) and (np.abs(times - annotated) <= NAME_TOLERANCE_USEC).all():
        return
    extra = [names[i] for i in _without_partner(times, annotated)]
    missing = [f"{annotated[i] / 1e6:.2f}" for i in _without_partner(annotated, times)]
    parts = [f"labels has {len(row.labels)} entries, faces has {len(names)} frames"]
    parts += [f"extra {_shown(extra)}"] if extra else []
    parts += [f"missing {_shown(missing)}"] if missing else []
    place, found = row.place("visual_path"), "; ".join(parts)
    if len(times) == len(annotated):
        yield Finding(Code.FRAME_TIMES_MISMATCH, place, found).advised(row.known_defect)
    else:
        yield Finding(Code.LABEL_COUNT_MISMATCH, place, found, case="annotation").advised(row.known_defect)


def _without_partner(times: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> list[int]:
    """Which of ``times`` have none of ``others`` within the tolerance; both increase."""
    right = np.searchsorted(others, times)
    nearest = np.full(len(times), np.iinfo(np.int64).max)
    for index in (right - 1, right):
        valid = (index >= 0) & (index < len(others))
        distance = np.abs(others[np.clip(index, 0, len(others) - 1)] - times)
        nearest = np.where(valid, np.minimum(nearest, distance), nearest)
    return np.flatnonzero(nearest > NAME_TOLERANCE_USEC).tolist()


def _against_count(row: ClipRow, names: Sequence[str], times: npt.NDArray[np.int64]) -> Iterator[Finding]:
    crowded = _crowded(row, times)
    extra = f"; extra {_shown([names[i] for i in crowded])}" if crowded else ""
    if len(names) != len(row.labels):
        found = f"labels has {len(row.labels)} entries, faces has {len(names)} frames{extra}"
        yield Finding(Code.LABEL_COUNT_MISMATCH, row.place("visual_path"), found).advised(row.known_defect)
    elif crowded:
        found = f"{_shown([names[i] for i in crowded])} less than half a step after the crop before"
        crowding = Finding(Code.FRAME_CROWDED, row.place("visual_path"), found, fps=row.source_fps.text)
        yield crowding.advised(row.known_defect)


def _crowded(row: ClipRow, times: npt.NDArray[np.int64]) -> list[int]:
    """Crops that do not lie on the rhythm of the others, where two follow one another too closely."""
    step, closest, _ = _limits(row.source_fps)
    close = np.flatnonzero(np.diff(times) < closest)
    rhythm = (times - times[0]) / step
    off = np.abs(rhythm - np.rint(rhythm))
    return [int(i + 1 if off[i + 1] >= off[i] else i) for i in close]


def _gaps(row: ClipRow, times: npt.NDArray[np.int64], names: Sequence[str], whose: str) -> Iterator[Finding]:
    limit = _limits(row.source_fps)[2]
    at = np.flatnonzero(np.diff(times) > limit)
    if len(at):
        gaps = [(names[i], names[i + 1]) for i in at.tolist()]
        yield _gap(row, whose, gaps)


def _gap(row: ClipRow, whose: str, gaps: Sequence[tuple[str, str]], case: str = "") -> Finding:
    shown = ", ".join(f"between {earlier!r} and {later!r}" for earlier, later in gaps[:_SHOWN])
    more = f" and {len(gaps) - _SHOWN} more" if len(gaps) > _SHOWN else ""
    place, found = row.place("visual_path"), f"{whose} out frames {shown}{more}"
    return Finding(Code.FRAME_GAP, place, found, case=case, fps=row.source_fps.text).advised(row.known_defect)


def _other_rate(row: ClipRow, times: npt.NDArray[np.int64]) -> Iterator[Finding]:
    """A declared rate that leaves the times of the crops by half a frame, so that an index within the track moves."""
    span, steps = int(times[-1] - times[0]), len(times) - 1
    step = 1_000_000 / row.source_fps.value
    if steps and abs(span - steps * step) > step / 2 + 2 * NAME_TOLERANCE_USEC:
        found = (
            f"{row.source_fps.text}, while {len(times)} crops span {span / 1e6:.2f} s, as at {steps * 1e6 / span:.3f}"
        )
        yield Finding(Code.SOURCE_FPS_DIFFERS, row.place("source_fps"), found)


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(name) for name in names[:_SHOWN]) + more
