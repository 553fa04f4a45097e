"""Matchings: every node gets one partner, first in its own rack, then in another rack."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from convoy_controllers.guard.sweep.measuring import Member, Pair, pair


def inside(members: Sequence[Member], rng: random.Random) -> list[Pair]:
    """Return pairs within racks. In a rack with an odd number of nodes, one node has no partner. Such nodes
    are paired with one another, so at most one node stays alone.
    """
    found: list[Pair] = []
    over: list[str] = []
    for rack in _racks(members, rng):
        found += [pair(rack[at], rack[at + 1]) for at in range(0, len(rack) - 1, 2)]
        over += rack[len(rack) - len(rack) % 2 :]
    rng.shuffle(over)
    found += [pair(over[at], over[at + 1]) for at in range(0, len(over) - 1, 2)]
    return found


def across(members: Sequence[Member], before: Collection[Pair], rng: random.Random) -> list[Pair]:
    """Return pairs of nodes in different racks if possible. No pair is in `before`.

    If the number of nodes is odd, one node stays alone: if possible, a node that was already tested in a
    pair of `before`.
    """
    tested = {node for one in before for node in one}
    racks = sorted(_racks(members, rng), key=len, reverse=True)
    row = [node for rack in racks for node in rack]
    if len(row) % 2:
        row.remove(next((node for node in row if node in tested), row[0]))
    half = len(row) // 2
    # The row lists the nodes rack by rack. Pair each node with the node half the row later. Both are in one
    # rack only if that rack holds more than half of the nodes.
    pairs = [(row[at], row[at + half]) for at in range(half)]
    _renew(pairs, before, {one.node: one.rack for one in members})
    return [pair(*one) for one in pairs if pair(*one) not in before]


def _renew(pairs: list[Pair], before: Collection[Pair], rack: dict[str, str]) -> None:
    """Exchange partners in place so that no pair is in `before`, across racks if possible."""
    for at, (one, other) in enumerate(pairs):
        if pair(one, other) not in before:
            continue
        choices: list[tuple[int, int, Pair, Pair]] = []
        for index, (left, right) in enumerate(pairs):
            for first, second in (((one, right), (left, other)), ((one, left), (right, other))):
                if index != at and pair(*first) not in before and pair(*second) not in before:
                    near = sum(rack[a] == rack[b] for a, b in (first, second))
                    choices.append((near, index, first, second))
        if choices:
            _, index, pairs[at], pairs[index] = min(choices)


def _racks(members: Sequence[Member], rng: random.Random) -> list[list[str]]:
    """Return the nodes of each rack. `rng` determines the order of racks and nodes."""
    by_rack: dict[str, list[str]] = {}
    for one in sorted(members, key=lambda one: one.node):
        by_rack.setdefault(one.rack, []).append(one.node)
    racks = [by_rack[name] for name in sorted(by_rack)]
    rng.shuffle(racks)
    for rack in racks:
        rng.shuffle(rack)
    return racks
