"""What a turn-taking model says about the turn: hold or shift, and who speaks next, from logits over the classes.

    logits ─► class probabilities ─► expected future bins of (hold, shift) ─► shift scaled ─► share of shift ─► above 0.5?

| classes        | hold                                   | shift                 | future bins | scale |
|----------------|----------------------------------------|-----------------------|-------------|-------|
| role_relative  | the class's current role               | its next role         | both        | 2     |
| speaker_based  | the speaker that had the turn          | the other             | the last    | 1     |

Of the two patterns of a role-relative class the current role is the one with the larger ``10 * history + future``. Classes of
``role_future`` leave history out, so that hold and shift cannot be read off them.

Source: the decoding of the published models of this family.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.targets import SPEAKER_BASED_WINDOW, ProjectionWindow
from muvap_assets.errors import ConfigError

ROLE_SHIFT_SCALE, SPEAKER_SHIFT_SCALE = 2.0, 1.0
"""Shifts are rarer than holds: what the published models multiply them by."""

SHIFT_THRESHOLD = 0.5
_LEAST_SUM = 1e-8
_MAX_FUTURE_BINS = 10
Floats = npt.NDArray[np.float64]


def role_shift(logits: npt.ArrayLike, shift_scale: float = ROLE_SHIFT_SCALE) -> Floats:
    """The probability that the turn shifts, from logits over the classes of ``role_relative``.

    Args:
        logits: real [..., 136].
        shift_scale: what shifts are multiplied by before the two are made to add up to 1.

    Returns:
        float64 [...] from 0 to 1; above :data:`SHIFT_THRESHOLD` is a shift. 0 where nobody is expected to speak.

    Raises:
        ConfigError: ``logits`` have another shape or are not finite, or the scale is not above 0.
    """
    return _shift(_expected(logits, _role_futures()), shift_scale)


def speaker_shift(
    logits: npt.ArrayLike,
    previous: npt.ArrayLike,
    window: ProjectionWindow = SPEAKER_BASED_WINDOW,
    *,
    first_bin: int = -1,
    shift_scale: float = SPEAKER_SHIFT_SCALE,
) -> Floats:
    """The probability that the turn shifts, from logits over the classes of ``speaker_based``.

    Args:
        logits: real [..., 4**n], n the future bins of the window.
        previous: 0 or 1 [...]: who had the turn.
        window: the window of the targets; at most 10 future bins.
        first_bin: the first of the future bins that are summed, up to the last one; negative ones count from the end.
        shift_scale: as of :func:`role_shift`.

    Raises:
        ConfigError: shapes do not go together, ``logits`` are not finite, or another argument is out of range.
    """
    count = window.num_future_bins
    if not 0 < count <= _MAX_FUTURE_BINS or not -count <= first_bin < count:
        found = f"bin {first_bin} of {count} future bins"
        raise _error("first_bin", found, f"one of them, and at most {_MAX_FUTURE_BINS} of them")
    speaking = _expected(logits, _speaker_futures(count, first_bin % count))
    before = _speakers("previous", previous, 2, speaking.shape[:-1])[..., None]
    rows = np.concatenate([np.take_along_axis(speaking, index, axis=-1) for index in (before, 1 - before)], axis=-1)
    return _shift(rows, shift_scale)


def next_speaker(
    shift: npt.ArrayLike, previous: npt.ArrayLike, scores: npt.ArrayLike | None = None
) -> npt.NDArray[np.int64]:
    """Who speaks next: who had the turn where it holds, else the best of the others.

    Args:
        shift: [...], the probability of a shift.
        previous: whole numbers [...], who had the turn.
        scores: real [..., S], how much each speaker is expected to speak, such as the sum of the later future bins of a model
            that scores each one; of several best the first. Not needed for two speakers.

    Returns:
        int64 [...].

    Raises:
        ConfigError: shapes do not go together, or a speaker is out of range.
    """
    chance: Floats = np.asarray(shift, np.float64)
    if scores is None:
        before = _speakers("previous", previous, 2, chance.shape)
        return np.where(chance > SHIFT_THRESHOLD, 1 - before, before)
    claims = np.array(scores, np.float64)
    if claims.shape[:-1] != chance.shape or claims.ndim == 0 or claims.shape[-1] < 2 or np.isnan(claims).any():
        raise _error(
            "scores", f"{list(claims.shape)}", f"a number for each of two or more speakers, {list(chance.shape)} + [S]"
        )
    before = _speakers("previous", previous, claims.shape[-1], chance.shape)
    np.put_along_axis(claims, before[..., None], -np.inf, axis=-1)
    return np.where(chance > SHIFT_THRESHOLD, claims.argmax(-1), before)


def _expected(logits: npt.ArrayLike, futures: Floats) -> Floats:
    """Expected sums [..., 2] of the bins that each class has for the two, [classes, 2], as shares of their total."""
    values: npt.NDArray[Any] = np.asarray(logits)
    if (
        values.ndim == 0
        or values.shape[-1] != len(futures)
        or values.dtype.kind != "f"
        or not np.isfinite(values).all()
    ):
        required = f"finite real numbers, [..., {len(futures)}]"
        raise _error("logits", f"{values.dtype} {list(values.shape)}", required)
    wide = values.astype(np.float64)
    powers = np.exp(wide - wide.max(-1, keepdims=True))
    sums: Floats = (powers / powers.sum(-1, keepdims=True)) @ futures
    shares: Floats = sums / np.maximum(sums.sum(-1, keepdims=True), _LEAST_SUM)
    return shares


def _shift(hold_and_shift: Floats, scale: float) -> Floats:
    if not 0 < scale < np.inf:
        raise _error("shift_scale", f"{scale}", "a factor above 0")
    scaled = hold_and_shift * np.array([1.0, scale])
    shift: Floats = scaled[..., 1] / np.maximum(scaled.sum(-1), _LEAST_SUM)
    return shift


def _bits(count: int) -> Floats:
    """Every number of ``count`` bits as its bits, most significant first: [2**count, count]."""
    return (np.arange(1 << count)[:, None] >> np.arange(count - 1, -1, -1) & 1).astype(np.float64)


@lru_cache(maxsize=1)
def _role_futures() -> Floats:
    """Future bins of the current and of the next role of each of the 136 classes: [136, 2]."""
    patterns = _bits(4)[np.array(list(combinations_with_replacement(range(16), 2)))]
    history, future = patterns[..., :2].sum(-1), patterns[..., 2:].sum(-1)
    current = (10 * history + future).argmax(-1)
    return np.stack([np.take_along_axis(future, index[:, None], -1)[:, 0] for index in (current, 1 - current)], -1)


@lru_cache(maxsize=8)
def _speaker_futures(count: int, first_bin: int) -> Floats:
    """Future bins from ``first_bin`` on of the two speakers, of each of the ``4**count`` classes."""
    speaking: Floats = _bits(2 * count).reshape(-1, 2, count)[..., first_bin:].sum(-1)
    return speaking


def _speakers(field: str, speakers: npt.ArrayLike, count: int, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    values: npt.NDArray[Any] = np.asarray(speakers)
    if values.shape != shape or values.dtype.kind not in "iu" or ((values < 0) | (values >= count)).any():
        raise _error(
            field, f"{values.dtype} {list(values.shape)}", f"whole numbers from 0 to {count - 1}, {list(shape)}"
        )
    return values.astype(np.int64)


def _error(field: str, found: str, required: str) -> ConfigError:
    return ConfigError(f"turn readout {field}: {found}; required: {required}. Correct the call.")
