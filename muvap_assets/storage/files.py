"""Files that are replaced in one step, and JSON files that are safe to lose.

A file is written as ``.<name>.partial`` beside its place, under that file's lock, synced and renamed. The name is always the
same: what a killed process left is overwritten by the next that writes the file, or found by :func:`abandoned_partials`. Two
that replace one file do so one after the other, and the second sees what the first wrote.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from muvap_assets.storage.locks import exclusive, tried

_PREFIX, _SUFFIX = ".", ".partial"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """An empty file that takes the place of ``path`` in one step when the block ends, and is removed where it raises.

    The block writes to it by its name. Its folder is created where it is missing. No other process replaces ``path``
    meanwhile: the block may read ``path`` and write what that becomes.
    """
    partial = path.with_name(f"{_PREFIX}{path.name}{_SUFFIX}")
    with exclusive(partial):
        try:
            os.truncate(partial, 0)
            yield partial
            fsync(partial)
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        fsync(path.parent)


def is_partial(path: Path) -> bool:
    """Whether a name is that of a file in the making."""
    return path.name.startswith(_PREFIX) and path.name.endswith(_SUFFIX)


def abandoned_partials(folder: Path) -> Iterator[Path]:
    """Files that killed processes were writing anywhere below ``folder``, each locked while the caller removes it."""
    for place, _, names in os.walk(folder):
        for partial in (Path(place, name) for name in sorted(names) if is_partial(Path(name))):
            if partial.is_symlink():
                continue  # no file that replacing() made
            try:
                with tried(partial, create=False) as abandoned:
                    if abandoned:
                        yield partial
            except FileNotFoundError:
                continue  # its owner is done


def read_lossy_json(path: Path) -> Any:
    """The value of a JSON file that is safe to lose; ``None`` where it is missing, torn, or nothing that can be parsed."""
    try:
        return json.loads(path.read_bytes()) if path.is_file() else None  # opening a pipe would wait for ever
    except (OSError, ValueError, RecursionError):
        return None


def write_lossy_json(path: Path, value: Any) -> None:
    """Write what :func:`read_lossy_json` reads, in one step."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(value), encoding="utf-8")


def fsync(path: Path) -> None:
    """Make one file or folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
