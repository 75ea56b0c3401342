"""Writes the ref2va demo: two small datasets with every kind of reference.

``clips.jsonl`` is of the packed format, at a 128x64 canvas; ``whole.json`` of the sft format, which keeps a clip's own
geometry and wants at least 124 frames. Needs PyAV.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
from PIL import Image

from muvap_assets.ref2va.contract import RAW_SCHEMA

_RATE_HZ = 32_000
_SIZE = (128, 64)


def write_demo_datasets(folder: Path) -> bool:
    """Write both manifests and their media into ``folder``.

    Returns:
        Whether they were written: what this very version wrote before is left alone.
    """
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    marker = folder / "demo_version.txt"
    if marker.is_file() and marker.read_text(encoding="utf-8").strip() == version:
        return False
    scratch = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
    (scratch / "media").mkdir(parents=True)
    _write_media(scratch / "media")
    rows = "".join(json.dumps(row) + "\n" for row in packed_rows())
    (scratch / "clips.jsonl").write_text(rows, encoding="utf-8")
    (scratch / "whole.json").write_text(json.dumps(sft_rows(), indent=1) + "\n", encoding="utf-8")
    (scratch / marker.name).write_text(version + "\n", encoding="utf-8")
    if folder.exists():
        shutil.rmtree(folder)
    scratch.rename(folder)
    return True


def packed_rows() -> list[dict[str, Any]]:
    """Raw rows of the packed dataset: each kind of reference, two buckets."""
    person = {"type": "image", "image": "media/person.png"}
    place = {"type": "video", "video": "media/place.mp4"}
    voice = {"type": "audio", "audio": "media/voice.wav"}
    talk = {"type": "video_audio", "video": "media/talk.mp4", "audio": "media/talk.mp4"}
    return [
        _row("walk-1", "media/walk.mp4", "A person walks through the scene.", [person]),
        _row("walk-2", "media/walk.mp4", "The same person, in another place.", [person, place]),
        _row("talk-1", "media/talk.mp4", "Someone speaks to the camera.", [talk, voice]),
        {
            **_row("talk-2", "media/talk.mp4", "A voice over a still picture.", [person, voice]),
            "target_geometry": {"width": 64, "height": 128, "num_frames": 39},
        },
    ]


def sft_rows() -> list[dict[str, Any]]:
    """Raw rows of the sft dataset."""
    person = {"type": "image", "image": "media/person.png"}
    return [_row("whole-1", "media/long.mp4", "A whole clip, at its own length and shape.", [person])]


def _row(sample_id: str, video: str, caption: str, references: list[dict[str, str]]) -> dict[str, Any]:
    target = {"video": video}
    return {
        "schema_version": RAW_SCHEMA,
        "id": sample_id,
        "target": target,
        "caption": caption,
        "references": references,
    }


def _write_media(folder: Path) -> None:
    _write_video(folder / "walk.mp4", Fraction(25), 42, hue=0)
    _write_video(folder / "talk.mp4", Fraction(30000, 1001), 54, hue=1)
    _write_video(folder / "place.mp4", Fraction(24), 30, hue=2)
    _write_video(folder / "long.mp4", Fraction(25), 140, hue=0)
    person = np.zeros((96, 128, 4), np.uint8)
    person[..., 0] = np.arange(128)
    person[24:72, 32:96] = (200, 160, 120, 255)
    Image.fromarray(person).save(folder / "person.png")
    soundfile.write(folder / "voice.wav", _sound(Fraction(2), 1)[0], _RATE_HZ, subtype="PCM_16")


def _frames(count: int, hue: int) -> Iterator[npt.NDArray[np.uint8]]:
    """uint8 [64, 128, 3]: a bright block that moves to the right over a shaded ground."""
    width, height = _SIZE
    for index in range(count):
        frame = np.zeros((height, width, 3), np.uint8)
        frame[..., hue] = np.linspace(30, 160, width, dtype=np.uint8)
        left = index * 2 % (width - 24)
        frame[20:44, left : left + 24] = 235
        yield frame


def _sound(seconds: Fraction, channels: int) -> npt.NDArray[np.float32]:
    """float32 [channels, samples]: a tone of its own a channel."""
    time = np.arange(round(seconds * _RATE_HZ)) / _RATE_HZ
    return np.stack([0.3 * np.sin(2 * np.pi * (200 + 130 * c) * time) for c in range(channels)]).astype(np.float32)


def _write_video(path: Path, fps: Fraction, count: int, hue: int) -> None:
    """H.264 and AAC in MP4, encoded by one thread, so that the same bytes come out each time."""
    import av

    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=fps)
        video.width, video.height, video.pix_fmt = *_SIZE, "yuv420p"
        video.options = {"threads": "1", "preset": "veryfast", "crf": "18"}
        audio = container.add_stream("aac", rate=_RATE_HZ, layout="stereo")
        for index, image in enumerate(_frames(count, hue)):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = index, 1 / fps
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
        sound = _sound(count / fps + Fraction(1, 10), 2)
        for first in range(0, sound.shape[1], 1024):
            block = np.ascontiguousarray(sound[:, first : first + 1024])
            samples = av.AudioFrame.from_ndarray(block, format="fltp", layout="stereo")
            samples.sample_rate, samples.pts, samples.time_base = _RATE_HZ, first, Fraction(1, _RATE_HZ)
            container.mux(audio.encode(samples))
        container.mux(audio.encode(None))
