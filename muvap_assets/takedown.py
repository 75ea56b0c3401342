"""Taking a recording, a media file or a sample out of everything that was ever made of it.

The order is fixed: first it leaves the source manifest and everything current is made again without it; only then is it
purged from what stands beside: rows and parts of the row store, what caches and reports say about it, and versions that hold
it, as a whole, manifests last. Until then nothing is removed, and what has to be made again is said.

| named by     | found in asd by                             | found in ref2va by                                           |
|--------------|---------------------------------------------|--------------------------------------------------------------|
| recording    | ``recording_id``                            |                                                              |
| media        | ``recording_id``; digests of the face files | the digests that manifests and rows were written with        |
| sample       | ``sample_id``, also of findings             | ``id``, also of findings                                     |

Face files are read as they are now: purge first and delete the file afterwards, or name the samples. A ref2va manifest or row of
an earlier release does not say what it was made from: it may hold any file. What lies outside the data root (exports,
backups, Dagster's event log) is not reached.

A purge has the data root alone, so that nothing is being made meanwhile: whoever makes something shares its lock from before it
looks at an input until its last cache is written (``publish.at_work``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from muvap_assets.asd.corpora.tsv import read_tsv
from muvap_assets.asd.manifest_files import FINDINGS_FILE, TSV_FILE
from muvap_assets.data_root import claimed
from muvap_assets.disk import file_states
from muvap_assets.errors import ConfigError, PublishError, StaleInputError
from muvap_assets.layout import Artifact, Layout
from muvap_assets.media.audio import ID_LENGTH
from muvap_assets.provenance import read_inputs
from muvap_assets.publish import current_version, read_findings
from muvap_assets.readback import reading
from muvap_assets.ref2va import row_retention
from muvap_assets.ref2va.line import media_cache
from muvap_assets.ref2va.manifest_files import MEDIA_COLUMN
from muvap_assets.ref2va.media_facts import DIGESTS_NAME
from muvap_assets.ref2va.records import provenance_of
from muvap_assets.retention import (
    MaintenanceReport,
    Removal,
    RemovalKind,
    listed_rows,
    remove_unfinished,
    remove_version,
)
from muvap_assets.storage.digests import Digests
from muvap_assets.storage.files import is_partial
from muvap_assets.storage.locks import private_places, remove_abandoned, tried
from muvap_assets.version_diff import kind_of, read_rows, row_files
from muvap_assets.versions import artifacts, standing_versions

_SHOWN = 5
_DIGEST_LENGTH = 64
_MADE_IN_ORDER = ("manifest", "loudness_index", "packed_shards", "encoded_latents", "parquet_cache_index")


@dataclass(frozen=True, slots=True, kw_only=True)
class Takedown:
    """What is to go; any of the three. ``media`` are SHA-256 digests of files, ``recordings`` their first 16 digits.

    Raises:
        ConfigError: a digest is none, or a sample has no name.
    """

    recordings: frozenset[str] = frozenset()
    media: frozenset[str] = frozenset()
    samples: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name, length in (("recordings", ID_LENGTH), ("media", _DIGEST_LENGTH)):
            digests = frozenset(_digits(name, value, length) for value in getattr(self, name))
            object.__setattr__(self, name, digests)
        if any(not sample.strip() for sample in self.samples):
            raise ConfigError(
                "purge: samples: an empty name; required: a sample_id, or the id of a ref2va row. Name the sample."
            )

    @property
    def recording_ids(self) -> frozenset[str]:
        """The recordings that are named, by either digest."""
        return self.recordings | {digest[:ID_LENGTH] for digest in self.media}


def _digits(name: str, value: str, length: int) -> str:
    digits = value.strip().lower()
    if not re.fullmatch(rf"[0-9a-f]{{{length}}}", digits):
        raise ConfigError(
            f"purge: {name} {value!r}: {len(digits)} characters; required: the {'' if name == 'media' else 'first '}{length} "
            "hexadecimal digits of the file's SHA-256, and nothing else. `sha256sum FILE` prints it."
        )
    return digits


@dataclass(frozen=True, slots=True)
class Holding:
    """A version that holds what is to go, and in which rows."""

    artifact: Artifact
    version: str
    rows: tuple[str, ...]

    @property
    def is_current(self) -> bool:
        """Whether readers see it."""
        return current_version(self.artifact) == self.version


@dataclass(slots=True)
class TakedownReport(MaintenanceReport):
    """What was removed, or would be, and which rows it was."""

    samples: set[str] = field(default_factory=set)
    outside: int = 0
    """Rows whose file has another name outside the data root, such as in an exported dataset."""


def purge(layout: Layout, takedown: Takedown, *, dry_run: bool = False) -> TakedownReport:
    """Remove every trace of ``takedown`` from what is published or remembered.

    Args:
        layout: the data root.
        takedown: what is to go.
        dry_run: only say what would be removed; takes no lock and writes nothing.

    Raises:
        ConfigError: nothing is named.
        StaleInputError: something current still holds it; nothing was removed.
        PublishError: a run is in progress, which may publish it again; nothing was removed.
    """
    if not (takedown.recording_ids or takedown.samples):
        raise ConfigError("purge: nothing named; required: a recording, a media digest or a sample. Name one.")
    looks = _Looks(layout, takedown)
    # Before anybody has to wait: it may take long to read all faces, and the second look reads only what was written since.
    holdings = looks.required_rebuilt()
    with ExitStack() as alone:
        if not dry_run:
            _have_alone(layout, alone)
            holdings = looks.required_rebuilt()
        report = TakedownReport(
            dry_run, samples={row for holding in holdings for row in holding.rows} | takedown.samples
        )
        _remove_all(layout, takedown, holdings, report)
    return report


def _have_alone(layout: Layout, stack: ExitStack) -> None:
    """Keep anything from being made below the data root until ``stack`` is closed."""
    stack.enter_context(claimed(layout))
    alone = stack.enter_context(tried(layout.in_use)) and stack.enter_context(row_retention.alone(layout.row_store))
    if alone:
        remove_abandoned(layout.staging)
    busy = [place.path.name for place in private_places(layout.staging) if place.in_use]
    if not alone or busy:
        raise PublishError(
            f"purge: a run is in progress ({', '.join(busy[:_SHOWN]) or 'it uses the data root'}); required: none, since it may "
            "publish again what is purged. Nothing was removed. Wait for it, or end it, and purge again."
        )


@dataclass(slots=True)
class _Looks:
    """Looks for what is to go; a second look reads only the face files that were written since the first."""

    layout: Layout
    takedown: Takedown
    digests: Digests = field(default_factory=Digests)

    def required_rebuilt(self) -> list[Holding]:
        """Every standing version that holds any of it, artifact by artifact; none of them is current.

        Raises:
            StaleInputError: one is.
        """
        holdings = self.holdings()
        _require_rebuilt([holding for holding in holdings if holding.is_current])
        return holdings

    def holdings(self) -> list[Holding]:
        """Every standing version that holds any of it, artifact by artifact."""
        holdings = []
        for artifact in artifacts(self.layout):
            for version in standing_versions(artifact):
                rows = self._rows_in(artifact.version(version.version))
                if rows:
                    holdings.append(Holding(artifact, version.version, tuple(rows)))
        named: dict[tuple[str, str], set[str]] = {}
        for holding in holdings:
            if kind_of(holding.artifact.version(holding.version)).endswith("/manifest"):
                named.setdefault((holding.artifact.line, holding.artifact.partition), set()).update(holding.rows)
        return [*holdings, *_downstream(self.layout, holdings, named)]

    def _rows_in(self, folder: Path) -> list[str]:
        """Rows of one version that are named by what the version itself says, or by the faces it names."""
        try:
            kind = kind_of(folder)
        except ConfigError:
            return []
        recordings, media = self.takedown.recording_ids, self.takedown.media
        rows = read_rows(folder)
        found = [
            key
            for key, row in rows.items()
            if key in self.takedown.samples or str(row.get("recording_id"))[:ID_LENGTH] in recordings
        ]
        found += sorted(_set_aside(folder) & self.takedown.samples)
        if media and kind == "asd/manifest":
            found += self._clips_with_faces(folder)
        elif media and kind == "ref2va/manifest":
            found += [key for key, row in rows.items() if _may_be_made_of(row.get(MEDIA_COLUMN), media)]
        elif media:
            made = ((key, _media_of(path)) for key, path in row_files(folder).items())
            found += [key for key, digests in made if digests is not None and media & digests]
        return list(dict.fromkeys(found))

    def _clips_with_faces(self, folder: Path) -> Iterator[str]:
        seen: dict[Path, bool] = {}  # many tracks are of one video
        for row in read_tsv(folder / TSV_FILE).rows:
            path = folder / row.visual_path
            if path not in seen:
                files = sorted(path.iterdir()) if path.is_dir() else [path]
                seen[path] = any(self._digest(file) in self.takedown.media for file in files)
            if seen[path]:
                yield row.sample_id

    def _digest(self, path: Path) -> str | None:
        try:
            return self.digests.of(path)
        except OSError:
            return None


def _may_be_made_of(digests: list[str] | None, media: frozenset[str]) -> bool:
    """Whether one of ``media`` is among ``digests``; what does not say what it was made from may be made of any."""
    return digests is None or not media.isdisjoint(digests)


def _media_of(row: Path) -> set[str] | None:
    """Digests of what a row's file was made from, or ``None`` where it does not say."""
    media = (provenance_of(row) or {}).get("media")
    return set(media) if isinstance(media, list) else None


def _set_aside(folder: Path) -> set[str]:
    """Samples that a version lists in its findings: what is said of them is kept although their rows are not."""
    path = folder / FINDINGS_FILE
    with reading(path):
        return {each.sample_id for each in read_findings(path) if each.sample_id} if path.is_file() else set()


def _downstream(
    layout: Layout, holdings: list[Holding], named: Mapping[tuple[str, str], set[str]]
) -> Iterator[Holding]:
    """Versions made from a manifest that holds it, which do not say it themselves."""
    known = {holding.artifact.version(holding.version) for holding in holdings}
    for artifact in artifacts(layout):
        dataset = artifact.partition
        if artifact.name == "encoded_latents":
            dataset = artifact.partition.partition(".")[2]
        ids = named.get((artifact.line, dataset), set())
        for version in standing_versions(artifact) if ids and artifact.name != "manifest" else []:
            folder = artifact.version(version.version)
            if folder in known or not _made_from(layout, artifact, dataset, folder, known):
                continue
            rows = tuple(key for key in dict.fromkeys([*read_rows(folder), *sorted(_set_aside(folder))]) if key in ids)
            if rows:
                yield Holding(artifact, version.version, rows)


def _made_from(layout: Layout, artifact: Artifact, dataset: str, folder: Path, known: set[Path]) -> bool:
    """Whether a version was made from a manifest in ``known``; taken to be where that is not to be found out."""
    version = read_inputs(folder).get(f"{artifact.line}/manifest", "")
    manifest = layout.artifact(artifact.line, "manifest", dataset).version(version)
    return not version or manifest in known or not manifest.is_dir()


def _step(holding: Holding) -> int:
    """How late in its line the version is made."""
    return _MADE_IN_ORDER.index(kind_of(holding.artifact.version(holding.version)).partition("/")[2])


def _require_rebuilt(current: list[Holding]) -> None:
    if not current:
        return
    current = sorted(current, key=_step)
    lines = [
        f"{holding.artifact.label}: {len(holding.rows)} rows ({', '.join(holding.rows[:_SHOWN])}"
        f"{', ...' if len(holding.rows) > _SHOWN else ''}) in version {holding.version}"
        for holding in current
    ]
    raise StaleInputError(
        "purge: what is current still holds it; required: everything current made without it. Take the rows out of the "
        "source manifest, materialize these in this order, and purge again; nothing was removed.\n  "
        + "\n  ".join(lines)
        + "\nA partition that is no longer in datasets.yaml cannot be made again: retire it by removing its `current` links, "
        "purge again, and remove its folders then. Here they would be\n  "
        + "\n  ".join(str(holding.artifact.current) for holding in current)
    )


# --- removing -----------------------------------------------------------------------------------------------------------


def _remove_all(layout: Layout, takedown: Takedown, holdings: list[Holding], report: TakedownReport) -> None:
    """Remove what is found through something else before that.

    After a kill the same command finds what is left: ids are known by manifests, and files that are gone by their digests.
    """
    digests = media_cache(layout) / DIGESTS_NAME
    texts = {*_texts_naming(layout, takedown, report.samples)}
    texts |= {
        layout.pack_tracks(holding.artifact.partition, holding.version)
        for holding in holdings
        if holding.artifact.name == "packed_shards"
    }
    remove_unfinished(layout, report)
    _purge_row_store(layout, report, holdings, takedown.media)
    for path in sorted(texts - {digests}):
        report.remove_file(RemovalKind.CACHE, path.relative_to(layout.root).as_posix(), path)
    for holding in sorted(holdings, key=_step, reverse=True):
        _remove_holding(holding, report)
    if digests in texts:
        report.remove_file(RemovalKind.CACHE, digests.relative_to(layout.root).as_posix(), digests)


def _remove_holding(holding: Holding, report: TakedownReport) -> None:
    artifact, version = holding.artifact, holding.version
    size = sum(state.st_size for state in file_states(artifact.version(version)))
    if not report.dry_run and not remove_version(artifact, version):
        raise PublishError(
            f"{artifact.label} version {version}: became current while it was purged; required: that it stays behind. "
            "Somebody rolled back to it: materialize the artifact again, and purge again."
        )
    report.removed.append(Removal(RemovalKind.VERSION, f"{artifact.label} {version}", size))


def _purge_row_store(layout: Layout, report: TakedownReport, holdings: list[Holding], media: frozenset[str]) -> None:
    """Remove rows of these ids or media that nothing standing lists, and every part that no row left names.

    A part does not say whose it is: one that no row names may be of what has to go. But it may as well be the work of an
    encode that is not over, so parts go only where a version of ref2va holds what has to go, or a row does.
    """
    store = layout.row_store
    listed = listed_rows(layout, {holding.artifact.version(holding.version) for holding in holdings})
    rows: list[Path] = []
    needed: set[str] = set()
    for path in sorted(store.glob("rows/*/*.row")):
        if path.stem not in listed and _may_be_of(path, report.samples, media):
            rows.append(path)
        else:
            needed |= row_retention.parts_of(path) or set()
    if rows or any(holding.artifact.line == "ref2va" for holding in holdings):
        for path in sorted(store.glob("parts/*/*/*.part")):
            if path.stem not in needed:
                report.remove_file(RemovalKind.PART, path.relative_to(layout.root).as_posix(), path)
    for path in rows:
        report.outside += path.stat().st_nlink > 1
        report.remove_file(RemovalKind.ROW, path.relative_to(layout.root).as_posix(), path)


def _may_be_of(row: Path, samples: set[str], media: frozenset[str]) -> bool:
    """Whether a row is of one of ``samples`` or ``media``; one that does not say may be of any, and is encoded again."""
    made_of = _media_of(row)
    if media and (made_of is None or made_of & media):
        return True
    try:
        return not samples.isdisjoint(pq.read_table(row, columns=["id"]).column("id").to_pylist())
    except (OSError, pa.ArrowException, KeyError):
        return True


def _texts_naming(layout: Layout, takedown: Takedown, samples: set[str]) -> Iterator[Path]:
    """Files of caches and reports that name any of it: they are safe to lose as a whole."""
    names = {json.dumps(sample, ensure_ascii=ascii) for sample in samples for ascii in (True, False)}
    needles = [name.encode() for name in names | takedown.media | takedown.recording_ids]
    for folder in (layout.cache, layout.reports):
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and not is_partial(path)):
            try:
                content = path.name.encode() + b"\n" + path.read_bytes()
            except FileNotFoundError:
                continue  # the sensor of the sources writes its caches anew meanwhile
            if any(needle in content for needle in needles):
                yield path
