"""Which nodes' agents are there, which are silent, and what plans are shown of their nodes.

A silence is found within a fraction of a second, and wakes the jobs on the node; so does a node that answers
no more. While it lasts they are woken every second: how long it lasts may decide.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

import structlog

from convoy_controllers.cached import Node
from convoy_controllers.keys import Key
from convoy_controllers.views import NodeView, PodView
from convoy_operator.gateway import ApiGateway
from convoy_operator.hub.liveness import Liveness
from convoy_operator.hub.node_views import node_view
from convoy_operator.hub.vouches import Vouches
from convoy_operator.hub.witness import Connect, Witness, answers
from convoy_operator.metrics import Metrics
from convoy_operator.queue import WorkQueue
from convoy_operator.settings import Settings
from convoy_operator.world import World

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.2
_TICK_SECONDS = 1.0
_LATE_SECONDS = 1.0
"""A look so late says that this process stood still, and did not listen either."""


class Presence:
    """Of all agents. Used from the event loop alone."""

    def __init__(
        self,
        world: World,
        queue: WorkQueue[Key],
        metrics: Metrics,
        settings: Settings,
        gateway: ApiGateway,
        *,
        agent_address: Callable[[str], str],
        connect: Connect = answers,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`agent_address`: where a node's agent said that it serves its peers; empty when it never did."""
        self._world = world
        self._queue = queue
        self._metrics = metrics
        self._debounce = settings.debounce_seconds
        self._clock = clock
        self._wall = wall
        self._present: set[str] = set()
        self._silent: set[str] = set()
        self._ticked = float("-inf")
        self._vouches = Vouches()
        self._clocks: dict[str, float] = {}
        """By node: what to add to its Unix time for a time of ours, too much by the way of a heartbeat."""
        self.liveness = Liveness(
            settings.agent_silent_seconds, settings.agent_grace_seconds, settings.agent_unready_seconds
        )
        self.witness = Witness(
            gateway,
            world,
            self.liveness,
            settings,
            agent_address=agent_address,
            node_clock=self._clocks.get,
            flipped=self._flipped,
            connect=connect,
            clock=clock,
            wall=wall,
        )
        world.nodes.listen(self._node)

    # What streams tell.

    def heard(self, node: str) -> None:
        """Anything came from a node's agent."""
        self.liveness.heard(node, self._clock())
        if node not in self._present:
            self._present.add(node)
            self._silent.discard(node)
            log.info("agent is there", node=node)
            self._wake(node, self._debounce)

    def beat(self, node: str, sent: float) -> None:
        """A heartbeat came, sent at that Unix time of the node's clock."""
        self._clocks[node] = self._clock() - sent
        self.heard(node)

    def vouched(self, voter: str, asked: Iterable[tuple[str, float]]) -> None:
        """The agent of `voter` says which nodes' agents have asked it to vouch, and how many seconds ago."""
        # Names are the agent's word: only nodes that the word could matter for are remembered.
        believed = ((node, age) for node, age in asked if self._world.pods_on(node))
        self._vouches.heard(voter, believed, self._clock())

    def farewell(self, node: str) -> None:
        """An agent announced that it exits."""
        self.liveness.farewell(node, self._clock())

    def forget(self, node: str) -> None:
        """The node, or its agent, is no more, and nobody is awaited."""
        self.liveness.forget(node)
        self._clocks.pop(node, None)
        self._present.discard(node)
        self._silent.discard(node)

    # What reconciles ask.

    def connected(self, node: str) -> bool:
        """Whether a node's agent was to be taken for present at the last look, or has come since."""
        return node in self._present

    def nodes(self, pods: Iterable[PodView]) -> Mapping[str, NodeView]:
        """By name, the nodes that these pods are on."""
        now, wall = self._clock(), self._wall()
        found: dict[str, NodeView] = {}
        for name in {pod.node for pod in pods if pod.node}:
            silent = self.liveness.silent(name, now)
            found[name] = node_view(
                name,
                self._world.nodes.get("", name),
                silent=silent,
                since=wall - silent,
                case=self.witness.case(name),
                vouched_by=self._vouches.by(name, now),
            )
        return found

    def silent(self, node: str) -> bool:
        """Whether nothing has come from a node's agent for too long, and that is to be believed."""
        return self.liveness.silent(node, self._clock()) > 0

    def unsettled(self, nodes: set[str]) -> float:
        """Seconds to wait until it is known which of these nodes' agents are there; 0 when it is."""
        if all(self.liveness.known(node) for node in nodes):
            return 0.0
        return self.liveness.grace(self._clock())

    # Time.

    def begin(self) -> None:
        """This replica leads from now on."""
        self.liveness.begin(self._clock())

    def look(self) -> None:
        """Finds who has fallen silent or come back since the last look, and wakes their jobs."""
        now = self._clock()
        occupied = frozenset(self._world.occupied)
        for node in self.liveness.departed(occupied, now):
            log.info("agent is gone for good", node=node)
            self.forget(node)
        self.liveness.expect(occupied, now)
        present = self.liveness.present(now)
        quiet = self.liveness.quiet(self.liveness.silent_seconds, now)
        silent = {node for node in quiet if self.liveness.silent(node, now)}
        lost = (self._present - present) | (silent - self._silent)
        back = (present - self._present) | (self._silent - silent)
        self._present, self._silent = present, silent
        for node in lost:
            log.info("agent is silent", node=node)
            self._wake(node, 0.0)
        for node in back - lost:
            self._wake(node, self._debounce)
        if now - self._ticked >= _TICK_SECONDS:
            self._ticked = now
            self._vouches.prune(now)
            for node in silent - lost:
                self._wake(node, self._debounce)
        self.witness.look()
        self._metrics.agents.set(len(present))
        self._metrics.agents_alarm.set(self.liveness.alarm(now))
        self._metrics.nodes_silent.set(len(silent))

    async def run(self) -> None:
        """Looks again and again until cancelled."""
        try:
            while True:
                due = self._clock() + LOOK_SECONDS
                self.look()
                await asyncio.sleep(LOOK_SECONDS)
                late = self._clock() - due
                self._metrics.loop_late_seconds.observe(max(0.0, late))
                if late > _LATE_SECONDS:
                    log.warning("the operator stood still", seconds=round(late, 1))
                    self.liveness.excuse(late, self._clock())
        finally:
            await self.witness.stop()

    def _wake(self, node: str, delay: float) -> None:
        for key in self._world.jobs_on(node):
            self._queue.add(key, delay)

    def _flipped(self, node: str) -> None:
        """A node answers no more, or again: with a silent agent that may decide whether it is lost."""
        if node in self._silent:
            self._wake(node, 0.0)

    def _node(self, before: Node | None, after: Node | None, own: bool) -> None:
        if after is None and before is not None:
            self.forget(before.name)
