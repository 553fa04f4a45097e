"""Which agents the hub of a simulated cluster takes for there, and which nodes may be given workers.

It follows convoy_operator.hub: an agent is silent after some seconds, a new leader judges nobody before the
agents had time to dial, many silent at once are not believed, and nodes of silent agents are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from convoy_controllers.plan import SlotView
from convoy_controllers.simulate.api import Api, Node
from convoy_controllers.simulate.kernel import Channel, Kernel
from convoy_controllers.simulate.latencies import Latencies
from convoy_controllers.simulate.machines import Machines

ALARM_SHARE, ALARM_LEAST, ALARM_SECONDS = 0.3, 3, 300.0
"""More silent agents than this share, and at least so many, are not believed for so long."""
LOOK_SECONDS = 1.0
"""Between two looks at silent agents."""


@dataclass(slots=True)
class Link:
    """What the hub knows of one agent."""

    channel: Channel
    up: bool = False
    dialling: bool = False
    known: bool = False
    """It has dialled this leader."""
    heard: float = 0.0
    """The last sign of it while it is not up, or since when it has been expected."""
    farewell: bool = False
    slots: dict[str, SlotView] = field(default_factory=dict)
    unreachable_since: float = 0.0
    """Since when its node answers nobody; 0: it does."""
    lease_seconds: float = 0.0


class Presence:
    """Of one leader's time; the next begins with new links."""

    def __init__(self, kernel: Kernel, latencies: Latencies, api: Api, machines: Machines) -> None:
        self._kernel = kernel
        self._latencies = latencies
        self._api = api
        self._machines = machines
        self.links = {name: Link(Channel(kernel)) for name in machines.by_name}
        self._since = 0.0
        self._looking = False
        self.leading = False
        self.wake: Callable[[str, float], None] = lambda node, seconds: None
        """Wants the jobs on a node looked at within so many seconds."""
        api.listeners.append(self._told)

    def _told(self, kind: str, name: str) -> None:
        if not self.leading:
            return
        if kind == "nodes":
            self.relabel(name)
        elif kind == "pods" and (pod := self._api.pods.get(name)) is not None:
            link = self.links.get(pod.node or "")
            if link is not None and not link.known and not link.heard:
                # Given to a node that went together with the leader before: nobody dialled or was missed.
                self.look()

    def begin(self) -> None:
        """A replica leads from now on."""
        self.leading, self._since = True, self._kernel.now
        for name in self.links:
            self.links[name] = Link(Channel(self._kernel), unreachable_since=self._unreachable(name))
        self._kernel.after(self._latencies.grace, self.look)
        self.look()

    def reach_changed(self, name: str) -> None:
        """What lies between the operator and a node may be otherwise than before."""
        self.links[name].unreachable_since = self._unreachable(name)

    def _unreachable(self, node: str) -> float:
        before = self.links[node].unreachable_since
        return 0.0 if self._machines[node].reaches_control else before or self._kernel.now

    def broke(self, name: str, *, farewell: bool) -> None:
        """An agent's session has ended."""
        link, now = self.links[name], self._kernel.now
        link.up, link.farewell = False, farewell
        link.heard = now if farewell else now - self._kernel.rng.uniform(0, self._latencies.heartbeat)
        self._kernel.at(link.heard + self._limit(link) + 0.01, self.look)

    def answers(self, name: str) -> bool:
        """Whether a node answered when it was last asked."""
        since = self.links[name].unreachable_since
        return not since or self._kernel.now - since < LOOK_SECONDS

    def unsettled(self, nodes: Iterable[str]) -> float:
        """Seconds until it is known which of these nodes' agents are there; 0 when it is."""
        if all(link.known for name in nodes if (link := self.links.get(name)) is not None):
            return 0.0
        return max(0.0, self._since + self._latencies.grace - self._kernel.now)

    def present(self, name: str) -> bool:
        """Whether an agent is to be taken for there."""
        link = self.links[name]
        return link.up or (link.known and not self.silence(name))

    def silence(self, name: str) -> float:
        """Seconds of an agent's silence once it is too long and believed; 0 before."""
        link, now = self.links[name], self._kernel.now
        if link.up or not link.heard or not self._overdue(link):
            return 0.0
        if now < self._since + self._latencies.grace or (self._suspicious(link) and self._alarm()):
            return 0.0
        return now - link.heard

    def _overdue(self, link: Link) -> bool:
        return not link.up and bool(link.heard) and self._kernel.now - link.heard > self._limit(link)

    def _limit(self, link: Link) -> float:
        return self._latencies.farewell if link.farewell else self._latencies.silent

    def _suspicious(self, link: Link) -> bool:
        recent = self._kernel.now - link.heard <= ALARM_SECONDS
        return recent and not link.farewell and self._overdue(link)

    def _alarm(self) -> bool:
        silent = sum(self._suspicious(link) for link in self.links.values())
        there = sum(link.up for link in self.links.values())
        return silent >= ALARM_LEAST and silent > ALARM_SHARE * (there + silent)

    def look(self) -> None:
        """Expects an agent where there are pods, labels nodes, and wakes the jobs of silent ones."""
        if not self.leading:
            return
        for name in {pod.node for pod in self._api.pods.values() if pod.node and pod.needs_node}:
            link = self.links.get(name)
            if link is not None and not link.known and not link.heard:
                link.heard = self._kernel.now
        for name in self.links:
            self.relabel(name)
            if self.silence(name):
                self.wake(name, 0.0)
        if any(not link.up and link.heard for link in self.links.values()) and not self._looking:
            self._looking = True
            self._kernel.after(LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._looking = False
        self.look()

    def relabel(self, name: str) -> None:
        """Sets the agent-ready label right, in a moment."""
        node = self._api.nodes.get(name)
        if node is not None and self._api.up and self._wanted(name, node) != node.agent_ready:
            self._kernel.after(self._latencies.api, lambda: self._label(name))

    def _label(self, name: str) -> None:
        node = self._api.nodes.get(name)
        if node is not None and self._api.up and self.leading:
            self._api.set_node(name, agent_ready=self._wanted(name, node))

    def _wanted(self, name: str, node: Node) -> bool:
        """Whether a node shall carry the agent-ready label."""
        if self.links[name].up:
            return True
        silence = self.silence(name)
        if silence and not (self.answers(name) and node.ready):
            return False
        return node.agent_ready and silence <= self._latencies.farewell
