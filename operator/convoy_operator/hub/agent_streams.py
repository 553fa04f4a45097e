"""The life cycle of the agents' streams: start, heartbeats and end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.cached import Node
from convoy_operator.hub import messages
from convoy_operator.hub.agent_monitor import AgentMonitor
from convoy_operator.hub.agent_record import MAX_PODS
from convoy_operator.hub.agent_registry import AgentRegistry
from convoy_operator.hub.peer_directory import PeerDirectory
from convoy_operator.hub.pod_reports import PodReports
from convoy_operator.hub.stores import CheckpointStores
from convoy_operator.hub.streams import Stream
from convoy_operator.hub.sweeps import Sweeps


class AgentStreams:
    """The current stream of each agent. A new stream of an agent replaces its earlier one."""

    def __init__(
        self,
        registry: AgentRegistry,
        directory: PeerDirectory,
        reports: PodReports,
        monitor: AgentMonitor,
        stores: CheckpointStores,
        sweeps: Sweeps,
    ) -> None:
        self._registry = registry
        self._directory = directory
        self._reports = reports
        self._monitor = monitor
        self._stores = stores
        self._sweeps = sweeps
        self.on_drop: Callable[[str], None] = lambda node: None
        """Function to call with the name of a node whose state is dropped."""

    def join(self, hello: wire.Hello) -> Stream:
        """Start the stream of an agent that has connected, and end any older stream of the same node."""
        node = hello.node
        record = self._registry.ensure(node)
        if record.stream is not None:
            record.stream.superseded.set()
        before = record.peer_address
        stream = Stream(node)
        record.join(stream, hello)
        # Send the CheckpointStores first, with their credentials. An agent that has restarted has lost the
        # credentials and needs them for everything else.
        self._stores.join(node, partial(self._registry.put, stream))
        if record.peer_address != before:
            self._directory.record_move(node, before)
        record.record_holdings(hello.held_jobs)
        self._sweeps.join(node)
        reported = {report.pod_uid: report for report in hello.pods[:MAX_PODS]}
        for uid in [uid for uid in record.slots if uid not in reported]:
            self._reports.remove(node, uid)
        for report in reported.values():
            self._reports.record(node, report)
        self._monitor.record_sign(node)
        for uid in reported:
            # Queue the job, so that its next plan repeats the commands that the agent missed while it was
            # disconnected.
            self._reports.wake(node, uid, 0.0)
        return stream

    def leave(self, stream: Stream) -> None:
        """Close a stream that has ended. The node does not count as lost yet: it may count as lost only
        after its agent has been silent for too long.
        """
        record = self._registry.get(stream.node)
        if record is not None and record.stream is stream:
            record.stream = None
            self._stores.leave(stream.node)

    def heartbeat(self, stream: Stream, heartbeat: wire.Heartbeat) -> None:
        """Record a heartbeat and the attestations that it contains, and send the reply to the agent."""
        self._monitor.record_heartbeat(stream.node, messages.seconds(heartbeat.sent_unix_ms))
        attested = ((one.node, one.age_ms / 1000) for one in heartbeat.attestations)
        self._monitor.record_attestations(stream.node, attested)
        # Skip the reply if the queue is full. A full queue means that the agent has stopped reading.
        with contextlib.suppress(asyncio.QueueFull):
            stream.outbox.put_nowait(messages.heartbeat_reply(heartbeat))

    def drop(self, node: str) -> None:
        """Drop all state of a node, and end its agent's stream."""
        record = self._registry.remove(node)
        self._stores.leave(node)
        self._sweeps.drop_node(node)
        self.on_drop(node)
        self._monitor.drop(node)
        if record is not None and record.stream is not None:
            record.stream.superseded.set()

    def node_changed(self, before: Node | None, after: Node | None, own: bool) -> None:
        """Drop all state of a node that was deleted."""
        if after is None and before is not None:
            self.drop(before.name)
