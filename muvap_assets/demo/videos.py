"""Small videos of known content for the demos: a bright block that moves over a shaded ground, a tone a channel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

RATE_HZ = 32_000
SIZE = (128, 64)
_TIME_BASE = Fraction(1, 12_800)


def write_video(
    path: Path,
    fps: Fraction,
    count: int,
    *,
    hue: int = 0,
    size: tuple[int, int] = SIZE,
    sound_sec: Fraction | None = None,
    times: Sequence[Fraction] | None = None,
) -> None:
    """H.264 and AAC in MP4, encoded by one thread, so that the same bytes come out each time. Needs PyAV.

    Args:
        path: the file.
        fps: the rate it declares.
        count: frames.
        hue: which of red, green and blue its ground is.
        size: (width, height) in pixels.
        sound_sec: length of its sound, a tenth of a second longer than the picture by default; 0 for none.
        times: when each frame is shown, in seconds; by default ``i / fps``.
    """
    import av

    sound = tones(count / fps + Fraction(1, 10) if sound_sec is None else sound_sec, 2)
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=fps)
        video.width, video.height, video.pix_fmt = *size, "yuv420p"
        video.options = {"threads": "1", "preset": "veryfast", "crf": "18"}
        base = 1 / fps if times is None else _TIME_BASE
        if times is not None:
            video.time_base = video.codec_context.time_base = base
        audio = container.add_stream("aac", rate=RATE_HZ, layout="stereo") if sound.shape[1] else None
        for index, image in enumerate(_frames(count, hue, size)):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts = index if times is None else round(times[index] / base)
            frame.time_base = base
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
        if audio is None:
            return
        for first in range(0, sound.shape[1], 1024):
            block = np.ascontiguousarray(sound[:, first : first + 1024])
            samples = av.AudioFrame.from_ndarray(block, format="fltp", layout="stereo")
            samples.sample_rate, samples.pts, samples.time_base = RATE_HZ, first, Fraction(1, RATE_HZ)
            container.mux(audio.encode(samples))
        container.mux(audio.encode(None))


def tones(seconds: Fraction, channels: int) -> npt.NDArray[np.float32]:
    """float32 [channels, samples] at 32 kHz: a tone of its own a channel."""
    time = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    return np.stack([0.3 * np.sin(2 * np.pi * (200 + 130 * c) * time) for c in range(channels)]).astype(np.float32)


def _frames(count: int, hue: int, size: tuple[int, int]) -> Iterator[npt.NDArray[np.uint8]]:
    """uint8 [H, W, 3]: a bright block that moves to the right over a shaded ground."""
    width, height = size
    for index in range(count):
        frame = np.zeros((height, width, 3), np.uint8)
        frame[..., hue] = np.linspace(30, 160, width, dtype=np.uint8)
        left = index * 2 % (width - 24)
        frame[20:44, left : left + 24] = 235
        yield frame
