"""``device.json``: which devices the tensors of a version were made on. It is no part of the version's digest.

Floating-point sums are rounded in another order by another kind of processor, so the last bits of latents and embeddings depend on
where they were made, and nothing else that is published does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from muvap_assets.publish import write_json
from muvap_assets.readback import reading
from muvap_assets.ref2va.records import read_shard

DEVICE_FILE = "device.json"


def rows_by_device(rows: Iterable[Iterable[str]]) -> dict[str, int]:
    """For each device, of how many rows at least one tensor was made on it; ``rows`` are the devices of each row."""
    return dict(sorted(Counter(device for devices in rows for device in set(devices)).items()))


def write_devices(folder: Path, rows: Mapping[str, int]) -> None:
    """Write ``device.json``; the mirror of :func:`read_devices`."""
    write_json(folder / DEVICE_FILE, {"rows_by_device": dict(rows)})


def read_devices(folder: Path) -> dict[str, int]:
    """Rows by device of a version; empty where it was published before devices were recorded.

    Raises:
        FormatError: the file is damaged.
    """
    path = folder / DEVICE_FILE
    if not path.is_file():
        return {}
    with reading(path):
        rows = json.loads(path.read_text(encoding="utf-8"))["rows_by_device"]
        return {str(device): int(count) for device, count in rows.items()}


def added(versions: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Rows by device of several parts together."""
    total = Counter[str]()
    for rows in versions:
        total.update(rows)
    return dict(sorted(total.items()))


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest absolute difference between the float tensors of two rows, and the tensor it is in."""

    largest: float
    tensor: str


def largest_difference(before: Path, after: Path) -> Difference | None:
    """How far the tensors of two one-row files are apart; ``None`` where their shapes differ, or one holds a NaN.

    Raises:
        FormatError: one cannot be read.
    """
    old, new = (read_shard(path)[0].tensors for path in (before, after))
    if {name: values.shape for name, values in old.items()} != {name: values.shape for name, values in new.items()}:
        return None
    found = Difference(0.0, "")
    for name, values in new.items():
        apart = float(np.max(np.abs(values.astype(np.float64) - old[name]), initial=0.0))
        if not np.isfinite(apart):
            return None
        if apart > found.largest:
            found = Difference(apart, name)
    return found
