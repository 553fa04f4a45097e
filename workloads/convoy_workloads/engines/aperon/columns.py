"""Metadata: typed fields of records, checked, and stored as columns. A field may be missing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from convoy_crds.shown import shown
from convoy_workloads.engines.aperon.errors import InvalidInput, UnknownField
from convoy_workloads.engines.aperon.settings import FieldType

Value = str | int | float | bool
Record = dict[str, Value]
Array = npt.NDArray[Any]
LONGEST_KEYWORD = 1024
"""Most characters of a keyword."""
LARGEST_NUMBER = 1e300
_DTYPES: dict[str, Any] = {
    "keyword": np.uint32,
    "integer": np.int64,
    "float": np.float64,
    "boolean": np.bool_,
}


def checked_value(name: str, value: Any, kind: FieldType) -> Value:
    """Return a value of a field's type. Raises InvalidInput if the value has another type."""
    if kind == "boolean" and isinstance(value, bool):
        return value
    if kind == "keyword" and isinstance(value, str) and len(value) <= LONGEST_KEYWORD:
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER
    if kind == "integer" and number and -(2**63) <= value < 2**63 and value == int(value):
        return int(value)
    if kind == "float" and number:
        return float(value)
    raise InvalidInput(name, f"{shown(value)} is no {kind}")


def checked_records(
    name: str, records: Sequence[Any] | None, count: int, fields: Mapping[str, FieldType]
) -> list[Record]:
    """Return the metadata of a batch. A value of None means that the field is missing."""
    if records is None:
        return [{} for _ in range(count)]
    if not isinstance(records, Sequence) or len(records) != count:
        raise InvalidInput(name, f"not a list of {count} records, one for each vector")
    found = []
    for at, record in enumerate(records):
        if record is not None and not isinstance(record, Mapping):
            raise InvalidInput(f"{name}[{at}]", f"{shown(record)} is no object with fields")
        own: Record = {}
        for field, value in (record or {}).items():
            path = f"{name}[{at}].{field}"
            if field not in fields:
                raise unknown_field(path, str(field), fields)
            if value is not None:
                own[field] = checked_value(path, value, fields[field])
        found.append(own)
    return found


def unknown_field(path: str, field: str, fields: Mapping[str, FieldType]) -> UnknownField:
    """Return the error for a field that the index does not have."""
    return UnknownField(path, f"the index has no field {field!r}; its fields: {', '.join(fields) or 'none'}")


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """The values of one field."""

    kind: FieldType
    values: Array
    """[rows]; for keywords, positions in `words`."""
    present: npt.NDArray[np.bool_]
    words: tuple[str, ...] = ()


Columns = Mapping[str, Column]


def columns_of(records: Sequence[Record], fields: Mapping[str, FieldType]) -> dict[str, Column]:
    """Return the columns of records."""
    found = {}
    for name, kind in fields.items():
        present = np.fromiter((name in one for one in records), np.bool_, len(records))
        values: Array = np.zeros(len(records), _DTYPES[kind])
        words: dict[str, int] = {}
        for at in np.flatnonzero(present).tolist():
            value = records[at][name]
            values[at] = words.setdefault(str(value), len(words)) if kind == "keyword" else value
        found[name] = Column(kind, values, present, tuple(words))
    return found


def records_at(columns: Columns, rows: Array) -> list[Record]:
    """Return the metadata of rows."""
    found: list[Record] = [{} for _ in range(len(rows))]
    for name, column in columns.items():
        values, present = column.values[rows].tolist(), column.present[rows].tolist()
        for record, value, there in zip(found, values, present, strict=True):
            if there:
                record[name] = column.words[value] if column.kind == "keyword" else value
    return found


def arrays_of(columns: Columns) -> dict[str, Array]:
    """Return the arrays that a file of the columns holds."""
    found: dict[str, Array] = {}
    for name, column in columns.items():
        found[f"field.{name}"] = column.values
        found[f"present.{name}"] = column.present
        if column.kind == "keyword":
            found[f"words.{name}"] = np.frombuffer(json.dumps(column.words).encode(), np.uint8)
    return found


def columns_from(arrays: Mapping[str, Array], fields: Mapping[str, FieldType]) -> dict[str, Column]:
    """Return the columns of a file's arrays."""
    found = {}
    for name, kind in fields.items():
        words: tuple[str, ...] = ()
        if kind == "keyword":
            words = tuple(json.loads(arrays[f"words.{name}"].tobytes()))
        found[name] = Column(kind, arrays[f"field.{name}"], arrays[f"present.{name}"], words)
    return found
