"""Face boxes of a video: a headerless CSV of eight columns, one line a face a frame.

    frame_id, face, face_id, x1, y1, x2, y2, fixed

``frame_id`` is the 0-based index in decoding order. Coordinates are pixels of the picture as displayed, decimal or not, and
may lie outside it; a box covers ``[x1, x2)`` by ``[y1, y2)``. ``face`` and ``fixed`` are read past: ``fixed`` tells how the
box came about, not who speaks. Lines come in any order. Faces with a negative id are nobody in particular, and left out.

Source: the layout MSDWild ships its boxes in.
"""

from __future__ import annotations

import errno
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from muvap_assets.codes import Code
from muvap_assets.findings import Finding
from muvap_assets.text_lines import LineTooLong, WholeLines

_NUMBER = r"\s*(-?\d{1,7}(?:\.\d{1,12})?)\s*"
_LINE = re.compile(
    rf"\s*(\d{{1,9}})\s*,[^,]*,\s*(-?\d{{1,9}})\s*,{_NUMBER},{_NUMBER},{_NUMBER},{_NUMBER},[^,]*", re.ASCII
)
_SHOWN = 5
_MAX_LINE_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True)
class FaceBoxes:
    """The boxes of one video, sorted by face, then by frame.

    ``face_ids`` and ``frames`` are int64 [n], ``boxes`` is float64 [n, 4]: x1, y1, x2, y2 in pixels.
    ``negative_ids`` are the ids that were left out. ``frame_count`` is one more than the highest frame of any line, also
    of those left out: the video the boxes were drawn on has at least so many frames.
    """

    face_ids: npt.NDArray[np.int64]
    frames: npt.NDArray[np.int64]
    boxes: npt.NDArray[np.float64]
    negative_ids: tuple[int, ...] = ()
    frame_count: int = 0

    def frames_of(self, face_id: int) -> npt.NDArray[np.int64]:
        """Frames with a box of this face, ascending."""
        return self.frames[self._span(face_id)]

    def window(self, face_id: int, first: int, count: int) -> npt.NDArray[np.float64]:
        """float64 [count, 4]: a face's boxes on frames ``first`` to ``first + count``; NaN where there is none."""
        span = self._span(face_id)
        frames = self.frames[span]
        inside = slice(*np.searchsorted(frames, (first, first + count)))
        window = np.full((count, 4), np.nan)
        window[frames[inside] - first] = self.boxes[span][inside]
        return window

    def _span(self, face_id: int) -> slice:
        return slice(*np.searchsorted(self.face_ids, (face_id, face_id + 1)))


class BoxListing(NamedTuple):
    """The boxes of a file, and everything wrong with it, one finding a kind. With any the boxes are not to be used."""

    boxes: FaceBoxes
    findings: tuple[Finding, ...]


def read_face_boxes(path: Path) -> BoxListing:
    """Read a box file. Never raises for what it holds, or that it is missing."""
    records: list[tuple[int, int, float, float, float, float]] = []
    broken: list[tuple[int, str]] = []
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for ever
            raise OSError(errno.EINVAL, "not a regular file")
        with path.open(encoding="utf-8-sig", errors="replace") as stream:
            for number, line in enumerate(WholeLines(stream, _MAX_LINE_CHARACTERS), 1):
                match = _LINE.fullmatch(line.rstrip("\r\n"))
                if match:
                    frame, face, *box = match.groups()
                    records.append((int(face), int(frame), *map(float, box)))  # type: ignore[arg-type]  # four of them
                elif line.strip():
                    broken.append((number, line.strip()))
    except FileNotFoundError:
        return BoxListing(_arranged([]), (Finding(Code.FACES_MISSING, path, "no such file"),))
    except (OSError, LineTooLong) as error:
        found = f"it cannot be read ({getattr(error, 'strerror', None) or f'a line of {error}'})"
        return BoxListing(_arranged([]), (Finding(Code.BOX_INVALID, path, found, case="file"),))
    boxes = _arranged(records)
    return BoxListing(boxes, tuple(_wrong(path, broken, boxes, empty=not records)))


def _arranged(records: Sequence[tuple[int, int, float, float, float, float]]) -> FaceBoxes:
    ordered = sorted(record for record in records if record[0] >= 0)
    values = np.array([record[2:] for record in ordered], np.float64).reshape(-1, 4)
    face_ids, frames = (np.array([record[i] for record in ordered], np.int64) for i in (0, 1))
    negative_ids = tuple(sorted({record[0] for record in records if record[0] < 0}))
    return FaceBoxes(face_ids, frames, values, negative_ids, max((record[1] + 1 for record in records), default=0))


def _wrong(path: Path, broken: Sequence[tuple[int, str]], boxes: FaceBoxes, empty: bool) -> Iterator[Finding]:
    if broken:
        number, text = broken[0]
        more = f" and {len(broken) - 1} more lines" if len(broken) > 1 else ""
        yield Finding(Code.BOX_INVALID, path, f"line {number} is {text[:60]!r}{more}")
    elif empty:
        yield Finding(Code.FACES_EMPTY, path, "no box", case="boxes")
    twice = defaultdict(list)
    repeated = (np.diff(boxes.face_ids) == 0) & (np.diff(boxes.frames) == 0)
    for i in np.flatnonzero(repeated):
        twice[int(boxes.face_ids[i])].append(int(boxes.frames[i]))
    if twice:
        found = "; ".join(f"face {face} twice on frame {_shown(frames)}" for face, frames in [*twice.items()][:_SHOWN])
        yield Finding(Code.BOX_DUPLICATE, path, found)


def _shown(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    return ", ".join(map(str, numbers[:_SHOWN])) + more
