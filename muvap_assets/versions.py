"""The standing versions of an artifact: list them, and go back to one.

What differs between two of them is ``version_diff``'s, which of them are kept ``retention``'s.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from muvap_assets.asd import manifest_files
from muvap_assets.codes import Code
from muvap_assets.disk import file_states
from muvap_assets.errors import ConfigError, FormatError, PublishError
from muvap_assets.findings import Finding
from muvap_assets.journal import events, wall_clock_sec
from muvap_assets.layout import LINES, VERSION_PATTERN, Artifact, Layout
from muvap_assets.publish import at_work, content_version, current_version, make_current, staged
from muvap_assets.ref2va import publication
from muvap_assets.ref2va.devices import DEVICE_FILE
from muvap_assets.storage.locks import exclusive
from muvap_assets.storage.trees import is_folder

_LOCATION_DEPENDENT: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("asd", "manifest"): manifest_files.LOCATION_DEPENDENT,
    ("ref2va", "encoded_latents"): (DEVICE_FILE,),
    ("ref2va", "parquet_cache_index"): publication.LOCATION_DEPENDENT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingVersion:
    """One version that stands.

    Attributes:
        version: its digest.
        is_current: whether ``current`` points at it.
        published_sec: when it became current last; ``None`` where the journal does not say.
        left_sec: when another version took its place at the latest; ``None`` for the current one.
        size_bytes: of all its files, also those it shares with other versions.
    """

    version: str
    is_current: bool
    published_sec: float | None
    left_sec: float | None
    size_bytes: int


def artifacts(layout: Layout) -> Iterator[Artifact]:
    """Every artifact of every partition that lies below the data root."""
    for line in LINES:
        for folder in sorted((layout.root / line).glob("*/*")):
            if folder.is_dir() and not folder.name.startswith("."):
                yield layout.artifact(line, folder.parent.name, folder.name)


def find_artifact(layout: Layout, name: str, partition: str) -> Artifact:
    """The artifact called ``name`` (``asd/manifest``) of one partition, as folders or as Dagster (``clips|003``) name it.

    Raises:
        ConfigError: there is none.
    """
    line, _, short = name.partition("/")
    dataset, bar, part = partition.partition("|")
    wanted = f"{part}.{dataset}" if bar else partition
    known = list(artifacts(layout))
    for artifact in known:
        if (artifact.line, artifact.name, artifact.partition) == (line, short, wanted):
            return artifact
    names = sorted({f"{artifact.line}/{artifact.name} {artifact.partition}" for artifact in known})
    raise ConfigError(
        f"{name} {partition}: nothing of that name below {layout.root}; required: one of {names}. Check the data root."
    )


def standing_versions(artifact: Artifact) -> list[StandingVersion]:
    """Every version that stands: the current one first, then those that were current last."""
    current = current_version(artifact)
    moves = events(artifact)
    last_move = {event.version: position for position, event in enumerate(moves)}
    folders = [each for each in artifact.folder.glob("*") if VERSION_PATTERN.fullmatch(each.name) and is_folder(each)]
    times = {folder.name: state.st_mtime for folder in folders if (state := _state(folder))}
    ordered = sorted(times, key=lambda name: (name == current, last_move.get(name, -1), times[name]), reverse=True)
    versions = []
    for name in ordered:
        position = last_move.get(name)
        versions.append(
            StandingVersion(
                version=name,
                is_current=name == current,
                published_sec=None if position is None else moves[position].at_sec,
                left_sec=None if name == current else _left_sec(artifact, name, position),
                size_bytes=sum(state.st_size for state in file_states(artifact.version(name))),
            )
        )
    return versions


def previous_version(artifact: Artifact) -> str | None:
    """The version that was current before the one that is, if it still stands and the journal names it."""
    current = current_version(artifact)
    moves = (event.version for event in reversed(events(artifact)))
    return next((version for version in moves if version != current and is_folder(artifact.version(version))), None)


def _left_sec(artifact: Artifact, name: str, position: int | None) -> float:
    """When a version was current no longer, at the latest: no earlier than any move up to the one that took its place.

    The clock may have been wrong at that move, and right at one before. Of the last move, and where the journal does not say
    which it was, the link itself tells as well: it is made anew each time ``current`` moves.
    """
    moves = events(artifact)
    is_told = position is not None and position + 1 < len(moves)
    places = [] if is_told else [artifact.version(name)]
    if position is None or position + 2 >= len(moves):
        places.append(artifact.current)
    times = [state.st_ctime for place in places if (state := _state(place))]
    if position is not None:
        times += [move.at_sec for move in moves[: position + 2]]
    return max(times, default=wall_clock_sec())


def _state(path: Path) -> os.stat_result | None:
    """Of the path itself; ``None`` where maintenance removed it meanwhile."""
    try:
        return path.lstat()
    except FileNotFoundError:
        return None


def roll_back(artifact: Artifact, version: str) -> str | None:
    """Let ``current`` point at a version that stands, in one step; returns the one it pointed at before.

    Raises:
        ConfigError: no such version stands.
        FormatError: it is not whole.
        PublishError: ``current`` was moved, and the journal could not be written.
    """
    known = [standing.version for standing in standing_versions(artifact)]
    matching = [name for name in known if name.startswith(version)] if version else []
    if len(matching) != 1:
        raise ConfigError(
            f"{artifact.label}: {len(matching)} versions begin with {version!r}; required: one of {known}. "
            "`muvap versions` lists them."
        )
    with at_work(Layout(artifact.root)), staged(artifact) as scratch, exclusive(artifact.journal):
        require_whole(artifact, matching[0])
        before = current_version(artifact)
        make_current(artifact, matching[0], scratch.parent)
    return before


def require_whole(artifact: Artifact, version: str) -> None:
    """Read a whole version and compare it with its name.

    Raises:
        FormatError: a file is missing, was added, or holds other bytes than when it was published.
    """
    folder = artifact.version(version)
    location_dependent = _LOCATION_DEPENDENT.get((artifact.line, artifact.name), ())
    # Versions that were published before devices were recorded are whole without their file.
    missing = [name for name in location_dependent if name != DEVICE_FILE and not (folder / name).is_file()]
    try:
        found = content_version(folder, location_dependent)
    except (OSError, PublishError):
        found = "nothing"
    if found != version or missing:
        found = f"{', '.join(missing)} missing" if missing else f"its files are those of version {found}"
        finding = Finding(Code.ARTIFACT_INVALID, folder, found, case="published")
        raise FormatError(finding.placed(source=f"{artifact.label} version {version}"))
