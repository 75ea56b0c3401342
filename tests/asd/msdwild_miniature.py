"""A faithful miniature of MSDWild: real MP4s with sound, box files and turns, whose every frame, face and click is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

BITS = 8
FACE_BITS = 2
SIDE = 80  # ten columns of eight pixels
SIZE = (176, 144)
PLACES = {0: (4, 8), 1: (92, 40), 2: (40, 60)}
RATE_HZ = 16_000


def face_picture(face: int, number: int) -> np.ndarray:
    """uint8 [80, 80]: frame number and face id in binary, a column a bit, which survives lossy coding and scaling."""
    value = number % (1 << BITS) | face << BITS
    bits = [(value >> bit) & 1 for bit in range(BITS + FACE_BITS)]
    columns = np.repeat(np.where(bits, 235, 20).astype(np.uint8), SIDE // len(bits))
    return np.broadcast_to(columns, (SIDE, SIDE))


def number_in(crop: np.ndarray) -> tuple[int, int]:
    """(face, frame number modulo 256) as drawn in a crop, whatever its size."""
    edges = np.linspace(0, crop.shape[1], BITS + FACE_BITS + 1)
    middle = crop[crop.shape[0] // 4 : crop.shape[0] * 3 // 4]
    value = 0
    for bit in range(BITS + FACE_BITS):
        width = edges[bit + 1] - edges[bit]
        value |= int(middle[:, int(edges[bit] + width / 4) : int(edges[bit + 1] - width / 4)].mean() > 127) << bit
    return value >> BITS, value & (1 << BITS) - 1


def clicks(seconds: float, at: list[float], rate: int = RATE_HZ) -> np.ndarray:
    """float32 [samples]: bursts of 4 ms at 2 kHz over quiet noise."""
    sound = np.random.default_rng(0).normal(0, 0.002, round(seconds * rate)).astype(np.float32)
    burst = 0.8 * np.sin(2 * np.pi * 2000 * np.arange(rate // 250) / rate)
    for start in at:
        first = round(start * rate)
        sound[first : first + len(burst)] += burst[: len(sound) - first].astype(np.float32)
    return sound


def click_times(sound: np.ndarray, rate: int = RATE_HZ) -> list[float]:
    """Seconds at which bursts begin in int16 samples."""
    loud = np.flatnonzero(np.abs(sound.astype(int)) > 8000)
    if not len(loud):
        return []
    starts = loud[np.concatenate([[True], np.diff(loud) > rate // 50])]
    return [float(start / rate) for start in starts]


def write_mp4(
    path: Path,
    pictures: list[np.ndarray],
    fps: Fraction,
    *,
    sound: np.ndarray | None = None,
    rate: int = RATE_HZ,
    video_start: Fraction = Fraction(0),
    sound_start: Fraction = Fraction(0),
    pts: list[int] | None = None,
    last_duration: int | None = None,
    options: dict[str, str] | None = None,
    hole: tuple[int, int] = (0, 0),
) -> Path:
    """An MP4 of grey pictures, with AAC where samples are given, each starting when it is told to.

    No packet holds the samples of ``hole``, whole blocks of 1,024.
    """
    with av.open(str(path), "w", options=options or {}) as container:
        stream = container.add_stream("libx264", rate=fps)
        stream.height, stream.width = pictures[0].shape
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "10", "preset": "ultrafast", "g": "25"}
        stream.time_base = stream.codec_context.time_base = Fraction(1, 90_000)
        voice = None
        if sound is not None:
            voice = container.add_stream("aac", rate=rate)
            voice.layout = "mono"
            voice.bit_rate = 96_000
        for index, picture in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(picture, format="gray").reformat(format="yuv420p")
            ticks = round(index / fps * 90_000) if pts is None else pts[index]
            frame.pts, frame.time_base = round(video_start * 90_000) + ticks, Fraction(1, 90_000)
            container.mux(stream.encode(frame))
        rest = stream.encode(None)
        if last_duration is not None:
            rest[-1].duration = last_duration
        container.mux(rest)
        if voice is not None:
            for offset in range(0, len(sound), 1024):
                if hole[0] <= offset < hole[1]:
                    continue
                chunk = av.AudioFrame.from_ndarray(
                    np.ascontiguousarray(sound[None, offset : offset + 1024], np.float32), format="fltp", layout="mono"
                )
                chunk.sample_rate, chunk.time_base = rate, Fraction(1, rate)
                chunk.pts = round(sound_start * rate) + offset
                container.mux(voice.encode(chunk))
            container.mux(voice.encode(None))
    return path


@dataclass
class Miniature:
    """Writes videos one by one; a test overrides the one thing it is about."""

    root: Path
    turns: list[str] = field(default_factory=list)

    @property
    def media(self) -> Path:
        """Where videos and boxes lie."""
        return self.root / "msdwild_boundingbox_labels"

    def video(
        self,
        name: str,
        frames: int,
        fps: Fraction = Fraction(25),
        *,
        faces: tuple[int, ...] = (0, 1),
        at: list[float] | None = None,
        **options,
    ) -> None:
        """A video whose faces carry their id and the frame's number, with a click wherever ``at`` says."""
        self.media.mkdir(parents=True, exist_ok=True)
        pictures = []
        for number in range(frames):
            picture = np.full((SIZE[1], SIZE[0]), 90, np.uint8)
            for face in faces:
                x, y = PLACES[face]
                picture[y : y + SIDE, x : x + SIDE] = face_picture(face, number)
            pictures.append(picture)
        if "sound" not in options:
            options["sound"] = clicks(float(frames / fps), at or [])
        write_mp4(self.media / f"{name}.mp4", pictures, fps, **options)

    def boxes(self, name: str, frames: int, faces: tuple[int, ...] = (0, 1), *, missing=(), extra=()) -> None:
        """Boxes of each face on each frame but those in ``missing``, (face, frame), and the lines in ``extra``."""
        self.media.mkdir(parents=True, exist_ok=True)
        lines = [
            f"{frame},face,{face},{x},{y},{x + SIDE},{y + SIDE},{(frame * 7 + face) % 2}"
            for frame in range(frames)
            for face in faces
            for x, y in [PLACES[face]]
            if (face, frame) not in missing
        ]
        (self.media / f"{name}.csv").write_text("\n".join([*lines, *extra]) + "\n")

    def speaks(self, name: str, speaker: str, start: object, duration: object) -> None:
        """A turn."""
        self.turns.append(f"SPEAKER {name} 1 {start} {duration} <NA> <NA> {speaker} <NA> <NA>")

    def write(self, split: str = "all") -> Path:
        """Write the turns of the split; returns the root."""
        (self.root / "rttms").mkdir(exist_ok=True)
        (self.root / "rttms" / f"{split}.rttm").write_text("\n".join(self.turns) + "\n")
        return self.root
