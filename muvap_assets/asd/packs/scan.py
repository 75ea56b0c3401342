"""Reading the arrays of a shard back, sample by sample and in blocks: what the index says about them must hold.

Files are read, not mapped, so that memory stays at one block however large a shard is.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.packs.layout import AUDIO_DTYPE, AUDIO_FILE, FACES_FILE, LABELS_FILE, PackEntry
from muvap_assets.media.npy import read_at, read_npy_header

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Fault:
    """Something about one sample's content: the check it belongs to, and what was found."""

    check: str
    sample_id: str
    found: str
    required: str


@dataclass(slots=True)
class ShardScan:
    """What reading one shard gave."""

    samples: int = 0
    size_bytes: int = 0
    speaking_frames: int = 0
    faults: list[Fault] = field(default_factory=list)


def scan_shard(folder: Path, face_bytes: int, entries: Iterator[PackEntry]) -> ShardScan:
    """Read every sample of a shard whose headers and offsets are known to be right.

    Args:
        folder: the shard.
        face_bytes: bytes of one face.
        entries: the index entries of the shard; each lies within its arrays.

    Raises:
        OSError: a file cannot be read.
    """
    scan, buffer = ShardScan(), np.empty(_BLOCK_BYTES, np.uint8)
    with (
        _opened(folder / FACES_FILE) as faces,
        _opened(folder / LABELS_FILE) as labels,
        _opened(folder / AUDIO_FILE) as audio,
    ):
        for entry in entries:
            frames = entry.source_frames
            sizes = (frames * face_bytes, entry.audio_samples * AUDIO_DTYPE.itemsize, frames)
            found = (
                _crc32(faces.blocks(entry.face_offset * face_bytes, sizes[0], buffer)),
                _crc32(audio.blocks(entry.audio_offset * AUDIO_DTYPE.itemsize, sizes[1], buffer)),
                _crc32(labels.blocks(entry.label_offset, sizes[2], buffer)),
            )
            scan.faults.extend(_crc_faults(entry, found))
            scan.faults.extend(_label_faults(entry, labels, buffer, scan))
            scan.faults.extend(_padding_faults(entry, audio, buffer))
            scan.samples, scan.size_bytes = scan.samples + 1, scan.size_bytes + sum(sizes)
    return scan


def _crc_faults(entry: PackEntry, found: Sequence[int]) -> Iterator[Fault]:
    written = (entry.faces_crc32, entry.audio_crc32, entry.labels_crc32)
    for name, crc, required in zip(("faces", "audio", "labels"), found, written, strict=True):
        if crc != required:
            yield Fault("round_trip", entry.sample_id, f"{name} with CRC-32 {crc:08x}", f"{required:08x}, as written")


def _label_faults(entry: PackEntry, labels: _Array, buffer: npt.NDArray[np.uint8], scan: ShardScan) -> Iterator[Fault]:
    speaking = other = 0
    for block in labels.blocks(entry.label_offset, entry.source_frames, buffer):
        speaking += int(np.count_nonzero(block == 1))
        other += int(np.count_nonzero(block > 1))
    scan.speaking_frames += speaking
    if other:
        yield Fault("labels_binary", entry.sample_id, f"{other} labels above 1", "0 or 1 for each frame")
    elif entry.speaking_ratio != speaking / entry.source_frames:
        found = f"speaking_ratio {entry.speaking_ratio}"
        yield Fault("labels_binary", entry.sample_id, found, f"{speaking / entry.source_frames}, as its labels give")


def _padding_faults(entry: PackEntry, audio: _Array, buffer: npt.NDArray[np.uint8]) -> Iterator[Fault]:
    end = (entry.audio_offset + entry.audio_samples) * AUDIO_DTYPE.itemsize
    size = min(max(entry.padded_samples, 0), entry.audio_samples) * AUDIO_DTYPE.itemsize
    if any(block.any() for block in audio.blocks(end - size, size, buffer)):
        required = f"silence in its last {entry.padded_samples} samples, past the recording's end"
        yield Fault("audio_spans_faces", entry.sample_id, "sound in the padding", required)


def _crc32(blocks: Iterator[npt.NDArray[np.uint8]]) -> int:
    crc = 0
    for block in blocks:
        crc = zlib.crc32(block.data, crc)
    return crc


@dataclass(frozen=True, slots=True)
class _Array:
    descriptor: int
    data_offset: int
    path: Path

    def blocks(self, offset: int, size: int, buffer: npt.NDArray[np.uint8]) -> Iterator[npt.NDArray[np.uint8]]:
        """``size`` bytes from ``offset`` of the data, through ``buffer``: each block is overwritten by the next."""
        for start in range(0, size, len(buffer)):
            block = buffer[: min(len(buffer), size - start)]
            if read_at(self.descriptor, block, self.data_offset + offset + start) != len(block):
                raise OSError(f"{self.path.name} became shorter while it was read")
            yield block


@contextmanager
def _opened(path: Path) -> Iterator[_Array]:
    offset = read_npy_header(path).data_offset
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield _Array(descriptor, offset, path)
    finally:
        os.close(descriptor)
