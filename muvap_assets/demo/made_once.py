"""A folder that is written once a version of the code that writes it."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from muvap_assets.storage.locks import private_place, remove_abandoned

_MARKER = "demo_version.txt"


def make_once(folder: Path, write: Callable[[Path], None], *modules: str) -> bool:
    """Write ``folder`` with ``write`` and put it in its place in one step.

    Args:
        folder: what is replaced, unless this version of ``modules`` wrote it.
        write: fills the empty folder it is given.
        modules: the files of the modules that decide what is written.

    Returns:
        Whether it was written.
    """
    version = hashlib.sha256(b"".join(Path(module).read_bytes() for module in modules)).hexdigest()
    marker = folder / _MARKER
    if marker.is_file() and marker.read_text(encoding="utf-8").strip() == version:
        return False
    remove_abandoned(folder.parent, f".{folder.name}-")
    with private_place(folder.parent, f".{folder.name}") as scratch:
        scratch.mkdir()
        write(scratch)
        (scratch / _MARKER).write_text(version + "\n", encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        scratch.rename(folder)
    return True
