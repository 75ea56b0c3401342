"""``python -m benchmarks.run``: every measurement, as a table and as JSON.

A figure named ``max_<key>`` or ``min_<key>`` beside a figure ``<key>`` is its target.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import asd_loading, asd_memory, asd_msdwild, asd_repack, ref2va_encoding, ref2va_index

SUITES: dict[str, Callable[[Path], Iterator[dict[str, object]]]] = {
    "asd_loading": asd_loading.measure,
    "asd_memory": asd_memory.measure,
    "asd_msdwild": asd_msdwild.measure,
    "asd_repack": asd_repack.measure,
    "ref2va_encoding": ref2va_encoding.measure,
    "ref2va_index": ref2va_index.measure,
}


def missed(record: dict[str, object]) -> list[str]:
    """The targets of one record that it misses."""
    faults = []
    for key, target in record.items():
        bound, _, figure = key.partition("_")
        if bound not in ("max", "min") or figure not in record:
            continue
        value = record[figure]
        if not isinstance(value, int | float) or not isinstance(target, int | float):
            continue
        if (bound == "max" and value > target) or (bound == "min" and value < target):
            faults.append(f"{record['name']}: {figure} {value:.2f}, required is {bound} {target}")
    return faults


def _short(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--check", action="store_true", help="exit 1 where a target is missed")
    parser.add_argument("--only", choices=sorted(SUITES), action="append", help="run only this suite")
    options = parser.parse_args()
    records = []
    with tempfile.TemporaryDirectory(prefix="muvap-bench-") as scratch:
        for name in options.only or SUITES:
            for record in SUITES[name](Path(scratch)):
                records.append({"suite": name, **record})
                figures = ", ".join(
                    f"{k} {v:.2f}" if isinstance(v, float) else f"{k} {v}" for k, v in record.items() if k != "name"
                )
                print(f"{name}: {record['name']}: {figures}", flush=True)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(records, indent=1) + "\n")
    faults = [fault for record in records for fault in missed(record)]
    for fault in faults:
        print(f"MISSED {fault}", file=sys.stderr)
    sys.exit(1 if options.check and faults else 0)


if __name__ == "__main__":
    main()
