"""Finds a track's folder or WAV at ``<folder>/<video_id>/<entity_id>`` or ``<folder>/<entity_id>``, listing each folder once.

An id never changes. Some file systems cannot hold its ``:``, so that crops lie under ``_`` instead: the exact name is
tried first, then that one, and where both are there nobody can say which is meant.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

# <video_id>_<start>_<end>:<number>; a video id may itself hold underscores and digits.
_ENTITY = re.compile(r"(.+)_[\d.]+_[\d.]+[:_]\d+")


def video_of_entity(entity_id: str) -> str | None:
    """The video id within an entity id, ``<video_id>_<start>_<end>:<number>``; ``None`` where it is built otherwise."""
    match = _ENTITY.fullmatch(entity_id)
    return match[1] if match else None


def is_folder_name(name: str) -> bool:
    """Whether an id can name one folder or file, and leads nowhere else."""
    return name not in ("", ".", "..") and not any(character in name for character in "/\0\n\r\t")


def alias(name: str) -> str:
    """``name`` as a file system without ``:`` holds it."""
    return name.replace(":", "_")


@dataclass(frozen=True, slots=True)
class Found:
    """A path below the tree's folder.

    ``also`` says what else is there that may be meant; ``flat`` that the path has no folder of its video.
    """

    path: str
    exists: bool
    also: str = ""
    flat: bool = False


@dataclass(slots=True)
class CropTree:
    """The names two levels below ``folder``, less the crops themselves; each listed once and only where it is asked for."""

    folder: Path
    _names: dict[str, frozenset[str]] = field(default_factory=dict)
    _videos_of: dict[str, list[str]] | None = None

    def find(self, video_id: str, name: str) -> Found:
        """Where ``<video_id>/<name>`` is, or ``<name>`` where there is no such.

        What is not there at all is looked for in the layout that the other tracks have.
        """
        video, flat = self._pick("", video_id), self._pick("", name)
        found = self._pick(video.path, name)
        exists = video.exists and found.exists
        if not exists and (flat.exists or (not video.exists and self._is_flat())):
            return replace(flat, flat=True)
        beside = "the same name outside the video's folder" if flat.exists and flat.path != video.path else ""
        return Found(f"{video.path}/{found.path}", exists, video.also or found.also or beside)

    def find_here(self, name: str) -> Found:
        """Where ``<name>`` is, right below the folder."""
        return self._pick("", name)

    def video_with(self, name: str) -> str | None:
        """The one video whose folder holds ``name`` or its alias; ``None`` where none does or several do."""
        if self._videos_of is None:
            self._videos_of = defaultdict(list)
            for video in sorted(self._list("")):
                for entry in self._list(video):
                    self._videos_of[entry].append(video)
        videos = {video for key in {name, alias(name)} for video in self._videos_of.get(key, ())}
        return videos.pop() if len(videos) == 1 else None

    def _is_flat(self) -> bool:
        """Whether tracks lie right below the folder, by their names."""
        return any(_ENTITY.fullmatch(name.removesuffix(".wav")) for name in self._list(""))

    def _pick(self, parent: str, name: str) -> Found:
        names = self._list(parent)
        other = alias(name)
        if name in names:
            return Found(name, True, "the same name with '_' for ':'" if other != name and other in names else "")
        return Found(other, True) if other in names else Found(name, False)

    def _list(self, parent: str) -> frozenset[str]:
        if parent not in self._names:
            try:
                names = os.listdir(self.folder / parent)  # noqa: PTH208 - names, not paths
                self._names[parent] = frozenset(name for name in names if not name.endswith(".jpg"))
            except OSError:  # what is missing is reported for each row that needs it
                self._names[parent] = frozenset()
        return self._names[parent]
