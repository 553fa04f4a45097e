"""Tests of JSON responses with objects that are nested deeper than orjson can decode."""

from __future__ import annotations

import copy
import json

import orjson
import pytest

from convoy_operator.decoding import MAX_LEVELS, bounded, loads


def nested(levels: int, inside: str = "1", opening: str = '{"a":', closing: str = "}") -> str:
    return opening * levels + inside + closing * levels


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"a": [1, "]}", {"b\\\\": "\\"{"}]}',
        nested(100),
        nested(500, '"}"'),
        nested(900, "1", "[", "]"),
    ],
)
def test_parsed_json_is_complete(text: str) -> None:
    assert loads(text.encode()) == json.loads(text)


@pytest.mark.parametrize("inside", ["1", '"}]"', '{"b": ["\\"]"]}', "[]"])
@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]"), ('[{"a":', "}]")])
def test_only_values_nested_too_deep_become_null(inside: str, opening: str, closing: str) -> None:
    deep = nested(5000, inside, opening, closing)
    found = loads(f'{{"items": [{{"x": {deep}, "y": "{{["}}, {{"x": 2}}]}}'.encode())
    first, second = found["items"]
    assert (first["y"], second) == ("{[", {"x": 2})
    value, levels = first["x"], 0
    while value is not None:
        value, levels = value[0] if isinstance(value, list) else value["a"], levels + 1
    assert levels == MAX_LEVELS - 3


@pytest.mark.parametrize("levels", [0, 10, 150, 900])
def test_kept_values_can_be_compared(levels: int) -> None:
    given = {"spec": loads(nested(levels).encode()), "status": {"a": [1]}}
    kept = bounded(given)
    assert (kept is given) == (levels < MAX_LEVELS)
    assert kept["status"] == given["status"] and copy.deepcopy(kept) == bounded(given)


@pytest.mark.parametrize("text", ["", "{", "nonsense", '{"a": }', nested(5000) + "}", nested(5000)[:-1]])
def test_invalid_json_raises(text: str) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        loads(text.encode())
