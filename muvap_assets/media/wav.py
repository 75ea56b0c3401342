"""Reads WAV files by their bytes: where the samples lie, how many there are, and what they are as float32.

RIFF, RIFX, RF64 and BW64; PCM of 8 to 32 bits and floating point. Optional chunks are passed over, damaged or not.
A declared length counts only where the bytes agree with it:

| data size says          | samples                                                                                     |
|-------------------------|---------------------------------------------------------------------------------------------|
| 0 or 0xFFFFFFFF         | to the end of the file, less RIFF chunks and an ID3v1 tag at its end                         |
| more than there is      | the whole frames that are there, likewise, and a note with both counts                       |
| less than there is      | as declared where RIFF chunks, a pad byte or an ID3v1 tag follow; refused otherwise          |

Sources: the RIFF specification of 1991, EBU Tech 3306 (RF64, the 64-bit sizes of ``ds64``) and ksmedia.h (WAVEX, masks).
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np
import numpy.typing as npt

UNKNOWN_SIZE = 0xFFFFFFFF
MAX_CHUNKS = 4096
"""Chunks before or after the samples; a file of millions of empty ones would take hours."""

MAX_CHANNELS = 1024
_TRAILER_WINDOW = 1 << 24
_RESYNC_WINDOW, _RESYNC_TRIES = 1 << 16, 16
_ID3V1_BYTES = 128
_GUID_TAILS = (bytes.fromhex("800000aa00389b71"), bytes.fromhex("8644c8c1ca000000"))  # plain, and of ambisonic files
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_FORMATS = {2: "MS_ADPCM", 6: "ALAW", 7: "ULAW", 0x11: "IMA_ADPCM", 0x31: "GSM610", 0x50: "MPEG", 0x55: "MP3"}
_SUBTYPES = {
    **{(_PCM, 1): "PCM_U8", (_PCM, 2): "PCM_16", (_PCM, 3): "PCM_24", (_PCM, 4): "PCM_32"},
    **{(_FLOAT, 4): "FLOAT", (_FLOAT, 8): "DOUBLE"},
}
_SPEAKERS = (
    *("FL", "FR", "FC", "LFE", "BL", "BR", "FLC", "FRC", "BC"),
    *("SL", "SR", "TC", "TFL", "TFC", "TFR", "TBL", "TBC", "TBR"),
)
# Chunks that stand behind samples; of others only a chain that ends with the file is one.
_OPTIONAL = (
    *(
        b"LIST",
        b"INFO",
        b"id3 ",
        b"ID3 ",
        b"bext",
        b"iXML",
        b"axml",
        b"chna",
        b"_PMX",
        b"fact",
        b"PEAK",
        b"cue ",
        b"plst",
    ),
    *(
        b"smpl",
        b"inst",
        b"acid",
        b"strc",
        b"cart",
        b"DISP",
        b"afsp",
        b"JUNK",
        b"junk",
        b"PAD ",
        b"FLLR",
        b"umid",
        b"levl",
    ),
)
_OPTIONAL_PATTERN = re.compile(b"|".join(map(re.escape, _OPTIONAL)))

REWRITE_HINT = (
    "If all that follows is sound, `ffmpeg -ignore_length 1 -i INPUT -c:a copy OUTPUT.wav` writes the header anew; else "
    "export it again."
)

Read = Callable[[int, int], bytes]


class WavError(ValueError):
    """The file is no WAV this package reads; the message says what was found, without the path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WavHeader:
    """What a WAV file holds, as far as its bytes bear it out.

    ``container`` is ``WAV``, ``WAVEX`` (extensible) or ``RF64``. ``subtype`` is the sample type, or the name of an encoding
    that is not read here, with ``frames`` 0. ``speakers`` names the channels as ffmpeg does, ``NONE`` where nothing says
    which is which. Samples lie from byte ``offset`` on. ``promised_frames`` is not ``None`` where it is more than ``frames``.
    """

    container: str
    subtype: str
    rate_hz: int
    channels: int
    speakers: tuple[str, ...]
    big_endian: bool
    offset: int
    frames: int
    promised_frames: int | None

    @property
    def is_plain(self) -> bool:
        """Whether it holds PCM or floating point, and not a compressed encoding."""
        return self.subtype in _SUBTYPES.values()

    @property
    def frame_bytes(self) -> int:
        """Bytes of one sample of every channel."""
        return self.channels * next(width for (_, width), name in _SUBTYPES.items() if name == self.subtype)


def read_wav_header(read: Read, size: int, start: int = 0) -> WavHeader:
    """Read the chunks of a file of ``size`` bytes from ``start``, where ``RIFF`` stands; ``read`` takes position and count.

    Raises:
        WavError: it has no format or no samples, the two contradict each other, or more follows the declared samples than
            chunks and a tag.
        OSError: it cannot be read.
    """
    order: Literal["little", "big"] = "big" if read(start, 4) == b"RIFX" else "little"
    return _Parser(read, size, order, is_64_bit=read(start, 4) in (b"RF64", b"BW64")).parse(start + 12)


class _Parser:
    """Walks the chunks of one file."""

    def __init__(self, read: Read, size: int, order: Literal["little", "big"], *, is_64_bit: bool) -> None:
        self._read, self._size, self._order, self._is_64_bit = read, size, order, is_64_bit
        self._format = b""
        self._data_bytes = 0

    def parse(self, at: int) -> WavHeader:
        previous = at
        for _ in range(MAX_CHUNKS):
            name, size = self._chunk(at)
            if name == b"data":
                return self._header(at + 8, size)
            if not _is_name(name) or at + 8 + size > self._size:
                found = self._resynchronized(previous)
                if found is None:
                    reason = "it ends before its samples" if len(name) < 4 else f"a chunk {name!r} of {size:,} bytes"
                    raise WavError(f"a damaged WAV header ({reason}, at byte {at:,} of {self._size:,})")
                at = found
                continue
            if name == b"fmt ":
                self._format = self._read(at + 8, min(size, 40))
            elif name == b"ds64":
                self._data_bytes = int.from_bytes(self._read(at + 16, 8), self._order)
            previous, at = at, at + 8 + size + size % 2
        raise WavError(f"a WAV of more than {MAX_CHUNKS} chunks before its samples")

    def _chunk(self, at: int) -> tuple[bytes, int]:
        header = self._read(at, 8)
        return header[:4], int.from_bytes(header[4:], self._order)

    def _resynchronized(self, damaged: int) -> int | None:
        """Where the samples' chunk stands behind one whose size is wrong, if its own size agrees with the file."""
        window = self._read(damaged + 8, _RESYNC_WINDOW)
        for match in islice(re.finditer(b"data", window), _RESYNC_TRIES) if self._format else ():
            at = damaged + 8 + match.start()
            size = self._chunk(at)[1]
            if 0 < size <= self._size - at - 8 and self._is_trailer(at + 8 + size, self._size):
                return at
        return None

    def _header(self, offset: int, declared: int) -> WavHeader:
        if len(self._format) < 16:
            raise WavError("a damaged WAV header (no format before its samples)")
        prefix = ">" if self._order == "big" else "<"
        tag, channels, rate_hz, _, align, bits = struct.unpack_from(f"{prefix}HHIIHH", self._format)
        container, mask = "RF64" if self._is_64_bit else "WAV", 0
        if tag == _EXTENSIBLE:
            container = container if self._is_64_bit else "WAVEX"
            if len(self._format) < 40:
                raise WavError("a damaged WAV header (its extensible format is cut short)")
            mask, tag = struct.unpack_from(f"{prefix}II", self._format, 20)
            tag = tag if self._format[32:40] in _GUID_TAILS else -1
        width = (bits + 7) // 8
        subtype = _SUBTYPES.get((tag, width)) or _FORMATS.get(
            tag, f"encoding {tag:#06x}" if tag >= 0 else "an encoding by GUID"
        )
        known = tag in (_PCM, _FLOAT)
        if not 1 <= channels <= MAX_CHANNELS or (known and (tag, width) not in _SUBTYPES):
            raise WavError(f"a WAV of {channels} channels and {bits} bits a sample")
        if known and align not in (0, channels * width):
            raise WavError(f"a WAV whose frames have {align} bytes, and {channels} channels of {bits} bits")
        if self._is_64_bit and declared in (0, UNKNOWN_SIZE):
            declared = self._data_bytes if self._data_bytes < 1 << 63 else 0
        frame_bytes = channels * width if known else max(align, 1)
        count = self._sample_bytes(offset, declared)
        frames, promised = (size // frame_bytes if known else 0 for size in (count, declared))
        return WavHeader(
            container=container,
            subtype=subtype,
            rate_hz=rate_hz,
            channels=channels,
            speakers=_speakers(channels, mask),
            big_endian=self._order == "big",
            offset=offset,
            frames=frames,
            promised_frames=promised if promised > frames and declared != UNKNOWN_SIZE else None,
        )

    def _sample_bytes(self, offset: int, declared: int) -> int:
        """How many bytes of samples there are."""
        present = max(self._size - offset, 0)
        if declared in (0, UNKNOWN_SIZE) or declared > present:
            return self._trailer_start(offset) - offset
        if not self._is_trailer(offset + declared, self._size):
            raise WavError(
                f"a header that declares {declared:,} bytes of samples where {present:,} bytes follow, which are neither chunks "
                "nor a tag"
            )
        return declared

    def _is_trailer(self, at: int, end: int) -> bool:
        """Whether nothing, a pad byte, chunks or an ID3v1 tag lie from ``at`` to ``end``."""
        end = self._before_id3v1(at, end)
        if end - at <= 1:
            return True
        return self._is_chain(at, end) or (self._read(at, 1) == b"\0" and self._is_chain(at + 1, end))

    def _is_chain(self, at: int, end: int) -> bool:
        """Whether chunks lead from ``at`` to ``end``; one of a known name may claim to go on beyond it, but none holds samples."""
        for _ in range(MAX_CHUNKS):
            name, size = self._chunk(at)
            if not _is_name(name) or name == b"data":
                return False
            at += 8 + size
            if at >= end:
                return at == end or name in _OPTIONAL
            at += size % 2
            if end - at <= 0:
                return True
        return False

    def _trailer_start(self, offset: int) -> int:
        """Where samples of unknown length end: before the chunks and the tag that the file ends with."""
        end = self._before_id3v1(offset, self._size)
        first = max(offset, end - _TRAILER_WINDOW)
        window = self._read(first, max(end - first, 0))
        starts = {end - first}  # of chunks from which chunks of known names lead to the end
        for at in reversed([match.start() for match in _OPTIONAL_PATTERN.finditer(window)]):
            size = int.from_bytes(window[at + 4 : at + 8], self._order)
            if not starts.isdisjoint((at + 8 + size, at + 8 + size + size % 2)):
                starts.add(at)
        return max(first + min(starts), offset)

    def _before_id3v1(self, at: int, end: int) -> int:
        has_tag = end - at >= _ID3V1_BYTES and self._read(end - _ID3V1_BYTES, 3) == b"TAG"
        return end - _ID3V1_BYTES if has_tag else end


def _is_name(name: bytes) -> bool:
    return len(name) == 4 and all(0x20 <= byte < 0x7F for byte in name)


def _speakers(channels: int, mask: int) -> tuple[str, ...]:
    named = tuple(name for bit, name in enumerate(_SPEAKERS) if mask >> bit & 1)
    return named if len(named) == channels else ("NONE",) * channels


def wav_blocks(descriptor: int, header: WavHeader, frames: int) -> Iterator[npt.NDArray[np.float32]]:
    """float32 [n, channels], n at most ``frames``; integers scaled to [-1, 1), floating point as it is.

    What is beyond float32 becomes infinite. Ends early where the file has become shorter.
    """
    left, at = header.frames, header.offset
    while left:
        count = min(frames, left) * header.frame_bytes
        data = os.pread(descriptor, count, at)
        data = data[: len(data) - len(data) % header.frame_bytes]
        if not data:
            return
        yield decoded(data, header)
        left, at = left - len(data) // header.frame_bytes, at + len(data)


def decoded(data: bytes, header: WavHeader) -> npt.NDArray[np.float32]:
    """float32 [n, channels] of whole frames."""
    order = ">" if header.big_endian else "<"
    samples: npt.NDArray[np.float32]
    if header.subtype in ("FLOAT", "DOUBLE"):
        with np.errstate(over="ignore"):
            samples = np.frombuffer(data, f"{order}f{4 if header.subtype == 'FLOAT' else 8}").astype(np.float32)
        return samples.reshape(-1, header.channels)
    if header.subtype == "PCM_U8":
        samples = np.frombuffer(data, np.uint8).astype(np.float32)
        samples -= np.float32(128)
        bits = 8
    elif header.subtype == "PCM_24":
        padded = np.zeros((len(data) // 3, 4), np.uint8)
        padded[:, :3] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        values = padded.view(">i4") if header.big_endian else padded.view("<i4") << 8
        samples, bits = values.astype(np.float32), 32
    else:
        bits = 16 if header.subtype == "PCM_16" else 32
        samples = np.frombuffer(data, f"{order}i{bits // 8}").astype(np.float32)
    samples *= np.float32(2.0 ** (1 - bits))  # a power of two: exact
    return samples.reshape(-1, header.channels)
