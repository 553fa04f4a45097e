"""Pure functions that decode the API server's JSON, whatever its nesting depth.

The API server accepts 10,000 levels of nesting in a field without a schema, but orjson decodes only 1,024.
One object that is nested too deeply must not make a whole list unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

MAX_LEVELS = 200
"""Maximum number of nesting levels that are kept. A deeper value becomes null. No valid object has so many
levels, so only invalid objects are changed.
"""
_MARKS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
"""Matches brackets, and whole strings, so that brackets inside strings are skipped."""


def loads(data: bytes) -> Any:
    """Return the decoded JSON value. Raises orjson.JSONDecodeError for invalid JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return orjson.loads(b"".join(_shallow(data)))


def bounded(value: Any) -> Any:
    """Return the value with null in place of all values below MAX_LEVELS. Return the same object if nothing
    is nested that deep.
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
    """Yield the JSON text with null in place of each value that is nested too deeply."""
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
