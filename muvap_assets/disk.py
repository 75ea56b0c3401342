"""Whether a disk holds what is about to be written to it, asked before the work and not after hours of it."""

from __future__ import annotations

import shutil
from pathlib import Path

from muvap_assets.errors import PublishError


def free_bytes(place: Path) -> int:
    """What may still be written on the disk that holds ``place``, which need not be there yet."""
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


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
