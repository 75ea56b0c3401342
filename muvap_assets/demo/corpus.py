"""Writes the demo corpus: every frame rate, audio format and face source the line takes, in a few seconds of media.

Its ground truth is in the media itself: each face shows its own frame number as a 4x4 pattern of dark and bright blocks,
and a click sounds at the centre of each frame in which speech begins. :func:`read_frame_number` and :func:`onset_frames`
read both, so that whatever becomes of the corpus can be checked against what it was made from.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from muvap_assets.asd.contract import FACE_SIZE
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.demo.made_once import make_once

_BITS = 16
_CELL = FACE_SIZE // 4
_DARK, _BRIGHT = 40, 215
_TAIL_SEC = Fraction(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoClip:
    """One face track of the demo: its rate, its length, where it lies, and how its media are stored."""

    sample_id: str
    fps: str
    frames: int
    audio: str
    jpeg: bool = False
    start_sec: str = ""

    @property
    def labels(self) -> npt.NDArray[np.uint8]:
        """uint8 [frames]: silence and speech in turn, a third of a second each, the first turn shorter."""
        turn = max(2, round(FrameRate.parse(self.fps).value / 3))
        return ((np.arange(self.frames) + turn // 2) // turn % 2).astype(np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRecording:
    """One recording of the demo: the file, its rate, channels and encoding."""

    path: str
    rate_hz: int
    channels: int
    subtype: str = ""


RECORDINGS = (
    DemoRecording(path="audio/mono16.wav", rate_hz=16_000, channels=1, subtype="PCM_16"),
    DemoRecording(path="audio/stereo24.wav", rate_hz=44_100, channels=2, subtype="PCM_24"),
    DemoRecording(path="audio/extensible.wav", rate_hz=48_000, channels=2, subtype="PCM_32"),
    DemoRecording(path="audio/float.wav", rate_hz=22_050, channels=1, subtype="FLOAT"),
    DemoRecording(path="audio/lossless.flac", rate_hz=48_000, channels=2, subtype="PCM_24"),
    DemoRecording(path="audio/array.npy", rate_hz=32_000, channels=2),
    DemoRecording(path="audio/cut.wav", rate_hz=16_000, channels=1, subtype="PCM_16"),
    DemoRecording(path="audio/val.flac", rate_hz=16_000, channels=1, subtype="PCM_16"),
)

TRAIN = (
    DemoClip(sample_id="talk_0:1", fps="12.5", frames=30, audio="audio/mono16.wav", start_sec="0.5"),
    DemoClip(sample_id="talk_0:2", fps="15", frames=37, audio="audio/mono16.wav", start_sec="1.25"),
    DemoClip(sample_id="talk_0:3", fps="23.976", frames=55, audio="audio/mono16.wav", start_sec="0.04", jpeg=True),
    DemoClip(sample_id="talk_1:1", fps="24", frames=61, audio="audio/stereo24.wav", start_sec="0.3"),
    DemoClip(sample_id="talk_1:2", fps="25", frames=64, audio="audio/stereo24.wav", start_sec="2.4", jpeg=True),
    DemoClip(sample_id="talk_2:1", fps="29.97", frames=75, audio="audio/extensible.wav", start_sec="0.2"),
    DemoClip(sample_id="talk_2:2", fps="30000/1001", frames=75, audio="audio/extensible.wav", start_sec="1.001"),
    DemoClip(sample_id="talk_3:1", fps="30", frames=80, audio="audio/float.wav", start_sec="0.1"),
    DemoClip(sample_id="talk_3:2", fps="50", frames=120, audio="audio/float.wav", start_sec="0.75"),
    DemoClip(sample_id="talk_4:1", fps="59.94", frames=140, audio="audio/lossless.flac", start_sec="0.6"),
    DemoClip(sample_id="talk_4:2", fps="60", frames=150, audio="audio/array.npy", start_sec="0.35"),
    DemoClip(sample_id="talk_5:1", fps="100", frames=3, audio="audio/array.npy", start_sec="2"),
    DemoClip(sample_id="talk_6:1", fps="25", frames=50, audio="audio/cut.wav"),
)
VAL = (
    DemoClip(sample_id="val_0:1", fps="25", frames=70, audio="audio/val.flac", start_sec="0.2"),
    DemoClip(sample_id="val_0:2", fps="30", frames=66, audio="audio/val.flac", start_sec="0.5", jpeg=True),
)


def onset_frames(clip: DemoClip) -> list[int]:
    """Native frames in which speech begins; a click sounds at the centre of each."""
    labels = clip.labels
    return [j for j in range(len(labels)) if labels[j] and (j == 0 or not labels[j - 1])]


def click_times(clip: DemoClip) -> list[Fraction]:
    """Seconds from the recording's start at which the clip's clicks sound, exactly."""
    start, fps = Fraction(clip.start_sec or 0), FrameRate.parse(clip.fps).value
    return [start + Fraction(2 * frame + 1, 2) / fps for frame in onset_frames(clip)]


def draw_face(number: int) -> npt.NDArray[np.uint8]:
    """uint8 [112, 112]: ``number`` in 16 bits, most significant first, as blocks of 28x28 pixels."""
    bits = (number >> np.arange(_BITS - 1, -1, -1)) & 1
    grid = np.where(bits, _BRIGHT, _DARK).astype(np.uint8).reshape(4, 4)
    return np.kron(grid, np.ones((_CELL, _CELL), np.uint8))


def read_frame_number(face: npt.NDArray[np.uint8]) -> int:
    """The number that :func:`draw_face` drew, also after JPEG compression or resizing."""
    rows, columns = face.shape[0] // 4, face.shape[1] // 4
    centres = face[rows // 2 :: rows, columns // 2 :: columns][:4, :4]
    return int("".join("1" if level > 127 else "0" for level in centres.ravel()), 2)


def write_demo_corpus(folder: Path) -> bool:
    """Write ``train.tsv``, ``val.tsv`` and their media into ``folder``.

    Returns:
        Whether it was written: a corpus of this very version that exists already is left alone.
    """
    return make_once(folder, _write, __file__)


def _write(folder: Path) -> None:
    for recording in RECORDINGS:
        _write_recording(folder, recording, [clip for clip in (*TRAIN, *VAL) if clip.audio == recording.path])
    for name, clips in (("train", TRAIN), ("val", VAL)):
        for clip in clips:
            _write_faces(folder, clip)
        _write_manifest(folder / f"{name}.tsv", clips)


def _write_recording(folder: Path, recording: DemoRecording, clips: Sequence[DemoClip]) -> None:
    ends = [Fraction(clip.start_sec or 0) + clip.frames / FrameRate.parse(clip.fps).value for clip in clips]
    local = all(not clip.start_sec for clip in clips)
    # A clip-local recording ends one frame early, as the usual slicing tool leaves it.
    seconds = ends[0] - 1 / FrameRate.parse(clips[0].fps).value if local else max(ends) + _TAIL_SEC
    frames = round(seconds * recording.rate_hz)
    noise = np.random.default_rng(recording.rate_hz).normal(0, 0.003, frames)
    click = np.hanning(2 * (recording.rate_hz // 2000) + 1) * 0.6
    for at in sorted({round(time * recording.rate_hz) for clip in clips for time in click_times(clip)}):
        first = at - len(click) // 2
        kept = click[max(0, -first) : max(0, frames - first)]
        noise[max(0, first) : max(0, first) + len(kept)] += kept
    signal = np.repeat(np.clip(noise, -1, 1)[:, None], recording.channels, axis=1)
    path = folder / recording.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, np.round(signal * 32767).astype(np.int16), allow_pickle=False)
        return
    form = "WAVEX" if "extensible" in path.name else path.suffix[1:].upper()
    soundfile.write(path, signal, recording.rate_hz, subtype=recording.subtype, format=form)
    if recording.subtype == "FLOAT":
        _clear_time(path)


def _clear_time(path: Path) -> None:
    """Set the time of writing in a WAV's PEAK chunk (name, size, version, time) to 0: the same demo is the same bytes."""
    content = bytearray(path.read_bytes())
    at = content.index(b"PEAK") + 12
    content[at : at + 4] = bytes(4)
    path.write_bytes(content)


def _write_faces(folder: Path, clip: DemoClip) -> None:
    target = folder / _visual_path(clip)
    target.parent.mkdir(parents=True, exist_ok=True)
    faces = np.stack([draw_face(number) for number in range(clip.frames)])
    if not clip.jpeg:
        np.save(target, faces, allow_pickle=False)
        return
    import cv2

    target.mkdir()
    fps = FrameRate.parse(clip.fps).value
    for number, face in enumerate(faces):
        seconds = Fraction(clip.start_sec) + number / fps
        larger = cv2.resize(face, (160, 160), interpolation=cv2.INTER_NEAREST)
        encoded = cv2.imencode(".jpg", larger)[1]
        (target / f"{float(seconds):.2f}.jpg").write_bytes(encoded.tobytes())


def _write_manifest(path: Path, clips: Sequence[DemoClip]) -> None:
    rates = {recording.path: recording.rate_hz for recording in RECORDINGS}
    columns: dict[str, Callable[[DemoClip], object]] = {
        "sample_id": lambda clip: clip.sample_id,
        "audio_path": lambda clip: clip.audio,
        "visual_path": _visual_path,
        "source_fps": lambda clip: clip.fps,
        "labels": lambda clip: f"[{','.join(map(str, clip.labels))}]",
        "start_sec": lambda clip: clip.start_sec,
        "visual_kind": lambda clip: "jpeg_directory" if clip.jpeg else "npy",
        "audio_sample_rate": lambda clip: rates[clip.audio] if clip.audio.endswith(".npy") else "",
    }
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([value(clip) for value in columns.values()] for clip in clips)


def _visual_path(clip: DemoClip) -> str:
    return "faces/" + clip.sample_id.replace(":", "_") + ("" if clip.jpeg else ".npy")
