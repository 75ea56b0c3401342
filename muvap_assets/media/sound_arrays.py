"""The samples of a NumPy waveform: [N], [N, C] or [C, N]."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding
from muvap_assets.media.npy import NpyError, NpyHeader, read_npy_header
from muvap_assets.media.sound_files import (
    Chunk,
    Float32,
    NativeSound,
    unreadable_audio,
    unsupported_audio,
)

MAX_NPY_CHANNELS = 8
"""A two-dimensional array's shorter side is its channels only up to here."""

# element type: (offset, divisor) to the range [-1, 1); floating point passes as it is
_NPY_SCALES = {
    "u1": (128, 1 << 7),
    "i1": (0, 1 << 7),
    "i2": (0, 1 << 15),
    "i4": (0, 1 << 31),
    "f2": (0, 1),
    "f4": (0, 1),
    "f8": (0, 1),
}


class NumpySound(NativeSound):
    """Samples of a NumPy waveform."""

    def __init__(self, path: Path, rate_hz: int | None) -> None:
        super().__init__(path)
        self.rate_hz = rate_hz
        self._header, channels = _npy_header(path)
        self.encoding, self.speakers = f"NPY/{self._header.dtype.name}", ("NONE",) * channels

    def chunks(self, frames: int) -> Iterator[Chunk]:
        header, channels = self._header, len(self.speakers)
        offset, divisor = _NPY_SCALES[header.dtype.str[1:]]
        order: Any = "F" if header.fortran_order else "C"
        for start in range(0, max(header.shape), frames):
            # Mapped anew for each block: the pages of an older map would count as this process' memory while it lives.
            array = np.memmap(
                self.path, dtype=header.dtype, mode="r", offset=header.data_offset, shape=header.shape, order=order
            )
            block = array.reshape(-1, 1) if array.ndim == 1 else array if array.shape[1] == channels else array.T
            with np.errstate(over="ignore"):  # what is beyond float32 becomes infinite, and is counted as such
                samples: Float32 = np.array(block[start : start + frames], dtype=np.float32, order="C")
            yield None, (samples - np.float32(offset)) / np.float32(divisor)


def _npy_header(path: Path) -> tuple[NpyHeader, int]:
    """The header of a NumPy waveform, and how many channels its shape means."""
    try:
        header = read_npy_header(path)
    except NpyError as error:
        unreadable_audio(path, str(error))
    if header.dtype.str[1:] not in _NPY_SCALES:
        unsupported_audio(path, f"a NumPy array of {header.dtype}", "dtype")
    if wrong_length := header.wrong_length():
        unreadable_audio(path, wrong_length)
    shape = header.shape
    if 0 in shape:
        raise ValidationError(Finding(Code.AUDIO_EMPTY, path, f"a NumPy array of shape {shape}"))
    if len(shape) == 1:
        return header, 1
    if len(shape) != 2 or sum(side <= MAX_NPY_CHANNELS for side in shape) != 1:
        unsupported_audio(path, f"a NumPy array of shape {shape}", "shape", channels=MAX_NPY_CHANNELS)
    return header, min(shape)
