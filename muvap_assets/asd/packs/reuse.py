"""Taking over the tracks of an earlier pack that are unchanged instead of decoding them again.

A shard none of whose tracks changed or moved shares its arrays with the earlier pack (``arrays``); of others, the tracks are
copied.

What is copied takes the earlier index's CRC-32 along, and every pack is read back and held to its index before it is
published: a track that is damaged in the earlier pack fails there, and the line packs again without copying, so that damage
never spreads. Comparing while copying as well would be a fifth of the work. What is missing or cut short is decoded at once.
Faces and audio of a track are copied or decoded each by itself. Labels, levels and the index always come
from the manifest and the loudness index at hand, so that the result is, byte for byte, what a full pack would be.

What decides that a track is unchanged is ``origins``'; where its bytes go is the writer's.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.contract import Clip, VisualKind
from muvap_assets.asd.packs.audio_writer import ArrayPlace, WrittenAudio
from muvap_assets.asd.packs.face_writer import BLOCK_BYTES, frames_per_block, open_faces, read_pieces
from muvap_assets.asd.packs.layout import AUDIO_DTYPE, AUDIO_FILE, FACES_FILE, shard_name
from muvap_assets.asd.packs.origins import (
    Origin,
    audio_origin,
    boxes_content,
    face_stamp,
    faces_origin,
    read_origins,
    write_origins,
)
from muvap_assets.asd.packs.plan import Placed
from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.asd.video_rows import boxes_of
from muvap_assets.errors import FormatError, ValidationError
from muvap_assets.media.npy import NpyError, read_at, read_npy_header, write_at
from muvap_assets.storage.digests import Digests
from muvap_assets.threads import watched

_COLUMNS = (
    *("shard", "face_offset", "source_frames", "faces_crc32"),
    *("audio_offset", "audio_samples", "audio_crc32", "clipped_samples"),
)


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of an array of the earlier pack, with the CRC-32 they were written with."""

    path: Path
    offset: int
    size_bytes: int
    crc32: int
    clipped_samples: int = 0


@dataclass(frozen=True, slots=True)
class FoundTrack:
    """What the earlier pack holds of one track: its faces and their origin, its audio; ``None`` is to be decoded.

    ``read_again`` says that the source had to be read to know that it is unchanged.
    """

    placed: Placed
    stamp: str
    faces: tuple[Span, str] | None = None
    audio: Span | None = None
    read_again: bool = False


@dataclass(frozen=True, slots=True)
class CopiedTrack:
    """What was taken over of one track: the CRC-32 of its faces and their origin, its audio; ``None`` is to be decoded."""

    found: FoundTrack
    faces: tuple[int, str] | None = None
    audio: WrittenAudio | None = None


@dataclass(slots=True)
class ReuseReport:
    """How many tracks there were, and of how many faces and audio were copied; and how a face source was recognized."""

    tracks: int = 0
    faces_copied: int = 0
    audio_copied: int = 0
    recognized_by_time: int = 0
    recognized_by_content: int = 0

    @property
    def any_copied(self) -> bool:
        """Whether anything comes from the earlier pack."""
        return bool(self.faces_copied or self.audio_copied)

    def add(self, track: CopiedTrack) -> None:
        """Count one track."""
        self.tracks += 1
        self.faces_copied += track.faces is not None
        self.audio_copied += track.audio is not None
        self.recognized_by_content += track.faces is not None and track.found.read_again
        self.recognized_by_time += track.faces is not None and not track.found.read_again


@dataclass(slots=True)
class Reuse:
    """An earlier pack to copy from, if there is one, and what the new one is made from, as far as it is written."""

    earlier: EarlierPack | None = None
    report: ReuseReport = field(default_factory=ReuseReport)
    origins: dict[str, Origin] = field(default_factory=dict)

    @classmethod
    def of(cls, pack: Path | None, origins: Path | None) -> Reuse:
        """Copy from ``pack``; from nothing where it, or what it was made from, cannot be read."""
        tracks = read_origins(origins) if pack is not None and origins is not None else {}
        if pack is None or not tracks:
            return cls()
        try:
            return cls(EarlierPack(pack, tracks))
        except FormatError:
            return cls()

    def record(self, clip: Clip, stamp: str, faces: str) -> None:
        """Remember what a clip of the new pack was made from."""
        self.origins[clip.sample_id] = Origin(faces, stamp, audio_origin(clip))

    def save(self, path: Path) -> None:
        """Write down what the new pack was made from; where that fails, the next one decodes everything."""
        with suppress(OSError):
            write_origins(path, self.origins)


class EarlierPack:
    """The tracks of a pack by what they were made from."""

    def __init__(self, pack: Path, tracks: Mapping[str, Origin]) -> None:
        """Open ``pack``.

        Raises:
            FormatError: it is not a pack that can be opened.
        """
        self._reader = PackReader(pack)
        self._tracks = tracks
        self._by_stamp = {track.stamp: key for key, track in tracks.items() if track.stamp}
        self._by_faces = {track.faces: key for key, track in tracks.items() if track.faces}
        self._by_audio = {track.audio: key for key, track in tracks.items()}
        # Columns, not entries: of a whole entry most is made from the manifest anew.
        self._columns = {name: self._reader.column(name) for name in _COLUMNS}
        self._data_offsets: dict[Path, int] = {}

    def faces_by_stamp(self, clip: Clip, stamp: str) -> tuple[Span, str] | None:
        """The faces whose source was in the very state this clip's is in, and what they were made from."""
        return self._faces(clip, self._by_stamp.get(stamp))

    def faces_by_content(self, clip: Clip, faces: str) -> tuple[Span, str] | None:
        """The faces that were made from the same bytes."""
        return self._faces(clip, self._by_faces.get(faces))

    def audio(self, clip: Clip) -> Span | None:
        """The audio of the same span of the same recording."""
        position = self._position(self._by_audio.get(audio_origin(clip)))
        if position is None or self._columns["audio_samples"][position] != clip.audio_samples:
            return None
        clipped = int(self._columns["clipped_samples"][position])
        return self._span(position, AUDIO_FILE, "audio", clip.audio_samples, AUDIO_DTYPE.itemsize, clipped)

    def _faces(self, clip: Clip, key: str | None) -> tuple[Span, str] | None:
        position = self._position(key)
        if key is None or position is None or self._columns["source_frames"][position] != clip.source_frames:
            return None
        if self._reader.header.face_shape != (clip.face_height, clip.face_width):
            return None
        face_bytes = clip.face_height * clip.face_width
        span = self._span(position, FACES_FILE, "face", clip.source_frames, face_bytes)
        return None if span is None else (span, self._tracks[key].faces)

    def _span(self, position: int, name: str, kind: str, count: int, width: int, clipped: int = 0) -> Span | None:
        path = self._reader.path / shard_name(int(self._columns["shard"][position])) / name
        if path not in self._data_offsets:
            try:
                self._data_offsets[path] = read_npy_header(path).data_offset
            except (OSError, NpyError):
                return None
        offset = self._data_offsets[path] + int(self._columns[f"{kind}_offset"][position]) * width
        crc = int(self._columns["faces_crc32" if kind == "face" else "audio_crc32"][position])
        return Span(path, offset, count * width, crc, clipped)

    def _position(self, key: str | None) -> int | None:
        try:
            return None if key is None else self._reader.position_of(key)
        except KeyError:
            return None


class TrackCopier:
    """Finds and copies tracks from any of ``workers`` threads, through as many buffers and no more."""

    def __init__(self, reuse: Reuse, root: Path, face_shape: tuple[int, int], workers: int) -> None:
        self._earlier, self._root = reuse.earlier, root
        self._face_bytes = math.prod(face_shape)
        self._digests = Digests()
        self._buffers: SimpleQueue[npt.NDArray[np.uint8]] = SimpleQueue()
        for _ in range(workers):
            self._buffers.put(np.empty(max(BLOCK_BYTES, self._face_bytes), np.uint8))

    def find(self, placed: Placed) -> FoundTrack:
        """What the earlier pack holds of a track whose source is unchanged."""
        # Before anything is read: what is written to the source later shows in the next stamp.
        stamp = face_stamp(placed.clip, self._root)
        if self._earlier is None:
            return FoundTrack(placed, stamp)
        buffer = self._buffers.get()
        try:
            earlier, clip, into = self._earlier, placed.clip, buffer
            try:
                faces, read_again = watched(lambda: self._unchanged_faces(earlier, clip, stamp, into))
            except ValidationError:  # reading is stuck, as decoding will find
                faces, read_again, buffer = None, True, np.empty_like(buffer)
            return FoundTrack(placed, stamp, faces, self._earlier.audio(placed.clip), read_again)
        finally:
            self._buffers.put(buffer)

    def copy(self, found: FoundTrack, faces: ArrayPlace | None, audio: ArrayPlace | None) -> CopiedTrack:
        """Copy what was found of one track into the preallocated arrays of its shard; ``None`` is shared, and there.

        Raises:
            OSError: the target cannot be written.
        """
        buffer = self._buffers.get()
        try:
            return CopiedTrack(found, self._copy_faces(found, faces, buffer), _copy_audio(found, audio, buffer))
        finally:
            self._buffers.put(buffer)

    def _copy_faces(
        self, found: FoundTrack, target: ArrayPlace | None, buffer: npt.NDArray[np.uint8]
    ) -> tuple[int, str] | None:
        if found.faces is None:
            return None
        span, origin = found.faces
        if target is not None:
            start = target.data_offset + found.placed.face_offset * self._face_bytes
            if not _copy(span, target.path, start, buffer):
                return None
        return span.crc32, origin

    def _unchanged_faces(
        self, earlier: EarlierPack, clip: Clip, stamp: str, buffer: npt.NDArray[np.uint8]
    ) -> tuple[tuple[Span, str] | None, bool]:
        if stamp and (found := earlier.faces_by_stamp(clip, stamp)):
            return found, False
        of_video = clip.visual_kind is VisualKind.VIDEO_BOXES
        content = self._boxes_content(clip) if of_video else _content_of(clip, self._root, buffer)
        return (None if content is None else earlier.faces_by_content(clip, faces_origin(clip, content))), True

    def _boxes_content(self, clip: Clip) -> str | None:
        try:
            video = self._digests.of(clip.visual_file(self._root))
            return boxes_content(clip, video, self._digests.of(self._root / boxes_of(clip).boxes_path))
        except OSError:
            return None


def _copy_audio(found: FoundTrack, target: ArrayPlace | None, buffer: npt.NDArray[np.uint8]) -> WrittenAudio | None:
    span = found.audio
    if span is None:
        return None
    if target is not None:
        start = target.data_offset + found.placed.audio_offset * AUDIO_DTYPE.itemsize
        if not _copy(span, target.path, start, buffer):
            # Silence after a recording's end is not written when it is decoded: nothing of a copy cut short may stay.
            _clear(target.path, start, span.size_bytes, buffer)
            return None
    return WrittenAudio(found.placed.position, span.crc32, span.clipped_samples)


def _content_of(clip: Clip, root: Path, buffer: npt.NDArray[np.uint8]) -> str | None:
    """What a face source holds now, as packing it would find; ``None`` where it cannot be read."""
    source, findings = open_faces(clip, root)
    if source is None or findings:
        return None
    digest, step = hashlib.sha256(), frames_per_block(clip.face_height, clip.face_width)
    try:
        for first in range(0, clip.source_frames, step):
            count = min(step, clip.source_frames - first)
            frames = buffer[: count * clip.face_height * clip.face_width]
            for piece in read_pieces(source, first, frames.reshape(count, clip.face_height, clip.face_width)):
                digest.update(hashlib.sha256(piece).digest())
    except ValidationError:
        return None
    return digest.hexdigest()


def _copy(span: Span, target: Path, target_offset: int, buffer: npt.NDArray[np.uint8]) -> bool:
    """Copy a span; false where it is not all there."""
    try:
        reading = os.open(span.path, os.O_RDONLY)
    except OSError:
        return False
    writing = os.open(target, os.O_WRONLY)
    try:
        for done in range(0, span.size_bytes, len(buffer)):
            block = buffer[: min(len(buffer), span.size_bytes - done)]
            if not _read(reading, block, span.offset + done):
                return False
            write_at(writing, block, target_offset + done)
    finally:
        os.close(reading)
        os.close(writing)
    return True


def _read(descriptor: int, block: npt.NDArray[np.uint8], offset: int) -> bool:
    try:
        return read_at(descriptor, block, offset) == len(block)
    except OSError:
        return False


def _clear(path: Path, offset: int, size: int, buffer: npt.NDArray[np.uint8]) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        buffer[:] = 0
        for done in range(0, size, len(buffer)):
            write_at(descriptor, buffer[: min(len(buffer), size - done)], offset + done)
    finally:
        os.close(descriptor)
