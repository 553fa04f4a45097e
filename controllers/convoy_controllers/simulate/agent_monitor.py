"""The leader's view of agents in a simulated cluster: which agents are connected, and which nodes may get
pods.

The operator's own code (`convoy_controllers.liveness`) makes the decisions. Only its inputs are simulated:
the sessions of agents and the results of node probes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from convoy_controllers.liveness.attestation import Attestations
from convoy_controllers.liveness.changes import LivenessPoll
from convoy_controllers.liveness.judge import Liveness
from convoy_controllers.liveness.node_view import NodeProbe, node_view, wants_agent_ready
from convoy_controllers.liveness.timings import PROBE_SECONDS
from convoy_controllers.simulate.api import Api, Node
from convoy_controllers.simulate.kernel import Channel, Kernel
from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.simulate.machines import Machines
from convoy_controllers.views import NodeView, SlotView

POLL_SECONDS = 1.0
"""Seconds between two checks of the agents' presence while an expected agent is disconnected."""


@dataclass(slots=True)
class Link:
    """The hub session of one node's agent, and the results of network probes of this node."""

    channel: Channel
    up: bool = False
    dialling: bool = False
    slots: dict[str, SlotView] = field(default_factory=dict)
    unreachable_since: float = 0.0
    """Unix time in seconds since which probes of the node fail; 0 if they succeed."""
    lease_seconds: float = 0.0
    """Age in seconds of the kubelet's Lease. Updated only while the agent is silent and the API server
    answers.
    """


class AgentMonitor:
    """The current leader's record of which agents are present. A new leader's record starts empty."""

    def __init__(self, kernel: Kernel, latencies: Latencies, api: Api, machines: Machines) -> None:
        self._kernel = kernel
        self._latencies = latencies
        self._api = api
        self._machines = machines
        self._reset()
        self._polling = False
        self.leading = False
        self.wake: Callable[[str, float], None] = lambda node, seconds: None
        """Called with (node, seconds). Requests a reconcile of each job with pods on the node, at most
        `seconds` later.
        """
        api.listeners.append(self._api_changed)

    def _reset(self) -> None:
        latencies = self._latencies
        self._liveness = Liveness(latencies.silent, latencies.grace, latencies.farewell)
        self._poll = LivenessPoll(self._liveness)
        self._attestations = Attestations()
        self._delivered_at = 0.0
        self.links = {
            name: Link(Channel(self._kernel), unreachable_since=self._unreachable(name, 0.0))
            for name in self._machines.by_name
        }

    def start_leading(self) -> None:
        """Start a leader's term with an empty record of agents."""
        self.leading = True
        self._reset()
        self._liveness.start_leading(self._kernel.now)
        self._kernel.after(self._latencies.grace, self.poll)
        self.poll()

    def _api_changed(self, kind: str, name: str) -> None:
        if not self.leading:
            return
        if kind == "nodes":
            if name not in self._api.nodes and not self.links[name].up:
                self._poll.drop(name)
            self.relabel(name)
        elif kind == "pods" and (pod := self._api.pods.get(name)) is not None:
            node = pod.node or ""
            if node in self.links and not self._liveness.known(node):
                # The pod's node may have failed together with the former leader. The node's agent then never
                # contacts this leader, so only a poll notices that the agent is absent.
                self.poll()

    # Sessions of agents

    def session_started(self, name: str) -> None:
        """Record that an agent has connected."""
        self.links[name].up = True
        self._liveness.record_sign(name, self._kernel.now)
        self._poll.arrived(name)
        self.relabel(name)

    def session_ended(self, name: str, *, farewell: bool) -> None:
        """Record the end of an agent's session."""
        self.links[name].up = False
        now = self._kernel.now
        if farewell:
            at, limit = now, self._latencies.farewell
            self._liveness.record_farewell(name, at)
        else:
            at, limit = now - self._kernel.rng.uniform(0, self._latencies.heartbeat), self._latencies.silent
            self._liveness.record_sign(name, at)
        self._kernel.at(at + limit + 0.01, self.poll)

    def _deliver_heartbeats(self) -> float:
        """Record a heartbeat of each connected agent at the present time. Return that time in Unix seconds.

        A second call at the same time records nothing.
        """
        now = self._kernel.now
        if now != self._delivered_at:
            self._delivered_at = now
            for name, link in self.links.items():
                if link.up:
                    self._liveness.record_sign(name, now)
                    self._attestations.record(name, self._machines[name].requests.recent(now), now)
        return now

    # Probes of nodes

    def reach_changed(self, name: str) -> None:
        """Record that the network or the power of a node may have changed."""
        link = self.links[name]
        link.unreachable_since = self._unreachable(name, link.unreachable_since)

    def _unreachable(self, node: str, before: float) -> float:
        return 0.0 if self._machines[node].reaches_control else before or self._kernel.now

    def _reachable(self, name: str) -> bool:
        since = self.links[name].unreachable_since
        return not since or self._kernel.now - since < PROBE_SECONDS

    # Liveness decisions

    def unsettled(self, nodes: Iterable[str]) -> float:
        """Return the seconds until it is certain for each of these nodes whether its agent counts as
        present. Return 0 if that is certain already.
        """
        return self._liveness.unsettled(nodes, self._deliver_heartbeats())

    def present(self, name: str) -> bool:
        """Return True if the agent of this node counts as present."""
        return self._liveness.connected(name, self._deliver_heartbeats())

    def node_view(self, name: str, lease_seconds: Callable[[str], float]) -> NodeView:
        """Return the view of a node from which plans are made.

        `lease_seconds` returns the age of a node's Lease. It is called only while the node's agent is
        silent.
        """
        now, link = self._deliver_heartbeats(), self.links[name]
        silent = self._liveness.silent(name, now)
        if silent and self._api.up:
            link.lease_seconds = lease_seconds(name)
        probe = NodeProbe(now - silent, self._reachable(name), True, link.lease_seconds)
        return node_view(
            name,
            self._api.nodes.get(name),
            silent=silent,
            since=now - silent,
            probe=probe,
            attested_by=self._attestations.voters(name, now),
        )

    def poll(self) -> None:
        """Check which agents are present, and set or remove the agent-ready label of their nodes. If an
        agent fell silent or returned, request a reconcile of the jobs on its node.

        An agent is expected on every node that has pods.
        """
        if not self.leading:
            return
        now = self._deliver_heartbeats()
        occupied = {pod.node for pod in self._api.pods.values() if pod.node and pod.needs_node}
        changes = self._poll.poll(frozenset(occupied & self.links.keys()), now)
        self._attestations.prune(now)
        for name in self.links:
            self.relabel(name)
            if name in changes.lost:
                self.wake(name, 0.0)
            elif name in changes.back or name in changes.silent:
                self.wake(name, self._latencies.debounce)
        away = any(not self.links[name].up and self._expected(name, occupied) for name in self.links)
        if away and not self._polling:
            self._polling = True
            self._kernel.after(POLL_SECONDS, self._poll_again)

    def _expected(self, name: str, occupied: set[str]) -> bool:
        return name in occupied or self._liveness.known(name)

    def _poll_again(self) -> None:
        self._polling = False
        self.poll()

    def relabel(self, name: str) -> None:
        """Set or remove a node's agent-ready label if the label is wrong. The change takes the latency of
        one API request.
        """
        node = self._api.nodes.get(name)
        if node is not None and self._api.up and self._wants_label(name, node) != node.agent_ready:
            self._kernel.after(self._latencies.api, lambda: self._label(name))

    def _label(self, name: str) -> None:
        node = self._api.nodes.get(name)
        if node is not None and self._api.up and self.leading:
            self._api.set_node(name, agent_ready=self._wants_label(name, node))

    def _wants_label(self, name: str, node: Node) -> bool:
        now = self._deliver_heartbeats()
        return wants_agent_ready(node, self._liveness, self._reachable(name), self._latencies.farewell, now)
