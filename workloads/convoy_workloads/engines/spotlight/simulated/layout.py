"""The spot nodes and their groups: boots, regroups, copies of weights, and losses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from convoy_workloads.engines.spotlight.params import Algorithm, Systems
from convoy_workloads.engines.spotlight.simulated.availability import NodeLife
from convoy_workloads.engines.spotlight.simulated.events import Clock, EventKind
from convoy_workloads.engines.spotlight.simulated.group import PAIR, Costs, Group, Node, degree_for
from convoy_workloads.spot.ledger.node_seconds import NodeLabel, NodeLedger

MANY = 10_000
"""Number of requests that stands for exploring, which is never short of work."""


class Layout:
    """The nodes that run, and their groups. A group is idle, busy, or dissolved."""

    def __init__(
        self,
        params: Algorithm,
        systems: Systems,
        costs: Costs,
        clock: Clock,
        ledger: NodeLedger,
    ) -> None:
        self._degrees = params.sequence_parallel if systems.elastic else [PAIR]
        self._systems = systems
        self._costs = costs
        self._clock = clock
        self._ledger = ledger
        self.nodes: dict[str, Node] = {}
        self.groups: dict[str, Group] = {}
        self.pending = MANY
        """Number of requests that the groups are arranged for."""
        self.version = -1
        """Version of the weights that workers need."""
        self._made = 0
        self.regroups: list[float] = []
        """Seconds of each regroup of nodes that had already worked."""
        self.boots: list[float] = []
        """Seconds of each boot."""

    # Nodes

    def start(self, life: NodeLife) -> None:
        """Start a node. It boots."""
        known = life.end if self._systems.foresight else math.inf
        self.nodes[life.name] = Node(life.name, known, started=self._clock.now)
        self._ledger.start(life.name, self._clock.now)
        self._clock.add(self._clock.now + self._costs.cluster.boot_seconds, EventKind.BOOTED, life.name)

    def booted(self, name: str) -> None:
        """Let a node that has booted join a group. Ignore one that has ended meanwhile."""
        if (node := self.nodes.get(name)) is not None:
            node.ready = True
            self.boots.append(self._clock.now - node.started)
            self._ledger.label(name, NodeLabel.IDLE, self._clock.now)
            self.arrange()

    def end(self, name: str, lost: bool) -> None:
        """Remove a node, and its group with it. `lost`: True if unsaved work ended with the node."""
        node = self.nodes.pop(name)
        if node.group:
            group = self.groups[node.group]
            self.dissolve(group)
            if lost:
                # Each node of a group computes a part of every step.
                for other in group.nodes:
                    if other in self.nodes:
                        self._ledger.forfeit(other, self._clock.now)
        (self._ledger.lose if lost else self._ledger.end)(name, self._clock.now)
        self.arrange()

    def label(self, group: Group, label: NodeLabel) -> None:
        """Label the time of a group's nodes from now on."""
        for name in group.nodes:
            self._ledger.label(name, label, self._clock.now)

    def settle(self, group: Group, at: float) -> None:
        """Record that the work of a group before `at` is saved."""
        for name in group.nodes:
            self._ledger.settle(name, at)

    def known_end(self, group: Group) -> float:
        """Return the first end of a node of the group that the workers know; infinity if they know none."""
        return min((self.nodes[name].end for name in group.nodes), default=math.inf)

    # Groups

    def arrange(self) -> None:
        """Form groups of nodes that have no work. Groups at work stay."""
        ready = [node for node in self.nodes.values() if node.ready]
        degrees = [group.degree for group in self.groups.values()]
        current = max(degrees, key=degrees.count, default=0)
        degree = degree_for(len(ready), self.pending, self._degrees, current, self._costs)
        if not degree:
            return
        for group in [one for one in self.groups.values() if not one.busy and one.degree != degree]:
            self.dissolve(group)
        loose = [node for node in ready if not node.group]
        for size in sorted((one for one in self._degrees if one <= degree), reverse=True):
            while len(loose) >= size:
                self._form(loose[:size])
                del loose[:size]

    def dissolve(self, group: Group) -> None:
        """Remove a group. Its nodes may form others."""
        del self.groups[group.name]
        for name in group.nodes:
            if name in self.nodes:
                self.nodes[name].group = ""
                self._ledger.label(name, NodeLabel.IDLE, self._clock.now)

    def _form(self, nodes: list[Node]) -> None:
        self._made += 1
        group = Group(f"group-{self._made}", [node.name for node in nodes], len(nodes))
        self.groups[group.name] = group
        if any(node.version >= 0 for node in nodes):
            self.regroups.append(self._costs.regroup_seconds)
        for node in nodes:
            node.group = group.name
            if not self._systems.warm:
                node.version = -1
        # A single node needs no other one, so its worker is ready at once.
        if len(nodes) > 1:
            self.occupy(group, NodeLabel.REGROUP, self._costs.regroup_seconds)
        else:
            self.pull(group)

    def occupy(self, group: Group, label: NodeLabel, seconds: float) -> None:
        """Keep a group busy without a request."""
        group.token += 1
        group.busy = True
        self.label(group, label)
        self._clock.add(self._clock.now + seconds, EventKind.FREE, group.name, group.token)

    def pull(self, group: Group) -> bool:
        """Let an idle group copy the weights. Return False if all its nodes have them."""
        nodes = [self.nodes[name] for name in group.nodes]
        if all(node.version == self.version for node in nodes):
            return False
        for node in nodes:
            node.version = self.version
        self.occupy(group, NodeLabel.PULL, self._costs.cluster.pull_seconds)
        return True

    def freed(self, group: Group) -> None:
        """End what kept a group busy."""
        group.busy = False
        self.label(group, NodeLabel.IDLE)

    def idle(self) -> Iterator[Group]:
        """Yield the groups without work."""
        yield from [group for group in self.groups.values() if not group.busy]

    # State

    def state_dict(self) -> dict[str, Any]:
        """Return nodes and groups. No group may have a lease."""
        return {
            "nodes": [_plain(asdict(node)) for node in self.nodes.values()],
            "groups": [_plain(asdict(group)) for group in self.groups.values()],
            "pending": self.pending,
            "version": self.version,
            "made": self._made,
            "regroups": self.regroups,
            "boots": self.boots,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the saved nodes and groups."""
        self.nodes = {one["name"]: Node(**_finite(one)) for one in state["nodes"]}
        self.groups = {one["name"]: Group(**one) for one in state["groups"]}
        self.pending, self.version = state["pending"], state["version"]
        self._made, self.regroups = state["made"], list(state["regroups"])
        self.boots = list(state["boots"])


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields as JSON values, which have no infinity."""
    return {name: None if value == math.inf else value for name, value in fields.items()}


def _finite(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {**fields, "end": math.inf if fields["end"] is None else fields["end"]}
