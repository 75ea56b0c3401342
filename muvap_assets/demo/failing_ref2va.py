"""The ref2va half of the failing demo: raw manifests with one bad row of each kind beside a good one. Needs PyAV."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from PIL import Image

from muvap_assets.codes import Code
from muvap_assets.demo.ref2va import raw_row
from muvap_assets.demo.videos import RATE_HZ, tones, write_video

CODES: Mapping[str, tuple[Code, ...]] = {
    "failing_text": (
        Code.ROW_MALFORMED,
        Code.ENCODING_INVALID,
        Code.KEY_DUPLICATE,
        Code.KEY_UNKNOWN,
        Code.KEY_MISSING,
        Code.VALUE_INVALID,
        Code.SCHEMA_INVALID,
        Code.SAMPLE_ID_INVALID,
        Code.SAMPLE_ID_DUPLICATE,
        Code.PATH_INVALID,
        Code.PATH_OUTSIDE,
        Code.MEDIA_MISSING,
        Code.GEOMETRY_INVALID,
        Code.REFERENCE_COUNT,
        Code.REFERENCE_VISUAL_MISSING,
    ),
    "failing_media": (
        Code.VIDEO_UNREADABLE,
        Code.TARGET_SHORT,
        Code.TARGET_AUDIO_MISSING,
        Code.TARGET_AUDIO_SHORT,
        Code.VIDEO_ASPECT,
        Code.REFERENCE_SHORT,
        Code.AUDIO_MISSING,
        Code.AUDIO_UNREADABLE,
        Code.AUDIO_EMPTY,
        Code.AUDIO_NON_FINITE,
        Code.AUDIO_CHANNELS,
        Code.IMAGE_UNREADABLE,
        Code.IMAGE_MULTI_FRAME,
        Code.IMAGE_TOO_LARGE,
        Code.IMAGE_ASPECT,
        Code.TOKENS_EXCEEDED,
        Code.CAPTION_HOLDS_VISION_TOKEN,
    ),
    "failing_whole": (Code.GEOMETRY_REFUSED, Code.TARGET_SHORT, Code.VIDEO_ASPECT),
    "failing_empty": (Code.MANIFEST_EMPTY,),
    "failing_missing": (Code.FILE_UNREADABLE,),
}
"""What each dataset is refused for."""

_PERSON = {"type": "image", "image": "person.png"}
_PACKED = {"width": 128, "height": 64, "num_frames": 22, "max_presentation_tokens": 1000}


def write_datasets(folder: Path) -> dict[str, dict[str, Any]]:
    """Write every dataset into a folder of its own; returns their entries of ``datasets.yaml``."""
    for name, write in (("failing_text", _text), ("failing_media", _media), ("failing_whole", _whole)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        lines = write(folder / name)
        (folder / name / "rows.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    (folder / "failing_empty").mkdir(exist_ok=True)
    (folder / "failing_empty" / "rows.jsonl").touch()
    return {
        name: {
            "manifest": f"ref2va/{name}/rows.jsonl",
            **({"format": "sft"} if name == "failing_whole" else _PACKED),
        }
        for name in CODES
    }  # of "failing_missing" nothing is written


def _line(sample_id: str, video: str = "walk.mp4", **fields: Any) -> bytes:
    """A good row, except for ``fields``; one that is ``None`` is left out."""
    row = {**raw_row(sample_id, video, "Somebody walks.", [_PERSON]), **fields}
    return json.dumps({name: value for name, value in row.items() if value is not None}).encode()


def _common_media(folder: Path) -> None:
    write_video(folder / "walk.mp4", Fraction(25), 30)
    Image.fromarray(np.full((64, 96, 3), 180, np.uint8)).save(folder / "person.png")
    soundfile.write(folder / "voice.wav", tones(Fraction(1), 1)[0], RATE_HZ, subtype="PCM_16")


def _text(folder: Path) -> Sequence[bytes]:
    _common_media(folder)
    good = _line("good")
    voice = {"type": "audio", "audio": "voice.wav"}
    return [
        good,
        b'{"id": "row_malformed",',
        good.replace(b"Somebody", b"Somebod\xff").replace(b"good", b"encoding_invalid"),
        _line("key_duplicate").replace(b'"caption"', b'"caption": "Again.", "caption"'),
        _line("key_unknown", note="for nobody"),
        _line("key_missing", caption=None),
        _line("value_invalid", caption=" "),
        _line("schema_invalid", schema_version="minimax_h3_ref2va_packed_v1"),
        _line(" "),  # sample_id_invalid
        _line("sample_id_duplicate"),
        _line("sample_id_duplicate"),
        _line("path_invalid", ""),
        _line("path_outside", "../failing_media/walk.mp4"),
        _line("media_missing", "nowhere.mp4"),
        _line("geometry_invalid", target_geometry={"width": 128, "height": 64, "num_frames": 23}),
        _line("reference_count", references=[_PERSON] * 10),
        _line("reference_visual_missing", references=[voice]),
    ]


def _media(folder: Path) -> Sequence[bytes]:
    _common_media(folder)
    _write_bad_videos(folder)
    _write_bad_sounds(folder)
    _write_bad_images(folder)

    def image(name: str) -> bytes:
        return _line(name, references=[{"type": "image", "image": f"{name}.png"}])

    def sound(name: str, file: str) -> bytes:
        return _line(name, references=[_PERSON, {"type": "audio", "audio": file}])

    return [
        _line("good"),
        _line("video_unreadable", "broken.mp4"),
        _line("target_short", "short.mp4"),
        _line("target_audio_missing", "mute.mp4"),
        _line("target_audio_short", "soundless_end.mp4"),
        _line("video_aspect", references=[{"type": "video", "video": "wide.mp4"}]),
        _line("reference_short", references=[{"type": "video", "video": "blink.mp4"}]),
        sound("audio_missing", "mute.mp4"),
        sound("audio_unreadable", "damaged.wav"),
        sound("audio_empty", "empty.wav"),
        sound("audio_non_finite", "broken.wav"),
        sound("audio_channels", "array.wav"),
        *(image(name) for name in ("image_unreadable", "image_multi_frame", "image_too_large", "image_aspect")),
        _line("tokens_exceeded", caption="and on " * 1000),
        _line("caption_holds_vision_token", caption="A picture: <|image_pad|>"),
    ]


def _write_bad_videos(folder: Path) -> None:
    (folder / "broken.mp4").write_bytes(b"not a video")
    write_video(folder / "short.mp4", Fraction(25), 10, sound_sec=Fraction(2))
    write_video(folder / "mute.mp4", Fraction(25), 30, sound_sec=Fraction(0))
    write_video(folder / "soundless_end.mp4", Fraction(25), 30, sound_sec=Fraction(1, 2))
    write_video(folder / "wide.mp4", Fraction(25), 30, size=(320, 64))
    write_video(folder / "blink.mp4", Fraction(25), 6, sound_sec=Fraction(0))


def _write_bad_sounds(folder: Path) -> None:
    (folder / "damaged.wav").write_bytes(b"RIFF\x24\x00\x00\x00WAVEjunk, and nothing else")
    soundfile.write(folder / "empty.wav", np.zeros(0, np.float32), RATE_HZ, subtype="PCM_16")
    broken = tones(Fraction(1), 1)[0]
    broken[100:110] = np.nan
    soundfile.write(folder / "broken.wav", broken, RATE_HZ, subtype="FLOAT")
    soundfile.write(folder / "array.wav", tones(Fraction(1), 16).T, RATE_HZ, subtype="PCM_16")


def _write_bad_images(folder: Path) -> None:
    (folder / "image_unreadable.png").write_bytes(b"not a picture")
    frames = [Image.fromarray(np.full((64, 96), level, np.uint8)) for level in (0, 200)]
    frames[0].save(folder / "image_multi_frame.png", format="GIF", save_all=True, append_images=frames[1:])
    Image.new("1", (10_000, 9_000)).save(folder / "image_too_large.png")
    Image.fromarray(np.zeros((16, 128, 3), np.uint8)).save(folder / "image_aspect.png")


def _whole(folder: Path) -> Sequence[bytes]:
    _common_media(folder)
    write_video(folder / "long.mp4", Fraction(25), 140)
    write_video(folder / "wide.mp4", Fraction(25), 140, size=(320, 64))
    geometry = {"width": 128, "height": 64, "num_frames": 124}
    return [
        _line("good", "long.mp4"),
        _line("geometry_refused", "long.mp4", target_geometry=geometry),
        _line("target_short", "walk.mp4"),
        _line("video_aspect", "wide.mp4"),
    ]
