"""One rank: issues its nodes, runs them, and records their times."""

from __future__ import annotations

from functools import partial

from convoy_controllers.astrasim.clock import Clock, RankEvents
from convoy_controllers.astrasim.collective.chunk import Site
from convoy_controllers.astrasim.collective.endpoint import Endpoint
from convoy_controllers.astrasim.collective.errors import NodeError
from convoy_controllers.astrasim.collective.scheduler import Scheduler
from convoy_controllers.astrasim.network.transport import COLLECTIVE_TAGS, Transport
from convoy_controllers.astrasim.parameters import (
    CollectiveNode,
    CollectiveType,
    ComputeNode,
    MessageNode,
    Node,
    Simulation,
)
from convoy_controllers.astrasim.result import RankFigures
from convoy_controllers.astrasim.workload.graph import Graph
from convoy_controllers.astrasim.workload.intervals import figures


class Rank:
    """One rank of a run."""

    def __init__(self, number: int, simulation: Simulation, clock: Clock, transport: Transport) -> None:
        self.number = number
        self.graph = Graph(simulation.workload.ranks[number])
        self.figures: RankFigures | None = None
        """The rank's figures once it has finished."""
        self.issuing: int | None = None
        """The node that is being issued."""
        self._clock = clock
        self._transport = transport
        self._system = simulation.system
        self._events = RankEvents(clock)
        self._scheduler = Scheduler(
            Site(number, transport, Endpoint(clock, self._events, simulation.system)), simulation
        )
        self._starts: dict[int, int] = {}
        self._times: dict[int, tuple[int, int]] = {}
        self._gpu_time = 0

    def start(self) -> None:
        """Issue the first nodes."""
        self._proceed()

    def _proceed(self) -> None:
        """Issue ready nodes, and finish if none is left."""
        skipped: list[Node] = []
        while (node := self.graph.next()) is not None:
            self.issuing = node.id
            self._starts[node.id] = self._clock.now
            if not self._issue(node):
                # The nodes that depend on it become ready, but are issued only at the rank's next event.
                skipped += self._end(node)
            self.issuing = None
        self.graph.add(skipped)
        if self.graph.idle:
            self.figures = figures(self.graph.nodes, self._times, self._clock.now, self._gpu_time)

    def _issue(self, node: Node) -> bool:
        """Start a node. Return False if it has ended already. Raises NodeError if it cannot run."""
        match node:
            case ComputeNode():
                return self._compute(node)
            case MessageNode():
                self._exchange(node)
            case CollectiveNode(type=CollectiveType.BROADCAST):
                self._events.after(_replayed(node.duration_us), self._ended, node)
            case CollectiveNode():
                self._scheduler.start(node, partial(self._ended, node))
        return True

    def _compute(self, node: ComputeNode) -> bool:
        if not self._system.roofline or node.on_cpu:
            time = _replayed(node.duration_us)
        elif node.bytes == 0:
            return False
        else:
            time = self._roofline(node)
        if not node.on_cpu:
            self._gpu_time += time
        self._events.after(time, self._ended, node)
        return True

    def _roofline(self, node: ComputeNode) -> int:
        intensity = node.operations / node.bytes
        memory = self._system.memory_bandwidth * 1_000_000_000
        performance = min(memory * intensity, self._system.peak_performance * 1_000_000_000_000)
        if performance <= 0:
            raise NodeError("the roofline model needs num_ops of the node, and peak-perf of the system")
        return int(node.operations / performance * 1e9)

    def _exchange(self, node: MessageNode) -> None:
        tag = node.tag % COLLECTIVE_TAGS
        if node.send:
            key = (tag, self.number, node.peer, node.size)
            self._transport.send_and_notify(key, self._ended, node)
        else:
            self._transport.receive((tag, node.peer, self.number, node.size), self._ended, node)

    def _ended(self, node: Node) -> None:
        """Record the end of a node and go on."""
        if self.figures is not None:
            return
        self.graph.add(self._end(node))
        self._proceed()

    def _end(self, node: Node) -> list[Node]:
        self._times[node.id] = (self._starts[node.id], self._clock.now)
        return self.graph.end(node)


def _replayed(duration_us: int) -> int:
    """Return the ns of a replayed duration; a duration of 0 lasts 1 ns."""
    return duration_us * 1000 or 1
