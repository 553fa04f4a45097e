"""The assembly of the hub from its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from convoy_controllers.keys import Key
from convoy_operator.hub import messages
from convoy_operator.hub.agent_monitor import AgentMonitor
from convoy_operator.hub.agent_registry import AgentRegistry
from convoy_operator.hub.agent_streams import AgentStreams
from convoy_operator.hub.command_sender import CommandSender
from convoy_operator.hub.context import HubContext
from convoy_operator.hub.faults import FaultOrders
from convoy_operator.hub.hub_reader import HubReader
from convoy_operator.hub.memory_release import MemoryRelease
from convoy_operator.hub.node_prober import Connect, reachable
from convoy_operator.hub.notices import NodeNotices
from convoy_operator.hub.peer_directory import PeerDirectory
from convoy_operator.hub.pod_reports import PodReports
from convoy_operator.hub.slot_tokens import SlotTokenIssuer
from convoy_operator.hub.stores import CheckpointStores
from convoy_operator.hub.straggler_detectors import StragglerDetectors
from convoy_operator.hub.sweeps import Sweeps
from convoy_operator.hub.traffic import TrafficRecords

POLL_SECONDS = 1.0
"""Seconds between two polls by `Hub.run`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """All parts of the hub. All methods must be called from the event loop."""

    context: HubContext
    registry: AgentRegistry
    directory: PeerDirectory
    reports: PodReports
    streams: AgentStreams
    monitor: AgentMonitor
    stores: CheckpointStores
    sweeps: Sweeps
    detectors: StragglerDetectors
    traffic: TrafficRecords
    tokens: SlotTokenIssuer
    commands: CommandSender
    faults: FaultOrders
    notices: NodeNotices
    reader: HubReader
    release: MemoryRelease

    def poll(self) -> None:
        """Send corrected peer addresses, release memory that no job needs, and start probes of stores, each
        only if it is due.
        """
        self.directory.poll()
        self.release_memory()
        self.stores.poll()
        self.notices.poll()

    def release_memory(self) -> None:
        """Search for memory to release, if the last search was at least RELEASE_SECONDS ago. Drop the
        records of deleted nodes, and order agents to release the memory that no job needs.
        """
        if self.release.due(self.context.clock()):
            for node in self.registry.strays():
                self.streams.drop(node)
            self.release.poll(self.registry.items())

    async def run(self) -> None:
        """Poll periodically until cancelled."""
        while True:
            self.poll()
            await asyncio.sleep(POLL_SECONDS)


def assemble(
    context: HubContext, *, progress_delay: Callable[[Key], float], connect: Connect = reachable
) -> Hub:
    """Build the hub. `progress_delay` returns the seconds until the operator may write a job's progress to
    the job's status again.
    """
    cache, queue, clock = context.cache, context.queue, context.clock
    registry, tokens = AgentRegistry(context), SlotTokenIssuer()
    monitor = AgentMonitor(context, agent_address=registry.peer_address, connect=connect)
    directory = PeerDirectory(context, registry)
    namespace = context.settings.namespace
    stores = CheckpointStores(cache, queue, context.gateway, namespace, clock=clock, wall=context.wall)
    sweeps = Sweeps(registry.send, registry.peer_address, clock=clock)
    detectors = StragglerDetectors(cache, queue, context.metrics)
    traffic = TrafficRecords(context, progress_delay)
    reports = PodReports(context, registry, directory, tokens, progress_delay)
    streams = AgentStreams(registry, directory, reports, monitor, stores, sweeps)
    faults = FaultOrders(context, registry)
    notices = NodeNotices(context, registry)
    notices.on_spot_nodes = monitor.liveness.set_spot_nodes

    def drop(node: str) -> None:
        faults.drop_node(node)
        notices.drop_node(node)

    streams.on_drop = drop
    cache.nodes.listen(streams.node_changed)
    return Hub(
        context=context,
        registry=registry,
        directory=directory,
        reports=reports,
        streams=streams,
        monitor=monitor,
        stores=stores,
        sweeps=sweeps,
        detectors=detectors,
        traffic=traffic,
        tokens=tokens,
        commands=CommandSender(context, registry, stores, tokens),
        faults=faults,
        notices=notices,
        reader=HubReader(registry, monitor, detectors, traffic, stores, sweeps, tokens, faults, notices),
        release=MemoryRelease(cache, lambda node, uid: registry.send(node, messages.release_memory(uid))),
    )
