"""A data root with versions that cost nothing to make, for tests of what happens to versions."""

import itertools
from pathlib import Path

from muvap_assets import takedown
from muvap_assets.layout import Artifact
from muvap_assets.publish import publish, staged
from muvap_assets.retention import Removal, RemovalKind


def publish_text(artifact: Artifact, content: str, name: str = "file.txt") -> str:
    """Publish a version of one small file; its digest."""
    with staged(artifact) as folder:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
        return publish(folder, artifact).version


def names(folder: Path) -> set[str]:
    """What lies in a folder."""
    return {path.name for path in folder.iterdir()}


def purge_killed_at_every_removal(monkeypatch, *arguments, **options) -> int:
    """Purges that are killed once they removed one thing, one after the other, until one comes through; how many were."""
    kills = 0
    while True:
        made = itertools.count()

        def removal(kind, *values, made=made):
            if next(made) or kind is RemovalKind.VERSION:  # versions are removed before it is said, files after
                raise KeyboardInterrupt
            return Removal(kind, *values)

        try:
            with monkeypatch.context() as patch:
                patch.setattr(takedown, "Removal", removal)
                takedown.purge(*arguments, **options)
        except KeyboardInterrupt:
            kills += 1
        else:
            return kills
