"""Sets a value at a field path of an object."""

from __future__ import annotations

import copy
from typing import Any


class WrongPath(ValueError):
    """A path leads through a field that has no fields, or to an item that a list does not have."""


def with_value(document: Any, path: str, value: Any) -> Any:
    """Return a copy of `document` with `value` at the path. Objects that are missing on the way are made.
    Raises WrongPath.
    """
    found = copy.deepcopy(document)
    at = found
    *parents, last = path.split(".")
    for done, name in enumerate(parents):
        at = _inside(at, name, ".".join(parents[: done + 1]))
    if isinstance(at, dict):
        at[last] = copy.deepcopy(value)
    elif isinstance(at, list):
        at[_index(at, last, path)] = copy.deepcopy(value)
    else:
        raise WrongPath(f"{'.'.join(parents)} has no fields")
    return found


def value_at(document: Any, path: str) -> Any:
    """Return the value at a path; None if there is none."""
    at = document
    for name in path.split("."):
        if isinstance(at, dict):
            at = at.get(name)
        elif isinstance(at, list) and name.isdigit() and int(name) < len(at):
            at = at[int(name)]
        else:
            return None
    return at


def _inside(at: Any, name: str, path: str) -> Any:
    if isinstance(at, list):
        return at[_index(at, name, path)]
    if not isinstance(at, dict):
        raise WrongPath(f"{path.rpartition('.')[0]} has no fields")
    if at.get(name) is None:
        at[name] = {}
    return at[name]


def _index(items: list[Any], name: str, path: str) -> int:
    if not name.isdigit() or int(name) >= len(items):
        raise WrongPath(f"{path}: the list has {len(items)} items, numbered from 0")
    return int(name)
