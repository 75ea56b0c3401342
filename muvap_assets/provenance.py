"""What a published version of any artifact was made from, as it says itself.

Belongs here: reading it whichever the artifact is. Each line writes its own, beside what else the file holds.
"""

from __future__ import annotations

import json
from pathlib import Path

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
                inputs = values.get("provenance", values)["inputs"]
                return {str(name): str(version) for name, version in inputs.items()}
    return {}
