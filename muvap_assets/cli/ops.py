"""Verbs that run a data root: its versions. The domain is imported when a verb runs, so that ``muvap --help`` is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muvap_assets.cli.output import SHOWN, print_json, print_table, say
from muvap_assets.cli.paths import FILE, FOLDER
from muvap_assets.errors import ConfigError
from muvap_assets.storage.paths import DATA_ROOT_VARIABLE, path_of

if TYPE_CHECKING:
    from muvap_assets.layout import Layout
    from muvap_assets.versions import StandingVersion

F = TypeVar("F", bound=Callable[..., Any])


def data_root_option(command: F) -> F:
    """The option that says which data root a verb is about."""
    return click.option(
        "--data-root",
        type=FOLDER,
        envvar=DATA_ROOT_VARIABLE,
        default="data",
        show_default="$MUVAP_DATA_ROOT, or ./data",
        help="Where everything is published.",
    )(command)


def datasets_option(why: str) -> Callable[[F], F]:
    """The option that names the datasets file, and what a verb reads there."""
    return click.option(
        "--datasets",
        type=FILE,
        envvar="MUVAP_DATASETS",
        show_envvar=True,
        help=f"datasets.yaml: {why}",
    )


def layout_of(data_root: Path) -> Layout:
    """The layout below a data root, which is remembered as it is now."""
    from muvap_assets.layout import Layout
    from muvap_assets.storage.root import begin

    layout = Layout(data_root.resolve())
    begin(layout.root)
    return layout


@click.command()
@click.argument("artifact")
@click.argument("partition")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list.")
@data_root_option
def versions(artifact: str, partition: str, as_json: bool, data_root: Path) -> None:
    """List the versions of ARTIFACT (asd/packed_shards) that stand for PARTITION, the current one first."""
    from dataclasses import asdict

    from muvap_assets.versions import find_artifact, standing_versions

    standing = standing_versions(find_artifact(layout_of(data_root), artifact, partition))
    if as_json:
        print_json([asdict(version) for version in standing])
        return
    print_table([("version", "", "became current", "bytes"), *(_version_row(version) for version in standing)])


def _version_row(version: StandingVersion) -> tuple[str, ...]:
    when = "unknown" if version.published_sec is None else _time(version.published_sec)
    return version.version, "current" if version.is_current else "", when, f"{version.size_bytes:,}"


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):  # written by a clock that was nowhere near
        return "unknown"


@click.command()
@click.argument("before")
@click.argument("after")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@data_root_option
def diff(before: str, after: str, as_json: bool, data_root: Path) -> None:
    """Say which rows AFTER has and BEFORE has not, which it lacks, and what changed of the others.

    Each is the folder of a version, or ARTIFACT/PARTITION@VERSION below the data root, such as asd/manifest/talks@2f0c6b1f;
    without @VERSION the current one.
    """
    from muvap_assets.version_diff import diff_versions

    found = diff_versions(_version_folder(before, data_root), _version_folder(after, data_root))
    if as_json:
        changed = {
            key: {change.field: [change.before, change.after] for change in changes}
            for key, changes in found.changed.items()
        }
        values = {"added": found.added, "removed": found.removed, "changed": changed, "unchanged": found.unchanged}
        if found.recomputed:
            values["recomputed"] = {key: each and asdict(each) for key, each in found.recomputed.items()}
            values["devices"] = found.devices
        print_json(values)
        return
    lines = [f"+ {key}" for key in found.added] + [f"- {key}" for key in found.removed]
    lines += [f"~ {key}: {'; '.join(c.text() for c in changes)}" for key, changes in found.changed.items()]
    for line in lines[:SHOWN]:
        say(line)
    if len(lines) > SHOWN:
        say(f"... and {len(lines) - SHOWN} more; --json prints all of them")
    if found.recomputed:
        say(found.recomputed_text)
    say(
        f"{len(found.added)} added, {len(found.removed)} removed, {len(found.changed)} changed, {found.unchanged} unchanged"
    )


def _version_folder(name: str, data_root: Path) -> Path:
    from muvap_assets.versions import find_artifact, standing_versions

    folder = path_of(name, "version")
    if folder.is_dir():
        return folder.resolve()
    place, _, wanted = name.partition("@")
    line_and_artifact, _, partition = place.rpartition("/")
    artifact = find_artifact(layout_of(data_root), line_and_artifact, partition)
    known = [version.version for version in standing_versions(artifact)]
    matching = [version for version in known if version.startswith(wanted)] if wanted else known[:1]
    if len(matching) != 1:
        raise ConfigError(f"{name}: {len(matching)} versions of that name; required: one of {known}. Name one.")
    return artifact.version(matching[0])


@click.command()
@click.argument("artifact")
@click.argument("partition")
@click.argument("version")
@data_root_option
def rollback(artifact: str, partition: str, version: str, data_root: Path) -> None:
    """Let readers of ARTIFACT for PARTITION see VERSION again, in one step, after reading it through.

    VERSION may be shortened. A version that is damaged is refused. What was built from the version left is then refused as an
    input until it is materialized again.
    """
    from muvap_assets.publish import current_version
    from muvap_assets.versions import find_artifact, roll_back

    found = find_artifact(layout_of(data_root), artifact, partition)
    before = roll_back(found, version)
    say(f"{found.label}: current is version {current_version(found)}, was {before}")


@click.command()
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    show_default="keep_versions of --datasets, or 3",
    help="Versions beside the current one.",
)
@click.option(
    "--grace-hours",
    type=click.FloatRange(min=0),
    default=24.0,
    show_default=True,
    help="A version stays this long after another took its place, for readers that opened it.",
)
@click.option(
    "--row-grace-days",
    type=click.FloatRange(min=0),
    default=14.0,
    show_default=True,
    help="A row no version lists stays this long, for a failed run that comes back for it.",
)
@datasets_option("says how many versions to keep.")
@data_root_option
def maintenance(
    dry_run: bool, keep: int | None, grace_hours: float, row_grace_days: float, datasets: Path | None, data_root: Path
) -> None:
    """Remove old versions, what killed runs left, and rows of the row store that no version lists.

    Never what is current, what a standing version lists or links, or what a run is using.
    """
    from muvap_assets.datasets import load_datasets
    from muvap_assets.retention import DAY_SEC, Retention, maintain

    if keep is None:
        keep = Retention().keep_versions if datasets is None else load_datasets(datasets).keep_versions
    policy = Retention(keep_versions=keep, grace_sec=grace_hours * 3600, row_grace_sec=row_grace_days * DAY_SEC)
    report = maintain(layout_of(data_root), policy, dry_run=dry_run)
    for removal in report.removed:
        say(f"{removal.kind}: {removal.name}: {removal.freed_bytes:,} bytes")
    for line in report.left:
        say(f"left: {line}")
    done = "would be removed" if dry_run else "removed"
    say(f"{len(report.removed)} {done}, {report.freed_bytes:,} bytes")


@click.command()
@click.option(
    "--recording", "recordings", multiple=True, help="A recording's id: the first 16 digits of its file's SHA-256."
)
@click.option(
    "--media", multiple=True, help="SHA-256 of a media file, 64 digits: a recording, faces, a video, an image."
)
@click.option("--sample", "samples", multiple=True, help="A sample_id, or the id of a ref2va row.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@data_root_option
def purge(dry_run: bool, data_root: Path, **named: tuple[str, ...]) -> None:
    """Remove a recording, a media file or a sample from everything made of it but what is current.

    Take its rows out of the source manifest and materialize again first; until everything current is made without it, nothing
    is removed and what is missing is said. Then versions that hold it go as a whole, and its rows, parts and cache entries.
    Exports, backups and Dagster's own event log are not reached.
    """
    from muvap_assets.takedown import Takedown
    from muvap_assets.takedown import purge as remove_everywhere

    takedown = Takedown(**{name: frozenset(values) for name, values in named.items()})
    report = remove_everywhere(layout_of(data_root), takedown, dry_run=dry_run)
    for removal in report.removed:
        say(f"{removal.kind}: {removal.name}")
    if report.outside:
        say(f"left: {report.outside} rows have another name outside the data root, in a dataset that was exported")
    if not report.removed and not report.left:
        say(
            f"nothing that was named was found below {data_root.resolve()}. Was it spelled as the manifest has it, is this the "
            "data root, and was it not purged before?"
        )
    for line in report.left:
        say(f"left: {line}", err=True)
    say(f"{len(report.removed)} {'would be removed' if dry_run else 'removed'}")
    if report.left:
        sys.exit(1)


@click.command("adopt-root")
@data_root_option
def adopt_root(data_root: Path) -> None:
    """Take over a data root of an earlier release, which has no marker, after reading every current version whole.

    Needed only where publishing there is refused because its journals do not say the same as its `current` links.
    """
    from muvap_assets.adoption import adopt

    layout = layout_of(data_root)
    count = adopt(layout, lambda artifact: say(f"reading {artifact.label}"))
    say(f"{layout.root}: adopted, {count} current versions are whole")


COMMANDS = (versions, diff, rollback, maintenance, purge)
