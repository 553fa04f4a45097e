"""Maps field paths of a pod to field paths of the template that the pod was made from. Pure.

A path is a tuple of field names and list positions: ("spec", "containers", 0) is `spec.containers[0]`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Token = str | int
_TOKEN = re.compile(r"\[(\d+)\]|\[([^\]]*)\]|([^.\[\]]+)")
_IDENTITY = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
}
"""Lists to which Convoy adds entries, and the field that identifies an entry."""


def tokens(path: str) -> tuple[Token, ...]:
    """Return the path that the API server writes as text, such as `spec.containers[0].env[1]`."""
    return tuple(int(match[1]) if match[1] else match[2] or match[3] for match in _TOKEN.finditer(path))


def joined(path: tuple[Token, ...]) -> str:
    """Return the path as text, such as `spec.containers[0]`."""
    return "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in path).lstrip(".")


def located(
    value: Any, names: tuple[str, ...], chosen: Callable[[Any], bool], entries: bool = True
) -> tuple[Token, ...] | None:
    """Return the path to the first value for which `chosen` is true; None if there is none.

    `names` are the field names on that path, without list positions. The last field may hold a list or map.
    If `entries` is true, the values inside this list or map are tried before the whole list or map.
    """
    below = list(enumerate(value)) if isinstance(value, list) else []
    if not names:
        if isinstance(value, Mapping):
            below = list(value.items())
        for token, entry in below if entries else ():
            if chosen(entry):
                return (token,)
        return () if chosen(value) else None
    if isinstance(value, Mapping) and names[0] in value:
        found = located(value[names[0]], names[1:], chosen, entries)
        return None if found is None else (names[0], *found)
    for token, entry in below:
        if (found := located(entry, names, chosen, entries)) is not None:
            return (token, *found)
    return None


def origin(
    path: tuple[Token, ...], pod: Mapping[str, Any], template: Mapping[str, Any]
) -> tuple[Token, ...] | None:
    """Return the path of the same field in the template; None for a field that Convoy added to the pod."""
    if path[:1] != ("spec",) and path[:2] not in (("metadata", "labels"), ("metadata", "annotations")):
        return None
    inside, source = pod, template
    found: list[Token] = []
    name = ""
    for token in path:
        if isinstance(token, int) and isinstance(inside, list):
            position = _position(
                inside, token, source if isinstance(source, list) else [], _IDENTITY.get(name)
            )
            if position is None:
                return None
            found.append(position)
            inside, source = inside[token], source[position]
        else:
            found.append(token)
            name = str(token)
            inside, source = _child(inside, name), _child(source, name)
    return tuple(found)


def _child(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _position(made: list[Any], position: int, given: list[Any], identity: str | None) -> int | None:
    """Return the position in the template's list of one entry of the pod's list; None if the template's
    list lacks this entry. `position` is the entry's position in the pod's list.
    """
    if position >= len(made):
        return None
    if identity is None:
        return position if position < len(given) else None
    wanted = _child(made[position], identity)
    before = sum(1 for one in made[:position] if _child(one, identity) == wanted)
    same = [number for number, one in enumerate(given) if _child(one, identity) == wanted]
    return same[before] if before < len(same) else same[-1] if same else None
