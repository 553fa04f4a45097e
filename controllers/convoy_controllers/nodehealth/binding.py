"""The node that has a piece of hardware: names come and go, two may claim the same."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from convoy_crds.nodehealth import NodeHealth, NodeRef


@dataclass(frozen=True, slots=True)
class ReportedNode:
    """A Node, and what its agent has reported of it."""

    name: str
    uid: str
    created: datetime
    labels: Mapping[str, str] = field(default_factory=dict)
    machine_id: str = ""
    boot_id: str = ""
    driver: str = ""
    accelerators: tuple[str, ...] | None = None
    """UUIDs; None until its agent has reported them."""
    agent_connected: bool = False
    """True while its agent is heard."""
    schedulable: bool = True


@dataclass(frozen=True, slots=True)
class Bindings:
    """Which hardware is where."""

    named: Mapping[str, str] = field(default_factory=dict)
    """By node, the name of its hardware, as far as that is known, stored or not."""
    hardware: Mapping[str, str] = field(default_factory=dict)
    """By node, the NodeHealth that speaks for it."""
    claims: Mapping[str, tuple[ReportedNode, ...]] = field(default_factory=dict)
    """By hardware, the nodes that claim to have it."""
    chosen: Mapping[str, ReportedNode] = field(default_factory=dict)
    """By NodeHealth, the node that has the hardware."""

    def name_of(self, node: str) -> str:
        """The hardware of a node; empty where it is unknown, or where several nodes claim the same."""
        name = self.named.get(node, "")
        alone = len(self.claims.get(name, ())) == 1
        return self.hardware.get(node) or (name if alone else "")


def hardware_name(node: ReportedNode) -> str:
    """The name of a node's hardware: a hash of its accelerators' UUIDs, else its machine id; empty while it
    is not known. Names of nodes come and go, and machine ids with reinstalled systems; accelerators stay.
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
        # What its agent has not reported since this operator began is as it was.
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
    """The node that has the hardware: of those that claim it one whose agent is heard, best the one that had
    it, else the youngest. A node that was replaced may linger as an object; machine ids get cloned.
    """

    def rank(node: ReportedNode) -> tuple[bool, bool, float, str]:
        return node.agent_connected, node.uid == known.uid, node.created.timestamp(), node.uid

    return max(claims, key=rank, default=None)
