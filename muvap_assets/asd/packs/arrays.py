"""The arrays of a shard: those of an earlier pack under a second name where they are the same, else preallocated.

An array is the same where an earlier one holds every track of the shard at the place the plan has for it, and nothing
else. A published file is never written to, so both packs may share it; what it holds is read back as everything is.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy.typing as npt

from muvap_assets.asd.packs.audio_writer import ArrayPlace
from muvap_assets.asd.packs.layout import (
    AUDIO_DTYPE,
    AUDIO_FILE,
    FACES_DTYPE,
    FACES_FILE,
    LABELS_DTYPE,
    LABELS_FILE,
)
from muvap_assets.asd.packs.plan import ShardPlan
from muvap_assets.asd.packs.reuse import FoundTrack, Span
from muvap_assets.media.npy import npy_header_bytes, preallocate_npy


@dataclass(frozen=True, slots=True)
class ShardFiles:
    """Where a shard's arrays are written; ``None`` for one that is shared with an earlier pack, and complete."""

    faces: ArrayPlace | None
    audio: ArrayPlace | None


def create_arrays(
    folder: Path, shard: ShardPlan, face_shape: tuple[int, int], found: Sequence[FoundTrack]
) -> ShardFiles:
    """Create the arrays of a shard in ``folder``, which is new; its labels are complete with that.

    Args:
        folder: of the shard.
        shard: the samples and lengths.
        face_shape: height and width.
        found: what an earlier pack holds of each sample, in the shard's order.

    Raises:
        OSError: ``folder`` exists, or the disk cannot hold it.
    """
    folder.mkdir()
    frame_bytes = math.prod(face_shape)
    faces = [(t.faces[0] if t.faces else None, t.placed.face_offset * frame_bytes) for t in found]
    audio = [(t.audio, t.placed.audio_offset * AUDIO_DTYPE.itemsize) for t in found]
    files = ShardFiles(
        _create(folder / FACES_FILE, FACES_DTYPE, (shard.frames, *face_shape), faces),
        _create(folder / AUDIO_FILE, AUDIO_DTYPE, (shard.audio_samples,), audio),
    )
    with (folder / LABELS_FILE).open("xb") as stream:
        stream.write(npy_header_bytes(LABELS_DTYPE, (shard.frames,)))
        for placed in shard.samples:
            stream.write(placed.clip.labels.tobytes())
    return files


def _create(
    path: Path, dtype: npt.DTypeLike, shape: tuple[int, ...], spans: Sequence[tuple[Span | None, int]]
) -> ArrayPlace | None:
    if _link(path, npy_header_bytes(dtype, shape), spans):
        return None
    return ArrayPlace(path, preallocate_npy(path, dtype, shape))


def _link(path: Path, header: bytes, spans: Sequence[tuple[Span | None, int]]) -> bool:
    """Give the one file that ``spans`` are of, each at its offset behind ``header``, a second name; false without one."""
    source, end = None, len(header)
    for span, start in spans:
        if span is None or source not in (None, span.path) or span.offset != len(header) + start:
            return False
        source, end = span.path, span.offset + span.size_bytes
    try:
        if source is None or not _is_file_of(source, header, end):
            return False
        os.link(source, path, follow_symlinks=False)
    except OSError:  # another disk, one that knows no second names, or a version that was removed meanwhile
        return False
    return True


def _is_file_of(source: Path, header: bytes, size: int) -> bool:
    status = source.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_size != size:
        return False
    with source.open("rb") as stream:
        return stream.read(len(header)) == header
