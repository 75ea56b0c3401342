"""Faces of a pack: blocks of frames, read or decoded by any thread, each put where the plan says."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.contract import FACE_SIZE, Clip, VisualKind
from muvap_assets.asd.packs.layout import crc32_join
from muvap_assets.asd.packs.plan import Placed
from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding
from muvap_assets.legacy import old_finding
from muvap_assets.media.faces import NpyFaces, decode_jpeg_gray, list_frames, open_npy_faces, read_jpeg, stamp_gaps
from muvap_assets.media.npy import write_at

BLOCK_BYTES = 1 << 20
_GAPS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class JpegFaces:
    """The listed JPEG crops of one clip."""

    folder: Path
    names: tuple[str, ...]


FaceSource: TypeAlias = NpyFaces | JpegFaces
"""Faces that were found to be what the manifest says. Holds no open file, however many clips are in work."""


def read_faces(source: FaceSource, first: int, out: npt.NDArray[np.uint8]) -> tuple[list[ValidationError], bytes]:
    """Read frames from ``first`` into ``out``, uint8 [n, H, W].

    Returns:
        Every fault, and the SHA-256 digests of the pieces that were read: each JPEG, or the array's part.
    """
    errors, digests = [], []
    if isinstance(source, NpyFaces):
        try:
            source.read_into(first, out)
        except ValidationError as error:
            return [error], b""
        return [], hashlib.sha256(out.data).digest()
    for i, name in enumerate(source.names[first : first + len(out)]):
        path = source.folder / name
        try:
            data = read_jpeg(path)
            decode_jpeg_gray(data, out[i], path)
            digests.append(hashlib.sha256(data).digest())
        except ValidationError as error:
            errors.append(error)
    return errors, b"".join(digests)


def read_pieces(source: FaceSource, first: int, out: npt.NDArray[np.uint8]) -> Iterator[bytes | memoryview]:
    """The pieces that :func:`read_faces` digests, nothing decoded; ``out`` may be written to.

    Raises:
        ValidationError: one cannot be read.
    """
    if isinstance(source, NpyFaces):
        source.read_into(first, out)
        yield out.data
        return
    for name in source.names[first : first + len(out)]:
        yield read_jpeg(source.folder / name)


def open_faces(clip: Clip, root: Path) -> tuple[FaceSource | None, list[Finding]]:
    """The faces of a clip, if they still are what the manifest says, or everything that is wrong with them."""
    path = clip.visual_file(root)
    if clip.visual_kind is VisualKind.JPEG_DIRECTORY:
        if (clip.face_height, clip.face_width) != (FACE_SIZE, FACE_SIZE):
            return None, [shape_mismatch(clip, (clip.face_height, clip.face_width), (FACE_SIZE, FACE_SIZE))]
        listing = list_frames(path)
        if listing.errors:
            return None, [error.finding.placed(**_place(clip)) for error in listing.errors]
        if len(listing.names) != clip.source_frames:
            return None, [_count_mismatch(clip, len(listing.names), _gaps(listing.names))]
        return JpegFaces(path, listing.names), []
    try:
        faces = open_npy_faces(path)
    except ValidationError as error:
        return None, [error.finding.placed(**_place(clip))]
    if faces.shape[0] != clip.source_frames:
        return None, [_count_mismatch(clip, faces.shape[0])]
    if faces.shape[1:] != (clip.face_height, clip.face_width):
        return None, [shape_mismatch(clip, faces.shape[1:], (clip.face_height, clip.face_width))]
    return faces, []


def shape_mismatch(clip: Clip, found: tuple[int, int], required: tuple[int, int]) -> Finding:
    """The finding that a clip's faces have another height or width than they should."""
    return old_finding(
        code=Code.FACE_SHAPE_MISMATCH,
        found=f"faces of {found[0]}x{found[1]}",
        required=f"{required[0]}x{required[1]}, one shape for all faces of a pack",
        hint="Resize them, or pack the odd ones as a corpus of their own.",
        **_place(clip),
    )


def _count_mismatch(clip: Clip, frames: int, gaps: str = "") -> Finding:
    return old_finding(
        code=Code.LABEL_COUNT_MISMATCH,
        found=f"labels has {clip.source_frames} entries, faces has {frames} frames{gaps}",
        required="as many faces as labels",
        hint="They changed since the manifest was validated: extract the track again, then validate again.",
        **_place(clip),
    )


def _gaps(names: tuple[str, ...]) -> str:
    gaps = stamp_gaps(names)
    shown = ", ".join(f"between {earlier!r} and {later!r}" for earlier, later in gaps[:_GAPS_SHOWN])
    return f" (missing {shown}{' and elsewhere' if len(gaps) > _GAPS_SHOWN else ''})" if gaps else ""


def _place(clip: Clip) -> dict[str, Any]:
    return {"row": clip.row, "sample_id": clip.sample_id, "field": "visual_path"}


# --- blocks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FaceBlock:
    """Frames ``[first, first + count)`` of a clip: one unit of work, the ``index``-th of the clip."""

    placed: Placed
    source: FaceSource
    index: int
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class WrittenBlock:
    """What became of a block: CRC-32 and number of its bytes, digests of what it was made from, what could not be read."""

    block: FaceBlock
    crc32: int
    size_bytes: int
    pieces: bytes
    errors: tuple[ValidationError, ...]


def blocks_of(placed: Placed, source: FaceSource) -> Iterator[FaceBlock]:
    """A clip cut into blocks of about :data:`BLOCK_BYTES`."""
    step = frames_per_block(placed.clip.face_height, placed.clip.face_width)
    for index, first in enumerate(range(0, placed.clip.source_frames, step)):
        yield FaceBlock(placed, source, index, first, min(step, placed.clip.source_frames - first))


def frames_per_block(height: int, width: int) -> int:
    """Frames of one block; at least one, however large a face is."""
    return max(1, BLOCK_BYTES // (height * width))


class BlockWriter:
    """Writes face blocks from any of ``workers`` threads, through as many buffers and no more."""

    def __init__(self, face_shape: tuple[int, int], workers: int) -> None:
        self._buffers: SimpleQueue[npt.NDArray[np.uint8]] = SimpleQueue()
        for _ in range(workers):
            self._buffers.put(np.empty((frames_per_block(*face_shape), *face_shape), np.uint8))

    def write(self, block: FaceBlock, target: Path, data_offset: int) -> WrittenBlock:
        """Read a block and put it into ``target``, a preallocated array of the block's shard.

        Raises:
            OSError: the target cannot be written.
        """
        buffer = self._buffers.get()
        try:
            frames = buffer[: block.count]
            errors, pieces = read_faces(block.source, block.first, frames)
            if errors:
                return WrittenBlock(block, 0, frames.nbytes, b"", tuple(errors))
            frame_bytes = frames.nbytes // block.count
            descriptor = os.open(target, os.O_WRONLY)
            try:
                write_at(descriptor, frames, data_offset + (block.placed.face_offset + block.first) * frame_bytes)
            finally:
                os.close(descriptor)
            return WrittenBlock(block, zlib.crc32(frames.data), frames.nbytes, pieces, ())
        finally:
            self._buffers.put(buffer)


@dataclass(slots=True)
class ClipFaces:
    """Joins the blocks of one clip, which come in any order, into its CRC-32, its source's digest and its findings."""

    clip: Clip
    crc32: int = 0
    frames: int = 0
    errors: list[ValidationError] = field(default_factory=list)
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    _next: int = 0
    _waiting: dict[int, WrittenBlock] = field(default_factory=dict)

    def add(self, written: WrittenBlock) -> bool:
        """Take one block in; true when it was the last that was missing."""
        self._waiting[written.block.index] = written
        while (ready := self._waiting.pop(self._next, None)) is not None:
            first = self._next == 0
            self.crc32 = ready.crc32 if first else crc32_join(self.crc32, ready.crc32, ready.size_bytes)
            self.frames += ready.block.count
            self.errors.extend(ready.errors)
            self._digest.update(ready.pieces)
            self._next += 1
        return self.frames == self.clip.source_frames

    @property
    def content(self) -> str:
        """A digest over what the faces were made from, piece after piece in frame order."""
        return self._digest.hexdigest()

    def findings(self) -> list[Finding]:
        """See :func:`_unreadable_frames`."""
        return _unreadable_frames(self.clip, self.errors)

    @property
    def pictures_are_bad(self) -> bool:
        """Whether all that is wrong are pictures that do not decode: the files themselves are those of the manifest."""
        of_pictures = self.clip.visual_kind is VisualKind.JPEG_DIRECTORY
        return of_pictures and {error.finding.code for error in self.errors} == {Code.FACES_UNREADABLE}


def decode_faults(clip: Clip, root: Path) -> list[Finding]:
    """What reading all faces of a clip finds, just as packing it would; memory holds one block.

    Boxes of a video are not looked at: a manifest is made of the decoded video.
    """
    if clip.visual_kind is VisualKind.VIDEO_BOXES:
        return []
    source, findings = open_faces(clip, root)
    if source is None:
        return findings
    step, errors = frames_per_block(clip.face_height, clip.face_width), list[ValidationError]()
    frames = np.empty((min(step, clip.source_frames), clip.face_height, clip.face_width), np.uint8)
    for first in range(0, clip.source_frames, step):
        errors += read_faces(source, first, frames[: clip.source_frames - first])[0]
    return _unreadable_frames(clip, errors)


def _unreadable_frames(clip: Clip, errors: Sequence[ValidationError]) -> list[Finding]:
    """One finding, about the first frame that could not be read, with how many more there are."""
    if not errors:
        return []
    first, more = errors[0].finding, f" (and {len(errors) - 1} more frames)" if len(errors) > 1 else ""
    found = f"{Path(first.path or '').name}: {first.found}{more}"
    return [first.placed(**{**_place(clip), "found": found})]
