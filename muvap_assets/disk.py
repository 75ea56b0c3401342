"""What a disk has room for, asked before the work and not after hours of it; what a folder holds, and what became of a file."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from muvap_assets.errors import PublishError

SETTLED_SEC = 2.0
"""A file changed less than this ago may change again and look the same, within the resolution of a clock."""


def free_bytes(place: Path) -> int:
    """What may still be written on the disk that holds ``place``, which need not be there yet."""
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def file_states(folder: Path) -> Iterator[os.stat_result]:
    """The state of every plain file below ``folder``; what another process removes meanwhile is left out."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            try:
                state = path.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(state.st_mode):
                yield state


def state_of(status: os.stat_result) -> tuple[str, float]:
    """What tells one state of a file from another without reading it, and when it last changed.

    The change time and the inode notice a file of the same size that was moved in with its old modification time. Only the
    change time says when that was: copies keep the modification time of elsewhere, which may lie in the future.
    """
    state = f"{status.st_size}.{status.st_mtime_ns}.{status.st_ctime_ns}.{status.st_ino}"
    return state, status.st_ctime


def require_space(place: Path, needed_bytes: int, what: str) -> None:
    """Refuse work that the disk cannot hold.

    Raises:
        PublishError: less than ``needed_bytes`` are free where ``place`` lies.
    """
    free = free_bytes(place)
    if free < needed_bytes:
        raise PublishError(
            f"{what}: {free / 1e9:.3f} GB free on the disk that holds it; required: {needed_bytes / 1e9:.3f} GB, "
            f"{(needed_bytes - free) / 1e9:.3f} GB more. Nothing was written. Free some space (`muvap maintenance`), or move "
            "the data root."
        )
