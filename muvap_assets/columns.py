"""What one column of a published table is: its Arrow type and what a reader has to know of it, in one place.

Each artifact has one table of these beside its writer. The Arrow schema it is written with is derived from that table, and
so is what an asset's page says about it: no column can be written undescribed, and none described that is not written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

BOOL, FLOAT, INT, TEXT = pa.bool_(), pa.float64(), pa.int64(), pa.string()
"""The types most columns have; integers and floats of 64 bits."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: as it is written.
        type: its Arrow type.
        description: what a value means, in a phrase.
        unit: of the values; empty where they have none.
        constraints: what else holds of every value, each a short phrase.
        nullable: whether a value may be missing.
        unique: whether no two rows have the same value.
    """

    name: str
    type: pa.DataType
    description: str
    unit: str = ""
    constraints: tuple[str, ...] = ()
    nullable: bool = False
    unique: bool = False


def described_field(column: Column) -> pa.Field:
    """The Arrow field of a column, strict about nulls, its description and unit in the metadata."""
    notes = {"description": column.description, **({"unit": column.unit} if column.unit else {})}
    return pa.field(column.name, column.type, column.nullable, metadata=notes)


def plain_schema(columns: Sequence[Column], metadata: Mapping[bytes, bytes] | None = None) -> pa.Schema:
    """An Arrow schema of names and types alone, as formats have it that say nothing of nulls and descriptions."""
    return pa.schema([pa.field(column.name, column.type) for column in columns], metadata=metadata)
