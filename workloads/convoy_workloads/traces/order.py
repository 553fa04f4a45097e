"""The order of nodes by their dependencies."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Set
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def ordered(needs: Mapping[Key, Set[Key]]) -> tuple[list[Key], dict[Key, set[Key]]]:
    """Return the nodes so that each one comes after those that it needs, and the rest: the nodes in cycles,
    and those that depend on them. An acyclic graph leaves no rest.

    `needs`: the nodes that each node depends on, all of them keys too. The rest has the same form.
    """
    missing = {node: len(needed) for node, needed in needs.items()}
    users: dict[Key, list[Key]] = {node: [] for node in needs}
    for node, needed in needs.items():
        for one in needed:
            users[one].append(node)
    found = [node for node, count in missing.items() if not count]
    for node in found:  # The list grows on the way.
        for user in users[node]:
            missing[user] -= 1
            if not missing[user]:
                found.append(user)
    return found, {
        node: {one for one in needs[node] if missing[one]} for node, count in missing.items() if count
    }
