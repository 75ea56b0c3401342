"""A demo that fails: for each line datasets with one bad row of each kind that a manifest refuses, to look at in the UI.

    <folder>/datasets.yaml        set MUVAP_DATASETS to it
    <folder>/asd/<corpus>/        see failing_asd
    <folder>/ref2va/<dataset>/    see failing_ref2va; its manifests count tokens, and need a checkpoint

A bad row is named after the finding code it shows, where it can have a name at all. No dataset has more than twenty bad
rows, since that is how many a check's table shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from muvap_assets.codes import Code
from muvap_assets.demo import failing_asd, failing_ref2va

CORPORA: Mapping[str, tuple[Code, ...]] = failing_asd.CODES
"""The codes each corpus is refused for; ``quarantined`` alone is published, without the row it sets aside."""

DATASETS: Mapping[str, tuple[Code, ...]] = failing_ref2va.CODES
"""The codes each ref2va dataset is refused for."""


def write_failing_demo(folder: Path) -> Path:
    """Write every failing dataset below ``folder``, over what an earlier call wrote. Needs PyAV.

    Returns:
        Its ``datasets.yaml``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    entries = {
        "corpora": failing_asd.write_corpora(folder / "asd"),
        "ref2va": failing_ref2va.write_datasets(folder / "ref2va"),
    }
    path = folder / "datasets.yaml"
    path.write_text(yaml.safe_dump(entries, sort_keys=False), encoding="utf-8")
    return path
