"""``training.yaml``: the data section a trainer pastes into its configuration (contract, Connect to training).

It names the dataset's absolute path, so it is written for the place a dataset is published at, and again when it moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from muvap_assets.codes import Code
from muvap_assets.errors import FormatError
from muvap_assets.findings import Finding
from muvap_assets.ref2va.contract import Format

TRAINING_NAME = "training.yaml"
# `ref2va` is the packed adapter (contract). What the SFT trainer calls its own type is published nowhere we could read.
_DATA_TYPE = {Format.PACKED: "ref2va"}


def training_section(
    place: Path, format: Format, max_presentation_tokens: int, capacities: tuple[int, ...]
) -> dict[str, Any]:
    """The section for a dataset at ``place``.

    Args:
        place: its absolute path.
        format: decides ``preprocessed_data_type``, which an ``sft`` dataset leaves to its trainer.
        max_presentation_tokens: the limit its rows were admitted under.
        capacities: proposed ones, ascending.
    """
    data: dict[str, Any] = {"data_path": str(place)}
    if format in _DATA_TYPE:
        data["preprocessed_data_type"] = _DATA_TYPE[format]
    data |= {
        "train_batch_size": 1,
        "native_shape_bucketing": True,
        "max_presentation_tokens": max_presentation_tokens,
        "require_existing_parquet_cache": True,
        "fixed_sequence_capacities": list(capacities),
    }
    return {"training": {"data": data}}


def write_training(path: Path, section: Mapping[str, Any]) -> None:
    """Write ``training.yaml``; the same section gives the same bytes."""
    path.write_text(yaml.safe_dump(dict(section), sort_keys=False, allow_unicode=True), encoding="utf-8")


def read_training(path: Path) -> dict[str, Any]:
    """The section in a ``training.yaml``.

    Raises:
        FormatError: it is no such file.
    """
    try:
        section = yaml.safe_load(path.read_text(encoding="utf-8"))
        section["training"]["data"]["data_path"]
    except (OSError, ValueError, yaml.YAMLError, TypeError, LookupError, AttributeError, RecursionError) as error:
        found = f"no training section ({type(error).__name__}: {error})"
        raise FormatError(Finding(Code.INDEX_MOVED, path, found, case="training")) from error
    return dict(section)


def moved_training(section: Mapping[str, Any], place: Path) -> dict[str, Any]:
    """The same section for a dataset that now lies at ``place``."""
    training = section["training"]
    return {**section, "training": {**training, "data": {**training["data"], "data_path": str(place)}}}
