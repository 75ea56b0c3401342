"""Small media files made on the spot, whose every frame and sample is known."""

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

BITS = 8


def numbered(index: int, width: int, height: int) -> np.ndarray:
    """uint8 [H, W, 3]: ``index`` in binary, a column a bit, which survives lossy coding and scaling."""
    bits = [(index >> bit) & 1 for bit in range(BITS)]
    columns = np.repeat(np.array(bits, np.uint8) * 255, width // BITS)
    return np.broadcast_to(columns[None, :, None], (height, len(columns), 3)).copy()


def number_of(pixels: np.ndarray) -> int:
    """The index :func:`numbered` drew."""
    columns = pixels[pixels.shape[0] // 2, :, 0].reshape(BITS, -1).mean(axis=1)
    return sum(1 << bit for bit in range(BITS) if columns[bit] > 127)


def tone(samples: int, channels: int = 2, rate: int = 32_000) -> np.ndarray:
    """float32 [channels, samples], another pitch in every channel."""
    time = np.arange(samples) / rate
    return np.stack([0.3 * np.sin(2 * np.pi * (220 + 110 * c) * time) for c in range(channels)]).astype(np.float32)


def write_video(
    path: Path,
    *,
    frames: int | Sequence[np.ndarray] = 24,
    fps: Fraction | int = 24,
    size: tuple[int, int] = (64, 64),
    pts: Sequence[int] | None = None,
    time_base: Fraction | None = None,
    start: Fraction | int = 0,
    codec: str = "libx264",
    rotation: tuple[int, bool] = (0, False),
    aspect: Fraction | None = None,
    sound: np.ndarray | None = None,
    rate: int = 32_000,
    sound_start: Fraction | int = 0,
    sound_codec: str = "pcm_s16le",
    layout: str | None = None,
    sound_holes: Sequence[tuple[int, int]] = (),
    options: Mapping[str, str] | None = None,
    colour: tuple[int, int] | None = None,
    movflags: str = "",
) -> Path:
    """Write a video, with sound where samples [channels, n] are given. ``pts`` are in ``time_base``, else one a frame.

    No packet holds the samples in ``sound_holes``, each from one up to another. ``options`` are the encoder's; ``colour`` is
    transfer and primaries as ITU-T H.273 numbers them.
    """
    images = [numbered(index, *size) for index in range(frames)] if isinstance(frames, int) else list(frames)
    with av.open(str(path), "w", options={"movflags": movflags} if movflags else {}) as container:
        stream = container.add_stream(codec, rate=Fraction(fps))
        stream.width, stream.height = images[0].shape[1], images[0].shape[0]
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        if codec == "libx264":
            stream.options = {"crf": "12", "preset": "ultrafast", "g": "12"}
        stream.options = {**stream.options, **(options or {})}
        if colour is not None:
            stream.codec_context.color_trc, stream.codec_context.color_primaries = colour
        if rotation != (0, False):
            stream.set_display_rotation(rotation[0], hflip=rotation[1])
        if aspect is not None:
            stream.sample_aspect_ratio = aspect
        base = time_base or 1 / Fraction(fps)
        if time_base is not None:
            stream.time_base = stream.codec_context.time_base = time_base
        audio = None if sound is None else _sound_stream(container, sound, rate, sound_codec, layout)
        for index, image in enumerate(images):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts = round(Fraction(start) / base) + (index if pts is None else pts[index])
            frame.time_base = base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
        if audio is not None:
            _write_sound(container, audio, sound, rate, Fraction(sound_start), sound_holes)
    return path


def write_sound(
    path: Path, sound: np.ndarray, rate: int = 32_000, codec: str = "aac", layout: str | None = None
) -> Path:
    """Write a sound file through ffmpeg."""
    with av.open(str(path), "w") as container:
        _write_sound(container, _sound_stream(container, sound, rate, codec, layout), sound, rate, Fraction(0))
    return path


def _sound_stream(container: Any, sound: np.ndarray, rate: int, codec: str, layout: str | None) -> Any:
    stream = container.add_stream(codec, rate=rate)
    stream.layout = layout or {1: "mono", 2: "stereo", 6: "5.1"}[sound.shape[0]]
    return stream


def _write_sound(
    container: Any,
    stream: Any,
    sound: np.ndarray,
    rate: int,
    start: Fraction,
    holes: Sequence[tuple[int, int]] = (),
) -> None:
    edges = [0, *(edge for hole in holes for edge in hole), sound.shape[1]]
    for first, stop in zip(edges[::2], edges[1::2], strict=True):
        resampler = av.AudioResampler(format=stream.format, layout=stream.layout, rate=rate)
        for offset in range(first, stop, 8192):
            chunk = np.ascontiguousarray(sound[:, offset : min(offset + 8192, stop)], np.float32)
            frame = av.AudioFrame.from_ndarray(chunk, format="fltp", layout=stream.layout.name)
            frame.sample_rate, frame.time_base = rate, Fraction(1, rate)
            frame.pts = round(start * rate) + offset
            for converted in resampler.resample(frame):
                container.mux(stream.encode(converted))
    container.mux(stream.encode(None))


def target(path: Path, frames: int = 22, **options: Any) -> Path:
    """A target of ``frames`` at 24 fps with sound of the same length, in an exact container (.mov)."""
    options = {"sound": tone(frames * 32_000 // 24 + 1), **options}
    return write_video(path, frames=frames, **options)


def raw_row(sample_id: str = "a", **fields: Any) -> dict[str, Any]:
    """A row of the raw schema; ``fields`` override, ``...`` removes."""
    row = {
        "schema_version": "minimax_h3_ref2va_raw_v1",
        "id": sample_id,
        "target": {"video": "target.mov"},
        "caption": "A lamp.",
        "references": [{"type": "image", "image": "picture.png"}],
        **fields,
    }
    return {key: value for key, value in row.items() if value is not ...}


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """JSON Lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_tracks(
    path: Path, tracks: Sequence[tuple[str, str, str, int]], *, frames: int = 24, rate: int = 16_000
) -> Path:
    """A video at 24 fps with one stereo PCM track each of (language, title, disposition, 16-bit level of every sample)."""
    from av.stream import Disposition

    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=24)
        video.width, video.height, video.pix_fmt = 64, 64, "yuv420p"
        streams = []
        for language, title, disposition, _ in tracks:
            stream = container.add_stream("pcm_s16le", rate=rate, layout="stereo")
            stream.metadata["language"], stream.metadata["title"] = language, title
            stream.disposition = Disposition[disposition] if disposition else Disposition(0)
            streams.append(stream)
        for index in range(frames):
            frame = av.VideoFrame.from_ndarray(numbered(index, 64, 64), format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, 24)
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
        for stream, (*_, level) in zip(streams, tracks, strict=True):
            samples = np.full((1, 2 * (frames * rate // 24 + 1)), level, np.int16)
            frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="stereo")
            frame.sample_rate, frame.time_base, frame.pts = rate, Fraction(1, rate), 0
            container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
    return path
