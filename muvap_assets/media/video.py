"""Frames of a video file by their own timestamps, upright, one at a time.

What belongs here: opening, decoding, timestamps, rotation, counting. What does not: any model's rate or canvas.

    container   ......|-- frame 0 --|-- frame 1 --------|-- frame 2 --|      (pts of each frame, variable or not)
    here              0             start 1             start 2       stop 2 = duration

Every time is a ``Fraction`` of seconds since the first frame shown. Nothing is taken from the header that decoding can
tell: counts, durations and sizes are those of the frames that came out. PyAV is imported by the modules of this folder
only, and inside functions, because the code location has to load without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding
from muvap_assets.media.closing import Closing
from muvap_assets.threads import delivered

PROBE = f"video 1, av {version('av')}"  # part of a cached count's key: another decoder may count otherwise
MAX_PIXELS = 36_000_000
"""Of a frame: 8192x4320. A decoder keeps more than a dozen of them."""

_TRANSFERS = {16: "PQ (SMPTE ST 2084)", 18: "HLG (ARIB STD-B67)"}  # numbers of ITU-T H.273, as ffmpeg's
_PRIMARIES = {9: "BT.2020 primaries"}
_MATROSKA_DURATION = re.compile(r"(\d{1,5}):(\d\d):(\d\d(?:\.\d{1,9})?)", re.ASCII)
_HALF = 1 << 15  # display matrices are 16.16 fixed point; more than a half counts as one


@dataclass(frozen=True, slots=True)
class Orientation:
    """How stored pixels become upright ones: ``turns`` quarter turns counterclockwise after an optional left-right flip."""

    turns: int = 0
    mirrored: bool = False

    @classmethod
    def of_matrix(cls, matrix: NDArray[np.int32]) -> Orientation:
        """The orientation a display matrix asks for, snapped to a quarter turn.

        The matrix sends the stored point (x, y), y downwards, to (a*x + c*y, b*x + d*y) (ISO/IEC 14496-12, `tkhd`).
        """
        a, b, c, d = (int(np.sign(value)) if abs(int(value)) > _HALF else 0 for value in matrix[[0, 1, 3, 4]])
        mirrored = a * d - b * c < 0
        if mirrored:  # undo the flip that comes first, so that a pure rotation is left
            a, b = -a, -b
        return cls({(1, 0): 0, (0, -1): 1, (-1, 0): 2, (0, 1): 3}.get((a, b), 0), mirrored)

    def upright(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """uint8 [H, W, 3] as displayed."""
        if self.mirrored:
            pixels = pixels[:, ::-1]
        return np.ascontiguousarray(np.rot90(pixels, self.turns))

    def size(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) as displayed."""
        return (height, width) if self.turns % 2 else (width, height)


@dataclass(frozen=True, slots=True)
class VideoFrame:
    """One frame as shown: from ``start`` up to ``stop``, seconds since the first frame; its pixels on demand."""

    index: int
    start: Fraction
    stop: Fraction
    orientation: Orientation
    raw: Any

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) as displayed."""
        return self.orientation.size(self.raw.width, self.raw.height)

    def pixels(self) -> NDArray[np.uint8]:
        """uint8 [H, W, 3] RGB, upright."""
        return self.orientation.upright(self.raw.to_ndarray(format="rgb24"))


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoFacts:
    """What decoding a whole file found.

    ``width`` and ``height`` are the first frame's as displayed; ``first_sec`` is its timestamp on the container's own
    clock; ``rate`` the stream's declared average, for messages only; ``stopped`` why decoding ended early, empty where
    it did not; ``quarter_turns`` the rotation that was applied, counterclockwise.

    ``header_frames`` is how many the index of an MP4 or MOV lists, else 0; ``hidden_frames`` those of them that are not
    shown: an edit list begins after them, or they are empty. ``header_end_sec`` is when the stream ends on the container's
    clock by its own header, 0 where none says it. ``interlaced_frames`` are stored as two fields. ``colour`` names what
    its colours have of high dynamic range or wide gamut, empty where nothing.
    """

    frames: int
    first_sec: Fraction
    duration_sec: Fraction
    rate: Fraction | None
    width: int
    height: int
    quarter_turns: int = 0
    pixel_aspect: Fraction = Fraction(1)
    header_frames: int = 0
    hidden_frames: int  # no default here and below: counts that were remembered without them are made again
    header_end_sec: Fraction
    interlaced_frames: int
    colour: str
    stopped: str = ""

    @property
    def missing_sec(self) -> Fraction:
        """Seconds of picture that the stream's own header promises and that did not decode; 0 where it promises none."""
        if self.header_frames:
            missing = (self.header_frames - self.hidden_frames - self.frames) * self.duration_sec / self.frames
        else:
            missing = self.header_end_sec - self.first_sec - self.duration_sec
        return max(Fraction(0), missing)

    @property
    def ends_early(self) -> bool:
        """Whether decoding stopped, or at least a frame of what the header promises did not come out."""
        return bool(self.stopped) or self.missing_sec * self.frames >= max(self.duration_sec, Fraction(1, 1000))


class VideoSource(Closing):
    """An open video file. Use as a context manager; :meth:`frames` may be called once.

    Raises:
        ValidationError: the file cannot be opened, or holds no video stream.
    """

    def __init__(self, path: Path) -> None:
        delivered(path)
        self.path = path
        self.stopped = ""
        self._container = open_container(path, Code.VIDEO_UNREADABLE)
        from av.stream import Disposition

        streams = [
            stream for stream in self._container.streams.video if not stream.disposition & Disposition.attached_pic
        ]
        if not streams:
            self._container.close()
            raise unreadable(path, "it has no video stream")
        self._stream = streams[0]
        self._bound_frames()
        self.rate: Fraction | None = self._stream.average_rate or self._stream.guessed_rate
        is_mp4 = "mp4" in self._container.format.name
        # AVI counts what a frame is held for. What lies behind the end of an edit list is counted, and not in the index.
        self.header_frames: int = min(self._stream.frames, len(self._stream.index_entries)) if is_mp4 else 0
        self.hidden_frames = 0
        self.header_end_sec = _header_end_sec(self._stream, self._container.format.name)
        self.pixel_aspect = Fraction(self._stream.sample_aspect_ratio or 1) or Fraction(1)
        self.first_sec = Fraction(0)

    def _bound_frames(self) -> None:
        """Refuse frames too large by the header; the decoder refuses those that only turn out to be, on the way."""
        context = self._stream.codec_context
        if context is None:
            self._container.close()
            found = "its video is of a kind ffmpeg does not decode"
            raise unreadable(self.path, found)
        if context.width * context.height > MAX_PIXELS:
            self._container.close()
            found = f"frames of {context.width}x{context.height}"
            raise unreadable(self.path, found)
        context.options = {**context.options, "max_pixels": str(MAX_PIXELS)}

    def close(self) -> None:
        """Close the file."""
        self._container.close()

    def frames(self, fps: Fraction | None = None) -> Iterator[VideoFrame]:
        """Every frame that decodes, in order of display. Holds one frame back, to know how long the one before is shown.

        Args:
            fps: a constant rate that overrides the file's timestamps: frame i is then shown from i / fps.

        Raises:
            ValidationError: timestamps run backwards or are missing without a declared rate, or the first frame is damaged.
        """
        held: VideoFrame | None = None
        for index, (start, stop, raw, orientation) in enumerate(self._timed(fps)):
            if held is not None:
                yield VideoFrame(held.index, held.start, start, held.orientation, held.raw)
            held = VideoFrame(index, start, stop, orientation, raw)
        if held is None:
            found = f"no frame decodes{f' ({self.stopped})' if self.stopped else ''}"
            raise unreadable(self.path, found)
        yield held

    def _timed(self, fps: Fraction | None) -> Iterator[tuple[Fraction, Fraction, Any, Orientation]]:
        orientation = Orientation()
        previous = Fraction(-1)
        grid = self._stream.guessed_rate or None
        for index, raw in enumerate(self._decoded()):
            seconds, tick = self._timestamp(raw, index)
            if index == 0:
                self.first_sec, orientation = seconds, _orientation(raw)
            if fps is not None:
                yield index / fps, (index + 1) / fps, raw, orientation
                continue
            start = snapped(seconds - self.first_sec, grid, tick)
            if start < previous:
                found = f"frame {index} has timestamp {float(start):.3f} s after one of {float(previous):.3f} s"
                raise ValidationError(Finding(Code.VIDEO_TIMESTAMPS, self.path, found))
            yield start, snapped(start + self._shown_for(raw, start - previous), grid, tick), raw, orientation
            previous = start

    def _timestamp(self, raw: Any, index: int) -> tuple[Fraction, Fraction]:
        if raw.pts is not None and raw.time_base:
            return raw.pts * raw.time_base, raw.time_base
        if self.rate is None:
            found = f"frame {index} has no timestamp and the stream declares no rate"
            raise ValidationError(Finding(Code.VIDEO_TIMESTAMPS, self.path, found))
        return index / self.rate, Fraction(0)

    def _shown_for(self, raw: Any, since_previous: Fraction) -> Fraction:
        """How long the last frame is shown: its own duration, else a period of the rate, else as long as the one before."""
        if raw.duration and raw.time_base:
            return Fraction(raw.duration * raw.time_base)
        return 1 / self.rate if self.rate else since_previous

    def _decoded(self) -> Iterator[Any]:
        """Decoded frames up to the first damage, which ends the stream: what follows it may be anything."""
        from av.error import FFmpegError

        try:
            for packet in self._container.demux(self._stream):
                if packet.is_discard or (packet.dts is not None and not packet.size):
                    self.hidden_frames += 1
                for frame in packet.decode():
                    delivered(self.path)
                    if frame.is_corrupt:  # its decode_error_flags, or its corrupt flag
                        self.stopped = "a damaged frame"
                        return
                    yield frame
        except FFmpegError as error:
            self.stopped = error.strerror or type(error).__name__


def count_video(path: Path) -> VideoFacts:
    """Decode a whole file and count.

    Raises:
        ValidationError: as :class:`VideoSource` and :meth:`VideoSource.frames`.
    """
    with VideoSource(path) as source:
        last = first = next(frames := source.frames())
        interlaced = int(first.raw.interlaced_frame)
        for last in frames:
            interlaced += last.raw.interlaced_frame
        width, height = first.size
        return VideoFacts(
            frames=last.index + 1,
            first_sec=source.first_sec,
            duration_sec=last.stop,
            rate=source.rate,
            width=width,
            height=height,
            quarter_turns=first.orientation.turns,
            pixel_aspect=source.pixel_aspect,
            header_frames=source.header_frames,
            hidden_frames=source.hidden_frames,
            header_end_sec=source.header_end_sec,
            interlaced_frames=interlaced,
            colour=_colour(first.raw),
            stopped=source.stopped,
        )


def snapped(seconds: Fraction, rate: Fraction | None, tick: Fraction) -> Fraction:
    """``seconds``, moved onto the grid of ``rate`` where it lies less than one container tick from a grid point.

    Containers that store milliseconds keep 3/48 s as 62 or 63 ms, which may move a frame at a half-way case of a later
    resampling; a timestamp further off the grid is a variable rate's own and stays.
    """
    if not rate or rate < 0:
        return seconds
    nearest = Fraction(round(seconds * rate)) / rate
    return nearest if abs(nearest - seconds) < tick else seconds


def open_container(path: Path, code: Code) -> Any:
    """An open PyAV input container.

    Raises:
        ValidationError: with ``code``, where it is missing or ffmpeg does not know it.
    """
    import av

    try:
        return av.open(str(path), metadata_errors="replace")
    except (av.error.FFmpegError, OSError, ValueError) as error:
        found = f"it cannot be opened ({getattr(error, 'strerror', None) or error})"
        raise unreadable(path, found, code) from error


def unreadable(path: Path, found: str, code: Code = Code.VIDEO_UNREADABLE) -> ValidationError:
    """The error for a file that ffmpeg does not read, or that is not what it claims to be."""
    return ValidationError(Finding(code, path, found, pixels=MAX_PIXELS))


def _header_end_sec(stream: Any, container: str) -> Fraction:
    """When a stream ends by its own header, 0 where none says it: elsewhere ffmpeg estimates, or takes another stream's."""
    if match := _MATROSKA_DURATION.fullmatch(stream.metadata.get("DURATION", "")):
        hours, minutes, seconds = match.groups()
        return int(hours) * 3600 + int(minutes) * 60 + Fraction(seconds)
    if stream.duration is not None and ("mp4" in container or container == "avi"):
        return Fraction(((stream.start_time or 0) + stream.duration) * stream.time_base)
    return Fraction(0)


def _colour(raw: Any) -> str:
    """What of a frame's colour description is of high dynamic range or wide gamut; empty where nothing is."""
    return ", ".join(
        name
        for names, value in ((_TRANSFERS, raw.color_trc), (_PRIMARIES, raw.color_primaries))
        if (name := names.get(value))
    )


def _orientation(raw: Any) -> Orientation:
    from av.sidedata.sidedata import Type

    for data in raw.side_data:
        if data.type == Type.DISPLAYMATRIX:
            return Orientation.of_matrix(np.frombuffer(bytes(data), np.int32))
    return Orientation()
