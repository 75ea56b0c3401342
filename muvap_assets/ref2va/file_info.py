"""``map_style_cache/file_info.pkl``: the pickle the training side reads, written by us and read with nothing to run.

It holds (tuple of absolute real paths sorted by path, tuple of row counts), as the facts describe the reader. A pickle may
name any function to be called on loading; this loader knows no function at all.
"""

from __future__ import annotations

import os
import pickle
import pickletools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from muvap_assets.codes import Code
from muvap_assets.errors import FormatError
from muvap_assets.findings import Finding

FileInfo = tuple[tuple[str, ...], tuple[int, ...]]
_MEMO_PLACES = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_PROTOCOL = 4  # every Python the reader runs on has it


def write_file_info(path: Path, files: Sequence[str], counts: Sequence[int]) -> None:
    """Write the two tuples; the same values give the same bytes."""
    path.write_bytes(file_info_bytes(files, counts))


def file_info_bytes(files: Sequence[str], counts: Sequence[int]) -> bytes:
    """What :func:`write_file_info` writes: a file that holds exactly this need not be unpickled to be known."""
    return pickle.dumps((tuple(files), tuple(counts)), protocol=_PROTOCOL)


def read_file_info(path: Path) -> FileInfo:
    """The paths and row counts.

    Raises:
        FormatError: it is damaged, or holds anything but tuples and lists of strings and integers; nothing of it has run.
    """
    try:
        with path.open("rb") as stream:
            _require_modest(stream)
            value = _PlainUnpickler(stream).load()
    except _PlantedError as error:
        found = f"it asks for {error} to be called or found; nothing was run"
        raise _refused(path, found, "planted") from None
    # A damaged pickle ends in whatever its bytes happen to ask for.
    except Exception as error:
        raise _refused(path, f"it is no readable pickle ({type(error).__name__}: {error})") from error
    match value:
        case (tuple() | list() as files, tuple() | list() as counts) if isinstance(value, tuple | list):
            if all(type(name) is str for name in files) and all(type(count) is int for count in counts):
                return tuple(files), tuple(counts)
    raise _refused(path, f"it holds {type(value).__name__}")


def _require_modest(stream: BinaryIO) -> None:
    """Refuse a place in the memo beyond the file's own length: the unpickler would clear as much memory as it names."""
    size = os.fstat(stream.fileno()).st_size
    for operation, argument, _ in pickletools.genops(stream):
        if operation.name in _MEMO_PLACES and (argument is None or argument > size):
            raise pickle.UnpicklingError(f"memo place {argument} in a file of {size} bytes")
    stream.seek(0)


def _refused(path: Path, found: str, case: str = "pickle") -> FormatError:
    return FormatError(Finding(Code.INDEX_INVALID, path, found, case=case, root=path.parent.parent))


class _PlantedError(Exception):
    """Loading was asked for something from outside the file."""


class _PlainUnpickler(pickle.Unpickler):
    """Builds containers, strings and numbers; whatever names a global or an outside object is refused."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse: a global is a function or class that loading would call."""
        raise _PlantedError(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        """Refuse: a persistent id stands for an object outside the file."""
        raise _PlantedError(f"the outside object {pid!r}")
