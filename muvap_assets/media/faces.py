"""Decoding faces: arrays of them in ``.npy`` files, and folders of JPEG crops.

What belongs here: what one file or folder holds, and its pixels. Whether that matches the labels is for the manifest and
the packs to say. cv2 is imported only to decode, so that validation and the code location never load it.

| kind           | holds                                     | becomes                                                     |
|----------------|-------------------------------------------|-------------------------------------------------------------|
| npy            | uint8 [T, H, W], C order                  | itself, byte for byte                                       |
| jpeg_directory | one JPEG a frame, named by its time stamp | ``IMREAD_GRAYSCALE``, then ``INTER_LINEAR`` to [112, 112]   |

cv2 has three ways to grey that differ by up to 16 levels; this one is what published packs hold.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding
from muvap_assets.media.npy import NpyError, NpyHeader, read_at, read_npy_header
from muvap_assets.threads import delivered

FACE_CONVERSION = (
    "npy: unchanged; jpeg_directory: cv2.IMREAD_GRAYSCALE, then cv2.INTER_LINEAR to 112x112; video_boxes: luma at full "
    "range, square about the box, grey 128 outside the picture and where there is no box, cv2.INTER_LINEAR to 112x112"
)
JPEG_PIXELS_MAX = 64_000_000
JPEG_BYTES_MAX = 1 << 26
_NAME_PATTERN = re.compile(r"[0-9]+(\.[0-9]+)?\.jpe?g", re.IGNORECASE | re.ASCII)
_OTHER_PICTURE = re.compile(r"\.(png|bmp|webp|tiff?|gif)$", re.IGNORECASE)
_OF_THE_SYSTEM = frozenset({"thumbs.db", "desktop.ini", "@eadir"})  # Windows and Synology put them into any folder
_FLOAT_EXACT = 15 + len(".") + len(".jpg")
_NAMES_SHOWN = 5
_SAMPLE_BYTES = 4096
_BETWEEN_SCANS = frozenset({0xC4, 0xDA, 0xDB, 0xDC, 0xDD, 0xFE, *range(0xE0, 0xF0)})
_WITHIN_SCANS = frozenset({0x00, *range(0xD0, 0xD8)})  # a stuffed byte, a restart


# --- arrays ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NpyFaces:
    """A face array on disk whose header was checked: uint8 [T, H, W], C order, as long as the header says."""

    path: Path
    shape: tuple[int, int, int]
    data_offset: int

    def read_into(self, first: int, out: npt.NDArray[np.uint8]) -> None:
        """Read frames ``first`` to ``first + len(out)`` into ``out``, uint8 [n, H, W], C-contiguous.

        Raises:
            ValidationError: the file went away, or became shorter, since its header was read.
        """
        delivered(self.path)
        offset = self.data_offset + first * self.shape[1] * self.shape[2]
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                count = read_at(descriptor, out, offset)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _unreadable(self.path, error) from error
        if count != out.nbytes:
            raise _unreadable(self.path, f"it ends within frame {first + count // out[0].nbytes} of {self.shape[0]}")

    def fingerprint(self) -> str:
        """The same for any two arrays of the same bytes, and hardly for any others: of the shape and three samples.

        Raises:
            ValidationError: the file cannot be read.
        """
        digest, size = hashlib.blake2b(repr(self.shape).encode(), digest_size=8), math.prod(self.shape)
        try:
            with self.path.open("rb", buffering=0) as stream:
                for at in (0, size // 2, max(size - _SAMPLE_BYTES, 0)):
                    stream.seek(self.data_offset + at)
                    digest.update(stream.read(_SAMPLE_BYTES))
        except OSError as error:
            raise _unreadable(self.path, error) from error
        return digest.hexdigest()


def open_npy_faces(path: Path) -> NpyFaces:
    """Check the header of a face array; no pixel is read.

    Raises:
        ValidationError: nothing is there, it is not a ``.npy`` file, or it is anything but uint8 [T, H, W] in C order with at
            least one frame. ``[H, W, T]`` cannot be told from ``[T, H, W]`` here; the label count tells.
    """
    try:
        header = read_npy_header(path)
    except FileNotFoundError as error:
        raise ValidationError(_missing(path)) from error
    except (OSError, NpyError) as error:
        raise _unreadable(path, error) from error
    if finding := _wrong_dtype(path, header) or _wrong_layout(path, header):
        raise ValidationError(finding)
    if wrong_length := header.wrong_length():
        raise _unreadable(path, wrong_length)
    frames, height, width = header.shape
    return NpyFaces(path, (frames, height, width), header.data_offset)


def _wrong_dtype(path: Path, header: NpyHeader) -> Finding | None:
    if header.dtype == np.uint8:
        return None
    if header.dtype.hasobject:
        return Finding(Code.FACES_DTYPE, path, "an object array: frames of unequal shape?", case="objects")
    return Finding(Code.FACES_DTYPE, path, f"dtype {header.dtype}", case="floats" if header.dtype.kind == "f" else "")


def _wrong_layout(path: Path, header: NpyHeader) -> Finding | None:
    shape, case = header.shape, ""
    found = f"shape {list(shape)}"
    if len(shape) == 4 and 1 in (shape[1], shape[-1]):
        case = "axis"
    elif len(shape) == 4 and shape[-1] in (3, 4):
        case = "colour"
    elif len(shape) == 2:
        case = "frame"
    elif len(shape) == 3 and 0 in shape:
        return Finding(Code.FACES_EMPTY, path, found)
    elif len(shape) == 3 and header.fortran_order:
        found, case = f"{found} in Fortran order", "order"
    elif len(shape) == 3:
        return None
    return Finding(Code.FACES_LAYOUT, path, found, case=case)


def _missing(path: Path) -> Finding:
    return Finding(Code.FACES_MISSING, path, "nothing is there")


def _unreadable(path: Path, reason: object) -> ValidationError:
    text = str(reason.strerror or reason) if isinstance(reason, OSError) else str(reason)
    case = "a folder" if text == "a folder" else "npz" if ".npz" in text else ""
    return ValidationError(Finding(Code.FACES_UNREADABLE, path, text, case=case))


# --- folders of JPEG crops --------------------------------------------------------------------------------------------


class FrameListing(NamedTuple):
    """The frame files of one folder in numeric order of their stems, and everything wrong with the folder."""

    names: tuple[str, ...]
    findings: tuple[Finding, ...]
    fingerprint: str = ""


def list_frames(folder: Path) -> FrameListing:
    """List the JPEG crops of a track; nothing is decoded.

    Sorted as numbers (``999.96.jpg`` before ``1000.00.jpg``), listed without patterns (a folder may be called
    ``dir[1]``). Hidden files and those that a system keeps in every folder (``Thumbs.db``, ``desktop.ini``, ``@eaDir``) are
    passed over; any other file is an error, since it may be a frame under a wrong name.

    Returns:
        Names within ``folder`` and what is wrong, all of it, one finding a kind. With any finding the names are not to be
        used; with none the fingerprint is the same for any two folders of the same pictures, and hardly for any others: it covers
        the size of each.
    """
    try:
        kinds = _scan(folder)
    except FileNotFoundError:
        return FrameListing((), (_missing(folder),))
    except NotADirectoryError:
        return FrameListing((), (Finding(Code.FACES_UNREADABLE, folder, "not a folder", case="not a folder"),))
    except OSError as error:
        return FrameListing((), (Finding(Code.FACES_UNREADABLE, folder, str(error.strerror), case="folder"),))
    return _quick_listing(kinds) or _listing(folder, sorted(kinds))


_Scanned: TypeAlias = tuple[str, Code | None, int]


def _scan(folder: Path) -> list[_Scanned]:
    """Every file that is not the system's: what is wrong with it by its name and size alone, and its size in bytes."""
    # Relative to an open folder: the path of each frame need not be walked anew for its size.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(descriptor) as entries:
            return [(entry.name, *_kind_of(entry)) for entry in entries if not _is_of_the_system(entry.name)]
    finally:
        os.close(descriptor)


def _is_of_the_system(name: str) -> bool:
    return name.startswith(".") or name.lower() in _OF_THE_SYSTEM


def _kind_of(entry: os.DirEntry[str]) -> tuple[Code | None, int]:
    if not _NAME_PATTERN.fullmatch(entry.name) or not entry.is_file():
        return Code.FRAME_NAME_INVALID, 0
    size = entry.stat().st_size
    return None if size else Code.FRAME_FILE_EMPTY, size


def _quick_listing(kinds: Sequence[_Scanned]) -> FrameListing | None:
    """The listing where nothing is wrong and every stem is short enough for a float to tell it from all others."""
    if not kinds or any(code is not None or len(name) > _FLOAT_EXACT for name, code, _ in kinds):
        return None
    by_stamp = {float(name.rpartition(".")[0]): (name, size) for name, _, size in kinds}
    if len(by_stamp) < len(kinds):
        return None
    names, sizes = zip(*(by_stamp[stamp] for stamp in sorted(by_stamp)), strict=True)
    return FrameListing(names, (), _fingerprint(sizes))


def _fingerprint(sizes: Sequence[int]) -> str:
    return hashlib.blake2b(array("q", sizes), digest_size=8).hexdigest()


def _listing(folder: Path, kinds: Sequence[_Scanned]) -> FrameListing:
    wrong: dict[Code, list[str]] = defaultdict(list)
    by_stamp: dict[Decimal, list[str]] = defaultdict(list)
    for name, code, _ in kinds:
        if code is not None:
            wrong[code].append(name)
        if code is not Code.FRAME_NAME_INVALID:
            by_stamp[_stamp(name)].append(name)
    duplicates = [name for names in by_stamp.values() if len(names) > 1 for name in names]
    if duplicates:
        wrong[Code.FRAME_NAME_DUPLICATE] = duplicates
    findings = [_wrong_names(code, folder, names) for code, names in sorted(wrong.items())]
    if not by_stamp and not wrong:
        findings.append(Finding(Code.FACES_EMPTY, folder, "no frame"))
    names = tuple(name for stamp in sorted(by_stamp) for name in by_stamp[stamp])
    sizes = {name: size for name, _, size in kinds}
    return FrameListing(names, tuple(findings), "" if findings else _fingerprint([sizes[name] for name in names]))


def _wrong_names(code: Code, folder: Path, names: Sequence[str]) -> Finding:
    pictures = [match[1].upper() for name in names if (match := _OTHER_PICTURE.search(name))]
    if code is not Code.FRAME_NAME_INVALID or not pictures:
        return Finding(code, folder, _shown(names))
    kinds = " and ".join(sorted(set(pictures)))
    finding = Finding(code, folder, _shown(names), case="pictures", kinds=kinds)
    return finding if len(pictures) == len(names) else finding.advised(code.hint)


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(repr(name) for name in names[:_NAMES_SHOWN]) + more


def _stamp(name: str) -> Decimal:
    return Decimal(name.rpartition(".")[0])


def stamp_gaps(names: Sequence[str]) -> list[tuple[str, str]]:
    """Neighbours that lie more than one and a half usual steps apart: where a frame is missing.

    ``names`` are those of a :class:`FrameListing`; the usual step is the median one.
    """
    stamps = [_stamp(name) for name in names]
    steps = [later - earlier for earlier, later in pairwise(stamps)]
    if len(steps) < 2:
        return []
    limit = sorted(steps)[len(steps) // 2] * 3 / 2
    return [(names[i], names[i + 1]) for i, step in enumerate(steps) if step > limit]


# --- one JPEG -----------------------------------------------------------------------------------------------------------


def load_decoder() -> None:
    """Import cv2. Call it once before decoding in threads: its import is not safe in two at a time."""
    import cv2  # noqa: F401 - only who decodes pays for it


def read_jpeg(path: Path) -> bytes:
    """The bytes of a JPEG file, one more than :data:`JPEG_BYTES_MAX` at most.

    Raises:
        ValidationError: it cannot be read.
    """
    delivered(path)
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            # As much as there is, never as much as could be: a buffer of the limit's size for each frame is slow.
            return os.read(descriptor, min(os.fstat(descriptor).st_size, JPEG_BYTES_MAX + 1))
        finally:
            os.close(descriptor)
    except FileNotFoundError as error:
        raise ValidationError(_missing(path)) from error
    except OSError as error:
        raise _bad_jpeg(path, error.strerror or str(error)) from error


def decode_jpeg_gray(data: bytes, out: npt.NDArray[np.uint8], where: Path) -> None:
    """Decode one whole JPEG to grey and resize it into ``out``, uint8 [112, 112], C-contiguous.

    ``IMREAD_GRAYSCALE``, then ``INTER_LINEAR``. The file's frame is checked first: cv2 fills what is missing of a
    truncated picture with grey and calls it decoded. Bytes behind its end are passed over. ``where`` is named in messages.

    Raises:
        ValidationError: it is not a JPEG, has no end marker, is above 64 megapixels, or cannot be decoded.
    """
    import cv2

    if wrong := _wrong_with(data):
        raise _bad_jpeg(where, wrong)
    try:
        grey = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
    except cv2.error as error:
        raise _bad_jpeg(where, f"cv2 refuses it ({str(error).strip().splitlines()[0]})") from error
    if grey is None:
        raise _bad_jpeg(where, "cv2 cannot decode it")
    cv2.resize(grey, (out.shape[1], out.shape[0]), dst=out, interpolation=cv2.INTER_LINEAR)


_JPEG_START = b"\xff\xd8"
_FIRST_BYTES = 8
_OTHER_STARTS = {b"\x89PNG": "PNG", b"GIF8": "GIF", b"BM": "BMP", b"RIFF": "WebP"}


def not_jpeg(folder: Path, names: Sequence[str]) -> Finding | None:
    """The finding that some of the files, by their first bytes, are no JPEGs whatever their names say; the first is named.

    Eight bytes of each file are read. One that cannot be read is left to whoever decodes it.
    """
    others = [(name, start) for name in names if not (start := _first_bytes(folder, name)).startswith(_JPEG_START)]
    if not others:
        return None
    name, start = others[0]
    more = f" (and {len(others) - 1} more files)" if len(others) > 1 else ""
    return Finding(Code.FACES_UNREADABLE, folder, f"{name}: {_no_jpeg(start)}{more}", case="not jpeg")


def _first_bytes(folder: Path, name: str) -> bytes:
    try:
        descriptor = os.open(f"{folder}/{name}", os.O_RDONLY)
        try:
            return os.read(descriptor, _FIRST_BYTES)
        finally:
            os.close(descriptor)
    except OSError:
        return _JPEG_START


def _no_jpeg(data: bytes) -> str:
    kind = next((f", as a {kind} does" for start, kind in _OTHER_STARTS.items() if data.startswith(start)), "")
    return f"no JPEG, it begins with {data[:_FIRST_BYTES]!r}{kind}"


def _wrong_with(data: bytes) -> str | None:
    if not data:
        return "an empty file (0 bytes)"
    if len(data) > JPEG_BYTES_MAX:
        return f"more than {JPEG_BYTES_MAX >> 20} MiB"
    if not data.startswith(_JPEG_START):
        return _no_jpeg(data)
    size, scan = _jpeg_size(data)
    if size is None:
        return "a JPEG cut within its header"
    if not 0 < size[0] * size[1] <= JPEG_PIXELS_MAX:
        return f"{size[0]}x{size[1]} pixels, at most {JPEG_PIXELS_MAX} are decoded"
    # A scan holds a byte at least: an end marker right at its beginning is that of a picture without any.
    if not data.endswith(b"\xff\xd9", scan + 1) and not _ends_within(data, scan + 1):
        return f"a JPEG without end marker, cut short at {len(data)} bytes"
    return None


def _ends_within(data: bytes, scan: int) -> bool:
    """Whether the picture whose first scan begins at ``scan`` ends before the file does.

    What lies behind its end (padding, a second picture, data of a camera) is passed over by every decoder.
    """
    while 0 <= (at := data.find(b"\xff", scan)) < len(data) - 1:
        kind, scan = data[at + 1], at + 1
        if kind in _BETWEEN_SCANS:
            scan += 1 + int.from_bytes(data[at + 2 : at + 4])
        elif kind != 0xFF and kind not in _WITHIN_SCANS:
            return kind == 0xD9
    return False


def _jpeg_size(data: bytes) -> tuple[tuple[int, int] | None, int]:
    """(height, width) from the frame header, and where the first scan begins; ``None`` where it has neither."""
    position, size = 2, None
    while position + 4 <= len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF:  # fill byte
            position += 1
            continue
        length = int.from_bytes(data[position + 2 : position + 4])
        if marker == 0xDA:
            return size, position + 2 + length
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC) and position + 9 <= len(data):
            size = (
                int.from_bytes(data[position + 5 : position + 7]),
                int.from_bytes(data[position + 7 : position + 9]),
            )
        position += 2 + length
    return None, position


def _bad_jpeg(where: Path, found: str) -> ValidationError:
    return ValidationError(Finding(Code.FACES_UNREADABLE, where, found, case="jpeg"))
