"""Projection-window targets: what a speaker's activity was just before a frame and will be just after it.

    bins 0.8, 0.6, 0.4, 0.2 | 0.2, 0.4 s at 25 Hz, four of them history

    frames  |<------ 20 ------>|<---- 15 --->|<-- 10 -->|<5>|<5>|<-- 10 -->|
            t-49               t-29          t-14       t-4 t   t+6        t+15
            |<------------------ history_frames ----------->|<-- future -->|

History ends at and includes frame t, or with ``cut_center_frame`` at t-1. Where the future begins is a :class:`Convention`:

|                                  | history          | future, MuVAP | future, VAP  |
|----------------------------------|------------------|---------------|--------------|
| with history                     | t-H+1 .. t       | t+1 .. t+F    | t+1 .. t+F   |
| without history                  |                  | t .. t+F-1    | t+1 .. t+F   |
| with history, cut_center_frame   | t-H .. t-1       | t .. t+F-1    | t+1 .. t+F   |

Outside the track nobody speaks. A bin is 1 where the share of active frames in it is at least the threshold, decided in
integers.

Targets are made of the whole aligned track, never of a chunk: the first frames of a chunk have a past.

    >>> labels = np.array([0] * 30 + [1] * 30, np.uint8)
    >>> independent(labels).shape
    (60, 6)
    >>> independent(labels)[28].tolist()
    [0, 0, 0, 0, 1, 1]

Source: the projection-window definitions of the published models of this family, on the model timeline.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.timeline import MODEL_FPS, FrameRate, RateLike
from muvap_assets.codes import Code
from muvap_assets.errors import ConfigError, ValidationError
from muvap_assets.findings import Finding, Place


class Convention(StrEnum):
    """Where the future of a window without history, or with its centre cut, begins: at the frame itself, or after it."""

    MUVAP = "muvap"
    VAP = "vap"


Exact: TypeAlias = Fraction | int | float | str
"""A number taken for the decimal it is written as: 0.6 is six tenths, not the nearest double."""

_MAX_BIN_SEC = 3600
_MAX_FUTURE_BITS = 62
_PATTERNS = 16


def _exact(field: str, value: Exact) -> Fraction:
    try:
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise _window_error(field, repr(value), "a number such as 0.6 or 3/5") from None


def _window_error(field: str, found: str, required: str) -> ConfigError:
    return ConfigError(f"projection window {field}: {found}; required: {required}. Correct the window.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionWindow:
    """The bins around a frame. :meth:`muvap` and :meth:`vap` are the windows of the two families of models.

    ``bins_sec`` are lengths in seconds in order of time, the first ``num_hist_bins`` of them history. A bin takes
    ``round(seconds * frame_hz)`` frames, half to even, and at least one. ``threshold`` is the least share of active frames
    that makes a bin 1, above 0 and at most 1. ``convention`` says where the future begins, see the module.

    Raises:
        ConfigError: a field is out of range; the message names it.
    """

    bins_sec: tuple[Exact, ...]
    num_hist_bins: int
    threshold: Exact = Fraction(1, 2)
    frame_hz: RateLike = MODEL_FPS
    cut_center_frame: bool = False
    convention: Convention = Convention.MUVAP

    @classmethod
    def muvap(
        cls,
        *,
        bins_sec: tuple[Exact, ...] = (0.8, 0.6, 0.4, 0.2, 0.2, 0.4),
        num_hist_bins: int = 4,
        threshold: Exact = Fraction(1, 2),
        frame_hz: RateLike = MODEL_FPS,
        cut_center_frame: bool = False,
    ) -> ProjectionWindow:
        """A window as MuVAP's models take it; by default that of its active-speaker training."""
        return cls(
            bins_sec=bins_sec,
            num_hist_bins=num_hist_bins,
            threshold=threshold,
            frame_hz=frame_hz,
            cut_center_frame=cut_center_frame,
            convention=Convention.MUVAP,
        )

    @classmethod
    def vap(
        cls,
        *,
        bins_sec: tuple[Exact, ...] = (0.2, 0.4, 0.6, 0.8),
        num_hist_bins: int = 0,
        threshold: Exact = Fraction(1, 2),
        frame_hz: RateLike = MODEL_FPS,
        cut_center_frame: bool = False,
    ) -> ProjectionWindow:
        """A window as the voice activity projection code takes it; by default its four future bins."""
        return cls(
            bins_sec=bins_sec,
            num_hist_bins=num_hist_bins,
            threshold=threshold,
            frame_hz=frame_hz,
            cut_center_frame=cut_center_frame,
            convention=Convention.VAP,
        )

    def __post_init__(self) -> None:
        if not self.bins_sec:
            raise _window_error("bins_sec", "no bins", "at least one")
        for seconds in self.bins_sec:
            if not 0 < _exact("bins_sec", seconds) <= _MAX_BIN_SEC:
                raise _window_error("bins_sec", f"{seconds}", f"seconds above 0 and at most {_MAX_BIN_SEC}")
        if not 0 <= self.num_hist_bins <= len(self.bins_sec):
            raise _window_error(
                "num_hist_bins", f"{self.num_hist_bins}", f"0 to {len(self.bins_sec)}, the bins there are"
            )
        if not 0 < _exact("threshold", self.threshold) <= 1:
            raise _window_error("threshold", f"{self.threshold}", "a share above 0 and at most 1")
        FrameRate.parse(self.frame_hz)
        if self.convention not in tuple(Convention):
            raise _window_error("convention", repr(self.convention), f"one of {', '.join(Convention)}")

    @property
    def bin_frames(self) -> tuple[int, ...]:
        """Frames of each bin, in order of time."""
        rate = FrameRate.parse(self.frame_hz).value
        return tuple(max(round(_exact("bins_sec", seconds) * rate), 1) for seconds in self.bins_sec)

    @property
    def num_future_bins(self) -> int:
        """Bins after the frame."""
        return len(self.bins_sec) - self.num_hist_bins

    @property
    def history_frames(self) -> int:
        """Frames of all history bins: the context a model needs before the first frame it is scored on."""
        return sum(self.bin_frames[: self.num_hist_bins])

    @property
    def future_frames(self) -> int:
        """Frames of all future bins: how far ahead a target looks."""
        return sum(self.bin_frames[self.num_hist_bins :])

    @property
    def future_start(self) -> int:
        """Where the future begins, in frames from the frame itself: 0 or 1."""
        opens_at_frame = not self.num_hist_bins or self.cut_center_frame
        return 0 if self.convention == Convention.MUVAP and opens_at_frame else 1


INDEPENDENT_WINDOW = ProjectionWindow.muvap()
"""What active-speaker training uses, one face at a time."""

SPEAKER_BASED_WINDOW = ProjectionWindow.muvap(bins_sec=(0.2, 0.4, 0.6, 0.8), num_hist_bins=0)
"""256 classes for two speakers."""

ROLE_RELATIVE_WINDOW = ProjectionWindow.muvap(bins_sec=(1.4, 0.6, 0.6, 1.4), num_hist_bins=2)
"""136 classes for two or more speakers."""

ROLE_FUTURE_WINDOW = ProjectionWindow.muvap(bins_sec=(1.4, 0.6, 0.2, 0.4, 0.6, 0.8), num_hist_bins=2)
"""136 classes for two or more speakers, of their future alone."""


def independent(activity: npt.ArrayLike, window: ProjectionWindow = INDEPENDENT_WINDOW) -> npt.NDArray[np.uint8]:
    """The bins of one speaker.

    Args:
        activity: 0 or 1 [T], the whole track on the timeline of ``window.frame_hz``.
        window: the bins.

    Returns:
        uint8 [T, n_bins] of 0 and 1, bins in order of time.

    Raises:
        ConfigError: ``activity`` is not [T].
        ValidationError: it holds something other than 0 and 1.
    """
    return _bins(_activity(activity, dimensions=1, speakers="one speaker, [T]"), window)


def speaker_based(activity: npt.ArrayLike, window: ProjectionWindow = SPEAKER_BASED_WINDOW) -> npt.NDArray[np.int64]:
    """The future of two speakers as one class.

    The future bins of speaker 0, then those of speaker 1, read as one binary number, most significant first. History
    bins of the window do not enter.

    Args:
        activity: 0 or 1 [2, T], whole tracks on the timeline of ``window.frame_hz``.
        window: the bins; ``n`` of the future make ``4**n`` classes, 256 by default.

    Returns:
        int64 [T] in ``range(4**n)``.

    Raises:
        ConfigError: ``activity`` is not [2, T], or the window has no future bin or more than 31.
        ValidationError: ``activity`` holds something other than 0 and 1.
    """
    speakers = _activity(activity, dimensions=2, speakers="two speakers, [2, T]")
    if len(speakers) != 2:
        raise _activity_error(speakers.shape, "two speakers, [2, T]")
    if not 0 < 2 * window.num_future_bins <= _MAX_FUTURE_BITS:
        required = f"1 to {_MAX_FUTURE_BITS // 2} future bins for speaker-based classes"
        raise _window_error("bins_sec", f"{window.num_future_bins} future bins", required)
    future = _bins(speakers, window)[..., window.num_hist_bins :]
    return _binary_number(np.concatenate([future[0], future[1]], axis=-1))


def role_relative(activity: npt.ArrayLike, window: ProjectionWindow = ROLE_RELATIVE_WINDOW) -> npt.NDArray[np.int64]:
    """The current and the next speaker as one class, whoever they are.

    Current is the speaker with the largest ``10 * history + future``, next the one of the others with the largest
    ``10 * future + history``, where history and future are how many of the two bins are 1; ties go to the lowest index.
    The four bins of each, most significant first, are a pattern, and the class is the place of the unordered pair of
    patterns in (0,0), (0,1) .. (0,15), (1,1) .. (15,15).

    Args:
        activity: 0 or 1 [S, T], whole tracks of two or more speakers on the timeline of ``window.frame_hz``.
        window: two history and two future bins.

    Returns:
        int64 [T] in ``range(136)``.

    Raises:
        ConfigError: ``activity`` is not [S, T] of two or more speakers, or the window has other bins.
        ValidationError: ``activity`` holds something other than 0 and 1.
    """
    bins = _bins_of_many(activity, window, future_bins=2)
    history, future = bins[..., :2].sum(-1, dtype=np.int64), bins[..., 2:].sum(-1, dtype=np.int64)
    return _role_pairs(history, future, _binary_number(bins))


def role_future(activity: npt.ArrayLike, window: ProjectionWindow = ROLE_FUTURE_WINDOW) -> npt.NDArray[np.int64]:
    """The future of the current and the next speaker as one class, whoever they are.

    Roles are those of :func:`role_relative` with other weights: history is ``2 * h1 + h2`` of the two history bins, future
    ``f1 + 2 * f2``, where f1 is 1 where one of the first two future bins is, f2 where one of the last two is. The four future
    bins of each role are its pattern, and the class is the place of the unordered pair. A class does not tell which of its
    patterns is the current speaker's, so that hold and shift cannot be read off it.

    Where the two speakers with the most history have equally much, the public code takes the second of them for the next
    speaker; here the next speaker is chosen by the one rule there as well.

    Args:
        activity: 0 or 1 [S, T], whole tracks of two or more speakers on the timeline of ``window.frame_hz``.
        window: two history and four future bins.

    Returns:
        int64 [T] in ``range(136)``.

    Raises:
        ConfigError: ``activity`` is not [S, T] of two or more speakers, or the window has other bins.
        ValidationError: ``activity`` holds something other than 0 and 1.
    """
    bins = _bins_of_many(activity, window, future_bins=4)
    near, far = bins[..., 2:4].max(-1), bins[..., 4:6].max(-1)
    history, future = (first + 2 * second for first, second in ((bins[..., 1], bins[..., 0]), (near, far)))
    return _role_pairs(history.astype(np.int64), future.astype(np.int64), _binary_number(bins[..., 2:]))


def _bins_of_many(activity: npt.ArrayLike, window: ProjectionWindow, future_bins: int) -> npt.NDArray[np.uint8]:
    """The bins [S, T, n] of two or more speakers, of a window of two history bins and so many future ones."""
    speakers = _activity(activity, dimensions=2, speakers="two or more speakers, [S, T]")
    if len(speakers) < 2:
        raise _activity_error(speakers.shape, "two or more speakers, [S, T]")
    if (window.num_hist_bins, window.num_future_bins) != (2, future_bins):
        found = f"{window.num_hist_bins} history and {window.num_future_bins} future bins"
        required = (
            "two of each for role-relative classes" if future_bins == 2 else "two and four for role-future classes"
        )
        raise _window_error("bins_sec", found, required)
    return _bins(speakers, window)


def _role_pairs(
    history: npt.NDArray[np.int64], future: npt.NDArray[np.int64], patterns: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The class of the current and the next speaker's patterns; all three arguments are [S, T]."""
    frames = np.arange(patterns.shape[1])
    current = np.argmax(10 * history + future, axis=0)
    claim = 10 * future + history
    claim[current, frames] = -1
    following = np.argmax(claim, axis=0)
    return _pair_index(patterns[current, frames], patterns[following, frames])


def require_known_labels(labels_known: bool, where: str) -> None:
    """Refuse to make targets of filler; ``where`` names the sample.

    Raises:
        ValidationError: the labels are marked unknown.
    """
    if not labels_known:
        raise unknown_labels_error(where, "projection targets")


def unknown_labels_error(where: str, purpose: str) -> ValidationError:
    """The refusal to make ``purpose`` of labels that a corpus carries only as filler."""
    return ValidationError(unknown_labels(Place(where, field="labels"), purpose))


def unknown_labels(place: Place, purpose: str) -> Finding:
    """The finding that labels are filler, of which ``purpose`` is not made."""
    return Finding(
        Code.LABELS_INVALID, place, "marked unknown: filler, not annotation", case="unknown", purpose=purpose
    )


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where each bin lies from a frame on, [start, stop), and the least active frames that make it 1."""

    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    needed: npt.NDArray[np.int64]


@lru_cache(maxsize=64)
def _layout(window: ProjectionWindow) -> _Layout:
    frames = window.bin_frames
    # Edges count from where the future begins, then each side is moved to its place.
    edges = np.array(list(accumulate(frames, initial=-window.history_frames)), np.int64)
    history = np.arange(len(frames)) < window.num_hist_bins
    moved = np.where(history, 0 if window.cut_center_frame else 1, window.future_start)
    starts, stops = edges[:-1] + moved, edges[1:] + moved
    threshold = _exact("threshold", window.threshold)
    needed = [-(-count * threshold.numerator // threshold.denominator) for count in frames]
    return _Layout(starts, stops, np.array(needed, np.int64))


def _bins(activity: npt.NDArray[np.uint8], window: ProjectionWindow) -> npt.NDArray[np.uint8]:
    """Activity [..., T] to bins [..., T, n_bins]."""
    layout, length = _layout(window), activity.shape[-1]
    active_before = np.zeros((*activity.shape[:-1], length + 1), np.int64)
    np.cumsum(activity, axis=-1, dtype=np.int64, out=active_before[..., 1:])
    frames = np.arange(length, dtype=np.int64)[:, None]
    # Clipping to the track is what makes its outside silent: the bin keeps its length, the count finds nothing there.
    stops, starts = np.clip(frames + layout.stops, 0, length), np.clip(frames + layout.starts, 0, length)
    active: npt.NDArray[np.int64] = active_before[..., stops] - active_before[..., starts]
    return (active >= layout.needed).astype(np.uint8)


def _binary_number(bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Bits [..., n], most significant first, to numbers [...]."""
    weights = 1 << np.arange(bits.shape[-1] - 1, -1, -1, dtype=np.int64)
    numbers: npt.NDArray[np.int64] = bits.astype(np.int64) @ weights
    return numbers


def _pair_index(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    low, high = np.minimum(first, second), np.maximum(first, second)
    pairs_before: npt.NDArray[np.int64] = low * _PATTERNS - low * (low - 1) // 2
    return pairs_before + high - low


def _activity(activity: npt.ArrayLike, *, dimensions: int, speakers: str) -> npt.NDArray[np.uint8]:
    values: npt.NDArray[Any] = np.asarray(activity)
    if values.ndim != dimensions or values.dtype.kind not in "biuf":
        raise _activity_error(values.shape, speakers, str(values.dtype))
    wrong = (values != 0) & (values != 1)
    if wrong.any():
        place = tuple(int(axis[0]) for axis in np.nonzero(wrong))
        found = f"{values[place]} at {list(place)}"
        raise ValidationError(Finding(Code.LABELS_INVALID, Place(field="activity"), found, case="activity"))
    return values.astype(np.uint8)


def _activity_error(shape: tuple[int, ...], speakers: str, dtype: str = "") -> ConfigError:
    found = f"{dtype} {list(shape)}".strip()
    return ConfigError(f"activity: {found}; required: 0 or 1 of {speakers}. Give whole tracks on one timeline.")
