"""Turns domain values into Dagster metadata, in one place: plain numbers, capped tables, no NaN and no NumPy scalar.

See https://docs.dagster.io/guides/build/assets/metadata-and-tags.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from muvap_assets.errors import Violation, count_by_code
from muvap_assets.publish import CheckOutcome

TABLE_ROWS = 20
_COLUMNS = ("row", "sample_id", "code", "severity", "field", "found", "required", "hint")


def plain(value: Any) -> Any:
    """``value`` as the UI can store and plot it: NumPy scalars become Python's, NaN and infinities become text."""
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def of_numbers(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers and short texts, each a metadata value of its own, so that Dagster plots them over time."""
    return {name: plain(value) for name, value in numbers.items()}


def violations_table(violations: Sequence[Violation]) -> dict[str, Any]:
    """A table of the first findings and how many there are of each code; nothing where there are none."""
    if not violations:
        return {}
    records = [
        dg.TableRecord({name: "" if record[name] is None else record[name] for name in _COLUMNS})
        for record in (violation.to_dict() for violation in violations[:TABLE_ROWS])
    ]
    schema = dg.TableSchema([dg.TableColumn(name, "int" if name == "row" else "string") for name in _COLUMNS])
    return {
        "violations": dg.MetadataValue.table(records=records, schema=schema),
        "violation_counts": dg.MetadataValue.json(count_by_code(violations)),
        "violations_total": len(violations),
    }


def of_check(outcome: CheckOutcome) -> dict[str, Any]:
    """What one check found: its numbers and its first offenders."""
    return {**of_numbers(outcome.numbers), **violations_table(outcome.violations)}
