"""The monitor of agents. It tracks which agents are connected and which are silent, and provides each
node's liveness to plans.

The monitor queues the jobs on a node in three cases:

- The node's agent becomes silent. The monitor detects this within a fraction of a second.
- The agent is silent, and the node stops or starts to reply to probes.
- Every second while the agent stays silent, because a plan may depend on the length of the silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import structlog

from convoy_controllers.cached import Node
from convoy_controllers.liveness.attestation import Attestations
from convoy_controllers.liveness.changes import LivenessPoll
from convoy_controllers.liveness.judge import Liveness
from convoy_controllers.liveness.node_view import node_view
from convoy_controllers.liveness.timings import POLL_SECONDS
from convoy_controllers.views import NodeView, PodView
from convoy_operator.hub.context import HubContext
from convoy_operator.hub.node_prober import Connect, NodeProber, reachable

log = structlog.get_logger(__name__)

_TICK_SECONDS = 1.0
"""Seconds after which the jobs on a node with a silent agent are queued again."""
_LATE_SECONDS = 1.0
"""Minimum delay of a poll in seconds that shows that the event loop was blocked. The hub could not receive
heartbeats during the delay, so the delay does not count as silence of the agents.
"""


class AgentMonitor:
    """The liveness of all agents. All methods must be called from the event loop."""

    def __init__(
        self, context: HubContext, *, agent_address: Callable[[str], str], connect: Connect = reachable
    ) -> None:
        """`agent_address` returns the address of a node's Peer service, or an empty text if its agent never
        reported one.
        """
        settings = context.settings
        self._cache = context.cache
        self._queue = context.queue
        self._metrics = context.metrics
        self._debounce = settings.debounce_seconds
        self._clock = context.clock
        self._wall = context.wall
        self._ticked = float("-inf")
        self._attestations = Attestations()
        self._clocks: dict[str, float] = {}
        """Offset in seconds from each node's Unix time to this process's monotonic clock, by node. It is
        computed when a heartbeat arrives, so it is too large by the time that the heartbeat took.
        """
        self.liveness = Liveness(
            settings.agent_silent_seconds, settings.agent_grace_seconds, settings.agent_unready_seconds
        )
        self._changes = LivenessPoll(self.liveness)
        self.prober = NodeProber(
            context,
            self.liveness,
            agent_address=agent_address,
            node_clock=self._clocks.get,
            on_change=self._on_change,
            connect=connect,
        )
        context.cache.nodes.listen(self._node_changed)

    # Recording of messages

    def record_sign(self, node: str) -> None:
        """Record that a message came from a node's agent."""
        self.liveness.record_sign(node, self._clock())
        if self._changes.arrived(node):
            log.info("agent connected", node=node)
            self._wake(node, self._debounce)

    def record_heartbeat(self, node: str, sent: float) -> None:
        """Record a heartbeat. `sent` is the Unix time in seconds when the agent sent it, by the node's
        clock.
        """
        self._clocks[node] = self._clock() - sent
        self.record_sign(node)

    def record_attestations(self, voter: str, requests: Iterable[tuple[str, float]]) -> None:
        """Record the nodes whose agents requested attestation from the agent of `voter`, and the seconds
        since each request.
        """
        # Ignore nodes without pods: a faulty agent may report any names, and each recorded name uses memory.
        believed = ((node, age) for node, age in requests if self._cache.pods_on(node))
        self._attestations.record(voter, believed, self._clock())

    def record_farewell(self, node: str) -> None:
        """Record that a node's agent announced that it exits."""
        self.liveness.record_farewell(node, self._clock())

    def drop(self, node: str) -> None:
        """Drop the state of a node that was deleted or whose agent was removed."""
        self._changes.drop(node)
        self._clocks.pop(node, None)

    # Queries

    def connected(self, node: str) -> bool:
        """Return True if a node's agent was connected at the last poll, or has sent a message since."""
        return node in self._changes.present

    def nodes(self, pods: Iterable[PodView]) -> Mapping[str, NodeView]:
        """Return the view of each node on which one of these pods runs, by node name."""
        now, wall = self._clock(), self._wall()
        found: dict[str, NodeView] = {}
        for name in {pod.node for pod in pods if pod.node}:
            silent = self.liveness.silent(name, now)
            found[name] = node_view(
                name,
                self._cache.nodes.get("", name),
                silent=silent,
                since=wall - silent,
                probe=self.prober.probe(name),
                attested_by=self._attestations.voters(name, now),
            )
        return found

    def silent(self, node: str) -> bool:
        """Return True if a node's agent has sent nothing for `agent_silent_seconds`. Return False during
        the first seconds of a new leader, and while so many agents are silent that the operator's own
        network must have failed.
        """
        return self.liveness.silent(node, self._clock()) > 0

    def unsettled(self, nodes: Iterable[str]) -> float:
        """Return the seconds until the hub can tell which of these nodes' agents are connected; 0 if it can
        tell already. The time is only above 0 for a new leader, which must give the agents time to
        connect.
        """
        return self.liveness.unsettled(nodes, self._clock())

    # Polling

    def start_leading(self) -> None:
        """Record that this replica leads from now on. No agent counts as silent in the first
        `agent_grace_seconds`, because the agents need time to connect.
        """
        self.liveness.start_leading(self._clock())

    def poll(self) -> None:
        """Find the agents that became silent, or sent a message after a silence, since the last poll. Queue
        the jobs on their nodes.
        """
        now = self._clock()
        changes = self._changes.poll(frozenset(self._cache.occupied), now)
        for node in changes.departed:
            log.info("agent left", node=node)
            self._clocks.pop(node, None)
        for node in changes.lost:
            log.info("agent is silent, its jobs are reconciled", node=node)
            self._wake(node, 0.0)
        for node in changes.back:
            self._wake(node, self._debounce)
        if now - self._ticked >= _TICK_SECONDS:
            self._ticked = now
            self._attestations.prune(now)
            for node in changes.silent - changes.lost:
                self._wake(node, self._debounce)
        self.prober.poll()
        self._metrics.agents.set(len(self._changes.present))
        self._metrics.agents_alarm.set(self.liveness.alarm(now))
        self._metrics.nodes_silent.set(len(changes.silent))

    async def run(self) -> None:
        """Poll periodically until cancelled."""
        try:
            while True:
                due = self._clock() + POLL_SECONDS
                self.poll()
                await asyncio.sleep(POLL_SECONDS)
                late = self._clock() - due
                self._metrics.loop_late_seconds.observe(max(0.0, late))
                if late > _LATE_SECONDS:
                    log.warning(
                        "event loop was blocked, silences of that time do not count", seconds=round(late, 1)
                    )
                    self.liveness.excuse(late, self._clock())
        finally:
            await self.prober.stop()

    def _wake(self, node: str, delay: float) -> None:
        for key in self._cache.jobs_on(node):
            self._queue.add(key, delay)

    def _node_changed(self, before: Node | None, after: Node | None, own: bool) -> None:
        if after is None and before is not None:
            self.drop(before.name)

    def _on_change(self, node: str) -> None:
        """Queue the jobs on a node that stopped or started to reply to probes, if the node's agent is
        silent. Their plans may then decide that the node is lost.
        """
        if self._changes.silent(node):
            self._wake(node, 0.0)
