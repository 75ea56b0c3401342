"""Faces cut out of a video: which frames there are, and how a box becomes a grey 112x112 crop.

What belongs here: one video, one picture, one box. Which boxes belong to which clip is for the manifest and the packs.

| rule     |                                                                                                              |
|----------|--------------------------------------------------------------------------------------------------------------|
| frame    | number ``i`` is the ``i``-th picture decoded, from 0; it has to be shown within half a frame of ``i / fps``   |
| grey     | the decoded luma ``Y``, upright; ``round((Y - 16) * 255 / 219)``, clipped, where the video has limited range |
| crop     | the square about the box's centre whose side is the box's longer one, rounded to whole pixels                |
| border   | what of the square lies outside the picture is :data:`BORDER_GREY`; so is a frame without a box              |
| resizing | ``cv2.INTER_LINEAR`` to [112, 112], as for JPEG crops                                                        |

cv2 and PyAV are imported only to decode.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding
from muvap_assets.media.video import VideoFrame, VideoSource, open_container, unreadable

BORDER_GREY = 128
"""Level of everything that no pixel was seen of."""

_FULL_RANGE = 2  # AVCOL_RANGE_JPEG
_FULL_RANGE_FORMATS = frozenset({"gray", "yuvj420p", "yuvj422p", "yuvj444p"})
_LUMA_FORMATS = _FULL_RANGE_FORMATS | {"yuv420p", "yuv422p", "yuv444p", "nv12"}
_TO_FULL_RANGE = np.rint((np.arange(256) - 16) * (255 / 219)).clip(0, 255).astype(np.uint8)

MAX_SIDE_RATIO = 2
"""A crop's side is at most so many times the picture's longer one: more is no face."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoProbe:
    """What decoding a whole video showed: its frames, counted, and its size as displayed.

    ``stopped`` is why decoding ended early, or empty. ``off_grid`` is the first frame that is shown more than half a frame
    from where the given rate has it, with its time in seconds since the first frame.
    """

    frames: int
    width: int
    height: int
    stopped: str = ""
    off_grid: tuple[int, Fraction] | None = None


def load_video_decoder() -> None:
    """Import PyAV. Call it once before decoding in threads."""
    import av  # noqa: F401 - only who decodes pays for it


def declared_rate(path: Path) -> Fraction:
    """The rate of a video by its header; nothing is decoded. :func:`probe_video` says whether its frames keep it.

    That is the declared average, as it is written. Where it would miss the last frame of the container's index by a quarter
    of a frame, because the average counts a last frame of odd length, it is the rate from the first frame to the last.

    Raises:
        ValidationError: it is missing (FACES_MISSING), unreadable, holds no video stream or declares no rate.
    """
    with open_video(path) as source:
        if source.rate is None:
            raise ValidationError(Finding(Code.VIDEO_TIMESTAMPS, path, "it declares no frame rate"))
        rate = source.rate
    intervals, span_sec = _indexed_span(path)
    return rate if not span_sec or abs(span_sec * rate - intervals) * 4 <= 1 else intervals / span_sec


def _indexed_span(path: Path) -> tuple[int, Fraction]:
    """Intervals between frames in the container's index, and the seconds they take; none where it has no index."""
    with open_container(path, Code.VIDEO_UNREADABLE) as container:
        stream = container.streams.video[0]
        entries = stream.index_entries
        if len(entries) < 2:
            return 0, Fraction(0)
        return len(entries) - 1, (entries[-1].timestamp - entries[0].timestamp) * Fraction(stream.time_base)


def probe_video(path: Path, fps: Fraction) -> VideoProbe:
    """Decode a whole video once, count its frames and hold them to ``fps``.

    Raises:
        ValidationError: as :func:`open_video`; no frame decodes, or its timestamps run backwards.
    """
    off_grid = None
    with open_video(path) as source:
        for frame in source.frames():
            if off_grid is None and abs(frame.start * fps - frame.index) * 2 > 1:
                off_grid = (frame.index, frame.start)
        width, height = frame.size
        return VideoProbe(frames=frame.index + 1, width=width, height=height, stopped=source.stopped, off_grid=off_grid)


def open_video(path: Path) -> VideoSource:
    """An open video; close it.

    Raises:
        ValidationError: it is missing (FACES_MISSING), is unreadable or holds no video stream.
    """
    try:
        is_file = path.is_file()
    except OSError as error:  # a name too long, a folder closed to us
        found = f"it cannot be looked up ({error.strerror})"
        raise unreadable(path, found) from error
    if not is_file:
        raise ValidationError(Finding(Code.FACES_MISSING, path, "no such file"))
    return VideoSource(path)


def grey_picture(frame: VideoFrame) -> npt.NDArray[np.uint8]:
    """uint8 [H, W], upright. Pictures without 8-bit luma, such as RGB or 10 bits, go through libswscale's ``gray``."""
    import cv2

    raw = frame.raw
    if raw.format.name not in _LUMA_FORMATS:
        return frame.orientation.upright(raw.to_ndarray(format="gray"))
    plane = raw.planes[0]
    luma = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: raw.height, : raw.width]
    full_range = raw.format.name in _FULL_RANGE_FORMATS or raw.color_range == _FULL_RANGE
    # A table of our own: libswscale takes ten times as long, and its rounding is a matter of its version.
    grey = np.ascontiguousarray(luma) if full_range else cv2.LUT(luma, _TO_FULL_RANGE)
    return frame.orientation.upright(grey)


def wrong_box(box: npt.NDArray[np.float64], width: int, height: int) -> tuple[Code, str] | None:
    """What is wrong with one box, float64 [4], on a picture of this size."""
    x1, y1, x2, y2 = box.tolist()
    text = f"box {x1:g}, {y1:g}, {x2:g}, {y2:g}"
    # Thinner than a pixel, the crop would hold what is beside the face.
    if x2 - x1 < 1 or y2 - y1 < 1:
        return Code.BOX_EMPTY, f"{text} is thinner than a pixel"
    if x1 >= width or y1 >= height or x2 <= 0 or y2 <= 0:
        return Code.BOX_OUTSIDE, f"{text} lies outside the picture of {width}x{height}"
    if crop_square(box)[2] > MAX_SIDE_RATIO * max(width, height):
        return Code.BOX_OUTSIDE, f"{text} is over {MAX_SIDE_RATIO} times as large as the picture"
    return None


def crop_square(box: npt.NDArray[np.float64]) -> tuple[int, int, int]:
    """(left, top, side) in whole pixels: the square of a box. Half rounds to even, a half pixel goes left and up."""
    x1, y1, x2, y2 = box.tolist()
    side = max(1, round(max(x2 - x1, y2 - y1)))
    return math.floor((x1 + x2 - side) / 2), math.floor((y1 + y2 - side) / 2), side


def crop_face(grey: npt.NDArray[np.uint8], box: npt.NDArray[np.float64], out: npt.NDArray[np.uint8]) -> None:
    """Cut a box, float64 [4], out of ``grey``, uint8 [H, W], into ``out``, uint8 [112, 112], C-contiguous.

    The box is one in which :func:`wrong_box` finds nothing.
    """
    import cv2

    left, top, side = crop_square(box)
    square = np.full((side, side), BORDER_GREY, np.uint8)
    x1, x2 = max(left, 0), min(left + side, grey.shape[1])
    y1, y2 = max(top, 0), min(top + side, grey.shape[0])
    square[y1 - top : y2 - top, x1 - left : x2 - left] = grey[y1:y2, x1:x2]
    cv2.resize(square, (out.shape[1], out.shape[0]), dst=out, interpolation=cv2.INTER_LINEAR)
