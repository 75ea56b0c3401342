"""Copying the tracks of an earlier pack that are unchanged instead of decoding them again.

What is copied is compared with the earlier pack's own CRC-32: a track that is damaged there is decoded again, so that damage
never spreads. Faces and audio of a track are copied or decoded each by itself. Labels, levels and the index always come
from the manifest and the loudness index at hand, so that the result is, byte for byte, what a full pack would be.

What decides that a track is unchanged is ``origins``'; where its bytes go is the writer's.
"""

from __future__ import annotations

import hashlib
import math
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.contract import Clip
from muvap_assets.asd.packs.audio_writer import Place, WrittenAudio
from muvap_assets.asd.packs.face_writer import BLOCK_BYTES, frames_per_block, open_faces, read_pieces
from muvap_assets.asd.packs.layout import AUDIO_DTYPE, AUDIO_FILE, FACES_FILE, PackEntry, shard_name
from muvap_assets.asd.packs.origins import Origin, audio_origin, face_stamp, faces_origin, read_origins, write_origins
from muvap_assets.asd.packs.plan import Placed
from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.errors import FormatError, MediaError
from muvap_assets.media.npy import NpyError, read_at, read_npy_header, write_at


@dataclass(frozen=True, slots=True)
class CopiedTrack:
    """What could be copied of one track: the CRC-32 of its faces and their origin, its audio; ``None`` is to be decoded.

    ``read_again`` says that the source had to be read to know that it is unchanged.
    """

    placed: Placed
    stamp: str
    faces: tuple[int, str] | None = None
    audio: WrittenAudio | None = None
    read_again: bool = False


@dataclass(slots=True)
class ReuseReport:
    """How many tracks there were, and of how many faces and audio were copied; and how a face source was recognized."""

    tracks: int = 0
    faces_copied: int = 0
    audio_copied: int = 0
    recognized_by_time: int = 0
    recognized_by_content: int = 0

    def add(self, track: CopiedTrack) -> None:
        """Count one track."""
        self.tracks += 1
        self.faces_copied += track.faces is not None
        self.audio_copied += track.audio is not None
        self.recognized_by_content += track.faces is not None and track.read_again
        self.recognized_by_time += track.faces is not None and not track.read_again


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
        self.reader = PackReader(pack)
        self._tracks = tracks
        self._by_stamp = {track.stamp: key for key, track in tracks.items() if track.stamp}
        self._by_faces = {track.faces: key for key, track in tracks.items()}
        self._by_audio = {track.audio: key for key, track in tracks.items()}

    def faces_by_stamp(self, clip: Clip, stamp: str) -> tuple[PackEntry, str] | None:
        """The track whose face source is in the very state this one's is in, and what it was made from."""
        key = self._by_stamp.get(stamp)
        return None if key is None else self._matching(key, clip)

    def faces_by_content(self, clip: Clip, faces: str) -> tuple[PackEntry, str] | None:
        """The track whose faces were made from the same bytes."""
        key = self._by_faces.get(faces)
        return None if key is None else self._matching(key, clip)

    def audio(self, clip: Clip) -> PackEntry | None:
        """The track whose audio is the same span of the same recording."""
        key = self._by_audio.get(audio_origin(clip))
        entry = None if key is None else self._entry(key)
        return entry if entry is not None and entry.audio_samples == clip.audio_samples else None

    def _matching(self, key: str, clip: Clip) -> tuple[PackEntry, str] | None:
        entry = self._entry(key)
        if entry is None or entry.source_frames != clip.source_frames:
            return None
        if self.reader.header.face_shape != (clip.face_height, clip.face_width):
            return None
        return entry, self._tracks[key].faces

    def _entry(self, key: str) -> PackEntry | None:
        try:
            return self.reader.entry(self.reader.position_of(key))
        except KeyError:
            return None


class TrackCopier:
    """Copies tracks from any of ``workers`` threads, through as many buffers and no more."""

    def __init__(self, reuse: Reuse, root: Path, face_shape: tuple[int, int], workers: int) -> None:
        self._earlier, self._root = reuse.earlier, root
        self._face_bytes = math.prod(face_shape)
        self._buffers: SimpleQueue[npt.NDArray[np.uint8]] = SimpleQueue()
        for _ in range(workers):
            self._buffers.put(np.empty(max(BLOCK_BYTES, self._face_bytes), np.uint8))

    def copy(self, placed: Placed, faces: Place, audio: Place) -> CopiedTrack:
        """Copy what is unchanged of one track into the preallocated arrays of its shard.

        Raises:
            OSError: the target cannot be written.
        """
        # Before anything is read: what is written to the source later shows in the next stamp.
        stamp = face_stamp(placed.clip, self._root)
        if self._earlier is None:
            return CopiedTrack(placed, stamp)
        buffer = self._buffers.get()
        try:
            found, read_again = self._unchanged_faces(self._earlier, placed.clip, stamp, buffer)
            crc = None if found is None else self._copy_faces(found[0], placed, faces, buffer)
            copied = None if found is None or crc is None else (crc, found[1])
            return CopiedTrack(placed, stamp, copied, self._copy_audio(placed, audio, buffer), read_again)
        finally:
            self._buffers.put(buffer)

    def _unchanged_faces(
        self, earlier: EarlierPack, clip: Clip, stamp: str, buffer: npt.NDArray[np.uint8]
    ) -> tuple[tuple[PackEntry, str] | None, bool]:
        if stamp and (found := earlier.faces_by_stamp(clip, stamp)):
            return found, False
        content = _content_of(clip, self._root, buffer)
        return (None if content is None else earlier.faces_by_content(clip, faces_origin(clip, content))), True

    def _copy_faces(self, entry: PackEntry, placed: Placed, target: Place, buffer: npt.NDArray[np.uint8]) -> int | None:
        size = entry.source_frames * self._face_bytes
        start = target.data_offset + placed.face_offset * self._face_bytes
        source = self._source(entry, FACES_FILE)
        crc = _copy(source, entry.face_offset * self._face_bytes, size, target.path, start, buffer)
        return crc if crc == entry.faces_crc32 else None

    def _copy_audio(self, placed: Placed, target: Place, buffer: npt.NDArray[np.uint8]) -> WrittenAudio | None:
        entry = None if self._earlier is None else self._earlier.audio(placed.clip)
        if entry is None:
            return None
        width = AUDIO_DTYPE.itemsize
        start = target.data_offset + placed.audio_offset * width
        source = self._source(entry, AUDIO_FILE)
        crc = _copy(source, entry.audio_offset * width, entry.audio_samples * width, target.path, start, buffer)
        if crc == entry.audio_crc32:
            return WrittenAudio(placed.position, crc, entry.clipped_samples)
        # Silence after a recording's end is not written when it is decoded: nothing of the damaged copy may stay there.
        _clear(target.path, start, entry.audio_samples * width, buffer)
        return None

    def _source(self, entry: PackEntry, name: str) -> Path:
        if self._earlier is None:
            raise FormatError(f"{entry.sample_id}: no earlier pack; required: one to copy from. Pack without it.")
        return self._earlier.reader.path / shard_name(entry.shard) / name


def _content_of(clip: Clip, root: Path, buffer: npt.NDArray[np.uint8]) -> str | None:
    """What a face source holds now, as packing it would find; ``None`` where it cannot be read."""
    source, violations = open_faces(clip, root)
    if source is None or violations:
        return None
    digest, step = hashlib.sha256(), frames_per_block(clip.face_height, clip.face_width)
    try:
        for first in range(0, clip.source_frames, step):
            count = min(step, clip.source_frames - first)
            frames = buffer[: count * clip.face_height * clip.face_width]
            for piece in read_pieces(source, first, frames.reshape(count, clip.face_height, clip.face_width)):
                digest.update(hashlib.sha256(piece).digest())
    except MediaError:
        return None
    return digest.hexdigest()


def _copy(
    source: Path, offset: int, size: int, target: Path, target_offset: int, buffer: npt.NDArray[np.uint8]
) -> int | None:
    """Copy ``size`` bytes of an array's data through ``buffer``; their CRC-32, or ``None`` where they are not all there."""
    try:
        offset += read_npy_header(source).data_offset
        reading = os.open(source, os.O_RDONLY)
    except (OSError, NpyError):
        return None
    writing = os.open(target, os.O_WRONLY)
    crc = 0
    try:
        for done in range(0, size, len(buffer)):
            block = buffer[: min(len(buffer), size - done)]
            if not _read(reading, block, offset + done):
                return None
            crc = zlib.crc32(block.data, crc)
            write_at(writing, block, target_offset + done)
    finally:
        os.close(reading)
        os.close(writing)
    return crc


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
