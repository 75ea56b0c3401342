"""The exact timeline: which native frame a model frame shows, and which model frame scores a native frame.

    native frames   |  0  |  1  |  2  |  3  |  4  |  5  |       source_fps = 30
    model frames    |   0   |   1   |   2   |   3   |   4   |  model_fps  = 25
                        ^ t(0) = 0.5 / 25 s: the centre of its interval

Everything is integer arithmetic on fractions. The same formulas in float64 pick the wrong frame wherever the exact value
is an integer: 0.4 % of the model frames at 30 and 60 fps, more at 50 and 100.

Source: the audio-visual data contract, "Canonical timeline" and "Evaluation on the native timeline".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from muvap_assets.errors import ConfigError

MODEL_FPS = 25
_INT64_MAX = 2**63 - 1
_RATE_PATTERN = re.compile(r"\d{1,9}(\.\d{1,18})?|\d{1,12}/\d{1,12}", re.ASCII)
_MAX_FPS = 1000

RateLike: TypeAlias = "FrameRate | Fraction | int | float | str"


@dataclass(frozen=True, slots=True)
class FrameRate:
    """A frame rate as it was given, and its exact value in frames a second.

    ``29.97`` and ``30000/1001`` are two different rates and stay two: over 36 minutes they disagree about the frame to
    show in 3 % of the model frames.
    """

    text: str
    value: Fraction

    @classmethod
    def parse(cls, rate: RateLike) -> FrameRate:
        """Read a rate: ``29.97``, ``"30000/1001"``, an int, a float (its shortest decimal) or a Fraction.

        Raises:
            ConfigError: it is not a decimal or a fraction, not positive, or above 1000 frames a second.
        """
        if isinstance(rate, FrameRate):
            return rate
        text = _text_of(rate)
        value = Fraction(text) if _RATE_PATTERN.fullmatch(text) and not re.search(r"/0+$", text) else None
        if value is None or not 0 < value <= _MAX_FPS:
            raise ConfigError(
                f"frame rate {text!r}: not a rate, required is a decimal such as 29.97 or a fraction such as 30000/1001 "
                f"that is positive and at most {_MAX_FPS}. Give the rate of the face track itself."
            )
        return cls(text, value)

    def __float__(self) -> float:
        return float(self.value)


def _text_of(rate: Fraction | int | float | str) -> str:
    if isinstance(rate, Fraction):
        return f"{rate.numerator}/{rate.denominator}" if rate.denominator != 1 else str(rate.numerator)
    if isinstance(rate, float) and "e" in repr(rate):
        return format(rate, "f") if np.isfinite(rate) else repr(rate)
    if isinstance(rate, float) and rate.is_integer():
        return str(int(rate))
    return str(rate).strip()


USUAL_RATES = tuple(
    FrameRate.parse(text)
    for text in (
        *("12.5", "15", "23.976", "24000/1001", "24", "25", "29.97", "30000/1001", "30", "48", "50"),
        *("59.94", "60000/1001", "60", "90", "100", "119.88", "120000/1001", "120"),
    )
)
"""Rates that cameras and their files have, as they are written."""


def usual_rates(frames: int, seconds: Fraction, tolerance: Fraction) -> list[FrameRate]:
    """The usual rates at which ``frames`` last ``seconds``, to within ``tolerance`` seconds."""
    return [rate for rate in USUAL_RATES if frames > 0 and abs(frames / rate.value - seconds) <= tolerance]


def model_frame_count(source_frames: int, source_fps: RateLike, model_fps: RateLike = MODEL_FPS) -> int:
    """Number of complete model intervals in a track of ``source_frames`` native frames.

    A non-empty track shorter than one interval still has one model frame, so that each annotated frame gets a score.
    """
    _check_frames(source_frames)
    ratio = FrameRate.parse(model_fps).value / FrameRate.parse(source_fps).value
    return max(source_frames * ratio.numerator // ratio.denominator, min(source_frames, 1))


def source_indices(source_frames: int, source_fps: RateLike, model_fps: RateLike = MODEL_FPS) -> npt.NDArray[np.int64]:
    """The native frame whose interval contains each model frame's centre.

    ``floor((k + 0.5) / model_fps * source_fps)`` for ``k`` in ``range(model_frame_count(...))``.

    Returns:
        int64 [model_frames], non-decreasing, each in ``range(source_frames)``. Index faces and labels with this one array.
    """
    count = model_frame_count(source_frames, source_fps, model_fps)
    ratio = FrameRate.parse(source_fps).value / FrameRate.parse(model_fps).value
    # Only the single frame of a track shorter than one model interval can have its centre past the track's end.
    return np.minimum(_centres(count, ratio), max(source_frames - 1, 0))


def model_indices(source_frames: int, source_fps: RateLike, model_fps: RateLike = MODEL_FPS) -> npt.NDArray[np.int64]:
    """The model frame whose interval contains each native frame's centre: the way scores come back.

    ``floor((j + 0.5) / source_fps * model_fps)`` for ``j`` in ``range(source_frames)``; frames past the last complete
    model interval (one below twice the model rate, more above) are clamped to it.

    Returns:
        int64 [source_frames], non-decreasing, each in ``range(model_frame_count(...))``.
    """
    count = model_frame_count(source_frames, source_fps, model_fps)
    ratio = FrameRate.parse(model_fps).value / FrameRate.parse(source_fps).value
    return np.minimum(_centres(source_frames, ratio), max(count - 1, 0))


def _centres(count: int, ratio: Fraction) -> npt.NDArray[np.int64]:
    """``floor((i + 0.5) * ratio)`` for ``i`` in ``range(count)``, exactly."""
    numerator, denominator = ratio.numerator, 2 * ratio.denominator
    if (2 * count + 1) * numerator > _INT64_MAX or denominator > _INT64_MAX:
        return np.array([(2 * i + 1) * numerator // denominator for i in range(count)], dtype=np.int64)
    return (2 * np.arange(count, dtype=np.int64) + 1) * numerator // denominator


def _check_frames(source_frames: int) -> None:
    if source_frames < 0:
        raise ConfigError(
            f"source_frames {source_frames}: negative, required is the length of a track. Count its frames."
        )
