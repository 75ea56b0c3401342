"""Turns domain values into Dagster metadata, in one place: plain numbers, capped tables, no NaN and no NumPy scalar.

See https://docs.dagster.io/guides/build/assets/metadata-and-tags.
"""

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from muvap_assets.columns import Column
from muvap_assets.findings import Finding, count_by_code
from muvap_assets.pictures.canvas import Picture
from muvap_assets.progress import Work
from muvap_assets.publish import CheckOutcome
from muvap_assets.storage.files import replacing
from muvap_assets.text_lines import cut, lines

TABLE_ROWS = 20
_CELL_CHARACTERS = 400
_COLUMNS = ("row", "sample_id", "code", "found", "required", "hint", "field", "severity")
"""The hint before what matters less: a page shows no more of a wide table than fits."""


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


def table(name: str, rows: Sequence[Mapping[str, Any]], more: Path | None = None) -> dict[str, Any]:
    """The first rows as the table ``name``; nothing where there are none.

    Where there are more than twenty, all of them are written to ``more``, one JSON object a line, and its path is given.
    """
    if not rows:
        return {}
    records = [dg.TableRecord({key: _cell(value) for key, value in row.items()}) for row in rows[:TABLE_ROWS]]
    values: dict[str, Any] = {name: dg.MetadataValue.table(records=records, schema=_schema_of(records[0]))}
    if more is not None and len(rows) > TABLE_ROWS:
        lines = (json.dumps({key: plain(value) for key, value in row.items()}, ensure_ascii=False) for row in rows)
        with replacing(more) as partial:
            partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        values[f"{name}_file"] = dg.MetadataValue.path(str(more))
    return values


def _cell(value: Any) -> Any:
    value = plain(value)
    if isinstance(value, str):
        return cut(lines(value[: _CELL_CHARACTERS + 1]), _CELL_CHARACTERS)
    return "" if value is None else value


def _schema_of(record: dg.TableRecord) -> dg.TableSchema:
    kinds = {bool: "bool", int: "int", float: "float"}
    return dg.TableSchema(
        [dg.TableColumn(name, kinds.get(type(value), "string")) for name, value in record.data.items()]
    )


def findings_table(findings: Sequence[Finding], file: Path | None = None) -> dict[str, Any]:
    """The first findings, how many there are of each code, and the file that holds all; nothing where there are none."""
    if not findings:
        return {}
    records = [
        dg.TableRecord({name: _cell(record[name]) for name in _COLUMNS})
        for record in (each.to_dict() | {"found": each.found_where} for each in findings[:TABLE_ROWS])
    ]
    schema = dg.TableSchema([dg.TableColumn(name, "int" if name == "row" else "string") for name in _COLUMNS])
    return {
        "findings": dg.MetadataValue.table(records=records, schema=schema),
        "finding_counts": dg.MetadataValue.json(count_by_code(findings)),
        "findings_total": len(findings),
        **({"findings_file": dg.MetadataValue.path(str(file))} if file is not None else {}),
    }


def of_check(outcome: CheckOutcome, file: Path | None = None) -> dict[str, Any]:
    """What one check found: its numbers, its first offenders, and where all of them are listed."""
    return {**of_numbers(outcome.numbers), **findings_table(outcome.findings, file)}


def of_work(work: Work, seconds: float) -> dict[str, Any]:
    """How much was done and how fast; ``seconds`` is all the run took, checks and publishing too."""
    handled = work.done + work.skipped
    return {
        "work_item": work.item,
        "items_done": work.done,
        "items_reused": work.reused,
        "items_skipped": work.skipped,
        "seconds": round(seconds, 3),
        "items_per_second": round(handled / seconds, 3) if seconds > 0 else 0.0,
    }


def of_picture(picture: Picture) -> dg.MarkdownMetadataValue:
    """The picture itself, within markdown, and its caption."""
    data = base64.b64encode(picture.png).decode()
    return dg.MetadataValue.md(
        f"![{picture.title}](data:image/png;base64,{data})\n\n{_plain_markdown(picture.caption)}"
    )


def _plain_markdown(text: str) -> str:
    """Names of samples may hold what markdown takes for a sign."""
    return "".join(f"\\{character}" if character in "\\`*_[]<>#|" else character for character in text)


def column_schema(columns: Sequence[Column]) -> dg.TableSchema:
    """The columns of a table as the UI shows them: type, meaning, unit, and what holds of every value."""
    return dg.TableSchema([_table_column(column) for column in columns])


def type_name(kind: pa.DataType) -> str:
    """An Arrow type without what says nothing to a reader: ``list<uint8>`` for ``large_list<item: uint8 not null>``."""
    return re.sub(r"\b(item|element): | not null|\blarge_(?=list)", "", str(kind))


def _table_column(column: Column) -> dg.TableColumn:
    unit = f" [{column.unit}]" if column.unit else ""
    return dg.TableColumn(
        column.name,
        type_name(column.type),
        description=f"{column.description}{unit}",
        constraints=dg.TableColumnConstraints(
            nullable=column.nullable, unique=column.unique, other=list(column.constraints)
        ),
        tags={"unit": column.unit.replace(" ", "_")} if column.unit else None,
    )
