"""Writes the ref2va demo: two small datasets with every kind of reference.

``clips.jsonl`` is of the packed format, at a 128x64 canvas; ``whole.json`` of the sft format, which keeps a clip's own
geometry and wants at least 124 frames. Needs PyAV.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from PIL import Image

from muvap_assets.demo import videos
from muvap_assets.demo.made_once import make_once
from muvap_assets.demo.videos import RATE_HZ, tones, write_video
from muvap_assets.ref2va.contract import RAW_SCHEMA


def write_demo_datasets(folder: Path) -> bool:
    """Write both manifests and their media into ``folder``.

    Returns:
        Whether they were written: what this very version wrote before is left alone.
    """
    return make_once(folder, _write, __file__, videos.__file__)


def _write(folder: Path) -> None:
    (folder / "media").mkdir()
    _write_media(folder / "media")
    rows = "".join(json.dumps(row) + "\n" for row in packed_rows())
    (folder / "clips.jsonl").write_text(rows, encoding="utf-8")
    (folder / "whole.json").write_text(json.dumps(sft_rows(), indent=1) + "\n", encoding="utf-8")


def packed_rows() -> list[dict[str, Any]]:
    """Raw rows of the packed dataset: each kind of reference, two buckets."""
    person = {"type": "image", "image": "media/person.png"}
    place = {"type": "video", "video": "media/place.mp4"}
    voice = {"type": "audio", "audio": "media/voice.wav"}
    talk = {"type": "video_audio", "video": "media/talk.mp4", "audio": "media/talk.mp4"}
    return [
        raw_row("walk-1", "media/walk.mp4", "A person walks through the scene.", [person]),
        raw_row("walk-2", "media/walk.mp4", "The same person, in another place.", [person, place]),
        raw_row("talk-1", "media/talk.mp4", "Someone speaks to the camera.", [talk, voice]),
        {
            **raw_row("talk-2", "media/talk.mp4", "A voice over a still picture.", [person, voice]),
            "target_geometry": {"width": 64, "height": 128, "num_frames": 39},
        },
    ]


def sft_rows() -> list[dict[str, Any]]:
    """Raw rows of the sft dataset."""
    person = {"type": "image", "image": "media/person.png"}
    return [raw_row("whole-1", "media/long.mp4", "A whole clip, at its own length and shape.", [person])]


def raw_row(sample_id: str, video: str, caption: str, references: list[dict[str, str]]) -> dict[str, Any]:
    """A row of the raw schema; paths are meant from the manifest's folder."""
    target = {"video": video}
    return {
        "schema_version": RAW_SCHEMA,
        "id": sample_id,
        "target": target,
        "caption": caption,
        "references": references,
    }


def _write_media(folder: Path) -> None:
    write_video(folder / "walk.mp4", Fraction(25), 42, hue=0)
    write_video(folder / "talk.mp4", Fraction(30000, 1001), 54, hue=1)
    write_video(folder / "place.mp4", Fraction(24), 30, hue=2)
    write_video(folder / "long.mp4", Fraction(25), 140, hue=0)
    person = np.zeros((96, 128, 4), np.uint8)
    person[..., 0] = np.arange(128)
    person[24:72, 32:96] = (200, 160, 120, 255)
    Image.fromarray(person).save(folder / "person.png")
    soundfile.write(folder / "voice.wav", tones(Fraction(2), 1)[0], RATE_HZ, subtype="PCM_16")
