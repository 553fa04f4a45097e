"""Finds the parts of the network that explain the slow communicators: the smallest cover, chosen greedily."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from convoy_controllers.guard.channels import FindingPlace
from convoy_controllers.guard.telemetry import Group, Layout

_MOST_LINKED_NODES = 64
"""Most nodes of a communicator for which every link between two of them is a candidate. Larger
communicators have no candidate links.
"""
_FAST_SHARE = 0.1
"""Share of the communicators through a part that may be fast although the part is slow."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the network."""

    kind: FindingPlace
    """NODE, INSIDE, LINK or RACK; GROUP if the communicator's slow part is unknown."""
    where: tuple[int, ...]
    """One node, two nodes, one rack, or all nodes of the group."""


def nodes_of(group: Group, layout: Layout) -> list[int]:
    """Return the sorted nodes of the group's members."""
    return sorted({int(node) for node in layout.node[group.members]})


def parts(group: Group, layout: Layout) -> set[Part]:
    """Return the parts that a communicator's traffic passes through."""
    nodes = nodes_of(group, layout)
    racks = sorted({int(rack) for rack in layout.rack[group.members]})
    if len(nodes) == 1:
        return {Part(FindingPlace.INSIDE, (nodes[0],))}
    found = {Part(FindingPlace.NODE, (node,)) for node in nodes}
    if len(nodes) <= _MOST_LINKED_NODES:
        found |= {Part(FindingPlace.LINK, pair) for pair in combinations(nodes, 2)}
    if len(racks) > 1:
        found |= {Part(FindingPlace.RACK, (rack,)) for rack in racks}
    return found


def explain(groups: Sequence[Group], slow: Iterable[int], layout: Layout) -> list[tuple[Part, list[int]]]:
    """Return the parts that explain the slow communicators, each with the numbers of those it explains.

    A part is named only if nearly all communicators through it are slow, and if no other part explains one
    of them equally well. If several parts explain the same communicators, the result names the whole
    `group`.
    """
    left = set(slow)
    if not left:
        return []
    passes = [parts(group, layout) for group in groups]
    through: dict[Part, set[int]] = {}
    for number, found in enumerate(passes):
        # A silent communicator carries no information.
        if number in left or not np.isnan(groups[number].seconds).all():
            for part in found:
                through.setdefault(part, set()).add(number)
    sick = set(left)
    fit = {
        part: numbers
        for part, numbers in through.items()
        if len(numbers - sick) <= _FAST_SHARE * len(numbers) and numbers & sick
    }
    explained: list[tuple[Part, list[int]]] = []
    while left:
        best = max((len(numbers & left) for numbers in fit.values()), default=0)
        equal = [part for part, numbers in fit.items() if len(numbers & left) == best and best]
        number = min(set().union(*(fit[part] & left for part in equal)) or left)
        # Other equal parts explain other communicators; later rounds choose them.
        chosen = _unambiguous_part([part for part in equal if number in fit[part]])
        if chosen is None:
            nodes = nodes_of(groups[number], layout)
            explained.append((Part(FindingPlace.GROUP, tuple(nodes)), [number]))
            left.discard(number)
            continue
        explained.append((chosen, sorted(fit[chosen] & left)))
        left -= fit[chosen]
    return explained


def _unambiguous_part(equal: list[Part]) -> Part | None:
    """Return the part to name if several explain equally many communicators; None if it is undecidable.

    A single node is preferred to links and racks, and a single link to racks. Two nodes with the link
    between them mean the link. More than two nodes of one rack mean the rack.
    """
    nodes = [part for part in equal if part.kind is FindingPlace.NODE]
    links = [part for part in equal if part.kind is FindingPlace.LINK]
    racks = [part for part in equal if part.kind is FindingPlace.RACK]
    if len(equal) == 1:
        return equal[0]
    if len(nodes) == 1:
        return nodes[0]
    if not nodes and len(links) == 1:
        return links[0]
    if not nodes and len(racks) == 1:
        return racks[0]
    if len(nodes) == 2 and len(links) == 1 and links[0].where == (nodes[0].where + nodes[1].where):
        return links[0]
    return racks[0] if len(racks) == 1 and len(nodes) > 2 else None
