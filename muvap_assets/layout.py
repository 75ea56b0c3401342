"""Every path below a data root is derived here, and nowhere else.

    <root>/
      <line>/<artifact>/<partition>/<version>/   one published version, never changed again
      <line>/<artifact>/<partition>/current      link to the version readers should open
      reports/<line>/<artifact>/<partition>/     what the last run found, also when it published nothing
      row_store/                                 encoded parts and rows by content: rebuilds make only what is missing
      cache/                                     counts and digests of media and weights, safe to lose
      journal/<line>/<artifact>/<partition>.jsonl  when which version became current
      .staging/                                  private folders of runs in progress, on the same file system
      .in_use                                    locked by whoever makes something, and alone by a purge
      .muvap-root                                its marker: {"id": ...}, drawn by the first that published there

Knows nothing of Dagster, and touches no file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from muvap_assets.errors import ConfigError

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
VERSION_LENGTH = 16
VERSION_PATTERN = re.compile(rf"[0-9a-f]{{{VERSION_LENGTH}}}")
CURRENT = "current"
LINES = ("asd", "ref2va")


def check_name(name: str, what: str) -> str:
    """``name`` if it can serve as folder name and partition key alike.

    Raises:
        ConfigError: it holds anything but letters, digits, ``.``, ``_`` and ``-``, or is too long.
    """
    if not NAME_PATTERN.fullmatch(name) or ".." in name or name == CURRENT:
        raise ConfigError(
            f"{what} {name!r}: not a usable name, required are 1 to 100 letters, digits, '.', '_' or '-', beginning with "
            f"a letter or digit, without '..', and not {CURRENT!r}. Rename it."
        )
    return name


@dataclass(frozen=True, slots=True)
class Artifact:
    """The place of one artifact of one partition: its versions, its ``current`` link and its reports."""

    root: Path
    line: str
    name: str
    partition: str

    def __post_init__(self) -> None:
        for part, what in ((self.line, "line"), (self.name, "artifact"), (self.partition, "partition")):
            check_name(part, what)

    @property
    def folder(self) -> Path:
        """Holds one folder a version and the ``current`` link."""
        return self.root / self.line / self.name / self.partition

    @property
    def current(self) -> Path:
        """The link to the version readers should open."""
        return self.folder / CURRENT

    @property
    def reports(self) -> Path:
        """Findings of the last run, outside the published tree."""
        return Layout(self.root).reports / self.line / self.name / self.partition

    @property
    def findings(self) -> Path:
        """Every finding of the last run, one a line, whether or not it published anything."""
        return self.reports / "violations.jsonl"

    @property
    def staging(self) -> Path:
        """Where private folders of runs in progress lie, on the same file system as :attr:`folder`."""
        return Layout(self.root).staging

    @property
    def journal(self) -> Path:
        """Which version became current when, outside the published tree; its lock orders whoever changes the artifact."""
        return Layout(self.root).journal / self.line / self.name / f"{self.partition}.jsonl"

    @property
    def label(self) -> str:
        """How messages name this artifact."""
        return f"{self.line}/{self.name} [{self.partition}]"

    def version(self, version: str) -> Path:
        """The folder of one version."""
        return self.folder / version


@dataclass(frozen=True, slots=True)
class Layout:
    """A data root and the artifacts below it."""

    root: Path

    def artifact(self, line: str, name: str, partition: str) -> Artifact:
        """The place of ``<line>/<name>`` for one partition."""
        return Artifact(self.root, line, name, partition)

    def asd_manifest(self, corpus: str) -> Artifact:
        """Validated rows of a corpus."""
        return self.artifact("asd", "manifest", corpus)

    def asd_loudness_index(self, corpus: str) -> Artifact:
        """Whole-recording level statistics of a corpus."""
        return self.artifact("asd", "loudness_index", corpus)

    def asd_packed_shards(self, corpus: str) -> Artifact:
        """Memory-mapped faces, labels and audio of a corpus."""
        return self.artifact("asd", "packed_shards", corpus)

    def ref2va_manifest(self, dataset: str) -> Artifact:
        """Validated rows of a dataset."""
        return self.artifact("ref2va", "manifest", dataset)

    def ref2va_encoded_latents(self, dataset: str, part: int) -> Artifact:
        """Which rows of one part of a dataset stand encoded in the row store."""
        return self.artifact("ref2va", "encoded_latents", f"{part:03d}.{dataset}")

    def ref2va_parquet_cache_index(self, dataset: str) -> Artifact:
        """The published dataset: shards and their index."""
        return self.artifact("ref2va", "parquet_cache_index", dataset)

    @property
    def marker(self) -> Path:
        """The file that identifies a data root; a mount point without its disk has none."""
        return self.root / ".muvap-root"

    @property
    def journal(self) -> Path:
        """Which versions became current when, of every artifact."""
        return self.root / "journal"

    @property
    def in_use(self) -> Path:
        """The lock of the whole data root: shared by whoever makes something of it, and had alone by a purge."""
        return self.root / ".in_use"

    @property
    def staging(self) -> Path:
        """Private folders of runs in progress, of every artifact."""
        return self.root / ".staging"

    @property
    def exports(self) -> Path:
        """Links to the targets of exports in progress, which are put together outside the data root."""
        return self.staging / "exports"

    @property
    def reports(self) -> Path:
        """What the last run of each artifact found."""
        return self.root / "reports"

    @property
    def row_store(self) -> Path:
        """Encoded parts and rows of all datasets, by content; outside every published tree."""
        return self.root / "row_store"

    @property
    def cache(self) -> Path:
        """Counts and digests of media and weights; safe to lose."""
        return self.root / "cache"

    @property
    def pack_cache(self) -> Path:
        """What the tracks of each pack were made from, so that the next pack copies those unchanged; safe to lose."""
        return self.cache / "packs"

    def pack_tracks(self, corpus: str, version: str) -> Path:
        """The same of one version of a corpus's pack."""
        return self.pack_cache / corpus / f"{version}.json"
