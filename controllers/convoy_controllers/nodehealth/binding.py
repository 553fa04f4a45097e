"""Binds hardware to nodes. A node's name may change, and two nodes may claim the same hardware."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from convoy_crds.nodehealth import NodeHealth, NodeRef


@dataclass(frozen=True, slots=True)
class ReportedNode:
    """A Node, and the data that its agent has reported."""

    name: str
    uid: str
    created: datetime
    labels: Mapping[str, str] = field(default_factory=dict)
    machine_id: str = ""
    boot_id: str = ""
    driver: str = ""
    accelerators: tuple[str, ...] | None = None
    """UUIDs of the accelerators; None until the agent has reported them."""
    agent_connected: bool = False
    """True while the hub receives heartbeats of the node's agent."""
    schedulable: bool = True


@dataclass(frozen=True, slots=True)
class Bindings:
    """The node that has each piece of hardware, derived from the agents' reports and the stored
    NodeHealths.
    """

    named: Mapping[str, str] = field(default_factory=dict)
    """Name of the hardware in each node whose hardware name is known. A NodeHealth of that name may not
    exist.
    """
    hardware: Mapping[str, str] = field(default_factory=dict)
    """Name of the NodeHealth of the hardware in each node, by node."""
    claims: Mapping[str, tuple[ReportedNode, ...]] = field(default_factory=dict)
    """Nodes that claim each hardware, by hardware name."""
    chosen: Mapping[str, ReportedNode] = field(default_factory=dict)
    """The node that has the hardware of each NodeHealth, by the NodeHealth's name."""

    def name_of(self, node: str) -> str:
        """Return the name of a node's hardware; empty if the name is unknown or several nodes claim the
        hardware.
        """
        name = self.named.get(node, "")
        alone = len(self.claims.get(name, ())) == 1
        return self.hardware.get(node) or (name if alone else "")


def hardware_name(node: ReportedNode) -> str:
    """Return the name of a node's hardware: a hash of its accelerators' UUIDs, or its machine id if it has
    no accelerators. The name is empty until the agent has reported.

    The UUIDs survive a reinstallation of the system; the node's name and its machine id do not.
    """
    if node.accelerators is None:
        return ""
    if not node.accelerators:
        return node.machine_id.lower()
    return hashlib.sha256("\n".join(sorted(node.accelerators)).encode()).hexdigest()[:32]


def bind(nodes: Iterable[ReportedNode], healths: Iterable[NodeHealth]) -> Bindings:
    """Return the bindings of hardware to nodes. Each NodeHealth gets at most one node."""
    stored = {health.metadata.name: health.status.node_ref for health in healths}
    by_uid = {ref.uid: name for name, ref in stored.items()}
    claims: dict[str, list[ReportedNode]] = defaultdict(list)
    for node in nodes:
        # If the agent has not reported to this operator yet, keep the stored binding.
        if name := hardware_name(node) or by_uid.get(node.uid, ""):
            claims[name].append(node)
    found = {name: chosen(ref, claims.get(name, ())) for name, ref in stored.items()}
    return Bindings(
        named={node.name: name for name, several in claims.items() for node in several},
        hardware={node.name: name for name, node in found.items() if node is not None},
        claims={name: tuple(several) for name, several in claims.items()},
        chosen={name: node for name, node in found.items() if node is not None},
    )


def chosen(known: NodeRef, claims: Sequence[ReportedNode]) -> ReportedNode | None:
    """Return the node that has the hardware, chosen from the nodes that claim it.

    Prefer a node whose agent is connected, then the node that the NodeHealth already names (`known`), then
    the youngest node. Two nodes claim the same hardware if a replaced node's object still exists, or if
    cloned systems share a machine id.
    """

    def rank(node: ReportedNode) -> tuple[bool, bool, float, str]:
        return node.agent_connected, node.uid == known.uid, node.created.timestamp(), node.uid

    return max(claims, key=rank, default=None)
