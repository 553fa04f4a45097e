"""Reads fields of pod templates and other objects that only the API server validates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def mapping(value: Any, *path: str) -> Mapping[str, Any]:
    """Return the object at a path inside of a JSON value; an empty one if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def numbered(value: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the objects of a list with their numbers. Other items, and other values, are left out."""
    for number, one in enumerate(value if isinstance(value, list) else ()):
        if isinstance(one, Mapping):
            yield number, one


def objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a list."""
    for _, one in numbered(value):
        yield one


def words(value: Any) -> list[str]:
    """Return the items of a list as texts; none for another value."""
    return [str(one) for one in value] if isinstance(value, list) else []


def text(value: Any) -> str:
    """Return a text; an empty one for another value."""
    return value if isinstance(value, str) else ""
