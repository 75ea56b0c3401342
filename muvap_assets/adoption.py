"""Taking over a data root that an earlier release published in, and that has no marker yet."""

from __future__ import annotations

from collections.abc import Callable

from muvap_assets.data_root import current_artifacts, mark
from muvap_assets.errors import ConfigError, FormatError, PublishError
from muvap_assets.layout import Artifact, Layout
from muvap_assets.publish import current_version
from muvap_assets.storage.root import require_same
from muvap_assets.versions import require_whole


def adopt(layout: Layout, watch: Callable[[Artifact], None] = lambda artifact: None) -> int:
    """Read every current version whole, and mark the root; returns how many there are. ``watch`` is called before each.

    Raises:
        ConfigError: nothing was published there, or it has a marker.
        PublishError: a current version is damaged or gone; each is named, and the root stays unmarked.
    """
    found, artifacts = require_same(layout.root), list(current_artifacts(layout))
    if found.marker is not None or not artifacts:
        what = "nothing is published there" if found.marker is None else f"it is the data root {found.marker} already"
        raise ConfigError(
            f"{layout.root}: {what}; required: a data root of an earlier release, without the marker {layout.marker.name}. "
            "A new one is marked by the first that publishes there."
        )
    damaged = []
    for artifact in artifacts:
        watch(artifact)
        try:
            _require_current_whole(artifact)
        except (FormatError, OSError) as error:
            damaged.append(f"  {error}")
    if damaged:
        raise PublishError(
            f"{layout.root}: {len(damaged)} of {len(artifacts)} current versions are damaged; required: all whole. The root was "
            "not marked. Put back what is missing. Where that is lost, remove the artifact's `current` link, adopt the root, and "
            "materialize it again.\n" + "\n".join(damaged)
        )
    mark(layout, f"all {len(artifacts)} current versions were read and are whole")
    return len(artifacts)


def _require_current_whole(artifact: Artifact) -> None:
    version = current_version(artifact)
    if version is None:
        raise FileNotFoundError(f"{artifact.label}: {artifact.current} names no version that stands")
    require_whole(artifact, version)
