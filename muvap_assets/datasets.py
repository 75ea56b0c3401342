"""Parses ``datasets.yaml``: which corpora and datasets there are, their files, their options, their partition keys.

    corpora:
      talks_train:                  # the partition key
        kind: tsv                   # which reader
        manifest: talks/train.tsv   # relative to this file
        on_violation: quarantine    # every option of the policy may be set here
    ref2va:
      clips:
        manifest: clips/train.jsonl
        width: 832

Paths may hold ``$NAME`` and ``${NAME}`` of the environment. Knows nothing of Dagster, and opens no other file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from muvap_assets.asd.contract import Corpus, OnViolation, Policy
from muvap_assets.errors import ConfigError
from muvap_assets.layout import check_name
from muvap_assets.ref2va.contract import Dataset, DatasetOptions, Format

DATASETS_VARIABLE = "MUVAP_DATASETS"
Share = Annotated[float, Field(ge=0, le=1)]
Hours = Annotated[float, Field(gt=0)]
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TsvCorpus(_Entry):
    """A corpus in the canonical TSV. ``manifest`` is absolute once parsed; ``dataset`` names it inside packs."""

    kind: Literal["tsv"]
    manifest: Path
    dataset: Annotated[str, StringConstraints(min_length=1, max_length=100)] | None = None
    on_violation: OnViolation = OnViolation.FAIL
    max_missing_audio_share: Share = 0.1
    max_rejected_share: Share = 0.05
    max_silent_share: Share = 0.1
    shard_bytes: Annotated[int, Field(ge=1_000_000)] = 1_000_000_000
    max_age_hours: Hours | None = None


class Ref2VAEntry(_Entry):
    """A dataset of raw Ref2VA rows. ``manifest`` is absolute once parsed; the options are the contract's."""

    manifest: Path
    format: Format = Format.PACKED
    width: int = 1344
    height: int = 768
    num_frames: int = 124
    max_presentation_tokens: int = 65_536
    reference_noise_seed: int = 42
    allow_outside: bool = False
    global_batch_rows: int = 8
    parts: Annotated[int, Field(ge=1, le=999)] = 1
    max_age_hours: Hours | None = None


class Datasets(_Entry):
    """All of ``datasets.yaml``. ``nightly_cron`` is in UTC; sources are looked at every ``source_poll_sec``."""

    nightly_cron: str = "0 3 * * *"
    source_poll_sec: Annotated[int, Field(ge=1)] = 15
    keep_versions: Annotated[int, Field(ge=0)] = 3
    corpora: dict[str, TsvCorpus] = {}
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
            manifest=entry.manifest,
            dataset=entry.dataset or name,
            policy=Policy(**{option.name: getattr(entry, option.name) for option in fields(Policy)}),
            shard_bytes=entry.shard_bytes,
        )

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
        chosen = {
            option.name: getattr(entry, option.name) for option in fields(DatasetOptions) if option.name in _OPTIONS
        }
        try:
            options = DatasetOptions(**chosen)
        except ConfigError as error:
            raise ConfigError(f"ref2va.{name}: {error}") from error
        return Dataset(name=name, manifest=entry.manifest, options=options, parts=entry.parts)


_OPTIONS = frozenset(Ref2VAEntry.model_fields)


def load_datasets(path: Path) -> Datasets:
    """Read and check ``datasets.yaml``.

    Raises:
        ConfigError: the file cannot be read, or an entry is wrong; each wrong key is named with what it needs.
    """
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{path}: cannot be read as YAML ({error}), required is a mapping with the key 'corpora'. Fix it, or point "
            f"{DATASETS_VARIABLE} at another file."
        ) from error
    return parse_datasets(raw if raw is not None else {}, path)


def parse_datasets(raw: Any, path: Path) -> Datasets:
    """Check the parsed YAML of ``path``; relative paths become absolute against its folder.

    Raises:
        ConfigError: see :func:`load_datasets`.
    """
    try:
        datasets = Datasets.model_validate(raw)
    except ValidationError as error:
        lines = [
            f"{'.'.join(str(key) for key in item['loc']) or 'top level'}: {item['msg']} (found {_short(item['input'])})"
            for item in error.errors()
        ]
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
            section: {
                name: entry.model_copy(
                    update={"manifest": _resolve(entry.manifest, path, f"{section}.{name}.manifest")}
                )
                for name, entry in sorted(getattr(datasets, section).items())
            }
            for section in ("corpora", "ref2va")
        }
    )
    for name in resolved.ref2va:
        resolved.ref2va_dataset(name)
    return resolved


def _resolve(value: Path, path: Path, key: str) -> Path:
    def replace(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in os.environ:
            raise ConfigError(f"{path}: {key}: environment variable {name} is not set, required by {value}. Set it.")
        return os.environ[name]

    return Path(os.path.abspath(path.parent / _VARIABLE.sub(replace, str(value))))  # noqa: PTH100 - links stay as written


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class _UniqueKeyLoader(yaml.SafeLoader):
    """A corpus named twice would silently lose its first entry."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"keys {twice} occur twice", node.start_mark)
        mapping: Mapping[Any, Any] = super().construct_mapping(node, deep)
        return dict(mapping)
