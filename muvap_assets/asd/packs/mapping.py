"""Maps ``.npy`` arrays without keeping their files open: a pack of a thousand shards takes no file handles.

Python's own ``mmap`` keeps a handle a map (until 3.13 lets it be told not to), three a shard here, and a process that trains
has a thousand at most. The map is read-only and shared, so that it counts against no memory limit and workers copy nothing.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from muvap_assets.media.npy import read_npy_header


def map_npy(path: Path) -> npt.NDArray[Any]:
    """The array of a ``.npy`` file in C order, read-only; unmapped when the last view of it is gone.

    Raises:
        OSError: it is missing or cannot be mapped.
        NpyError: it is no ``.npy`` file.
    """
    header = read_npy_header(path)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        address = _libc().mmap(None, header.file_bytes, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    finally:
        os.close(descriptor)
    memory = (ctypes.c_ubyte * header.file_bytes).from_address(address)
    # Not at exit: threads that are still reading would find the map gone, and the system removes it anyway.
    weakref.finalize(memory, _libc().munmap, address, header.file_bytes).atexit = False
    flat: npt.NDArray[np.uint8] = np.frombuffer(memoryview(memory), np.uint8)
    array: npt.NDArray[Any] = flat[header.data_offset :].view(header.dtype).reshape(header.shape)
    array.flags.writeable = False
    return array


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc
