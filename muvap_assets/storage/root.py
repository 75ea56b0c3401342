"""Whether a data root is still the one that this process began with. A path does not tell: disks come and go behind it.

A root is identified by its device and its marker, a file with a random id. What a process found when it first looked at a root is
remembered until it ends. Where the root is another now, or a bare mount point, nothing is published and no folder is created.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import dataclass
from pathlib import Path

from muvap_assets.errors import PublishError
from muvap_assets.layout import LINES, Layout


@dataclass(frozen=True, slots=True)
class Seen:
    """What a data root was found to be.

    Attributes:
        device: of the root, or of the nearest folder above it where there is none yet.
        marker: its id; ``None`` where there is none, or nothing that can be parsed.
        has_versions: whether there is no marker although something was published.
    """

    device: int
    marker: str | None
    has_versions: bool

    def __str__(self) -> str:
        what = f"the data root {self.marker}" if self.marker else "versions without a marker"
        if not self.marker and not self.has_versions:
            what = "no data root"
        return f"{what} on device {os.major(self.device)}:{os.minor(self.device)}"

    def may_become(self, now: Seen) -> bool:
        """Whether it is the same root ``now``: a marker never changes, and whoever was first gave it to one without."""
        if self.device != now.device:
            return False
        if self.marker is not None:
            return self.marker == now.marker
        return now.marker is not None or now.has_versions >= self.has_versions


_began: dict[Path, Seen] = {}


def begin(root: Path) -> None:
    """Remember what ``root`` is, unless this process knows it already: the earlier, the less can go wrong unseen."""
    _began.setdefault(_key(root), _look(root))


def require_same(root: Path) -> Seen:
    """What ``root`` is, which is what this process began with.

    Raises:
        PublishError: it is not.
    """
    now = _look(root)
    before = _began.setdefault(_key(root), now)
    if not before.may_become(now):
        raise PublishError(
            f"{root}: found {now}; required: {before}, which was there when this process began. The disk was unmounted, or "
            "another one is mounted there. Nothing was published there. Mount the right one, and start again; services that run "
            "on have to be restarted."
        )
    _began[_key(root)] = now
    return now


def make_folder(folder: Path) -> None:
    """Create a folder and those above it, but below a data root that this process began with only where that is still it.

    Raises:
        PublishError: it is not.
        OSError: something else stands there, or it cannot be written.
    """
    for above in (folder, *folder.parents):
        if _key(above) in _began:
            require_same(above)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error


def _key(root: Path) -> Path:
    return root.absolute()


def _look(root: Path) -> Seen:
    marker = _read_marker(Layout(root).marker)
    has_versions = marker is None and any(any(root.glob(f"{line}/*/*/*")) for line in LINES)
    place = root.absolute()
    while True:
        try:
            return Seen(place.stat().st_dev, marker, has_versions)
        except (FileNotFoundError, NotADirectoryError):
            place = place.parent


def _read_marker(path: Path) -> str | None:
    try:
        return str(json.loads(path.read_bytes())["id"])
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, RecursionError):
        return None
