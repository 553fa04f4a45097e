"""The registry of agents. It holds one record per node, and sends messages to agents."""

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
    """The records of all agents that have connected. All methods must be called from the event loop."""

    def __init__(self, context: HubContext) -> None:
        self._cache = context.cache
        self._metrics = context.metrics
        self._clock = context.clock
        self._records: dict[str, AgentRecord] = {}

    def expects(self, node: str) -> bool:
        """Return True if the node exists in the cluster cache, so its agent may connect.

        The certificate of a deleted node may still be valid, so the certificate alone does not prove that
        the node exists. If the watch has not reported a node yet, its agent is refused and retries later.
        """
        return self._cache.nodes.get("", node) is not None

    def get(self, node: str) -> AgentRecord | None:
        """Return the record of a node's agent; None if the agent never connected."""
        return self._records.get(node)

    def ensure(self, node: str) -> AgentRecord:
        """Return the record of a node's agent. Create the record if it does not exist."""
        if node not in self._records:
            bucket = TokenBucket(UNITS_PER_SECOND, UNITS_AT_ONCE, self._clock)
            self._records[node] = AgentRecord(bucket)
        return self._records[node]

    def items(self) -> ItemsView[str, AgentRecord]:
        """Return pairs of node and record for all agents."""
        return self._records.items()

    def remove(self, node: str) -> AgentRecord | None:
        """Remove the record of a node and return it."""
        return self._records.pop(node, None)

    def strays(self) -> list[str]:
        """Return the deleted nodes that have a record but no stream.

        Such a record appears if an agent connects once more after its node was deleted. The caller must
        drop these records, or they would accumulate as nodes come and go.
        """
        return [
            node
            for node, record in self._records.items()
            if record.stream is None and self._cache.nodes.get("", node) is None
        ]

    def charge(self, node: str, message: wire.AgentMessage) -> None:
        """Charge a message to the rate limit of a node's agent. All streams of an agent share one limit."""
        self.ensure(node).charge(message)

    def debt(self, node: str) -> float:
        """Return the seconds to wait before the next message of a node's agent may be read. The wait keeps
        the agent below its rate limit.
        """
        record = self._records.get(node)
        return record.pace.debt if record is not None else 0.0

    def peer_address(self, node: str) -> str:
        """Return the newest reported address of a node's Peer service; empty if the agent never reported
        one.
        """
        record = self._records.get(node)
        return record.peer_address if record else ""

    def send(self, node: str, message: wire.HubMessage) -> bool:
        """Send a message to a node's agent; return True if the agent is connected."""
        record = self._records.get(node)
        if record is None or record.stream is None:
            return False
        self.put(record.stream, message)
        return True

    def put(self, stream: Stream, message: wire.HubMessage) -> None:
        """Queue a message on a stream. A full queue means that the agent has stopped reading. In that case,
        drop the message and end the stream.
        """
        try:
            stream.outbox.put_nowait(message)
        except asyncio.QueueFull:
            self._metrics.commands_dropped.inc()
            stream.superseded.set()
            log.warning("agent does not read its commands, its stream ends", node=stream.node)
