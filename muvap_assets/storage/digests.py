"""SHA-256 of files and of folders of files, each read once and remembered, and what tells whether a file was written to.

A remembered digest is used where the path, size, modification and change time and inode are those it was read with. Of
these, only the change time says when a file was last written: copies keep a modification time of elsewhere, which may lie
in the future. A digest of a file that changed less than two seconds before it was read, or in the future of this clock, is
used by the run that read it and by no other: within the resolution of a clock, the file may change again and look the same.

The cache is a JSON file that is safe to lose:

    {"files": {"<path>": ["<state>", "<digest>", <day>]}}

``state`` is empty where the digest is not to be used again. ``day`` counts from 1970, when the path was last asked for; what
was not asked for in a year is dropped.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

from muvap_assets.storage.files import read_lossy_json, replacing
from muvap_assets.threads import delivered

SETTLED_SEC = 2.0
KEPT_DAYS = 365
_DAY_SEC = 86_400
_BLOCK_BYTES = 1 << 18
_DIGEST = re.compile(r"[0-9a-f]{64}")


def file_sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file, read in blocks."""
    delivered(path)
    digest, buffer = hashlib.sha256(), memoryview(bytearray(_BLOCK_BYTES))
    with path.open("rb", buffering=0) as stream:
        while size := stream.readinto(buffer):
            delivered(path)
            digest.update(buffer[:size])
    return digest.hexdigest()


def texts_sha256(texts: Iterable[str]) -> str:
    """Hexadecimal SHA-256 of texts, one a line; names that are not UTF-8 count with their bytes."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class State:
    """What tells one state of a file or folder from another without reading it.

    It is settled where everything that is written from now on gives another one.
    """

    text: str
    is_settled: bool


def state_of(path: Path, *, folders: bool = True) -> State:
    """The state of a file; with ``folders``, of a folder's files too, without those of folders in it.

    Raises:
        OSError: nothing is there, or something else.
    """
    now_sec = time.time()  # before anything is looked at: what is written later has another change time
    status = path.stat()
    if stat.S_ISREG(status.st_mode):
        return State(_state_text(status), now_sec - status.st_ctime > SETTLED_SEC)
    if not stat.S_ISDIR(status.st_mode) or not folders:
        number = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(number, os.strerror(number), str(path))
    with os.scandir(path) as entries:
        files = {entry.name: entry.stat() for entry in entries if entry.is_file()}
    changed_sec = max([status.st_ctime, *(file.st_ctime for file in files.values())])
    lines = (f"{name}\0{_state_text(files[name])}" for name in sorted(files))
    return State(texts_sha256(lines), now_sec - changed_sec > SETTLED_SEC)


def _state_text(status: os.stat_result) -> str:
    return f"{status.st_size}.{status.st_mtime_ns}.{status.st_ctime_ns}.{status.st_ino}"


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is remembered of one path; ``day`` is when it was last asked for."""

    state: str
    digest: str
    day: int


class Digests:
    """SHA-256 of files and folders, each state of one read once, and remembered in ``cache`` where it names a file.

    May be shared by threads; several processes may use one cache at once.
    """

    def __init__(self, cache: Path | None = None) -> None:
        self._cache = cache
        self._known = {} if cache is None else dict(_entries(read_lossy_json(cache)))
        self._asked: dict[str, tuple[State, _Entry]] = {}
        self._read: set[str] = set()
        self._lock = Lock()
        self._locks: dict[str, Lock] = {}

    @property
    def hashed(self) -> int:
        """Paths that were read for their digest."""
        return len(self._read)

    @property
    def trusted(self) -> int:
        """Paths that were recognized without being read."""
        return len(self._asked.keys() - self._read)

    def of(self, path: Path, *, folders: bool = False) -> str:
        """Hexadecimal digest of a file's bytes; with ``folders``, of the names and bytes of a folder's files too.

        Raises:
            OSError: it cannot be read.
        """
        key = str(path)
        with self._lock:
            own = self._locks.setdefault(key, Lock())
        with own:  # whoever else asks for it waits, and does not read it as well
            state = state_of(path, folders=folders)
            before, entry = self._asked.get(key, (None, self._known.get(key)))
            if entry is None or state.text != (entry.state if before is None else before.text):
                fresh = _Entry(state.text if state.is_settled else "", _digest(path), _today())
                self._asked[key] = state, fresh
                self._read.add(key)
            elif before is None:
                self._asked[key] = state, replace(entry, day=_today())
            return self._asked[key][1].digest

    def save(self) -> None:
        """Add what was asked for to what the cache holds by now, which others may have added to."""
        new = {path: entry for path, (_, entry) in self._asked.items() if self._known.get(path) != entry}
        if self._cache is None or not new:
            return
        with replacing(self._cache) as partial:
            stored = dict(_entries(read_lossy_json(self._cache)))
            stored |= new
            oldest = _today() - KEPT_DAYS
            kept = {path: entry for path, entry in stored.items() if entry.day >= oldest}
            files = {path: [entry.state, entry.digest, entry.day] for path, entry in kept.items()}
            partial.write_text(json.dumps({"files": files}), encoding="utf-8")
        self._known |= new


def _today() -> int:
    return int(time.time() // _DAY_SEC)


def _digest(path: Path) -> str:
    if not path.is_dir():
        return file_sha256(path)
    files = sorted(entry for entry in path.iterdir() if entry.is_file())
    return texts_sha256(f"{entry.name}\0{file_sha256(entry)}" for entry in files)


def _entries(stored: Any) -> Iterator[tuple[str, _Entry]]:
    """What a cache holds, whatever that is; anything of another shape is left out."""
    if not isinstance(stored, dict):
        return
    files = stored.get("files")
    for path, value in files.items() if isinstance(files, dict) else _of_earlier_versions(stored):
        if isinstance(value, list) and len(value) == 2:  # as earlier versions wrote the digests of sources
            value = [*value, _today()]
        match value:
            # Earlier versions wrote down former digests as well.
            case [str(state), str(digest), int(day), *_] if _DIGEST.fullmatch(digest):
                yield path, _Entry(state, digest, min(day, _today()))


def _of_earlier_versions(stored: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Entries of a cache as earlier versions wrote it for media and weights: ``<path>|<size>|<state>`` to digest."""
    found: dict[str, list[Any]] = {}
    for key, digest in stored.items():
        path, *rest = key.rsplit("|", 2)
        if rest and rest[-1].count(".") == 3:
            found[path] = [rest[-1], digest, _today()]
    yield from found.items()
