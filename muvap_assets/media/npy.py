"""The header of one ``.npy`` file: read without trusting it, written for an array that is filled in place later.

What belongs here: the container alone. What an array means (faces, a waveform) is its reader's business.
Objects are never unpickled: an array of Python objects has dtype ``object`` here and is refused by whoever wants numbers.
"""

from __future__ import annotations

import math
import os
import re
import stat
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_MAGIC = b"\x93NUMPY"
_HEADER_BYTES_MAX = 1 << 16
_DESCRIPTION = re.compile(r"""(["'])descr\1\s*:\s*(["'])(?P<dtype>[^"']{1,100})\2""")
_FIELDS = re.compile(r"""(["'])descr\1\s*:\s*\[""")
_ORDER = re.compile(r"""(["'])fortran_order\1\s*:\s*(?P<fortran>True|False)\b""")
_SHAPE = re.compile(r"""(["'])shape\1\s*:\s*\((?P<lengths>\s*(?:\d{1,18}L?\s*(?:,\s*|(?=\))))*)\)""")


class NpyError(ValueError):
    """The file is not a ``.npy`` file this package reads; the message says what was found, without the path."""


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What a ``.npy`` file says about itself, and how long it really is."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran_order: bool
    data_offset: int
    file_bytes: int

    @property
    def promised_bytes(self) -> int:
        """How long a file with this header has to be."""
        return self.data_offset + math.prod(self.shape) * self.dtype.itemsize

    def wrong_length(self) -> str | None:
        """What is wrong with the file's length, or ``None``."""
        if self.file_bytes == self.promised_bytes:
            return None
        kind = "cut short" if self.file_bytes < self.promised_bytes else "longer than its header says"
        return f"{kind}: {self.file_bytes} bytes, its header promises {self.promised_bytes}"


def read_npy_header(path: Path) -> NpyHeader:
    """Read the header of a ``.npy`` file, and nothing after it.

    Raises:
        FileNotFoundError: nothing is there.
        OSError: it cannot be opened.
        NpyError: it is not a regular file, or not a ``.npy`` file of format 1.0 or 2.0.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for ever
        raise NpyError("a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file")
    with path.open("rb") as stream:
        start = stream.read(_HEADER_BYTES_MAX)
    if not start:
        raise NpyError("an empty file (0 bytes)")
    if start.startswith(b"PK\x03\x04"):
        raise NpyError("a zip archive (.npz?)")
    if not start.startswith(_MAGIC):
        raise NpyError(f"no .npy file, it begins with {start[:8]!r}")
    return _parse(start, status.st_size)


def _parse(start: bytes, file_bytes: int) -> NpyHeader:
    """Read the header's text as text: numpy evaluates it, which threads must not do at the same time (CPython gh-106905)."""
    length_bytes = {b"\x01\x00": 2, b"\x02\x00": 4}.get(start[6:8])
    if length_bytes is None:
        raise NpyError(f"a .npy file of format {tuple(start[6:8])}")
    first = 8 + length_bytes
    end = first + int.from_bytes(start[8:first], "little")
    if len(start) < end:
        raise NpyError("a damaged .npy header (it ends early)")
    text = start[first:end].decode("latin-1").strip()
    if not (text.startswith("{") and text.endswith("}")):
        raise NpyError(f"a damaged .npy header ({text[:40]!r})")
    description, order, shape = (pattern.search(text) for pattern in (_DESCRIPTION, _ORDER, _SHAPE))
    if description is None and _FIELDS.search(text):
        return NpyHeader(np.dtype("V"), (), False, end, file_bytes)  # a structured array: nobody here wants its fields
    if description is None or order is None or shape is None:
        raise NpyError(f"a damaged .npy header ({text[:60]!r})")
    try:
        dtype = np.dtype(description["dtype"])
    except (TypeError, ValueError, SyntaxError) as error:
        raise NpyError(f"a damaged .npy header ({error})") from error
    lengths = tuple(int(length) for length in re.findall(r"\d+", shape["lengths"]))
    return NpyHeader(dtype, lengths, order["fortran"] == "True", end, file_bytes)


def npy_header_bytes(dtype: npt.DTypeLike, shape: tuple[int, ...]) -> bytes:
    """The header :func:`numpy.save` would write for a C-contiguous array; a multiple of 64 bytes."""
    stream = BytesIO()
    description = np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(stream, {"descr": description, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def preallocate_npy(path: Path, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> int:
    """Create a ``.npy`` file of zeros whose blocks are reserved on disk, to be filled in place.

    Returns:
        The offset of its data in bytes.

    Raises:
        OSError: it exists, or the disk cannot hold it: found out now, not after hours of decoding.
    """
    header = npy_header_bytes(dtype, shape)
    size = len(header) + math.prod(shape) * np.dtype(dtype).itemsize
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        os.posix_fallocate(descriptor, 0, size)
        os.pwrite(descriptor, header, 0)
    finally:
        os.close(descriptor)
    return len(header)


def write_at(descriptor: int, data: npt.NDArray[Any], offset: int) -> None:
    """Write all of ``data`` (C-contiguous) at ``offset``; one system call may write less than it is given."""
    view = data.reshape(-1).view(np.uint8).data
    while len(view):
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def read_at(descriptor: int, buffer: npt.NDArray[np.uint8], offset: int) -> int:
    """Fill ``buffer`` (uint8, C-contiguous) from ``offset``; returns fewer bytes only where the file ends.

    Read, not mapped: mapped pages count as this process' memory.
    """
    view, done = buffer.reshape(-1).data, 0
    while done < len(view):
        count = os.preadv(descriptor, [view[done:]], offset + done)
        if count == 0:
            break
        done += count
    return done
