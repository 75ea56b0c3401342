"""Working on a data root: it is marked by the first who publishes there, and left alone where it is not the one it was.

A root of an earlier release has versions and no marker. The first publish marks it where the journals say the same as the
``current`` links; where they do not, it may be another root or half of one, and ``muvap ops adopt-root`` reads it first.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from muvap_assets.errors import PublishError
from muvap_assets.journal import events
from muvap_assets.layout import CURRENT, LINES, Artifact, Layout
from muvap_assets.storage.files import replacing
from muvap_assets.storage.root import require_same
from muvap_assets.storage.trees import is_folder

_LOG = logging.getLogger(__name__)
_SHOWN = 5


@contextmanager
def claimed(layout: Layout) -> Iterator[None]:
    """Work on a data root: it has a marker from here on, and a failure caused by its loss is reported as such.

    Raises:
        PublishError: it is not the root that this process began with, or is one of an earlier release that may not be whole.
    """
    found = require_same(layout.root)
    if found.has_versions:
        _require_journals(layout)
        mark(layout, "its journals name what is current")
    elif found.marker is None:
        mark(layout)
    try:
        yield
    except Exception:
        require_same(layout.root)
        raise


def mark(layout: Layout, adopted: str = "") -> None:
    """Write the marker of a data root that has none; where another process was faster, its marker stays.

    ``adopted`` says in the log why that was done to a root in which versions stand.
    """
    with replacing(layout.marker) as partial:
        marker = require_same(layout.root).marker or uuid.uuid4().hex
        partial.write_text(json.dumps({"id": marker}) + "\n", encoding="utf-8")
    if adopted:
        _LOG.warning(
            "%s: had versions and no marker; it is the data root %s from now on: %s", layout.root, marker, adopted
        )
    require_same(layout.root)


def current_artifacts(layout: Layout) -> Iterator[Artifact]:
    """Every artifact that has a ``current`` link, wherever that leads."""
    for line in LINES:
        for folder in sorted(layout.root.glob(f"{line}/*/*")):
            if (folder / CURRENT).is_symlink() or (folder / CURRENT).exists():
                yield layout.artifact(line, folder.parent.name, folder.name)


def _require_journals(layout: Layout) -> None:
    wrong = [artifact.label for artifact in current_artifacts(layout) if not _is_journaled(artifact)]
    found = ""
    if not is_folder(layout.journal) or layout.journal.stat().st_dev != layout.root.stat().st_dev:
        found = f"no {layout.journal} on the device of the root"
    elif wrong:
        shown = ", ".join([*wrong[:_SHOWN], *["..."][: len(wrong) > _SHOWN]])
        found = f"{len(wrong)} artifacts whose journal does not end with the version that is current ({shown})"
    if found:
        raise PublishError(
            f"{layout.root}: versions stand there, and no marker {layout.marker.name}; found {found}; required: the marker of a "
            "data root, or journals that agree with it, as earlier releases left them. Nothing was published. Look whether "
            f"it is the right root and whole: `muvap ops adopt-root --data-root {layout.root}` reads it, and marks it."
        )


def _is_journaled(artifact: Artifact) -> bool:
    last = events(artifact)[-1:]
    version = str(artifact.current.readlink()) if artifact.current.is_symlink() else None
    return bool(last) and last[0].version == version and is_folder(artifact.version(last[0].version))
