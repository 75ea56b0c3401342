"""What is in a folder, without following links: published folders hold plain files and folders, and nothing else.

A published version is a folder below its artifact, beside the link ``current``. Links above it are followed, for a data root
may lie anywhere, and so is ``current``; a link in its place or within it is not what was published.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from muvap_assets.layout import CURRENT, NAME_PATTERN, VERSION_PATTERN

LINK = "a symbolic link"
SPECIAL = "a pipe, a socket or a device"


def is_folder(path: Path) -> bool:
    """Whether a folder lies at ``path``, and no link to one."""
    return stat.S_ISDIR(_mode(path))


def foreign(path: Path) -> str | None:
    """What lies at ``path`` where that is neither a plain file nor a folder; ``None`` also where nothing lies there."""
    mode = _mode(path)
    if not mode or stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return None
    return LINK if stat.S_ISLNK(mode) else SPECIAL


def walk(folder: Path) -> Iterator[tuple[str, str | None]]:
    """Relative path of everything below ``folder`` but the folders, and what it is where that is no plain file.

    Raises:
        OSError: a folder cannot be listed.
    """
    yield from _walk(folder, "")


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, str | None]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(folder / entry.name, f"{path}/")
            elif entry.is_file(follow_symlinks=False):
                yield path, None
            else:
                yield path, LINK if entry.is_symlink() else SPECIAL


def opened(path: Path) -> Path:
    """The folder that is opened where a reader is given ``path``: ``current``, and a reader's own links to a folder, followed.

    Raises:
        VersionLink: the way leads over a link that has the name of a version, or over a ``current`` that names no neighbour.
    """
    for _ in range(_MOST_LINKS):
        if not path.is_symlink():
            return path
        target = path.readlink()
        if VERSION_PATTERN.fullmatch(path.name) or (path.name == CURRENT and not NAME_PATTERN.fullmatch(str(target))):
            raise VersionLink(path)
        path = path.parent / target
    return path  # in a circle: opening it is an error of the system


class VersionLink(ValueError):
    """A link stands in the place of a version."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: {LINK}")
        self.path = path


_MOST_LINKS = 40


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except (OSError, ValueError):
        return 0
