"""A data root with versions that cost nothing to make, for tests of what happens to versions."""

from pathlib import Path

from muvap_assets.layout import Artifact
from muvap_assets.publish import publish, staged


def publish_text(artifact: Artifact, content: str, name: str = "file.txt") -> str:
    """Publish a version of one small file; its digest."""
    with staged(artifact) as folder:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
        return publish(folder, artifact).version


def names(folder: Path) -> set[str]:
    """What lies in a folder."""
    return {path.name for path in folder.iterdir()}
