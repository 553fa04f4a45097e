"""Binds hardware to nodes. Node names change, and two nodes may claim the same hardware."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from convoy_crds.nodehealth import NodeHealth, NodeRef


@dataclass(frozen=True, slots=True)
class ReportedNode:
    """A Node, with what its agent has reported."""

    name: str
    uid: str
    created: datetime
    labels: Mapping[str, str] = field(default_factory=dict)
    machine_id: str = ""
    boot_id: str = ""
    driver: str = ""
    accelerators: tuple[str, ...] | None = None
    """UUIDs; None until the agent has reported them."""
    agent_connected: bool = False
    """True while the hub receives heartbeats of the node's agent."""
    schedulable: bool = True


@dataclass(frozen=True, slots=True)
class Bindings:
    """Bindings of hardware to nodes."""

    named: Mapping[str, str] = field(default_factory=dict)
    """Name of the hardware by node, as far as it is known, whether it is stored or not."""
    hardware: Mapping[str, str] = field(default_factory=dict)
    """The NodeHealth of each node's hardware, by node."""
    claims: Mapping[str, tuple[ReportedNode, ...]] = field(default_factory=dict)
    """Nodes that claim a piece of hardware, by hardware."""
    chosen: Mapping[str, ReportedNode] = field(default_factory=dict)
    """The node that has the hardware, by NodeHealth."""

    def name_of(self, node: str) -> str:
        """Return the hardware of a node; empty if it is unknown, or if several nodes claim it."""
        name = self.named.get(node, "")
        alone = len(self.claims.get(name, ())) == 1
        return self.hardware.get(node) or (name if alone else "")


def hardware_name(node: ReportedNode) -> str:
    """Return the name of a node's hardware: a hash of its accelerators' UUIDs, or its machine id if it has
    none.

    Empty while it is unknown. A reinstalled system gets another node name and machine id; accelerators
    stay.
    """
    if node.accelerators is None:
        return ""
    if not node.accelerators:
        return node.machine_id.lower()
    return hashlib.sha256("\n".join(sorted(node.accelerators)).encode()).hexdigest()[:32]


def bind(nodes: Iterable[ReportedNode], healths: Iterable[NodeHealth]) -> Bindings:
    """Find the node of each piece of stored hardware."""
    stored = {health.metadata.name: health.status.node_ref for health in healths}
    by_uid = {ref.uid: name for name, ref in stored.items()}
    claims: dict[str, list[ReportedNode]] = defaultdict(list)
    for node in nodes:
        # An agent that has not reported to this operator yet: keep the stored binding.
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
    """Return which of the claiming nodes has the hardware.

    Prefer a node whose agent is connected, then the node that had the hardware, then the youngest. The
    object of a replaced node may linger, and cloned systems share a machine id.
    """

    def rank(node: ReportedNode) -> tuple[bool, bool, float, str]:
        return node.agent_connected, node.uid == known.uid, node.created.timestamp(), node.uid

    return max(claims, key=rank, default=None)
