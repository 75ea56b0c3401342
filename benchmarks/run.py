"""``python -m benchmarks.run``: every measurement, as a table and as JSON.

Each suite runs several times, and a figure is the median of its runs. A figure named ``max_<key>`` or ``min_<key>`` beside a
figure ``<key>`` is its target. ``--check`` fails on a missed target that ``benchmarks/waivers.json`` does not explain: a list of
objects with the measurement's ``name``, the ``figure``, the value ``measured``, the ``reason``, and the ``profile`` that shows it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import (
    asd_loading,
    asd_memory,
    asd_msdwild,
    asd_opening,
    asd_packing,
    asd_repack,
    ref2va_encoding,
    ref2va_index,
)

Record = dict[str, object]
SUITES: dict[str, Callable[[Path], Iterator[Record]]] = {
    "asd_packing": asd_packing.measure,
    "asd_loading": asd_loading.measure,
    "asd_opening": asd_opening.measure,
    "asd_memory": asd_memory.measure,
    "asd_msdwild": asd_msdwild.measure,
    "asd_repack": asd_repack.measure,
    "ref2va_encoding": ref2va_encoding.measure,
    "ref2va_index": ref2va_index.measure,
}
WAIVERS = Path(__file__).with_name("waivers.json")
WAIVER_KEYS = {"name", "figure", "measured", "reason", "profile"}
_COLUMNS = {"wall s": "wall_sec", "CPU s": "cpu_sec", "peak MB": "peak_mb"}


@dataclass(frozen=True, slots=True)
class Miss:
    """A figure beside its target."""

    name: str
    figure: str
    value: float
    bound: str
    target: float

    def __str__(self) -> str:
        return f"{self.name}: {self.figure} {self.value:.2f}, required is {self.bound} {self.target:.2f}"


def missed(record: Record) -> list[Miss]:
    """The targets of one record that it misses."""
    faults = []
    for key, target in record.items():
        bound, _, figure = key.partition("_")
        value = record.get(figure)
        if bound not in ("max", "min") or not isinstance(value, int | float) or not isinstance(target, int | float):
            continue
        if (bound == "max" and value > target) or (bound == "min" and value < target):
            faults.append(Miss(str(record["name"]), figure, value, bound, target))
    return faults


def medians(runs: list[Record]) -> Record:
    """One record out of those of several runs of the same measurement."""
    return {
        key: statistics.median([run[key] for run in runs])  # type: ignore[type-var]
        if isinstance(value, int | float) and not isinstance(value, bool)
        else value
        for key, value in runs[0].items()
    }


def read_waivers(path: Path) -> dict[tuple[str, str], dict[str, object]]:
    """The waivers by measurement and figure.

    Raises:
        ValueError: one lacks what would justify it, or says more.
    """
    waivers = json.loads(path.read_text()) if path.exists() else []
    for waiver in waivers:
        if set(waiver) != WAIVER_KEYS or not all(str(waiver[key]).strip() for key in WAIVER_KEYS):
            raise ValueError(f"{path.name}: {waiver}; required: all of {sorted(WAIVER_KEYS)}, none empty")
    return {(waiver["name"], waiver["figure"]): waiver for waiver in waivers}


def table(records: list[Record]) -> str:
    """The figures as Markdown."""
    lines = ["| | against the obvious way | target | " + " | ".join(_COLUMNS) + " |", "|---|---|---|" + "---|" * 3]
    for record in records:
        figure = next((key for key in ("speedup", "ratio") if key in record), "")
        targets = [
            f"{key.split('_')[0]} {_short(record[key])}" for key in (f"min_{figure}", f"max_{figure}") if key in record
        ]
        cells = [record.get(figure, ""), ", ".join(targets), *(record.get(key, "") for key in _COLUMNS.values())]
        lines.append(f"| {record['name']} | " + " | ".join(_short(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _short(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _measure(name: str, runs: int) -> Iterator[Record]:
    taken: dict[str, list[Record]] = {}
    for _ in range(runs):
        with tempfile.TemporaryDirectory(prefix="muvap-bench-") as scratch:
            for record in SUITES[name](Path(scratch)):
                taken.setdefault(str(record["name"]), []).append(record)
    for records in taken.values():
        record = {"suite": name, "runs": len(records), **medians(records)}
        figures = ", ".join(f"{key} {_short(value)}" for key, value in record.items() if key not in ("name", "suite"))
        print(f"{name}: {record['name']}: {figures}", flush=True)
        yield record


def main() -> None:
    """Measure, print, write, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--check", action="store_true", help="exit 1 where a target is missed that no waiver explains")
    parser.add_argument("--only", choices=sorted(SUITES), action="append", help="run only this suite")
    parser.add_argument(
        "--runs", type=int, default=3, help="how often each suite runs; figures are medians (default 3)"
    )
    options = parser.parse_args()
    waivers = read_waivers(WAIVERS)
    records = [record for name in options.only or SUITES for record in _measure(name, options.runs)]
    print(table(records))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(records, indent=1) + "\n")
    faults = [fault for record in records for fault in missed(record)]
    for fault in faults:
        waiver = waivers.get((fault.name, fault.figure))
        print(f"WAIVED {fault}: {waiver['reason']}" if waiver else f"MISSED {fault}", file=sys.stderr)
    unexplained = [fault for fault in faults if (fault.name, fault.figure) not in waivers]
    sys.exit(1 if options.check and unexplained else 0)


if __name__ == "__main__":
    main()
