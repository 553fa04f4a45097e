"""The collectives of one rank: their chunks run through the queues of the dimensions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from convoy_controllers.astrasim.collective.chunk import Algorithm, Chunk, Site
from convoy_controllers.astrasim.collective.direct import Direct
from convoy_controllers.astrasim.collective.double_tree import DoubleTree
from convoy_controllers.astrasim.collective.phase import TreePhase
from convoy_controllers.astrasim.collective.planner import Planner
from convoy_controllers.astrasim.collective.queues import ChunkQueue
from convoy_controllers.astrasim.collective.sequence import HalvingDoubling, RingSequence
from convoy_controllers.astrasim.network.transport import COLLECTIVE_TAGS
from convoy_controllers.astrasim.parameters import (
    AlgorithmKind,
    CollectiveNode,
    SchedulingPolicy,
    Simulation,
)

GROUP_NUMBERS = 1_000_000
"""Distance between the first chunk numbers of two communication groups."""


class Scheduler:
    """Runs the collectives of one rank."""

    def __init__(self, site: Site, simulation: Simulation) -> None:
        self._site = site
        self._policy = simulation.system.policy
        self._planner = Planner(site.rank, simulation)
        queues = simulation.options.queues
        at_once = -(-simulation.system.active_chunks // queues)
        self._queues = [
            ChunkQueue(at_once, self._start_phase) for _ in range(queues * len(simulation.network.sizes))
        ]
        self._priority = 0
        self._chunks = 0
        """Chunks so far, those of groups included."""
        self._group_chunks: dict[int, int] = {}

    def start(self, node: CollectiveNode, done: Callable[[], None]) -> None:
        """Start a collective. Raises NodeError if it cannot run."""
        plan = self._planner.plan(node)
        priority = self._next_priority(node)
        missing = len(plan)

        def chunk_done() -> None:
            nonlocal missing
            missing -= 1
            if missing == 0:
                done()

        for phases in plan:
            self._advance(Chunk(self._next_tag(node.group), priority, phases, chunk_done))

    def _next_priority(self, node: CollectiveNode) -> int:
        if self._policy is SchedulingPolicy.EXPLICIT:
            return node.priority
        chosen = self._priority
        self._priority += 1 if self._policy is SchedulingPolicy.LIFO else -1
        return chosen

    def _next_tag(self, group: int | None) -> int:
        """Return the tag of a chunk. All ranks count alike, so a chunk has the same tag on each."""
        number = self._chunks
        self._chunks += 1
        if group is not None:
            number = group * GROUP_NUMBERS + self._group_chunks.get(group, 0)
            self._group_chunks[group] = self._group_chunks.get(group, 0) + 1
        return number % COLLECTIVE_TAGS + COLLECTIVE_TAGS

    def _advance(self, chunk: Chunk) -> None:
        """Move a chunk to its next phase, or end it."""
        left = None if chunk.queue is None else self._queues[chunk.queue]
        if left is not None:
            chunk.phases.popleft()
            if not chunk.phases:
                # The collective may end here, and the rank start another one, before the place is free.
                chunk.done()
            left.remove(chunk)
            if not chunk.phases:
                left.release()
                return
        chunk.queue = chunk.phases[0].queue
        chunk.started = False
        queue = self._queues[chunk.queue]
        queue.add(chunk)
        if left is not None:
            left.release()
        queue.fill()

    def _start_phase(self, chunk: Chunk) -> None:
        self._algorithm(chunk).start()

    def _algorithm(self, chunk: Chunk) -> Algorithm:
        phase = chunk.phases[0]
        finished = partial(self._advance, chunk)
        if isinstance(phase, TreePhase):
            return DoubleTree(self._site, chunk.tag, phase, finished)
        match phase.kind:
            case AlgorithmKind.DIRECT:
                return Direct(self._site, chunk.tag, phase, finished)
            case AlgorithmKind.HALVING_DOUBLING:
                return HalvingDoubling(self._site, chunk.tag, phase, finished)
            case _:
                return RingSequence(self._site, chunk.tag, phase, finished)
