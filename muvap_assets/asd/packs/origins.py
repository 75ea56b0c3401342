"""What each track of a pack was made from, kept in the cache beside the pack, so that the next pack can tell what is unchanged.

    {"schema": 1, "made_by": "<digest>", "tracks": {"<sample_id>": ["<faces>", "<stamp>", "<audio>"]}}

| key     | is a digest of                                                                                             |
|---------|------------------------------------------------------------------------------------------------------------|
| made_by | the packing code's version and those of the decoders: with another one, nothing is unchanged               |
| faces   | the kind, the shape of a face, and the source's bytes in frame order: each JPEG, or the array in blocks;   |
|         | of boxes of a video: the video's bytes, those of its boxes, the face's id, its first frame and its length  |
| audio   | the recording's id, whether it is a video's sound, the rate a NumPy waveform was declared with, the span,  |
|         | and the recording's length                                                                                 |
| stamp   | path, name, size, modification and change time and inode of each file of the face source: the shortcut     |

An equal stamp means that nothing was written there since; only where it differs is the source read again, and its bytes
decide. A source whose state is not settled (``storage.digests``) gets no stamp. Safe to lose: without it everything is
decoded again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from muvap_assets.asd.contract import Clip, VisualKind
from muvap_assets.asd.packs.layout import PACK_CODE_VERSION
from muvap_assets.asd.video_rows import boxes_of
from muvap_assets.media.faces import FACE_CONVERSION
from muvap_assets.storage.digests import state_of
from muvap_assets.storage.files import read_lossy_json, write_lossy_json

_SCHEMA = 1
_DECODERS = ("opencv-python-headless", "opencv-python", "av", "soxr", "numpy")


@dataclass(frozen=True, slots=True)
class Origin:
    """What one track was made from; ``stamp`` is empty where it is not to be trusted."""

    faces: str
    stamp: str
    audio: str


def made_by() -> str:
    """What decides the bytes of a pack beside its inputs."""
    return _digest(PACK_CODE_VERSION, FACE_CONVERSION, *(f"{name} {_version(name)}" for name in _DECODERS))


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "none"


def audio_origin(clip: Clip) -> str:
    """What a clip's audio is made from."""
    span = (clip.start_sample, clip.audio_samples, clip.recording_samples)
    return _digest(clip.recording_id, str(clip.audio_from_video), str(clip.audio_sample_rate), *map(str, span))


def faces_origin(clip: Clip, content: str) -> str:
    """What a clip's faces are made from; ``content`` is a digest over the digests of its source's pieces, in frame order."""
    return _digest(str(clip.visual_kind), f"{clip.face_height}x{clip.face_width}", content)


def boxes_content(clip: Clip, video: str, boxes: str) -> str:
    """What :func:`faces_origin` digests of faces that are boxes of a video; ``video`` and ``boxes`` digest the two files."""
    track = boxes_of(clip)
    return _digest(video, boxes, str(track.face_id), str(track.first_frame), str(clip.source_frames))


def files_state(paths: Iterable[Path]) -> str | None:
    """The state of files without reading them, equal only where nothing was written; ``None`` where one is missing."""
    try:
        return _digest(*(f"{path}\0{state_of(path).text}" for path in paths))
    except OSError:
        return None


def face_stamp(clip: Clip, root: Path) -> str:
    """The state of the files a clip's faces are read from, without reading them; empty where there is none to trust."""
    files, track = [clip.visual_file(root)], ""
    if clip.visual_kind is VisualKind.VIDEO_BOXES:
        boxes = boxes_of(clip)
        files.append(root / boxes.boxes_path)
        track = f"{boxes.face_id} {boxes.first_frame} {clip.source_frames}"
    try:
        states = [state_of(file) for file in files]
    except OSError:
        return ""
    if not all(state.is_settled for state in states):
        return ""
    return _digest(*(f"{file.resolve()}\0{state.text}" for file, state in zip(files, states, strict=True)), track)


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


# --- the file -----------------------------------------------------------------------------------------------------------


def write_origins(path: Path, tracks: Mapping[str, Origin]) -> None:
    """Write down what each sample of a pack was made from, in one step; the mirror of :func:`read_origins`."""
    values = {"schema": _SCHEMA, "made_by": made_by(), "tracks": {key: astuple(track) for key, track in tracks.items()}}
    write_lossy_json(path, values)


def read_origins(path: Path) -> dict[str, Origin]:
    """What each sample was made from; nothing where that is not known, or code and decoders are other ones now."""
    try:
        values = read_lossy_json(path)
        if (values["schema"], values["made_by"]) != (_SCHEMA, made_by()):
            return {}
        return {str(key): Origin(*map(str, track)) for key, track in values["tracks"].items()}
    except (LookupError, TypeError, AttributeError):
        return {}
