"""Tests of filters against a plain function on records, and of their errors."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases

from convoy_workloads.engines.aperon.columns import columns_of, records_at
from convoy_workloads.engines.aperon.errors import InvalidInput, UnknownField
from convoy_workloads.engines.aperon.filters import parse_filter
from convoy_workloads.engines.aperon.settings import FieldType

FIELDS: dict[str, FieldType] = {"word": "keyword", "count": "integer", "share": "float", "yes": "boolean"}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "word": st.sampled_from(["", "a", "b", "ß"]),
    "count": st.integers(-3, 3) | st.just(2**62),
    "share": st.sampled_from([-1.5, 0.0, 0.25, 3.0]),
    "yes": st.booleans(),
}
RECORDS = st.lists(st.fixed_dictionaries({}, optional=VALUES), max_size=12)


def terms() -> st.SearchStrategy[dict[str, Any]]:
    def of_field(name: str) -> st.SearchStrategy[dict[str, Any]]:
        value = VALUES[name] if name != "count" else VALUES[name] | st.just(0.5) | st.just(2.0)
        single = st.sampled_from(
            ["$eq", "$ne"] + (["$gt", "$gte", "$lt", "$lte"] if name in ("count", "share") else [])
        )
        term = st.one_of(
            st.builds(lambda operator, one: {operator: one}, single, value),
            st.builds(
                lambda operator, some: {operator: some},
                st.sampled_from(["$in", "$nin"]),
                st.lists(value, max_size=3),
            ),
            st.builds(lambda there: {"$exists": there}, st.booleans()),
            value,
        )
        return term.map(lambda one: {name: one})

    return st.one_of([of_field(name) for name in FIELDS])


FILTERS = st.recursive(
    terms(),
    lambda inner: st.one_of(
        st.builds(lambda some: {"$and": some}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda some: {"$or": some}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda one: {"$not": one}, inner),
        st.builds(lambda one, other: one | other, inner, inner),
    ),
    max_leaves=6,
)


def fulfils(record: dict[str, Any], raw: dict[str, Any]) -> bool:
    """Return True if a record fulfils a filter."""
    return all(_entry(record, name, value) for name, value in raw.items())


def _entry(record: dict[str, Any], name: str, value: Any) -> bool:
    if name == "$and":
        return all(fulfils(record, one) for one in value)
    if name == "$or":
        return any(fulfils(record, one) for one in value)
    if name == "$not":
        return not fulfils(record, value)
    own = record.get(name)
    for operator, limit in (value if isinstance(value, dict) else {"$eq": value}).items():
        found = {
            "$eq": lambda limit=limit: own is not None and own == limit,
            "$ne": lambda limit=limit: own is None or own != limit,
            "$in": lambda limit=limit: own is not None and own in limit,
            "$nin": lambda limit=limit: own is None or own not in limit,
            "$gt": lambda limit=limit: own is not None and own > limit,
            "$gte": lambda limit=limit: own is not None and own >= limit,
            "$lt": lambda limit=limit: own is not None and own < limit,
            "$lte": lambda limit=limit: own is not None and own <= limit,
            "$exists": lambda limit=limit: (own is not None) == limit,
        }[operator]()
        if not found:
            return False
    return True


@settings(max_examples=cases(60), deadline=None)
@given(RECORDS, FILTERS)
def test_filters_agree_with_a_plain_function(records: list[dict[str, Any]], raw: dict[str, Any]) -> None:
    columns = columns_of(records, FIELDS)
    mask = parse_filter(raw, FIELDS).mask(columns, len(records))
    assert mask.tolist() == [fulfils(record, raw) for record in records]
    rows = mask.nonzero()[0]
    assert records_at(columns, rows) == [records[row] for row in rows]


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (
            {"colour": 1},
            "filter.colour: the index has no field 'colour'; its fields: word, count, share, yes",
        ),
        ({"$or": [{"word": "a"}, {"wrd": "a"}]}, "filter.$or[1].wrd: the index has no field"),
        ({}, "filter: not a map"),
        ({"$or": []}, "filter.$or: not a list with at least one"),
        ({"$nor": [{"word": "a"}]}, "filter.$nor: no operator"),
        ({"word": {"$gt": "a"}}, "filter.word.$gt: a field of type keyword has no order"),
        ({"word": {"$like": "a"}}, "filter.word.$like: unknown operator"),
        ({"word": {}}, "filter.word: no operator"),
        ({"word": 1}, "filter.word.$eq: 1 is no keyword"),
        ({"count": {"$in": [1, "2"]}}, 'filter.count.$in[1]: "2" is no integer'),
        ({"count": {"$in": 1}}, "filter.count.$in: not a list"),
        ({"count": True}, "filter.count.$eq: true is no integer"),
        ({"count": 10**400}, "filter.count.$eq: 1000"),
        ({"share": {"$lt": float("nan")}}, "filter.share.$lt: NaN is no float"),
        ({"yes": {"$exists": 1}}, "filter.yes.$exists: 1 is no boolean"),
        ({"$and": [{"count": 1}] * 600}, "more than 1024 operators"),
        (
            {"count": {"$in": [1] * 40_000, "$nin": [2] * 40_000}},
            "filter.count.$nin: the filter has more than 65536",
        ),
    ],
)
def test_wrong_filters_are_refused_with_their_path(raw: dict[str, Any], error: str) -> None:
    kind = UnknownField if "no field" in error else InvalidInput
    with pytest.raises(kind, match=re.escape(error)):
        parse_filter(raw, FIELDS)


def test_a_list_may_have_many_values() -> None:
    records: list[dict[str, Any]] = [{"count": at, "word": f"w{at}"} for at in range(0, 30_000, 1000)]
    columns = columns_of(records, FIELDS)
    numbers = {"count": {"$in": [*range(5000, 15_000), 2**62, 0.5]}}
    assert parse_filter(numbers, FIELDS).mask(columns, 30).nonzero()[0].tolist() == list(range(5, 15))
    words = {"word": {"$nin": [f"w{at}" for at in range(10_000)]}}
    assert parse_filter(words, FIELDS).mask(columns, 30).nonzero()[0].tolist() == list(range(10, 30))


def test_a_filter_has_a_greatest_depth() -> None:
    raw: dict[str, Any] = {"yes": True}
    for _ in range(20):
        raw = {"$not": raw}
    with pytest.raises(InvalidInput, match="nested deeper"):
        parse_filter(raw, FIELDS)
