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
decide. A source written less than two seconds before it was stamped gets no stamp, for within a clock's resolution it may
be written again and look the same. Safe to lose: without it everything is decoded again.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from muvap_assets.asd.contract import Clip, VisualKind
from muvap_assets.asd.packs.layout import PACK_CODE_VERSION
from muvap_assets.asd.video_rows import boxes_of
from muvap_assets.media.faces import FACE_CONVERSION

SETTLED_NS = 2_000_000_000
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
        return _digest(*(_state(str(path), path.stat())[1] for path in paths))
    except OSError:
        return None


def face_stamp(clip: Clip, root: Path) -> str:
    """The state of the files a clip's faces are read from, without reading them; empty where there is none to trust."""
    path = clip.visual_file(root)
    try:
        newest, own = _state("", path.stat())
        lines = [own]
        if clip.visual_kind is VisualKind.JPEG_DIRECTORY:
            with os.scandir(path) as entries:
                for entry in entries:
                    changed, state = _state(entry.name, entry.stat())
                    newest = max(newest, changed)
                    lines.append(state)
        elif clip.visual_kind is VisualKind.VIDEO_BOXES:
            track = boxes_of(clip)
            boxes = (root / track.boxes_path).resolve()
            changed, state = _state(str(boxes), boxes.stat())
            newest = max(newest, changed)
            lines += [state, f"{track.face_id} {track.first_frame} {clip.source_frames}"]
    except OSError:
        return ""
    if time.time_ns() - newest < SETTLED_NS:
        return ""
    return _digest(str(path.resolve()), *sorted(lines))


def _state(name: str, status: os.stat_result) -> tuple[int, str]:
    """When a file was changed last, and everything that would show another change."""
    modified, changed = status.st_mtime_ns, status.st_ctime_ns
    return max(modified, changed), f"{name}/{status.st_size} {modified} {changed} {status.st_ino}"


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


# --- the file -----------------------------------------------------------------------------------------------------------


def write_origins(path: Path, tracks: Mapping[str, Origin]) -> None:
    """Write down what each sample of a pack was made from, in one step; the mirror of :func:`read_origins`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    values = {"schema": _SCHEMA, "made_by": made_by(), "tracks": {key: astuple(track) for key, track in tracks.items()}}
    scratch.write_text(json.dumps(values, ensure_ascii=False), encoding="utf-8")
    scratch.replace(path)


def read_origins(path: Path) -> dict[str, Origin]:
    """What each sample was made from; nothing where that is not known, or code and decoders are other ones now."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if (values["schema"], values["made_by"]) != (_SCHEMA, made_by()):
            return {}
        return {str(key): Origin(*map(str, track)) for key, track in values["tracks"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
