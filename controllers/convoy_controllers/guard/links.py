"""Finds the parts of the network that explain the slow communicators. Chooses as few parts as possible that
together explain all of them (greedy set cover).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from convoy_controllers.guard.channels import FindingPlace
from convoy_controllers.guard.telemetry import Group, Layout

_MOST_LINKED_NODES = 64
"""Maximum number of nodes in a communicator whose links may be named. In a larger communicator a link
between two nodes is never named.
"""
_FAST_SHARE = 0.1
"""Maximum share of fast communicators among all communicators that pass through a part of the network. If
the share is larger, the part is not named as slow.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the network: links inside or between nodes, a node, a rack, or a group of nodes."""

    kind: FindingPlace
    """NODE, INSIDE, LINK or RACK; GROUP if the communicator's slow part is unknown."""
    where: tuple[int, ...]
    """Number of one node or one rack, or the numbers of both nodes at a link or of all nodes in a group."""


def nodes_of(group: Group, layout: Layout) -> list[int]:
    """Return the numbers of the nodes on which the communicator's members run, sorted."""
    return sorted(set(layout.node[group.members].tolist()))


def parts(group: Group, layout: Layout) -> set[Part]:
    """Return the parts of the network that a communicator's traffic passes through."""
    nodes = nodes_of(group, layout)
    racks = sorted(set(layout.rack[group.members].tolist()))
    if len(nodes) == 1:
        return {Part(FindingPlace.INSIDE, (nodes[0],))}
    found = {Part(FindingPlace.NODE, (node,)) for node in nodes}
    if len(nodes) <= _MOST_LINKED_NODES:
        found |= {Part(FindingPlace.LINK, pair) for pair in combinations(nodes, 2)}
    if len(racks) > 1:
        found |= {Part(FindingPlace.RACK, (rack,)) for rack in racks}
    return found


def explain(groups: Sequence[Group], slow: Iterable[int], layout: Layout) -> list[tuple[Part, list[int]]]:
    """Return the parts that explain the slow communicators, each part with the numbers of the communicators
    that it explains. `slow`: numbers of the slow communicators among `groups`.

    A part is named only if nearly all communicators through the part are slow. If several parts explain
    equally many communicators, `_unambiguous_part` chooses one or none. Without a chosen part, all nodes of
    the communicator form one GROUP.
    """
    left = set(slow)
    if not left:
        return []
    passes = [parts(group, layout) for group in groups]
    through: dict[Part, set[int]] = {}
    for number, found in enumerate(passes):
        # Leave out silent communicators: they may be slow or fast.
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
        # Choose among the parts that explain this communicator. Later rounds choose parts for other
        # communicators.
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
    """Return the part to name if several parts explain equally many communicators; None if the choice is
    ambiguous.

    A single node is preferred to links and racks, and a single link to racks. Two nodes and the link
    between them give the link. More than two nodes and one rack give the rack.
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
