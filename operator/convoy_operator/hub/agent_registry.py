"""The registry of agents: one record per node, and the way to write to its stream."""

from __future__ import annotations

import asyncio
from collections.abc import ItemsView

import structlog

from convoy_agents.wire import hub_pb2 as wire
from convoy_operator.hub.agent_record import UNITS_AT_ONCE, UNITS_PER_SECOND, AgentRecord
from convoy_operator.hub.context import HubContext
from convoy_operator.hub.streams import Stream
from convoy_operator.limits import TokenBucket

log = structlog.get_logger(__name__)


class AgentRegistry:
    """All agents that have dialled. Used from the event loop alone."""

    def __init__(self, context: HubContext) -> None:
        self._cache = context.cache
        self._metrics = context.metrics
        self._clock = context.clock
        self._records: dict[str, AgentRecord] = {}

    def expects(self, node: str) -> bool:
        """Return whether a node exists, as far as the watch has reported: the certificate of a deleted node
        may still be valid. An agent that is faster than the watch dials again.
        """
        return self._cache.nodes.get("", node) is not None

    def get(self, node: str) -> AgentRecord | None:
        """Return the record of a node's agent; None if it never dialled."""
        return self._records.get(node)

    def ensure(self, node: str) -> AgentRecord:
        """Return the record of a node's agent, made if there is none."""
        if node not in self._records:
            bucket = TokenBucket(UNITS_PER_SECOND, UNITS_AT_ONCE, self._clock)
            self._records[node] = AgentRecord(bucket)
        return self._records[node]

    def items(self) -> ItemsView[str, AgentRecord]:
        """Return all nodes and records."""
        return self._records.items()

    def remove(self, node: str) -> AgentRecord | None:
        """Drop the record of a node; return it."""
        return self._records.pop(node, None)

    def strays(self) -> list[str]:
        """Return the nodes whose agents dialled once more after the node was deleted, and have left.

        Where nodes come and go, there would be ever more of them.
        """
        return [
            node
            for node, record in self._records.items()
            if record.stream is None and self._cache.nodes.get("", node) is None
        ]

    def charge(self, node: str, message: wire.AgentMessage) -> None:
        """Count a message that was read from a node's agent, on whichever stream."""
        self.ensure(node).charge(message)

    def debt(self, node: str) -> float:
        """Return the seconds for which nothing more is to be read from a node's agent: a flood is slowed."""
        record = self._records.get(node)
        return record.pace.debt if record is not None else 0.0

    def peer_address(self, node: str) -> str:
        """Return the address of a node's Peer service, as last reported; empty if its agent never dialled."""
        record = self._records.get(node)
        return record.peer_address if record else ""

    def send(self, node: str, message: wire.HubMessage) -> bool:
        """Send a message to a node's agent; return whether that is connected."""
        record = self._records.get(node)
        if record is None or record.stream is None:
            return False
        self.put(record.stream, message)
        return True

    def put(self, stream: Stream, message: wire.HubMessage) -> None:
        """Put a message on a stream; end one whose agent reads nothing."""
        try:
            stream.outbox.put_nowait(message)
        except asyncio.QueueFull:
            self._metrics.commands_dropped.inc()
            stream.superseded.set()
            log.warning("agent takes no commands", node=stream.node)
