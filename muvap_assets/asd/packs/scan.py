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
from muvap_assets.codes import Code
from muvap_assets.findings import Finding, Place
from muvap_assets.media.npy import read_at, read_npy_header

_BLOCK_BYTES = 1 << 20


@dataclass(slots=True)
class ShardScan:
    """What reading one shard gave."""

    samples: int = 0
    size_bytes: int = 0
    speaking_frames: int = 0
    findings: list[Finding] = field(default_factory=list)


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
            place = Place(source=folder.name, sample_id=entry.sample_id)
            scan.findings.extend(_wrong_crcs(entry, found, place))
            scan.findings.extend(_wrong_labels(entry, labels, buffer, scan, place))
            scan.findings.extend(_wrong_padding(entry, audio, buffer, place))
            scan.samples, scan.size_bytes = scan.samples + 1, scan.size_bytes + sum(sizes)
    return scan


def _wrong_crcs(entry: PackEntry, found: Sequence[int], place: Place) -> Iterator[Finding]:
    written = (entry.faces_crc32, entry.audio_crc32, entry.labels_crc32)
    for name, crc, required in zip(("faces", "audio", "labels"), found, written, strict=True):
        if crc != required:
            written_crc = f"{required:08x}, as written"
            yield Finding(Code.DIGEST_MISMATCH, place, f"{name} with CRC-32 {crc:08x}", required=written_crc)


def _wrong_labels(
    entry: PackEntry, labels: _Array, buffer: npt.NDArray[np.uint8], scan: ShardScan, place: Place
) -> Iterator[Finding]:
    speaking = other = 0
    for block in labels.blocks(entry.label_offset, entry.source_frames, buffer):
        speaking += int(np.count_nonzero(block == 1))
        other += int(np.count_nonzero(block > 1))
    scan.speaking_frames += speaking
    if other:
        yield Finding(Code.LABELS_INVALID, place, f"{other} labels above 1", case="packed")
    elif entry.speaking_ratio != (share := speaking / entry.source_frames):
        found = f"speaking_ratio {entry.speaking_ratio}, of labels that give {share}"
        yield Finding(Code.LABELS_INVALID, place, found, case="packed")


def _wrong_padding(entry: PackEntry, audio: _Array, buffer: npt.NDArray[np.uint8], place: Place) -> Iterator[Finding]:
    end = (entry.audio_offset + entry.audio_samples) * AUDIO_DTYPE.itemsize
    size = min(max(entry.padded_samples, 0), entry.audio_samples) * AUDIO_DTYPE.itemsize
    if any(block.any() for block in audio.blocks(end - size, size, buffer)):
        required = f"silence in its last {entry.padded_samples} samples, past the recording's end"
        yield Finding(Code.COUNT_MISMATCH, place, "sound in the padding", required=required)


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
