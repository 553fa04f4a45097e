"""Simulations for the tests of the analytical simulator."""

from __future__ import annotations

from dataclasses import dataclass, replace

from convoy_controllers.astrasim.parameters import (
    AlgorithmKind,
    Backend,
    CollectiveNode,
    CollectiveType,
    Dimension,
    Implementation,
    MessageNode,
    Network,
    Node,
    Optimization,
    Options,
    Simulation,
    System,
    Topology,
    Workload,
)

MIB = 1 << 20


@dataclass(frozen=True)
class Collective:
    """One collective of all ranks on a network of one dimension. The values are those of ASTRA-sim's test."""

    ranks: int = 8
    type: CollectiveType = CollectiveType.ALL_REDUCE
    size: int = MIB
    kind: AlgorithmKind = AlgorithmKind.RING
    window: int | None = None
    topology: Topology = Topology.RING
    backend: Backend = Backend.UNAWARE
    bandwidth: float = 50.0
    latency: float = 500.0
    splits: int = 4
    active: int = 1
    delay: int = 10
    memory: float = 50.0
    queues: int = 1

    @property
    def simulation(self) -> Simulation:
        """Return the simulation."""
        return Simulation(
            Network(self.backend, (Dimension(self.topology, self.ranks, self.bandwidth, self.latency),)),
            System(
                {self.type: (Implementation(self.kind, self.window),)},
                self.splits,
                self.memory,
                endpoint_delay=self.delay,
                active_chunks=self.active,
                optimization=Optimization.LOCAL_BANDWIDTH_AWARE,
            ),
            Workload(((CollectiveNode(1, self.type, self.size),),) * self.ranks),
            Options(queues=self.queues),
        )

    def times(self, size: int) -> tuple[int, int]:
        """Return the ns of a message of one hop, and of a reduction."""
        per_ns = self.bandwidth * 2**30 / 1e9
        return int(self.latency + size / per_ns), 3 * int(size / (self.memory * 1e9) * 1e9)


def messages(network: Network, *sent: tuple[int, int, int]) -> Simulation:
    """Return a simulation of messages: (source, target, size). Receives are posted at time 0."""
    nodes: list[list[Node]] = [[] for _ in range(network.ranks)]
    for tag, (source, target, size) in enumerate(sent):
        nodes[source].append(MessageNode(2 * tag, True, target, size, tag))
        nodes[target].append(MessageNode(2 * tag + 1, False, source, size, tag))
    idle = replace(Collective(), ranks=2).simulation
    return Simulation(network, idle.system, Workload(tuple(map(tuple, nodes))))
