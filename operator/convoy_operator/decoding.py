"""JSON decoding of the API server's responses, for objects of any nesting depth. Pure.

The API server accepts 10,000 levels in a field without a schema; the parser here reads 1,024. One object
that is nested too deep must not make the whole list unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

MAX_LEVELS = 200
"""Nesting levels that are read; deeper values become null. No model needs that many, so the object is found
invalid.
"""
_MARKS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
"""Matches strings, which may contain brackets, and brackets."""


def loads(data: bytes) -> Any:
    """Return the JSON value; raise orjson.JSONDecodeError for invalid JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return orjson.loads(b"".join(_shallow(data)))


def bounded(value: Any) -> Any:
    """Return a JSON value without the levels that are too deep to compare; return the same object if there
    are none.
    """
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
    """Yield the data with null in place of values that are nested too deep."""
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
