"""The plainest recordings of all, read in one go: small mono 16-bit WAV files with nothing in them but their samples.

A corpus cut to clips has tens of thousands of them, and opening each as if it could be anything takes longer than reading
it. Whatever deviates from these 44 bytes in anything is not said to be wrong, but left to ``audio_source``.

    0  "RIFF" u32 (file size - 8) "WAVE"
    12 "fmt " u32 (16) u16 format (1) u16 channels (1) u32 rate u32 (rate * 2) u16 (2) u16 bits (16)
    36 "data" u32 (file size - 44)      little-endian throughout
"""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SMALL_BYTES = 1 << 20
_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")


class PlainWav(NamedTuple):
    """The whole file, its rate, and its samples, int16 [frames], at least one."""

    data: bytes
    rate_hz: int
    samples: npt.NDArray[np.int16]


def read_plain_wav(path: Path) -> PlainWav | None:
    """The recording, or ``None`` where it is anything but this, cannot be read, or is larger than :data:`SMALL_BYTES`."""
    if path.suffix.lower() not in (".wav", ".wave"):
        return None
    try:
        # Not blocking, because opening a pipe would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or not _HEADER.size + 2 <= facts.st_size <= SMALL_BYTES:
            return None
        data = os.read(descriptor, SMALL_BYTES + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    rate_hz = _plain_rate(data)
    return PlainWav(data, rate_hz, np.frombuffer(data, "<i2", offset=_HEADER.size)) if rate_hz else None


def _plain_rate(data: bytes) -> int:
    """The rate of a file that is exactly this, else 0."""
    if len(data) < _HEADER.size or len(data) % 2:
        return 0
    header = _HEADER.unpack_from(data)
    rate = int(header[7])
    plain = (
        b"RIFF",
        len(data) - 8,
        b"WAVE",
        b"fmt ",
        16,
        1,
        1,
        rate,
        rate * 2,
        2,
        16,
        b"data",
        len(data) - _HEADER.size,
    )
    return rate if header == plain else 0
