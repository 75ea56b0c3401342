"""Parses ``datasets.yaml``: which corpora and datasets there are, their files, their options, their partition keys.

    corpora:
      talks_train:                  # the partition key
        kind: tsv                   # which reader: each has its own keys, see CorpusKind below
        manifest: talks/train.tsv   # every path is relative to this file
        on_violation: quarantine    # every option of the policy may be set here
    ref2va:
      clips:
        manifest: clips/train.jsonl
        width: 832

Paths may begin with ``~`` and hold ``$NAME`` and ``${NAME}`` of the environment. Knows nothing of Dagster, and opens no other file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.ava import AvaCorpus
from muvap_assets.asd.corpora.entry import EntryPath, Hours
from muvap_assets.asd.corpora.msdwild import MsdwildCorpus
from muvap_assets.asd.corpora.tsv import TsvCorpus
from muvap_assets.asd.corpora.wasd import WasdCorpus
from muvap_assets.errors import ConfigError
from muvap_assets.layout import check_name
from muvap_assets.options import keys_of, made_of
from muvap_assets.readback import STUMBLES, reason_of
from muvap_assets.ref2va.contract import Dataset, DatasetOptions

DATASETS_VARIABLE = "MUVAP_DATASETS"
MAX_FILE_BYTES = 4 << 20
MAX_VALUES = 500_000


CorpusKind: TypeAlias = Annotated[
    TsvCorpus | AvaCorpus | WasdCorpus | MsdwildCorpus,
    Field(discriminator="kind"),
]
"""Every kind of corpus; a new one is a row here and a file beside those it joins."""


if TYPE_CHECKING:
    _DatasetKeys = BaseModel
else:
    _DatasetKeys = keys_of(DatasetOptions)


class Ref2VAEntry(_DatasetKeys):
    """A dataset of raw Ref2VA rows: every option of :class:`DatasetOptions`, and these. ``manifest`` is absolute once parsed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    manifest: EntryPath
    parts: Annotated[int, Field(ge=1, le=999)] = 1
    max_age_hours: Hours | None = None


class Datasets(BaseModel):
    """All of ``datasets.yaml``. ``nightly_cron`` is in UTC; sources are looked at every ``source_poll_sec``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nightly_cron: str = "0 3 * * *"
    source_poll_sec: Annotated[int, Field(ge=1)] = 15
    keep_versions: Annotated[int, Field(ge=0)] = 3
    corpora: dict[str, CorpusKind] = {}
    ref2va: dict[str, Ref2VAEntry] = {}

    def corpus(self, name: str) -> Corpus:
        """One corpus, as the asd line works on it.

        Raises:
            ConfigError: there is none of that name.
        """
        if name not in self.corpora:
            raise ConfigError(
                f"corpus {name!r}: not in datasets.yaml, required is one of {sorted(self.corpora)}. Add an entry or fix the name."
            )
        entry = self.corpora[name]
        return Corpus(
            name=name,
            source=entry,
            dataset=entry.dataset or name,
            policy=entry.policy,
            shard_bytes=entry.shard_bytes,
            siblings=tuple(other for other in self.corpora if other != name and self._related(name, other)),
        )

    def _related(self, name: str, other: str) -> bool:
        """Whether two entries are splits of one corpus: they give the same ``dataset``, or lie in the same folder."""
        first, second = self.corpora[name], self.corpora[other]
        return (first.dataset or name) == (second.dataset or other) or first.folder == second.folder

    def ref2va_dataset(self, name: str) -> Dataset:
        """One dataset, as the ref2va line works on it.

        Raises:
            ConfigError: there is none of that name, or an option is outside what it may be.
        """
        if name not in self.ref2va:
            raise ConfigError(
                f"ref2va dataset {name!r}: not in datasets.yaml, required is one of {sorted(self.ref2va)}. "
                "Add an entry or fix the name."
            )
        entry = self.ref2va[name]
        try:
            options = made_of(DatasetOptions, dict(entry))
        except ConfigError as error:
            raise ConfigError(f"ref2va.{name}: {error}") from error
        return Dataset(name=name, manifest=entry.manifest, options=options, parts=entry.parts)


def load_datasets(path: Path) -> Datasets:
    """Read and check ``datasets.yaml``.

    Raises:
        ConfigError: the file cannot be read, or an entry is wrong; each wrong key is named with what it needs.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"over {MAX_FILE_BYTES >> 20} MiB")
        raw = yaml.load(content.decode("utf-8"), Loader=_UniqueKeyLoader)
        _require_modest(raw)
    except (yaml.YAMLError, *STUMBLES) as error:  # PyYAML's constructors stumble over values of tags and dates
        shown = str(error) if isinstance(error, yaml.YAMLError) else reason_of(error)
        raise ConfigError(
            f"{path}: cannot be read as YAML ({shown}), required is a mapping with the key 'corpora'. Fix it, or point "
            f"{DATASETS_VARIABLE} at another file."
        ) from error
    return parse_datasets(raw if raw is not None else {}, path)


def _require_modest(raw: Any) -> None:
    """Refuse aliases that stand for a mountain of values, or for themselves: each is one value here and many to a reader."""
    stack, count = [raw], 0
    while stack:
        value = stack.pop()
        count += 1
        if count > MAX_VALUES:
            raise ValueError(f"over {MAX_VALUES:,} values, its aliases followed")
        stack.extend(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())


def parse_datasets(raw: Any, path: Path) -> Datasets:
    """Check the parsed YAML of ``path``; relative paths become absolute against its folder.

    Raises:
        ConfigError: see :func:`load_datasets`.
    """
    try:
        datasets = Datasets.model_validate(raw)
    except ValidationError as error:
        lines = [_told(item) for item in error.errors()]
        raise ConfigError(
            f"{path}: {len(lines)} wrong entries\n  "
            + "\n  ".join(lines)
            + "\nSee resources/datasets.yaml for every key."
        ) from error
    for section in ("corpora", "ref2va"):
        for name in getattr(datasets, section):
            check_name(name, f"{path}: {section} key")
    resolved = datasets.model_copy(
        update={
            "corpora": {
                name: entry.resolved(partial(_resolve, path)) for name, entry in sorted(datasets.corpora.items())
            },
            "ref2va": {
                name: entry.model_copy(update={"manifest": _resolve(path, entry.manifest)})
                for name, entry in sorted(datasets.ref2va.items())
            },
        }
    )
    for name in resolved.ref2va:
        try:
            resolved.ref2va_dataset(name)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error
    return resolved


def _told(item: ErrorDetails) -> str:
    """One error of pydantic's, with the key as the file has it: without the kind, which pydantic puts into the path."""
    keys, found = [str(key) for key in item["loc"]], item["input"]
    if item["type"].startswith("union_tag_"):
        keys.append("kind")
        found = found.get("kind") if isinstance(found, dict) else found
    elif keys[:1] == ["corpora"] and len(keys) > 3:
        del keys[2]
    message = item["msg"].removeprefix("Value error, ")
    said = message if item["type"] == "option" else f"{message} (found {_short(found)})"
    return f"{'.'.join(keys) or 'top level'}: {said}"


def _resolve(path: Path, value: Path) -> Path:
    return Path(os.path.abspath(path.parent / value))  # noqa: PTH100 - links stay as written


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class _UniqueKeyLoader(yaml.SafeLoader):
    """A corpus named twice would silently lose its first entry. Keys are constructed first, so that ``<<`` merges nothing."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            keys = Counter(str(self.construct_object(key, deep=True)) for key, _ in node.value)
            twice = sorted(key for key, count in keys.items() if count > 1)
            if twice:
                raise yaml.constructor.ConstructorError(None, None, f"keys {twice} occur twice", node.start_mark)
        mapping: Mapping[Any, Any] = super().construct_mapping(node, deep)
        return dict(mapping)
