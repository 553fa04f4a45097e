"""Matchings: every node with one partner, first inside racks, then across them."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from convoy_controllers.guard.sweep.measuring import Member, Pair, pair


def inside(members: Sequence[Member], rng: random.Random) -> list[Pair]:
    """Pairs within racks; what odd racks leave over is paired with one another. One stays alone if odd."""
    found: list[Pair] = []
    over: list[str] = []
    for rack in _racks(members, rng):
        found += [pair(rack[at], rack[at + 1]) for at in range(0, len(rack) - 1, 2)]
        over += rack[len(rack) - len(rack) % 2 :]
    rng.shuffle(over)
    found += [pair(over[at], over[at + 1]) for at in range(0, len(over) - 1, 2)]
    return found


def across(members: Sequence[Member], before: Collection[Pair], rng: random.Random) -> list[Pair]:
    """Pairs of nodes in different racks as far as racks allow, none of them in `before`.

    Where the number is odd somebody stays alone who is in `before`.
    """
    tested = {node for one in before for node in one}
    racks = sorted(_racks(members, rng), key=len, reverse=True)
    row = [node for rack in racks for node in rack]
    if len(row) % 2:
        row.remove(next((node for node in row if node in tested), row[0]))
    half = len(row) // 2
    # Halves of a row that is sorted by rack meet in one rack only where that rack is more than a half.
    pairs = [(row[at], row[at + half]) for at in range(half)]
    _renew(pairs, before, {one.node: one.rack for one in members})
    return [pair(*one) for one in pairs if pair(*one) not in before]


def _renew(pairs: list[Pair], before: Collection[Pair], rack: dict[str, str]) -> None:
    """Changes partners so that nobody meets the same one again, racks permitting."""
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
    """Nodes by rack, both in an order that is random but for `rng`."""
    by_rack: dict[str, list[str]] = {}
    for one in sorted(members, key=lambda one: one.node):
        by_rack.setdefault(one.rack, []).append(one.node)
    racks = [by_rack[name] for name in sorted(by_rack)]
    rng.shuffle(racks)
    for rack in racks:
        rng.shuffle(rack)
    return racks
