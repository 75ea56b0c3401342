"""``map_style_cache/file_info.pkl``: the pickle the training side reads, written by us and read with nothing to run.

It holds (tuple of absolute real paths sorted by path, tuple of row counts), as the facts describe the reader. A pickle may
name any function to be called on loading; this loader knows no function at all. Nor does it take more than a reader's paths and
counts have reason to: its size is limited by the shards there are, and how much is built of it by its size.
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
_SHARD_BYTES = 4096 + 64  # the longest path of Linux, its row count, and what a pickle puts around them
MAX_BYTES = 512 << 20
_CONTAINERS = frozenset(
    {
        "EMPTY_LIST",
        "LIST",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "EMPTY_DICT",
        "DICT",
        "EMPTY_SET",
        "FROZENSET",
    }
)
_MOST_CONTAINERS = 8  # three are needed
_FEW_OPERATIONS, _OPERATION_BYTES = 64, 8  # five for a path and a count, which together take over forty bytes


def write_file_info(path: Path, files: Sequence[str], counts: Sequence[int]) -> None:
    """Write the two tuples; the same values give the same bytes."""
    path.write_bytes(file_info_bytes(files, counts))


def file_info_bytes(files: Sequence[str], counts: Sequence[int]) -> bytes:
    """What :func:`write_file_info` writes: a file that holds exactly this need not be unpickled to be known."""
    return pickle.dumps((tuple(files), tuple(counts)), protocol=_PROTOCOL)


def read_file_info(path: Path, shards: int | None = None) -> FileInfo:
    """The paths and row counts.

    Args:
        path: the pickle.
        shards: how many there are, where that is known; a file that is too large for them is not read.

    Raises:
        FormatError: it is damaged, or holds anything but tuples and lists of strings and integers; nothing of it has run.
    """
    try:
        with path.open("rb") as stream:
            _require_modest(stream, shards)
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


def _require_modest(stream: BinaryIO, shards: int | None) -> None:
    """Refuse what would take more memory or time than paths and counts do, before anything is built.

    A place in the memo beyond the file's own length is such: the unpickler would clear as much memory as it names. So are lists
    within lists without end, and operations of a byte or two each.
    """
    size = os.fstat(stream.fileno()).st_size
    limit = MAX_BYTES if shards is None else min(MAX_BYTES, (shards + 1) * _SHARD_BYTES)
    if size > limit:
        among = "" if shards is None else f" for {shards} shards"
        raise pickle.UnpicklingError(f"{size:,} bytes, over {limit:,}{among}")
    containers = 0
    for number, (operation, argument, _) in enumerate(pickletools.genops(stream)):
        if operation.name in _MEMO_PLACES and (argument is None or argument > size):
            raise pickle.UnpicklingError(f"memo place {argument} in a file of {size} bytes")
        containers += operation.name in _CONTAINERS
        if containers > _MOST_CONTAINERS:
            raise pickle.UnpicklingError(f"more than {_MOST_CONTAINERS} tuples and lists")
        if number > _FEW_OPERATIONS + size // _OPERATION_BYTES:
            raise pickle.UnpicklingError(f"more than {number - 1:,} operations in {size:,} bytes")
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
