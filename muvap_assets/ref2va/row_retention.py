"""Which rows and parts of a row store nothing needs any more, and the lock that tells whether a run is using it.

A run takes rows and parts into use long before it publishes the list of them, and may take up ones made long ago: neither
their age nor any published list tells. So it holds the store's lock, shared, from its first look at the store to the
publication of what it made of it; whoever removes from the store has to have it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from muvap_assets.ref2va.records import provenance_of
from muvap_assets.storage.locks import shared, tried

_LOCK_NAME = ".in_use"


@dataclass(frozen=True, slots=True)
class Unused:
    """Files nothing needs; ``unread`` are keys of needed rows whose parts could not be found out."""

    rows: tuple[Path, ...]
    parts: tuple[Path, ...]
    unread: tuple[str, ...]


def in_use(store: Path) -> AbstractContextManager[None]:
    """Keep everything in the store from being removed until the block ends; any number of runs may at once."""
    return shared(store / _LOCK_NAME)


@contextmanager
def alone(store: Path, *, dry_run: bool = False) -> Iterator[bool]:
    """Whether no run is using the store, and then none begins to until the block ends; a dry run writes nothing for it."""
    with ExitStack() as stack:
        try:
            free = stack.enter_context(tried(store / _LOCK_NAME, create=not dry_run))
        except FileNotFoundError:
            free = True  # no run ever used it
        yield free


def unused(store: Path, listed: Collection[str], is_old: Callable[[Path, float], bool]) -> Unused:
    """Rows and parts that no row of ``listed`` needs and that are old, as ``is_old`` judges by a file and its time.

    A row whose file has another name, in a published dataset or an exported one, stays: removing it would free nothing and
    cost encoding it again. The parts of each row that stays are in its own provenance, and stay with it.
    """
    kept: list[Path] = []
    rows: list[Path] = []
    for path in sorted(store.glob("rows/*/*.row")):
        status = path.stat()
        needed = path.stem in listed or status.st_nlink > 1 or not is_old(path, status.st_mtime)
        (kept if needed else rows).append(path)
    standing = {path.stem for path in kept}
    unread = [key for key in listed if key not in standing]
    needed_parts: set[str] = set()
    for path in kept:
        parts = parts_of(path)
        if parts is None:
            unread.append(path.stem)
        else:
            needed_parts |= parts
    parts_found = [] if unread else _old_parts(store, needed_parts, is_old)
    return Unused(tuple(rows), tuple(parts_found), tuple(sorted(unread)))


def _old_parts(store: Path, needed: Collection[str], is_old: Callable[[Path, float], bool]) -> list[Path]:
    paths = sorted(store.glob("parts/*/*/*.part"))
    return [path for path in paths if path.stem not in needed and is_old(path, path.stat().st_mtime)]


def parts_of(row: Path) -> set[str] | None:
    """Keys of the parts a row was made of, or ``None`` where its file does not say."""
    parts = (provenance_of(row) or {}).get("parts")
    if not isinstance(parts, dict) or not all(isinstance(key, str) for key in parts.values()):
        return None
    return set(parts.values())
