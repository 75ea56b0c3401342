"""What a disk has room for, asked before the work and not after hours of it; and what a folder holds."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from muvap_assets.errors import PublishError


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
