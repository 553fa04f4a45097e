"""Runs of which one rank shows the figures of all.

If all ranks run the same nodes on a network of one dimension, a ring or direct algorithm looks alike from
every rank: what a rank sends to the rank `d` places further, it receives at the same time from the rank `d`
places before. So one rank is played, and each of its messages comes back to it.
"""

from __future__ import annotations

from convoy_controllers.astrasim.clock import Clock
from convoy_controllers.astrasim.network.medium import Key
from convoy_controllers.astrasim.network.transport import Transport
from convoy_controllers.astrasim.parameters import (
    AlgorithmKind,
    AnyNetwork,
    Backend,
    CollectiveNode,
    CollectiveType,
    MessageNode,
    Network,
    Simulation,
    Topology,
)


def is_symmetric(simulation: Simulation) -> bool:
    """Return True if rank 0 shows the figures of all ranks."""
    network, workload = simulation.network, simulation.workload
    first = workload.ranks[0]
    if not isinstance(network, Network) or len(network.dimensions) != 1 or simulation.options.rendezvous:
        return False
    if any(nodes is not first and nodes != first for nodes in workload.ranks):
        return False
    if network.backend is not Backend.UNAWARE and simulation.options.queues > 1:
        # The two directions of a ring share the link between a rank and a switch.
        return False
    if any(isinstance(node, MessageNode) for node in first):
        return False
    return all(
        _is_symmetric(simulation, network, node)
        for node in first
        if isinstance(node, CollectiveNode) and node.type is not CollectiveType.BROADCAST
    )


def _is_symmetric(simulation: Simulation, network: Network, node: CollectiveNode) -> bool:
    if node.group is not None or node.size < 1:
        return False
    (dimension,) = network.dimensions
    for one in simulation.system.implementations.get(node.type, ()):
        if one.kind not in {AlgorithmKind.RING, AlgorithmKind.DIRECT}:
            return False
        # Where messages of several ranks share a link, the order of those that come at once differs by rank.
        shares = one.kind is AlgorithmKind.DIRECT and dimension.topology is not Topology.FULLY_CONNECTED
        if network.backend is not Backend.UNAWARE and shares:
            return False
    return True


class MirrorTransport(Transport):
    """The transport of rank 0, which receives its own messages as those of the ranks that mirror them."""

    def __init__(self, clock: Clock, network: AnyNetwork) -> None:
        super().__init__(clock, network)
        self._ranks = network.ranks

    def send(self, key: Key) -> None:
        """Send a message now, as the rank that sends the same message to rank 0."""
        tag, _, target, size = key
        super().send((tag, self._ranks - target, 0, size))
