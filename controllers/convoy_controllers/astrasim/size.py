"""The size of a run, which is bounded before the run is built."""

from __future__ import annotations

from convoy_controllers.astrasim.parameters import (
    AlgorithmKind,
    CollectiveNode,
    Simulation,
)
from convoy_controllers.astrasim.result import Finding, FindingKind

MOST_OBJECTS = 5_000_000
"""Objects that a run may hold at once: about 2 GB."""


def too_large(simulation: Simulation) -> Finding | None:
    """Return a finding if a run of every rank would hold too many objects.

    These are the nodes and queues of each rank, and the chunks and open messages of its largest collective.
    """
    ranks = simulation.workload.ranks
    queues = simulation.options.queues * len(simulation.network.sizes)
    largest: dict[int, int] = {}
    held = 0
    for nodes in ranks:
        # Ranks may share a list of nodes.
        if id(nodes) not in largest:
            sizes = (_collective(simulation, one) for one in nodes if isinstance(one, CollectiveNode))
            largest[id(nodes)] = max(sizes, default=0)
        held += 1 + queues + len(nodes) + largest[id(nodes)]
    if held <= MOST_OBJECTS:
        return None
    return Finding(
        FindingKind.TOO_LARGE,
        f"the run of {len(ranks):,} ranks needs about {held:,} objects in memory, more than "
        f"{MOST_OBJECTS:,}: use fewer ranks, nodes, splits or queues, a direct algorithm with a window such "
        "as direct4, or make all ranks alike, so that one is played for all: the same nodes on each, and "
        "ring or direct on a network of one dimension",
    )


def _collective(simulation: Simulation, node: CollectiveNode) -> int:
    """Return the phases of all chunks, and the messages that the running chunks send at once."""
    system = simulation.system
    implementations = system.implementations.get(node.type, ())
    members = len(simulation.workload.groups.get(node.group or 0, ())) or simulation.network.ranks
    at_once = [
        min(one.window or members, members) if one.kind is AlgorithmKind.DIRECT else 1
        for one in implementations
    ]
    running = min(system.active_chunks, system.splits)
    return system.splits * max(1, 2 * len(implementations)) + running * max(at_once, default=0)
