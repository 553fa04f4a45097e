"""Reads and sets fields of JSON values by their path, such as `roles.0.replicas`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class InvalidFieldPath(ValueError):
    """Raised for a path that the value cannot have."""


def with_value(body: Any, path: str, value: Any) -> Any:
    """Return a copy of a JSON value with one field set. Objects on the way are created.

    Raises InvalidFieldPath if the path needs an object or an item where the value has none.
    """
    return _set(body, path.split("."), value, path)


def value_at(body: Any, path: str) -> Any:
    """Return the value of a field; None if it does not exist."""
    for part in path.split("."):
        if isinstance(body, list):
            body = body[int(part)] if part.isdecimal() and int(part) < len(body) else None
        elif isinstance(body, Mapping):
            body = body.get(part)
        else:
            return None
    return body


def _set(body: Any, parts: list[str], value: Any, path: str) -> Any:
    if not parts:
        return value
    first, rest = parts[0], parts[1:]
    if body is None:
        body = {}
    if isinstance(body, Mapping):
        return {**body, first: _set(body.get(first), rest, value, path)}
    if not isinstance(body, list):
        raise InvalidFieldPath(f"{path}: the field before {first!r} is neither an object nor a list")
    if not first.isdecimal() or int(first) >= len(body):
        raise InvalidFieldPath(f"{path}: {first!r} is no item of a list with {len(body)} items, from 0")
    return [_set(one, rest, value, path) if at == int(first) else one for at, one in enumerate(body)]
