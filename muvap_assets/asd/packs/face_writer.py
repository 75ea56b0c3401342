"""Faces of a pack: blocks of frames, read or decoded by any thread, each put where the plan says."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.contract import FACE_SIZE, Clip, VisualKind
from muvap_assets.asd.packs.layout import crc32_join
from muvap_assets.asd.packs.plan import Placed
from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding, Place
from muvap_assets.media.faces import NpyFaces, decode_jpeg_gray, list_frames, open_npy_faces, read_jpeg, stamp_gaps
from muvap_assets.media.npy import write_at
from muvap_assets.threads import delivered, watched

BLOCK_BYTES = 1 << 20
_GAPS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class JpegFaces:
    """The listed JPEG crops of one clip."""

    folder: Path
    names: tuple[str, ...]


FaceSource: TypeAlias = NpyFaces | JpegFaces
"""Faces that were found to be what the manifest says. Holds no open file, however many clips are in work."""


def read_faces(source: FaceSource, first: int, out: npt.NDArray[np.uint8]) -> tuple[list[Finding], bytes]:
    """Read frames from ``first`` into ``out``, uint8 [n, H, W].

    Returns:
        Everything that is wrong, and the SHA-256 digests of the pieces that were read: each JPEG, or the array's part.
    """
    try:
        return watched(lambda: _read_faces(source, first, out))
    except ValidationError as error:
        return [error.finding], b""


def _read_faces(source: FaceSource, first: int, out: npt.NDArray[np.uint8]) -> tuple[list[Finding], bytes]:
    findings, digests = list[Finding](), []
    if isinstance(source, NpyFaces):
        try:
            source.read_into(first, out)
        except ValidationError as error:
            return [error.finding], b""
        return [], hashlib.sha256(out.data).digest()
    for i, name in enumerate(source.names[first : first + len(out)]):
        path = source.folder / name
        try:
            data = read_jpeg(path)
            decode_jpeg_gray(data, out[i], path)
            digests.append(hashlib.sha256(data).digest())
        except ValidationError as error:
            findings.append(error.finding)
    return findings, b"".join(digests)


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
    try:
        source, findings = watched(lambda: _opened(clip, clip.visual_file(root)))
    except ValidationError as error:
        source, findings = None, list(error.findings)
    return source, [of_faces(clip, finding) for finding in findings]


def _opened(clip: Clip, path: Path) -> tuple[FaceSource | None, list[Finding]]:
    source: FaceSource
    delivered(path)
    shape = (clip.face_height, clip.face_width)
    if clip.visual_kind is VisualKind.JPEG_DIRECTORY:
        if shape != (FACE_SIZE, FACE_SIZE):
            return None, [wrong_shape(path, shape, (FACE_SIZE, FACE_SIZE), "resized")]
        listing = list_frames(path)
        if listing.findings:
            return None, list(listing.findings)
        source, frames = JpegFaces(path, listing.names), len(listing.names)
    else:
        try:
            source = open_npy_faces(path)
        except ValidationError as error:
            return None, list(error.findings)
        frames = source.shape[0]
    if frames != clip.source_frames:
        gaps = _gaps(source.names) if isinstance(source, JpegFaces) else ""
        found = f"labels has {clip.source_frames} entries, faces has {frames} frames{gaps}"
        return None, [Finding(Code.LABEL_COUNT_MISMATCH, path, found, case="packed")]
    if isinstance(source, NpyFaces) and source.shape[1:] != shape:
        return None, [wrong_shape(path, source.shape[1:], shape)]
    return source, []


def wrong_shape(where: Place | Path, found: tuple[int, int], required: tuple[int, int], case: str = "") -> Finding:
    """The finding that faces have another height or width than they should."""
    shapes = ["x".join(map(str, shape)) for shape in (found, required)]
    return Finding(Code.FACE_SHAPE_MISMATCH, where, f"faces of {shapes[0]}", case=case, required=shapes[1])


def of_faces(clip: Clip, finding: Finding) -> Finding:
    """A finding about the file or folder of a clip's faces, in the clip's place."""
    return finding.of_file(clip.visual_path, row=clip.row, sample_id=clip.sample_id, field="visual_path")


def _gaps(names: tuple[str, ...]) -> str:
    gaps = stamp_gaps(names)
    shown = ", ".join(f"between {earlier!r} and {later!r}" for earlier, later in gaps[:_GAPS_SHOWN])
    return f" (missing {shown}{' and elsewhere' if len(gaps) > _GAPS_SHOWN else ''})" if gaps else ""


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
    findings: tuple[Finding, ...]


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
            findings, pieces = read_faces(block.source, block.first, frames)
            if findings:
                if is_stuck(findings):
                    buffer = np.empty_like(buffer)  # the decoder may still write to the other one
                return WrittenBlock(block, 0, frames.nbytes, b"", tuple(findings))
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
    findings: list[Finding] = field(default_factory=list)
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
            self.findings.extend(ready.findings)
            self._digest.update(ready.pieces)
            self._next += 1
        return self.frames == self.clip.source_frames

    @property
    def content(self) -> str:
        """A digest over what the faces were made from, piece after piece in frame order."""
        return self._digest.hexdigest()

    @property
    def pictures_are_bad(self) -> bool:
        """Whether all that is wrong are pictures that do not decode: the files themselves are those of the manifest."""
        of_pictures = self.clip.visual_kind is VisualKind.JPEG_DIRECTORY
        return of_pictures and {finding.code for finding in self.findings} <= {
            Code.FACES_UNREADABLE,
            Code.DECODER_STUCK,
        }


def decode_findings(clip: Clip, root: Path) -> list[Finding]:
    """What reading all faces of a clip finds, just as packing it would; memory holds one block.

    Boxes of a video are not looked at: a manifest is made of the decoded video.
    """
    if clip.visual_kind is VisualKind.VIDEO_BOXES:
        return []
    source, findings = open_faces(clip, root)
    if source is None:
        return findings
    step = frames_per_block(clip.face_height, clip.face_width)
    frames = np.empty((min(step, clip.source_frames), clip.face_height, clip.face_width), np.uint8)
    for first in range(0, clip.source_frames, step):
        findings += read_faces(source, first, frames[: clip.source_frames - first])[0]
        if is_stuck(findings):
            break
    return joined_findings(clip, findings)


def is_stuck(findings: Iterable[Finding]) -> bool:
    """Whether a decoder was left behind that may still come back."""
    return any(finding.code is Code.DECODER_STUCK for finding in findings)


def joined_findings(clip: Clip, findings: Sequence[Finding]) -> list[Finding]:
    """One finding, about the first frame that could not be read, with how many more there are."""
    if not findings:
        return []
    first, more = findings[0], f" (and {len(findings) - 1} more frames)" if len(findings) > 1 else ""
    frame = f"{Path(first.path or '').name}: " if clip.visual_kind is VisualKind.JPEG_DIRECTORY else ""
    return [of_faces(clip, first.placed(found=f"{frame}{first.found}{more}"))]
