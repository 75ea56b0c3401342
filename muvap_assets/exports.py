"""What is put together outside a data root, and remembered below it, so that what a killed process left is found.

An export is put together in a private place beside its target, where nobody looks but the next export to that target. Its files
may be hard links, which keep rows of the row store. So a link to the target lies in ``<root>/.staging/exports`` from before
the private place is there until it is gone; it is itself a private place, whose lock tells whether the export is running.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from muvap_assets.layout import Layout
from muvap_assets.storage.files import fsync
from muvap_assets.storage.locks import PrivatePlace, private_place, private_places, remove_abandoned


@contextmanager
def export_place(layout: Layout, target: Path) -> Iterator[Path]:
    """A private place beside ``target``, remembered below the data root; see :func:`~.locks.private_place`.

    Args:
        layout: the data root.
        target: what the place will be renamed to; resolved.
    """
    with private_place(layout.exports, "export") as note:
        note.symlink_to(target)
        fsync(layout.exports)
        with private_place(target.parent, _prefix(target)) as place:
            yield place


def clear_exports(layout: Layout, target: Path) -> None:
    """Remove what killed exports left: those from this data root, and those from any to ``target``."""
    for place in abandoned_exports(layout):
        place.remove()
    remove_abandoned(target.parent, f"{_prefix(target)}-")


def abandoned_exports(layout: Layout, *, dry_run: bool = False) -> Iterator[PrivatePlace]:
    """What killed exports from this data root left beside their targets; the caller removes each place.

    An export whose places are all gone is forgotten, but for a ``dry_run``.
    """
    for note in private_places(layout.exports):
        if note.in_use:
            continue
        cleared = True
        if note.path.is_symlink():
            target = note.path.readlink()
            for place in private_places(target.parent, f"{_prefix(target)}-"):
                if not place.in_use:
                    yield place
                    cleared = cleared and not place.path.exists()
        if cleared and not dry_run:
            note.remove()


def _prefix(target: Path) -> str:
    return f".{target.name}"
