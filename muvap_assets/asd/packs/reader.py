"""Reading a pack: the index and the arrays are mapped, a sample is a set of views, and nothing is copied."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.packs.layout import (
    ARROW_FILE,
    AUDIO_DTYPE,
    AUDIO_FILE,
    FACES_DTYPE,
    FACES_FILE,
    LABELS_DTYPE,
    LABELS_FILE,
    PackEntry,
    PackHeader,
    damaged,
    entry_at,
    map_index,
    read_header,
    shard_name,
)
from muvap_assets.asd.packs.mapping import map_npy
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.codes import Code
from muvap_assets.errors import FormatError
from muvap_assets.findings import Finding
from muvap_assets.media.npy import NpyError, read_npy_header
from muvap_assets.readback import published_folder, require_plain

MAPPED_SHARDS = 8192
"""Of one pack at a time, three maps each: Linux gives a process 65,530. Views in use keep the map they are of."""

_EXPECTED = ((FACES_FILE, FACES_DTYPE, 3), (AUDIO_FILE, AUDIO_DTYPE, 1), (LABELS_FILE, LABELS_DTYPE, 1))


@dataclass(frozen=True, slots=True)
class PackedSample:
    """One sample: its index entry, and read-only views of mapped files.

    ``faces`` is uint8 [source_frames, H, W], ``labels`` uint8 [source_frames], ``audio`` int16 [audio_samples] at 16 kHz.
    """

    entry: PackEntry
    faces: npt.NDArray[np.uint8]
    audio: npt.NDArray[np.int16]
    labels: npt.NDArray[np.uint8]

    @property
    def source_fps(self) -> FrameRate:
        """The native frame rate as it was given, exactly."""
        return FrameRate.parse(self.entry.source_fps_exact)

    @property
    def start_sec(self) -> Fraction:
        """Where on its recording the sample begins, exactly."""
        return Fraction(self.entry.start_sec_exact)


@dataclass(frozen=True, slots=True)
class ShardArrays:
    """A shard's arrays, mapped and read-only: uint8 [frames, H, W], int16 [samples], uint8 [frames]."""

    faces: npt.NDArray[np.uint8]
    audio: npt.NDArray[np.int16]
    labels: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class ShardLengths:
    """Frames and audio samples that the arrays of a shard hold."""

    frames: int
    audio_samples: int


class PackReader:
    """A pack as a sequence of :class:`PackedSample`.

    Every offset is checked against the files when it is opened, so that no view lies outside of them. Shards are mapped
    when first used; a map keeps no file open, so that a pack of any number of shards takes one descriptor, that of its
    index. A pickled reader carries its path alone and opens again where it arrives; a forked one shares its maps.
    """

    def __init__(self, path: Path) -> None:
        """Open the pack in folder ``path``.

        Raises:
            FormatError: it is no pack of this format and version, or its files and its index disagree.
        """
        # Resolved, so that shards opened later come from the version that was opened, wherever ``current`` points by then.
        self.path = published_folder(Path(path))
        self.header: PackHeader = read_header(self.path)
        require_plain(self.path)
        self._index = map_index(self.path)
        if self._index.num_rows != self.header.samples:
            found = f"{self._index.num_rows} rows"
            raise damaged(self.path / ARROW_FILE, found, f"{self.header.samples}, the samples of the header")
        lengths = [shard_lengths(self.path, shard, self.header.face_shape) for shard in range(self.header.shards)]
        self._check_bounds(lengths)
        # Of the path, not of the reader: a cycle would keep its maps until the garbage collector runs.
        self._mapped = lru_cache(maxsize=MAPPED_SHARDS)(partial(_map_shard, self.path))
        self._positions: dict[str, int] | None = None

    def __len__(self) -> int:
        return int(self._index.num_rows)

    def __getitem__(self, position: int) -> PackedSample:
        """The sample at ``position``.

        Raises:
            IndexError: there is none.
        """
        entry = self.entry(position)
        arrays = self.arrays(entry.shard)
        frames = slice(entry.face_offset, entry.face_offset + entry.source_frames)
        samples = slice(entry.audio_offset, entry.audio_offset + entry.audio_samples)
        return PackedSample(entry, arrays.faces[frames], arrays.audio[samples], arrays.labels[frames])

    def __iter__(self) -> Iterator[PackedSample]:
        return (self[position] for position in range(len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return (PackReader, (self.path,))

    def entry(self, position: int) -> PackEntry:
        """The index entry at ``position``, without touching its arrays.

        Raises:
            IndexError: there is none.
        """
        position = operator.index(position)
        if not -len(self) <= position < len(self):
            raise IndexError(f"{self.path}: sample {position}; required: one of {len(self)}. Use range(len(reader)).")
        return entry_at(self._index, position % len(self))

    def column(self, name: str) -> npt.NDArray[Any]:
        """One numeric column of the index, [samples], in the order of the samples; mapped where its type allows.

        Raises:
            KeyError: there is no such column.
        """
        return np.asarray(self._index.column(name).to_numpy(zero_copy_only=False))

    def text_column(self, name: str) -> Any:
        """One string column of the index as a mapped Arrow array.

        Raises:
            KeyError: there is no such column.
        """
        return self._index.column(name)

    def position_of(self, sample_id: str) -> int:
        """Where a sample lies in the pack. The first call reads all ids.

        Raises:
            KeyError: there is no such sample.
        """
        if self._positions is None:
            ids = self._index.column("sample_id").to_pylist()
            self._positions = {sample_id: position for position, sample_id in enumerate(ids)}
        return self._positions[sample_id]

    def arrays(self, shard: int) -> ShardArrays:
        """The arrays of a shard, mapped when first used; from any thread.

        Raises:
            FormatError: they are gone, or not what they were when the pack was opened.
        """
        return self._mapped(shard)

    def _check_bounds(self, lengths: list[ShardLengths]) -> None:
        shards = self.column("shard")
        if len(shards) and not 0 <= int(shards.min()) <= int(shards.max()) < len(lengths):
            found = f"shards {shards.min()} to {shards.max()}"
            raise damaged(self.path / ARROW_FILE, found, f"0 to {len(lengths) - 1}")
        frames = np.array([length.frames for length in lengths], np.int64)
        samples = np.array([length.audio_samples for length in lengths], np.int64)
        for offset, count, available in (
            ("face_offset", "source_frames", frames),
            ("label_offset", "source_frames", frames),
            ("audio_offset", "audio_samples", samples),
        ):
            starts, counts = self.column(offset), self.column(count)
            # Compared by what is left, since a damaged offset plus a count may overflow.
            outside = (starts < 0) | (counts < 0) | (counts > available[shards] - starts)
            if outside.any():
                first = self.entry(int(outside.argmax()))
                found = f"{first.sample_id}: {offset} {getattr(first, offset)} and {count} {getattr(first, count)}"
                required = f"a place within the {available[first.shard]} of {shard_name(first.shard)}"
                raise damaged(self.path / ARROW_FILE, found, required)


def _map_shard(path: Path, shard: int) -> ShardArrays:
    folder = path / shard_name(shard)
    for name, _, _ in _EXPECTED:
        require_plain(path, f"{folder.name}/{name}")
    try:
        return ShardArrays(*(map_npy(folder / name) for name, _, _ in _EXPECTED))
    except (OSError, ValueError) as error:
        found = f"not what it was when the pack was opened ({error})"
        if isinstance(error, FileNotFoundError):
            found = "gone since the pack was opened: maintenance removed this version, or somebody did"
        finding = Finding(Code.ARTIFACT_INVALID, folder, found, case="gone")
        raise FormatError(finding.placed(source=folder.name)) from error


def shard_lengths(path: Path, shard: int, face_shape: tuple[int, int]) -> ShardLengths:
    """Check the three arrays of a shard by their headers and sizes.

    Raises:
        FormatError: one is missing, cut short, or of another type or shape.
    """
    lengths = {}
    for name, dtype, dimensions in _EXPECTED:
        file = path / shard_name(shard) / name
        try:
            header = read_npy_header(file)
        except (OSError, NpyError) as error:
            found = "missing" if isinstance(error, FileNotFoundError) else str(error)
            raise damaged(file, found) from error
        if header.dtype != dtype or len(header.shape) != dimensions or header.fortran_order:
            order = " in Fortran order" if header.fortran_order else ""
            found = f"{header.dtype} {list(header.shape)}{order}"
            raise damaged(file, found, f"{dtype} of {dimensions} dimensions in C order")
        if length := header.wrong_length():
            raise damaged(file, length)
        lengths[name] = header.shape
    if lengths[FACES_FILE][1:] != face_shape:
        found = f"faces of {list(lengths[FACES_FILE][1:])}"
        raise damaged(path / shard_name(shard) / FACES_FILE, found, str(list(face_shape)))
    if lengths[LABELS_FILE][0] != lengths[FACES_FILE][0]:
        found = f"{lengths[LABELS_FILE][0]} labels"
        raise damaged(path / shard_name(shard) / LABELS_FILE, found, f"{lengths[FACES_FILE][0]}, one a frame")
    return ShardLengths(lengths[FACES_FILE][0], lengths[AUDIO_FILE][0])
