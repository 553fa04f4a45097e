"""Restricts a pod to some domains, so that kube-scheduler considers the chosen one.

In a large cluster, kube-scheduler scores only a sample of the nodes that fit: at least 100, otherwise 5 to
50 % of all nodes (`percentageOfNodesToScore`). A preference for a node outside of the sample has no effect.
The pod is therefore restricted to the chosen domain and others near it, with at most as many nodes as are
always scored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from convoy_controllers.placement.topology import Path, Topology

SCORED_NODES = 100
"""Nodes that kube-scheduler always scores (`minFeasibleNodesToFind`)."""


def shortlist(chosen: Path, found: Topology, room: Mapping[Path, int]) -> list[str]:
    """Return the names of domains of the first key: the chosen one, then near ones before far ones, and those
    with most room before others.

    `room`: number of pods that fit, by domain path of the first key. Return nothing if all nodes are scored
    anyway, or if the chosen node does not have the label.
    """
    if not chosen[0] or len(found.paths) <= SCORED_NODES:
        return []
    sizes = Counter(path[0] for path in found.paths.values())
    names, nodes = [chosen[0]], sizes[chosen[0]]
    for path in sorted(room, key=lambda path: (-_shared(chosen, path), -room[path], path)):
        size = sizes[path[0]]
        if path[0] and path[0] not in names and room[path] > 0 and nodes + size <= SCORED_NODES:
            names.append(path[0])
            nodes += size
    return names


def _shared(one: Path, other: Path) -> int:
    """Return the number of keys, from the farthest on, whose domains are equal."""
    count = 0
    for ours, theirs in zip(reversed(one), reversed(other), strict=True):
        if not ours or ours != theirs:
            break
        count += 1
    return count
