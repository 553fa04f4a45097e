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
from convoy_controllers.liveness.attestation import Attestations
from convoy_controllers.liveness.changes import LivenessPoll
from convoy_controllers.liveness.judge import Liveness
from convoy_controllers.liveness.node_view import node_view
from convoy_controllers.liveness.timings import POLL_SECONDS
from convoy_controllers.views import NodeView, PodView
from convoy_operator.gateway import ApiGateway
from convoy_operator.hub.witness import Connect, Witness, answers
from convoy_operator.metrics import Metrics
from convoy_operator.queue import WorkQueue
from convoy_operator.settings import Settings
from convoy_operator.world import World

log = structlog.get_logger(__name__)

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
        self._ticked = float("-inf")
        self._attestations = Attestations()
        self._clocks: dict[str, float] = {}
        """By node: what to add to its Unix time for a time of ours, too much by the way of a heartbeat."""
        self.liveness = Liveness(
            settings.agent_silent_seconds, settings.agent_grace_seconds, settings.agent_unready_seconds
        )
        self._poll = LivenessPoll(self.liveness)
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
        self.liveness.record_sign(node, self._clock())
        if self._poll.arrived(node):
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
        self._attestations.record(voter, believed, self._clock())

    def farewell(self, node: str) -> None:
        """An agent announced that it exits."""
        self.liveness.record_farewell(node, self._clock())

    def forget(self, node: str) -> None:
        """The node, or its agent, is no more, and nobody is awaited."""
        self._poll.drop(node)
        self._clocks.pop(node, None)

    # What reconciles ask.

    def connected(self, node: str) -> bool:
        """Whether a node's agent was to be taken for present at the last look, or has come since."""
        return node in self._poll.present

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
                probe=self.witness.case(name),
                attested_by=self._attestations.voters(name, now),
            )
        return found

    def silent(self, node: str) -> bool:
        """Whether nothing has come from a node's agent for too long, and that is to be believed."""
        return self.liveness.silent(node, self._clock()) > 0

    def unsettled(self, nodes: set[str]) -> float:
        """Seconds to wait until it is known which of these nodes' agents are there; 0 when it is."""
        return self.liveness.unsettled(nodes, self._clock())

    # Time.

    def begin(self) -> None:
        """This replica leads from now on."""
        self.liveness.start_leading(self._clock())

    def look(self) -> None:
        """Finds who has fallen silent or come back since the last look, and wakes their jobs."""
        now = self._clock()
        changes = self._poll.poll(frozenset(self._world.occupied), now)
        for node in changes.departed:
            log.info("agent is gone for good", node=node)
            self._clocks.pop(node, None)
        for node in changes.lost:
            log.info("agent is silent", node=node)
            self._wake(node, 0.0)
        for node in changes.back:
            self._wake(node, self._debounce)
        if now - self._ticked >= _TICK_SECONDS:
            self._ticked = now
            self._attestations.prune(now)
            for node in changes.silent - changes.lost:
                self._wake(node, self._debounce)
        self.witness.look()
        self._metrics.agents.set(len(self._poll.present))
        self._metrics.agents_alarm.set(self.liveness.alarm(now))
        self._metrics.nodes_silent.set(len(changes.silent))

    async def run(self) -> None:
        """Looks again and again until cancelled."""
        try:
            while True:
                due = self._clock() + POLL_SECONDS
                self.look()
                await asyncio.sleep(POLL_SECONDS)
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
        if self._poll.silent(node):
            self._wake(node, 0.0)

    def _node(self, before: Node | None, after: Node | None, own: bool) -> None:
        if after is None and before is not None:
            self.forget(before.name)
