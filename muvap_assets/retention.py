"""What maintenance removes, and what it never does.

| removed                              | unless                                                                              |
|--------------------------------------|-------------------------------------------------------------------------------------|
| a version                            | it is current, one of the last N before it, or was current within the grace period  |
| what a killed run left unfinished    | a running one holds its lock                                                        |
| a row or part of the row store       | a standing version lists or links it, it is young, or a run is using the store      |
| what the cache knows of a pack       | that version stands                                                                 |

A reader that has files of a version open or mapped keeps them: removing a file only takes its name away. One that opened
``current`` and opens a file of that version later has the grace period for it; after that it fails, naming the file.

A version leaves its place in one step and is deleted in staging, so that no half of one ever stands under its name.

No clock is trusted that jumps. A version was left at the latest of what the journal says of its leaving and of all moves
before it, and of the link's own time where that move was the last; a row is as old as its file. Where such a time is in the
future, or over a year beyond the grace, a clock was wrong once or is now: the age then counts from when maintenance first saw
it so (``cache/retention.json``), and that note has to be credible in the same way. So a jump costs another look, a grace period
later, and removes nothing. A grace of zero waits for nothing, whatever the times are.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from muvap_assets.disk import file_states
from muvap_assets.errors import FormatError
from muvap_assets.exports import abandoned_exports
from muvap_assets.journal import wall_clock_sec
from muvap_assets.layout import Artifact, Layout
from muvap_assets.publish import at_work, current_version, staged
from muvap_assets.ref2va import row_retention
from muvap_assets.ref2va.standing_rows import ROWS_FILE, StandingRow, read_rows
from muvap_assets.storage.files import abandoned_partials, read_lossy_json, write_lossy_json
from muvap_assets.storage.locks import PrivatePlace, exclusive, private_places
from muvap_assets.storage.trees import is_folder
from muvap_assets.versions import StandingVersion, artifacts, standing_versions

DAY_SEC = 86_400.0
CREDIBLE_SEC = 365 * DAY_SEC
"""How much longer than its grace something may have waited before its time is taken for that of a wrong clock."""

_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much is kept.

    Attributes:
        keep_versions: versions beside the current one, those that were current last.
        grace_sec: a version stays this long after another took its place, for readers that opened ``current``.
        row_grace_sec: a row or part no version lists stays this long: a run that failed comes back for it, and encoding
            it again takes a device.
    """

    keep_versions: int = 3
    grace_sec: float = DAY_SEC
    row_grace_sec: float = 14 * DAY_SEC


class RemovalKind(StrEnum):
    """What something removed was."""

    VERSION = "version"
    STAGING = "staging"
    ROW = "row"
    PART = "part"
    CACHE = "cache"


@dataclass(frozen=True, slots=True)
class Removal:
    """Something removed, and the bytes the disk got back; none for files that have another name as well."""

    kind: RemovalKind
    name: str
    freed_bytes: int


@dataclass(slots=True)
class MaintenanceReport:
    """What was removed, or would be, and what was left alone or could not be removed, and why."""

    dry_run: bool
    removed: list[Removal] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def freed_bytes(self) -> int:
        """Bytes the disk got back."""
        return sum(removal.freed_bytes for removal in self.removed)

    def count(self, kind: RemovalKind) -> int:
        """How many things of one kind were removed."""
        return sum(removal.kind is kind for removal in self.removed)

    def remove_file(self, kind: RemovalKind, name: str, path: Path) -> None:
        """Remove a file, unless another process was faster; ``name`` is what it is called here."""
        try:
            state = path.lstat()
            if not self.dry_run:
                path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            self.keep(kind, name, error)
            return
        self.removed.append(Removal(kind, name, state.st_size if state.st_nlink == 1 else 0))

    def remove_place(self, name: str, place: PrivatePlace) -> None:
        """Remove what a killed process left in its private place."""
        freed_bytes = tree_bytes(place.path)
        error = None if self.dry_run else place.remove()
        if error is not None:
            self.keep(RemovalKind.STAGING, name, error)
        else:
            self.removed.append(Removal(RemovalKind.STAGING, name, freed_bytes))

    def keep(self, kind: RemovalKind, name: str, error: OSError) -> None:
        """Tell of something that could not be removed, and why."""
        where = "" if error.filename is None else f" ({error.filename})"
        self.left.append(
            f"{kind}: {name}: could not be removed: {error.strerror or error}{where}. Mend that, and run it again."
        )


def maintain(
    layout: Layout, retention: Retention, *, dry_run: bool = False, now_sec: float | None = None
) -> MaintenanceReport:
    """Remove what nothing needs any more; with ``dry_run`` only say what that is.

    Args:
        layout: the data root.
        retention: how much is kept.
        dry_run: change nothing.
        now_sec: the time ages are counted to, in seconds since the epoch.
    """
    ages = Ages(layout, wall_clock_sec() if now_sec is None else now_sec)
    report = MaintenanceReport(dry_run)
    with nullcontext() if dry_run else at_work(layout):
        _maintain(layout, retention, ages, report)
    return report


def _maintain(layout: Layout, retention: Retention, ages: Ages, report: MaintenanceReport) -> None:
    _clean_after_kills(layout, report)
    gone: set[Path] = set()
    names_taken: Counter[tuple[int, int]] = Counter()
    for artifact in artifacts(layout):
        for version in surplus_versions(artifact, retention, ages):
            folder = artifact.version(version.version)
            # Only a dry run leaves the names in place that versions before this one would have lost.
            freed_bytes = tree_bytes(folder, names_taken if report.dry_run else None)
            label = f"{artifact.label} {version.version}"
            try:
                if report.dry_run or remove_version(artifact, version.version):
                    report.removed.append(Removal(RemovalKind.VERSION, label, freed_bytes))
                    gone.add(folder)
            except OSError as error:
                report.keep(RemovalKind.VERSION, label, error)
        for path in abandoned_partials(artifact.folder):  # `muvap index rebuild` writes within a version
            if gone.isdisjoint(path.parents):
                report.remove_file(RemovalKind.STAGING, path.relative_to(layout.root).as_posix(), path)
    _clean_row_store(layout, report, ages, retention.row_grace_sec, gone)
    _clean_pack_cache(layout, report, gone)
    report.left += ages.left()
    if not report.dry_run:
        ages.save()


# --- ages -------------------------------------------------------------------------------------------------------------


class Ages:
    """What has waited long enough at ``now_sec``, and since when maintenance sees what has no credible time."""

    def __init__(self, layout: Layout, now_sec: float) -> None:
        self._root, self._now_sec, self._file = layout.root, now_sec, layout.cache / "retention.json"
        stored = read_lossy_json(self._file)
        self._stored: dict[str, float] = {
            name: since
            for name, since in (stored.items() if isinstance(stored, dict) else ())
            if isinstance(since, float) and self._is_credible(since, 0)
        }
        self._asked: set[str] = set()
        self._noted: dict[str, float] = {}

    def is_over(self, path: Path, since_sec: float, grace_sec: float) -> bool:
        """Whether ``path``, which nothing needs since ``since_sec``, has waited for longer than ``grace_sec``."""
        if grace_sec <= 0:
            return True
        name = path.relative_to(self._root).as_posix()
        self._asked.add(name)
        if not self._is_credible(since_sec, grace_sec):
            since_sec = self._stored.get(name, self._now_sec)
            self._noted[name] = since_sec
        return self._now_sec - since_sec > grace_sec

    def _is_credible(self, since_sec: float, grace_sec: float) -> bool:
        return 0 <= self._now_sec - since_sec <= grace_sec + CREDIBLE_SEC

    def left(self) -> list[str]:
        """A line about what is kept because its time is not credible."""
        if not (names := sorted(name for name in self._noted if name not in self._stored)):
            return []
        return [
            f"{len(names)} versions, rows and parts ({', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}) have "
            "times in the future or over a year ago, as a wrong clock leaves them; they wait from now on. Check this machine's "
            "clock, and run maintenance again after the grace period, or with none."
        ]

    def save(self) -> None:
        """Note since when each is seen that has no credible time."""
        others = {name: since for name, since in self._stored.items() if name not in self._asked}
        noted = {name: since for name, since in (others | self._noted).items() if (self._root / name).exists()}
        if noted != self._stored:
            write_lossy_json(self._file, noted)


# --- versions ---------------------------------------------------------------------------------------------------------


def surplus_versions(artifact: Artifact, retention: Retention, ages: Ages) -> list[StandingVersion]:
    """The versions of one artifact that maintenance removes."""
    others = [version for version in standing_versions(artifact) if not version.is_current]
    return [
        version
        for version in others[retention.keep_versions :]
        if version.left_sec is not None
        and ages.is_over(artifact.version(version.version), version.left_sec, retention.grace_sec)
    ]


def remove_version(artifact: Artifact, version: str) -> bool:
    """Remove a version that is not current; false where it is, or is gone already.

    Raises:
        OSError: it could not be removed, or not all of it: what has left its place is in staging then, for the next try.
    """
    with staged(artifact) as trash:
        with exclusive(artifact.journal):
            # It may have become current again since it was found surplus.
            if current_version(artifact) == version or not is_folder(artifact.version(version)):
                return False
            artifact.version(version).rename(trash / version)
        shutil.rmtree(trash)
    return True


# --- what killed runs left ----------------------------------------------------------------------------------------------


def _clean_after_kills(layout: Layout, report: MaintenanceReport) -> None:
    """Remove folders in staging, and files that were being written, whose process is dead."""
    for place in private_places(layout.staging):
        if not place.in_use:
            report.remove_place(place.path.name, place)
    remove_unfinished(layout, report)


def remove_unfinished(layout: Layout, report: MaintenanceReport) -> None:
    """Remove the files outside published trees that a process was writing when it was killed, also for an export."""
    for place in abandoned_exports(layout, dry_run=report.dry_run):
        report.remove_place(str(place.path), place)
    for folder in (layout.row_store, layout.cache, layout.reports):
        for path in abandoned_partials(folder):
            report.remove_file(RemovalKind.STAGING, path.relative_to(layout.root).as_posix(), path)


def tree_bytes(folder: Path, names_taken: Counter[tuple[int, int]] | None = None) -> int:
    """Bytes that removing ``folder`` gives back: of files that have no other name.

    ``names_taken`` counts, by device and inode, names that count as removed already; those of ``folder`` are added.
    """
    taken = Counter() if names_taken is None else names_taken
    freed = 0
    for state in file_states(folder):
        file = (state.st_dev, state.st_ino)
        taken[file] += 1
        if taken[file] == state.st_nlink:
            freed += state.st_size
    return freed


# --- row store and cache ------------------------------------------------------------------------------------------------


def _clean_row_store(layout: Layout, report: MaintenanceReport, ages: Ages, grace_sec: float, gone: set[Path]) -> None:
    if not layout.row_store.is_dir():
        return
    with row_retention.alone(layout.row_store, dry_run=report.dry_run) as alone:
        if not alone:
            report.left.append(
                "row store: a run is using it, nothing was removed there. Run maintenance when it is over."
            )
            return
        keys = listed_rows(layout, gone)

        def is_old(path: Path, written_sec: float) -> bool:
            return ages.is_over(path, written_sec, grace_sec)

        unused = row_retention.unused(layout.row_store, keys, is_old)
        if unused.unread:
            report.left.append(
                f"row store: {len(unused.unread)} listed rows cannot be read ({', '.join(unused.unread[:3])}), so that the "
                "parts they were made of are not known; all parts stay. Materialize ref2va/encoded_latents again."
            )
        for kind, paths in ((RemovalKind.ROW, unused.rows), (RemovalKind.PART, unused.parts)):
            for path in paths:
                report.remove_file(kind, path.relative_to(layout.row_store).as_posix(), path)


def listed_rows(layout: Layout, without: Collection[Path] = ()) -> set[str]:
    """Keys of all rows that a standing version lists, those in ``without`` apart."""
    folder = layout.root / "ref2va" / "encoded_latents"
    versions = (path.parent for path in folder.glob(f"*/*/{ROWS_FILE}") if not path.parent.is_symlink())
    return {row.key for version in versions if version not in without for row in _rows_of(version)}


def _rows_of(version: Path) -> list[StandingRow]:
    """The rows a version lists; none where it was removed since it was found."""
    try:
        return read_rows(version)
    except FormatError:
        if version.is_dir():
            raise
        return []


def _clean_pack_cache(layout: Layout, report: MaintenanceReport, gone: set[Path]) -> None:
    for path in sorted(layout.pack_cache.glob("*/*.json")):
        folder = layout.asd_packed_shards(path.parent.name).version(path.stem)
        if folder in gone or not folder.is_dir():
            report.remove_file(RemovalKind.CACHE, path.relative_to(layout.root).as_posix(), path)
