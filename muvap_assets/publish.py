"""How anything becomes visible: stage, check what was staged, publish atomically, move ``current``.

One protocol for every artifact, with and without Dagster:

1. the output is written to a private folder that no reader looks into;
2. it is reopened from there, and every declared check runs on what was read back;
3. any failed ERROR check, an undeclared one, or a declared one that did not run: the folder is removed, nothing changes;
4. otherwise everything is fsynced, renamed to ``<artifact>/<version>`` in one step, and ``current`` is replaced in one step.

``<version>`` is a digest of the published files, so the same bytes give the same version and publishing them again is a
no-op. Files named in ``location_dependent`` (they hold paths) stay out of the digest and are refreshed instead.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from muvap_assets.codes import Code, Severity
from muvap_assets.data_root import claimed
from muvap_assets.disk import free_bytes, sizes
from muvap_assets.errors import PublishError, StaleInputError, ValidationError
from muvap_assets.findings import Finding
from muvap_assets.journal import record
from muvap_assets.layout import NAME_PATTERN, VERSION_LENGTH, Artifact, Layout
from muvap_assets.storage.digests import file_sha256
from muvap_assets.storage.files import fsync, is_partial, replacing
from muvap_assets.storage.locks import exclusive, private_place, remove_abandoned, shared
from muvap_assets.storage.root import make_folder, require_same
from muvap_assets.storage.trees import is_folder, walk
from muvap_assets.threads import thread_pool

T = TypeVar("T")
P = ParamSpec("P")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """What one check of one artifact found.

    ``severity`` says what a failure means: ERROR keeps the artifact from being published, WARNING is only reported.
    ``numbers`` holds plain JSON values; ``findings`` the offenders, first ones first.
    """

    name: str
    passed: bool
    severity: Severity = Severity.ERROR
    numbers: Mapping[str, int | float | str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, name: str, found: Sequence[Finding], /, **numbers: int | float | str) -> CheckOutcome:
        """An ERROR check that passes when it found nothing."""
        return cls(name=name, passed=not found, numbers=numbers, findings=tuple(found))

    @property
    def blocks(self) -> bool:
        """Whether this outcome keeps the artifact from being published."""
        return not self.passed and self.severity is Severity.ERROR


@dataclass(frozen=True, slots=True)
class Published:
    """A published version. ``created`` is false where the same bytes exist already."""

    version: str
    path: Path
    created: bool


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What a run did: the value its build returned, every check, and the version, if one was published."""

    value: T
    checks: tuple[CheckOutcome, ...]
    published: Published | None

    @property
    def blocking(self) -> tuple[CheckOutcome, ...]:
        """The checks that kept it from being published."""
        return tuple(check for check in self.checks if check.blocks)


@contextmanager
def at_work(layout: Layout) -> Iterator[None]:
    """Keep a purge of the data root from beginning until the block ends; one that is under way is waited for.

    Held from before the first input is looked up until the last cache is written: what is published, and what is remembered of
    it, was read either before a purge looked for it or after everything that was purged was gone.
    """
    with (
        claimed(layout),
        shared(layout.in_use, lambda: _LOG.warning("%s: waits for a purge of this data root to end", layout.root)),
    ):
        yield


def works(make: Callable[Concatenate[Layout, P], T]) -> Callable[Concatenate[Layout, P], T]:
    """A function that makes something below a data root, its first argument, :func:`at_work` while it runs."""

    @wraps(make)
    def working(layout: Layout, /, *arguments: P.args, **options: P.kwargs) -> T:
        with at_work(layout):
            return make(layout, *arguments, **options)

    return working


def run_checked(
    artifact: Artifact,
    *,
    build: Callable[[Path], T],
    check: Callable[[Path, T], Iterable[CheckOutcome]],
    declared: Collection[str],
    location_dependent: Collection[str] = (),
    findings: Callable[[T], Iterable[Finding]] = lambda value: (),
) -> Outcome[T]:
    """Stage, check and publish one artifact; what was found is left in its reports, whether or not it was published.

    Args:
        artifact: where it is published.
        build: writes the output into the folder it is given.
        check: reopens that folder and returns one outcome a check.
        declared: the names of the checks that have to run, no fewer and no others.
        location_dependent: relative names of files that hold paths; they stay out of the version's digest.
        findings: what the build found of its input, also what no check is about.

    Raises:
        PublishError: the disk is full, or something else stands where the version would go.
    """
    try:
        with at_work(Layout(artifact.root)), staged(artifact) as folder:
            value = _built(artifact, build, folder)
            outcomes = compare_with_declared(list(check(folder, value)), declared)
            found = {finding: finding for finding in findings(value)}
            # A check may read a finding of the build back: that of the build knows the file it is about.
            outcomes = tuple(
                replace(each, findings=tuple(found.setdefault(finding, finding) for finding in each.findings))
                for each in outcomes
            )
            write_findings(artifact.findings, found)
            if any(outcome.blocks for outcome in outcomes):
                return Outcome(value, outcomes, None)
            return Outcome(value, outcomes, publish(folder, artifact, location_dependent))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PublishError(
                f"{artifact.label}: the disk that holds {artifact.root} is full ({sizes(free_bytes(artifact.root))[0]} free); "
                "nothing was published, `current` is as it was, and the staged files were removed. Free some space "
                "(`muvap maintenance`), or move the data root."
            ) from error
        raise


def _built(artifact: Artifact, build: Callable[[Path], T], folder: Path) -> T:
    try:
        return build(folder)
    except ValidationError as error:
        write_findings(artifact.findings, error.findings)
        raise


def compare_with_declared(outcomes: Sequence[CheckOutcome], declared: Collection[str]) -> tuple[CheckOutcome, ...]:
    """``outcomes`` with a failed one added for each declared check that did not run.

    Raises:
        PublishError: a check ran that nobody declared, or one ran twice: a programming error.
    """
    names = [outcome.name for outcome in outcomes]
    surplus = sorted({name for name in names if name not in declared or names.count(name) > 1})
    if surplus:
        raise PublishError(
            f"checks {surplus} ran undeclared or twice, declared are {sorted(declared)}. Declare each once."
        )
    return (*outcomes, *(not_run(name, "it returned no outcome") for name in sorted(set(declared) - set(names))))


def not_run(name: str, reason: str) -> CheckOutcome:
    """The failed outcome of a declared check that did not run."""
    return CheckOutcome.of(name, [Finding(Code.CHECK_NOT_RUN, None, f"check {name} did not run: {reason}")])


@contextmanager
def staged(artifact: Artifact) -> Iterator[Path]:
    """A private, empty folder on the artifact's file system, gone afterwards unless it was published.

    What killed runs left there is removed first.
    """
    with claimed(Layout(artifact.root)):
        remove_abandoned(artifact.staging)
        with private_place(artifact.staging, f"{artifact.line}-{artifact.name}-{artifact.partition}") as private:
            folder = private / "tree"
            make_folder(folder)
            yield folder


def content_version(folder: Path, location_dependent: Collection[str] = ()) -> str:
    """A digest over relative paths and bytes of every file in ``folder``.

    Raises:
        PublishError: the folder is empty, or holds a link or a special file.
    """
    files = [path for path in tree_files(folder) if path.relative_to(folder).as_posix() not in location_dependent]
    if not files:
        raise PublishError(f"{folder}: nothing to publish, at least one file is required. The build wrote nothing.")
    digest = hashlib.sha256()
    with thread_pool(os.cpu_count()) as pool:
        for path, file_digest in zip(files, pool.map(file_sha256, files), strict=True):
            digest.update(f"{path.relative_to(folder).as_posix()}\0{file_digest}\n".encode())
    return digest.hexdigest()[:VERSION_LENGTH]


def tree_files(folder: Path) -> list[Path]:
    """Every regular file below ``folder``, sorted by relative path, less what a killed `muvap index rebuild` was writing.

    Raises:
        PublishError: there is a link or a special file.
    """
    files = sorted(walk(folder))
    for path, foreign in files:
        if foreign:
            raise PublishError(
                f"{folder / path}: neither a plain file nor a folder, required in a published tree. Remove it."
            )
    return [folder / path for path, _ in files if not is_partial(Path(path))]


def publish(folder: Path, artifact: Artifact, location_dependent: Collection[str] = ()) -> Published:
    """Move a staged folder to its version and point ``current`` at it, each in one step.

    Two publishers of the same bytes may race: whoever comes second finds that the version exists and leaves it.

    Raises:
        PublishError: a non-empty folder that is not this version stands in its place, the journal cannot be written, or the data
            root is not the one that this process began with.
    """
    version = content_version(folder, location_dependent)
    fsync_tree(folder)
    make_folder(artifact.folder)
    # Without the lock, maintenance could remove a version between its being found and becoming current.
    with exclusive(artifact.journal):
        require_same(artifact.root)
        created = _place(folder, artifact, version, location_dependent)
        fsync(artifact.folder)
        make_current(artifact, version, folder.parent)
    return Published(version, artifact.version(version), created)


def _place(folder: Path, artifact: Artifact, version: str, location_dependent: Collection[str]) -> bool:
    """Rename a staged folder to its version; false where that version exists already."""
    target = artifact.version(version)
    try:
        folder.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        if not is_folder(target) or content_version(target, location_dependent) != version:
            raise PublishError(
                f"{target}: holds something else than version {version}, required is a free place. A published version "
                "is never changed: find out who wrote there, and move it away."
            ) from error
        for name in location_dependent:
            (folder / name).replace(target / name)
        return False
    return True


def make_current(artifact: Artifact, version: str, scratch: Path) -> None:
    """Point ``current`` at a version and write that down; called under the lock, with a private folder to work in.

    Raises:
        PublishError: ``current`` points there, and the journal does not say so; or the data root is not the one it was.
    """
    require_same(artifact.root)
    try:
        if current_version(artifact) != version:
            point_current(artifact, version, scratch)
        record(artifact, version)
    except OSError as error:
        if current_version(artifact) != version:
            raise
        raise PublishError(
            f"{artifact.label}: version {version} is current, but that could not be written to {artifact.journal} "
            f"({error.strerror or error}); required: a line for each move, by which older versions are kept and found. Free "
            "some space (`muvap maintenance`), then do the same again: what is missing is written then."
        ) from error


def point_current(artifact: Artifact, version: str, scratch: Path) -> None:
    """Replace the artifact's ``current`` link atomically; ``scratch`` is a private folder on the same file system."""
    link = scratch / f"current-{uuid.uuid4().hex}"
    link.symlink_to(version)
    link.replace(artifact.current)
    fsync(artifact.folder)


def current_version(artifact: Artifact) -> str | None:
    """The version ``current`` points at, or ``None`` where nothing was published yet."""
    try:
        version = str(artifact.current.readlink())
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINVAL):  # nothing, or no link
            return None
        raise
    # A link to elsewhere is none of ours, wherever it leads.
    return version if NAME_PATTERN.fullmatch(version) and is_folder(artifact.version(version)) else None


def require_current(artifact: Artifact) -> Published:
    """The current version of an input.

    Raises:
        StaleInputError: nothing was published yet.
    """
    version = current_version(artifact)
    if version is None:
        raise StaleInputError(
            f"{artifact.label}: no published version, required as an input. Materialize {artifact.line}/{artifact.name} first."
        )
    return Published(version, artifact.version(version), False)


def require_pinned(artifact: Artifact, *, inputs: Mapping[str, str], name: str, required: str) -> None:
    """Refuse an artifact that was built from another version of an input than the one in use.

    Raises:
        StaleInputError: ``inputs[name]`` is not ``required``.
    """
    if inputs.get(name) != required:
        raise StaleInputError(
            f"{artifact.label}: built from {name} version {inputs.get(name)}, required is version {required}, which is "
            f"current. Materialize {artifact.line}/{artifact.name} again."
        )


def write_json(path: Path, value: Any) -> None:
    """Write JSON that is the same bytes for the same value: fixed key order as given, LF, UTF-8, no NaN."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def write_findings(path: Path, findings: Iterable[Finding]) -> None:
    """Write findings as JSON Lines, replacing the file in one step."""
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as stream:
        for finding in findings:
            stream.write(json.dumps(finding.to_dict(), ensure_ascii=False) + "\n")


def read_findings(path: Path) -> list[Finding]:
    """The findings written by :func:`write_findings`."""
    with path.open(encoding="utf-8") as stream:
        return [Finding.from_dict(json.loads(line)) for line in stream]


def fsync_tree(folder: Path) -> None:
    """Make a folder and everything below it durable."""
    for path in tree_files(folder):
        fsync(path)
    for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        fsync(path)
    fsync(folder)
