"""Locks between processes, each on a file, and private places: names in a folder that one process has for itself.

A lock is ``flock``'s: the kernel releases it when its process dies, however it dies. It counts only while its path names
the locked file: a file may be removed or renamed while someone waits for its lock, and whoever gets such a lock tries again.
Whoever may only read the file locks it all the same.

A private place has its lock beside it, ``<place>.lock``, for as long as it is in use. A place whose lock nobody holds was
left by a killed process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muvap_assets.storage.root import make_folder

_SUFFIX = ".lock"
_PRIVATE_LOCK = re.compile(r".*-[0-9a-f]{32}\.lock", re.DOTALL)  # as private_place names them: others may lie beside


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Wait until nobody else holds the lock at ``path``, and hold it alone until the block ends.

    The file is created where it is missing, and its folder as well.
    """
    make_folder(path.parent)
    with _closing(_hold(path, fcntl.LOCK_EX)):
        yield


@contextmanager
def shared(path: Path, waits: Callable[[], None] | None = None) -> Iterator[None]:
    """The same, beside any number of others who share it; ``waits`` is called first where it has to be waited for."""
    make_folder(path.parent)
    descriptor = _hold(path, fcntl.LOCK_SH | fcntl.LOCK_NB)
    if descriptor is None:
        if waits is not None:
            waits()
        descriptor = _hold(path, fcntl.LOCK_SH)
    with _closing(descriptor):
        yield


@contextmanager
def tried(path: Path, *, share: bool = False, create: bool = True) -> Iterator[bool]:
    """Hold the lock at ``path`` alone, or shared, if that is possible at once; yields whether it is.

    Raises:
        FileNotFoundError: there is no such file, and ``create`` is false.
    """
    if create:
        make_folder(path.parent)
    descriptor = _hold(path, (fcntl.LOCK_SH if share else fcntl.LOCK_EX) | fcntl.LOCK_NB, create=create)
    with _closing(descriptor):
        yield descriptor is not None


@dataclass(frozen=True, slots=True)
class PrivatePlace:
    """A place in a folder, and whether its owner is alive."""

    path: Path
    in_use: bool

    def remove(self) -> OSError | None:
        """Remove what an owner left; returns why something could not be removed. The lock then stays for the next try."""
        kept: list[OSError] = []

        def keep(call: Any, path: str, caught: Any) -> None:
            kept.append(caught[1])

        try:
            if self.path.is_dir() and not self.path.is_symlink():
                shutil.rmtree(self.path, onerror=keep)
            else:
                self.path.unlink(missing_ok=True)
            if self.path.exists():
                return kept[0] if kept else FileExistsError(errno.EEXIST, "written again meanwhile", str(self.path))
            _lock_of(self.path).unlink(missing_ok=True)
        except OSError as error:
            return error
        return None


@contextmanager
def private_place(folder: Path, prefix: str) -> Iterator[Path]:
    """A name in ``folder`` that nobody else has; whatever has that name when the block ends is removed."""
    place = PrivatePlace(folder / f"{prefix}-{uuid.uuid4().hex}", in_use=True)
    try:
        with exclusive(_lock_of(place.path)):
            yield place.path
            place.remove()
    except BaseException:  # also one that comes before the lock is held: its file may be there
        place.remove()
        raise


def private_places(folder: Path, prefix: str = "") -> Iterator[PrivatePlace]:
    """Every private place in ``folder``; one that a killed process left is locked while the caller looks at it."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    for name in sorted(name for name in names if name.startswith(prefix) and _PRIVATE_LOCK.fullmatch(name)):
        lock = folder / name
        try:
            with tried(lock, create=False) as free:
                yield PrivatePlace(lock.with_suffix(""), in_use=not free)
        except FileNotFoundError:
            continue  # its owner is done


def remove_abandoned(folder: Path, prefix: str = "") -> list[str]:
    """Remove the private places that killed processes left in ``folder``; returns their names."""
    return [place.path.name for place in private_places(folder, prefix) if not place.in_use and place.remove() is None]


def _lock_of(place: Path) -> Path:
    return place.with_name(place.name + _SUFFIX)


def _hold(path: Path, operation: int, *, create: bool = True) -> int | None:
    """A descriptor of ``path`` that holds its lock; ``None`` where it is not free and ``operation`` does not wait."""
    while True:
        descriptor = _open(path, create=create)
        try:
            fcntl.flock(descriptor, operation)
            if _is_named(path, descriptor):
                held, descriptor = descriptor, -1
                return held
        except OSError as error:
            # EBADF: NFS, which locks alone only what may be written. To whoever only looks it is in use.
            if not operation & fcntl.LOCK_NB or error.errno not in (errno.EAGAIN, errno.EBADF):
                raise
            return None
        finally:
            if descriptor >= 0:
                os.close(descriptor)


def _open(path: Path, *, create: bool) -> int:
    """A descriptor of a lock's file, also for whoever may only read it."""
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0), 0o666)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EROFS) or not path.is_file():
            raise
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)


def _is_named(path: Path, descriptor: int) -> bool:
    """Whether ``path`` names the open file. It is opened for that: a network disk may answer ``stat`` from its memory."""
    try:
        again = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        return os.path.samestat(os.fstat(again), os.fstat(descriptor))
    finally:
        os.close(again)


@contextmanager
def _closing(descriptor: int | None) -> Iterator[None]:
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)
