"""Arrays as data URIs: sound as WAV, pictures as PNG. Lossless, so that a page shows the very samples and pixels."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import numpy.typing as npt

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_COLOUR = {2: 0, 3: 2}
_SHEET_ROWS = 4096
_SHEET_FACES = 64


def wav_uri(samples: npt.NDArray[np.int16], rate_hz: int) -> str:
    """Mono int16 [n] as a WAV of 44 bytes of header and the samples."""
    data = samples.astype("<i2", copy=False).tobytes()
    layout = struct.pack("<IHHIIHH", 16, 1, 1, rate_hz, 2 * rate_hz, 2, 16)
    head = b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + layout + b"data" + struct.pack("<I", len(data))
    return f"data:audio/wav;base64,{base64.b64encode(head + data).decode()}"


def png_uri(pixels: npt.NDArray[np.uint8]) -> str:
    """Grey uint8 [H, W] or colour uint8 [H, W, 3] as a PNG that says nothing but its pixels: no gamma, no profile."""
    height, width = pixels.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 8, _PNG_COLOUR[pixels.ndim], 0, 0, 0)
    rows = np.ascontiguousarray(pixels).reshape(height, -1)
    # each row with the one above taken off: filter 2, which keeps flat pictures small
    above = np.vstack([np.zeros((1, rows.shape[1]), np.uint8), rows[:-1]])
    filtered = np.hstack([np.full((height, 1), 2, np.uint8), rows - above])
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), 9)), (b"IEND", b""))
    content = _PNG_SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def sheet_size(height: int) -> int:
    """How many pictures of ``height`` rows go on a sheet: one above the other, within what browsers decode."""
    return max(1, min(_SHEET_FACES, _SHEET_ROWS // max(height, 1)))


def sheet_uris(pictures: npt.NDArray[np.uint8]) -> list[str]:
    """Grey pictures uint8 [n, H, W] as sheets of :func:`sheet_size` each, one above the other."""
    count, height, width = pictures.shape
    size = sheet_size(height)
    return [png_uri(pictures[first : first + size].reshape(-1, width)) for first in range(0, count, size)]
