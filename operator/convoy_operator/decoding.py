"""JSON of the API server to objects, however deep a user's object is nested. Pure.

The API server takes 10,000 levels in a field without a schema, the parser here 1,024. One such object must
not hide the list that it is in from the operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

MAX_LEVELS = 200
"""Levels that are read; below them is null. More than any model takes, so the object is found invalid."""
_MARKS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
"""Strings, which may hold brackets, and brackets."""


def loads(data: bytes) -> Any:
    """The JSON value; orjson.JSONDecodeError where the data is none."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return orjson.loads(b"".join(_shallow(data)))


def bounded(value: Any) -> Any:
    """A JSON value without what is nested too deep to be compared; the very same value where nothing is."""
    level, found = 0, [value]
    while found := [item for one in found for item in _items(one)]:
        level += 1
        if level > MAX_LEVELS:
            return _cut(value, MAX_LEVELS)
    return value


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _cut(value: Any, levels: int) -> Any:
    if not isinstance(value, (dict, list)):
        return value
    if not levels:
        return None
    if isinstance(value, list):
        return [_cut(item, levels - 1) for item in value]
    return {name: _cut(item, levels - 1) for name, item in value.items()}


def _shallow(data: bytes) -> Iterator[bytes]:
    """The data with null in the place of what is nested too deep."""
    level = kept = 0
    for mark in _MARKS.finditer(data):
        if mark[0] in (b"[", b"{"):
            level += 1
            if level == MAX_LEVELS + 1:
                yield data[kept : mark.start()] + b"null"
        elif mark[0] in (b"]", b"}"):
            if level == MAX_LEVELS + 1:
                kept = mark.end()
            level -= 1
    if level <= MAX_LEVELS:
        yield data[kept:]
