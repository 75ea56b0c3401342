"""What a published version of any artifact was made from, as it says itself.

Belongs here: reading it whichever the artifact is. Each line writes its own, beside what else the file holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muvap_assets.readback import reading

_FILES = ("provenance.json", "dataset.json")


def read_inputs(folder: Path) -> dict[str, str]:
    """The versions and digests that a version was made from, by name; empty where it does not say.

    Raises:
        FormatError: the file that says it is damaged.
    """
    for path in (folder / name for name in _FILES):
        if path.is_file():
            with reading(path):
                values = json.loads(path.read_text(encoding="utf-8"))
                return inputs_of(values.get("provenance", values))
    return {}


def inputs_of(provenance: Mapping[str, Any]) -> dict[str, str]:
    """The same, of what such a file holds.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: it is no such thing.
    """
    inputs = dict(provenance["inputs"])
    if wrong := [name for name, version in inputs.items() if not isinstance(version, str)]:
        raise ValueError(f"no version of {wrong[0]}")
    return inputs
