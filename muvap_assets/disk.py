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


_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def sizes(*counts: int) -> tuple[str, ...]:
    """Counts of bytes as text, in the largest unit in which each that is not zero shows, and all that differ look it."""
    for unit, name in _UNITS:
        shown = [f"{count / unit:,.3f}" for count in counts]
        differ = len(set(shown)) == len(set(counts)) and ("0.000" not in shown or 0 in counts)
        if max(counts) >= unit and differ:
            return tuple(f"{text} {name}" for text in shown)
    return tuple(f"{count:,} bytes" for count in counts)


_REMEDY = "Free some space (`muvap maintenance`), or move the data root."


def require_space(place: Path, needed_bytes: int, what: str, remedy: str = _REMEDY) -> None:
    """Refuse work that the disk cannot hold; ``remedy`` is what to do about it.

    Raises:
        PublishError: less than ``needed_bytes`` are free where ``place`` lies.
    """
    free = free_bytes(place)
    if free < needed_bytes:
        left, needed, missing = sizes(free, needed_bytes, needed_bytes - free)
        raise PublishError(
            f"{what}: {left} free on the disk that holds it; required: {needed}, {missing} more. Nothing was written. {remedy}"
        )
