"""Filters on metadata, in the notation of MongoDB and Pinecone.

    {"genre": "drama", "year": {"$gte": 2020}, "$or": [{"price": {"$lt": 5}}, {"price": {"$exists": false}}]}

The entries of a map must all hold. Operators: $eq, $ne, $in, $nin, $gt, $gte, $lt, $lte (numbers only),
$exists, $and, $or, $not. A missing field fulfils $ne, $nin and `$exists: false` alone, as in MongoDB; `$not`
negates whatever it contains.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from convoy_crds.shown import shown
from convoy_workloads.engines.aperon.columns import Column, Columns, checked_value, unknown_field
from convoy_workloads.engines.aperon.errors import InvalidInput
from convoy_workloads.engines.aperon.settings import FieldType

Mask = npt.NDArray[np.bool_]
DEEPEST = 16
"""Deepest nesting of a filter."""
MOST_TERMS = 1024
"""Most operators of a filter."""
MOST_VALUES = 65_536
"""Most values in all lists of a filter."""
_RANGES: dict[str, Callable[[Any, Any], Any]] = {
    "$gt": np.greater,
    "$gte": np.greater_equal,
    "$lt": np.less,
    "$lte": np.less_equal,
}
_OPERATORS = ("$eq", "$ne", "$in", "$nin", *_RANGES, "$exists")


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter that fits the fields of the index."""

    key: str
    """The same for equal filters."""
    mask: Callable[[Columns, int], Mask]
    """Returns True for each of so many rows that fulfils the filter."""


def parse_filter(raw: Any, fields: Mapping[str, FieldType], path: str = "filter") -> Filter:
    """Return the filter of its JSON form. Raises InvalidInput, and UnknownField, with the path."""
    budget = _Budget(MOST_TERMS, MOST_VALUES)
    mask = _parse(raw, fields, path, DEEPEST, budget)
    return Filter(json.dumps(raw, sort_keys=True), mask)


_Mask = Callable[[Columns, int], Mask]


@dataclass(slots=True)
class _Budget:
    """The operators and values that the rest of a filter may have."""

    terms: int
    values: int

    def spend(self, path: str, values: int = 0) -> None:
        """Count an operator, and the values of its list. Raises InvalidInput, with `path`, if the filter has
        too many.
        """
        self.terms -= 1
        self.values -= values
        if self.terms < 0:
            raise InvalidInput(path, f"the filter has more than {MOST_TERMS} operators")
        if self.values < 0:
            raise InvalidInput(path, f"the filter has more than {MOST_VALUES} values in its lists")


def _parse(raw: Any, fields: Mapping[str, FieldType], path: str, depth: int, budget: _Budget) -> _Mask:
    if not isinstance(raw, Mapping) or not raw:
        raise InvalidInput(path, "not a map with at least one entry")
    if not depth:
        raise InvalidInput(path, f"nested deeper than {DEEPEST}")
    parts = []
    for name, value in raw.items():
        own = f"{path}.{name}"
        budget.spend(own)
        if name in ("$and", "$or"):
            if not isinstance(value, list) or not value:
                raise InvalidInput(own, "not a list with at least one filter")
            inner = [_parse(one, fields, f"{own}[{at}]", depth - 1, budget) for at, one in enumerate(value)]
            parts.append(_all_of(inner) if name == "$and" else _any_of(inner))
        elif name == "$not":
            parts.append(_not(_parse(value, fields, own, depth - 1, budget)))
        elif not isinstance(name, str) or name.startswith("$"):
            raise InvalidInput(own, "no operator for filters; use $and, $or or $not, or the name of a field")
        elif name not in fields:
            raise unknown_field(own, name, fields)
        else:
            terms = value if isinstance(value, Mapping) else {"$eq": value}
            if not terms:
                raise InvalidInput(own, "no operator")
            parts += [_term(name, fields[name], term, own, budget) for term in terms.items()]
    return _all_of(parts)


def _term(name: str, kind: FieldType, term: tuple[Any, Any], path: str, budget: _Budget) -> _Mask:
    """Return the mask of one operator on a field."""
    operator, value = term
    path = f"{path}.{operator}"
    budget.spend(path, len(value) if isinstance(value, list) else 0)
    if operator == "$exists":
        if not isinstance(value, bool):
            raise InvalidInput(path, f"{shown(value)} is no boolean")
        return lambda columns, _: columns[name].present == value
    if operator in ("$in", "$nin"):
        if not isinstance(value, list):
            raise InvalidInput(path, "not a list")
        values = [_comparable(f"{path}[{at}]", one, kind) for at, one in enumerate(value)]
        found = lambda columns, _: _equals_any(columns[name], values)  # noqa: E731
        return found if operator == "$in" else _not(found)
    if operator in ("$eq", "$ne"):
        one = _comparable(path, value, kind)
        found = lambda columns, _: _equals_any(columns[name], [one])  # noqa: E731
        return found if operator == "$eq" else _not(found)
    if operator in _RANGES:
        if kind not in ("integer", "float"):
            raise InvalidInput(path, f"a field of type {kind} has no order; use $eq or $in")
        limit, compare = _comparable(path, value, kind), _RANGES[operator]
        return lambda columns, _: columns[name].present & compare(columns[name].values, limit)
    raise InvalidInput(path, f"unknown operator; use one of: {', '.join(_OPERATORS)}")


def _comparable(path: str, value: Any, kind: FieldType) -> Any:
    """Return a value to compare with a field. An integer field is also compared with fractions."""
    if kind == "integer" and isinstance(value, float) and not (value.is_integer() and abs(value) < 2**63):
        return checked_value(path, value, "float")
    return checked_value(path, value, kind)


def _equals_any(column: Column, values: list[Any]) -> Mask:
    if column.kind == "keyword":
        positions = {word: at for at, word in enumerate(column.words)}
        values = [positions[one] for one in values if one in positions]
    elif column.kind == "integer":
        values = [one for one in values if one == int(one)]  # No integer equals a fraction.
    return column.present & np.isin(column.values, np.array(values, column.values.dtype))


def _all_of(parts: list[_Mask]) -> _Mask:
    def mask(columns: Columns, rows: int) -> Mask:
        found = np.ones(rows, np.bool_)
        for part in parts:
            found &= part(columns, rows)
        return found

    return mask


def _any_of(parts: list[_Mask]) -> _Mask:
    def mask(columns: Columns, rows: int) -> Mask:
        found = np.zeros(rows, np.bool_)
        for part in parts:
            found |= part(columns, rows)
        return found

    return mask


def _not(part: _Mask) -> _Mask:
    return lambda columns, rows: ~part(columns, rows)
