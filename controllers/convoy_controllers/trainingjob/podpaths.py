"""Field paths of a pod, and where in the template that the pod was made from a field comes from. Pure.

A path is a tuple of field names and positions in lists: ("spec", "containers", 0) is `spec.containers[0]`.
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
"""Lists into which Convoy puts entries of its own, and the field by which entries are told apart."""


def tokens(path: str) -> tuple[Token, ...]:
    """A path as the API server writes it."""
    return tuple(int(match[1]) if match[1] else match[2] or match[3] for match in _TOKEN.finditer(path))


def joined(path: tuple[Token, ...]) -> str:
    """The path as people write it."""
    return "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in path).lstrip(".")


def located(
    value: Any, names: tuple[str, ...], chosen: Callable[[Any], bool], entries: bool = True
) -> tuple[Token, ...] | None:
    """The path to the first chosen value at field names that leave out the positions in lists.

    With `entries`, those of a list or a map at the last field come before the field itself.
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
    """The same field's path in the template; None for a field that Convoy has put into the pod."""
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
    """Where a pod's list entry stands in the template's list; None where it does not."""
    if position >= len(made):
        return None
    if identity is None:
        return position if position < len(given) else None
    wanted = _child(made[position], identity)
    before = sum(1 for one in made[:position] if _child(one, identity) == wanted)
    same = [number for number, one in enumerate(given) if _child(one, identity) == wanted]
    return same[before] if before < len(same) else same[-1] if same else None
