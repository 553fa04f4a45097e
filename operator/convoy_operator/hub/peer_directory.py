"""Keeps agents informed of the current addresses of their peers.

An agent that restarts may have a different address. An agent names in each pod report the peer agents from
which it reads the pod's commits, with their addresses. If an address is wrong, the hub sends the right one.
The hub repeats that after each report until the reports contain the right address. Nothing is stored for
this purpose: a new leader learns all addresses from the agents' Hellos.
"""

from __future__ import annotations

import structlog

from convoy_operator import views
from convoy_operator.hub import messages
from convoy_operator.hub.agent_record import AgentRecord
from convoy_operator.hub.agent_registry import AgentRegistry
from convoy_operator.hub.context import HubContext

log = structlog.get_logger(__name__)


class PeerDirectory:
    """Sends the right address to each agent that knows a wrong address of a peer."""

    def __init__(self, context: HubContext, registry: AgentRegistry) -> None:
        self._cache = context.cache
        self._clock = context.clock
        self._registry = registry
        self._moved: set[str] = set()
        """Nodes whose agents' addresses changed or became known since the last poll."""
        self._relocated: set[str] = set()
        """Nodes in `_moved` whose agents had a different address until then."""

    def record_move(self, node: str, before: str) -> None:
        """Record that the address of a node's agent changed. `before` is the old address, or empty if there
        was none.
        """
        if before:
            self._relocated.add(node)
        self._moved.add(node)

    def poll(self) -> None:
        """Correct all agents that read commits from an agent whose address changed since the last poll."""
        if not self._moved:
            return
        for node in self._relocated:
            self._notify_peers(node)
        self._relocated.clear()
        moved, self._moved = self._moved, set()
        for _, record in self._registry.items():
            for uid, peers in record.peers.items():
                if any(node in moved for node, _ in peers):
                    self.correct(record, uid)

    def correct(self, record: AgentRecord, uid: str) -> None:
        """Send the right addresses of a pod's peers to an agent that reported wrong ones."""
        stream = record.stream
        if stream is None:
            return
        for node, known in record.peers[uid]:
            if stream.superseded.is_set():
                return
            address = self._registry.peer_address(node)
            if not address or address == known:
                continue
            if not stream.repeats(("PeerMoved", uid, node, address), self._clock()):
                log.debug("peer moved", node=stream.node, pod_uid=uid, peer=node, address=address)
                self._registry.put(stream, messages.peer_moved(uid, node, address))

    def _notify_peers(self, moved: str) -> None:
        """Send the address of a node's agent to the agents of all Strict jobs that have pods on the node.

        Agents without a connection to the hub attest one another at these addresses, which keeps their
        ranks alive.
        """
        address = self._registry.peer_address(moved)
        for key in self._cache.jobs_on(moved):
            job = self._cache.job_of(key)
            if job is None or not views.strict(job.raw):
                continue
            for pod in self._cache.pods.indexed((key.namespace, key.name)):
                record = self._registry.get(pod.view.node or "")
                if record is not None and record.stream is not None and pod.uid in record.slots:
                    self._registry.put(record.stream, messages.peer_moved(pod.uid, moved, address))
