"""Decides which replicas must leave their nodes, because of the nodes' health or because of a drain.

Convoy moves such a replica itself, within the budget of `spec.rollout`: NodeHealth evicts no pod of a
ServingJob. Taints keep the replacement off the node. A pod that tolerates the taint would be placed there
again, so it stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from convoy_controllers.servingjob.groups import Group
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.servingjob.revision import RoleRevision
from convoy_controllers.views import NodeView
from convoy_crds.nodehealth import State
from convoy_crds.terms import LABEL_NODE_HEALTH, TAINT_QUARANTINED, TAINT_UNQUALIFIED

OUT_OF_SERVICE: Mapping[str, str] = {
    State.SWEEPING: TAINT_UNQUALIFIED,
    State.QUARANTINED: TAINT_QUARANTINED,
    State.DRAINING: TAINT_QUARANTINED,
    State.REPAIRING: TAINT_QUARANTINED,
    State.REQUALIFYING: TAINT_QUARANTINED,
    State.CONDEMNED: TAINT_QUARANTINED,
}
"""States of a node's health in which replicas leave the node, with the key of the node's taint."""
_CORDONED = "node.kubernetes.io/unschedulable"
"""Key of the taint of a cordoned node."""


@dataclass(frozen=True, slots=True)
class Departure:
    """The node that a replica must leave, and the reason."""

    node: str
    why: str
    by_hand: bool
    """True if an administrator has cordoned the node."""


def departure(
    observed: Observed, group: Group, role: RoleRevision | None, *, protected: bool
) -> Departure | None:
    """Return the node that a replica must leave; None if the replica may stay. `role` has the template of its
    pods. `protected`: True if the PodDisruptionBudget forbids the replica's eviction.
    """
    spec = role.template.spec.to_dict() if role and role.template else {}
    if spec.get("nodeName"):
        return None
    tolerations = spec.get("tolerations") or ()
    for pod in group.pods.values():
        node = observed.nodes.get(pod.node or "")
        if node is None:
            continue
        if protected and node.cordoned and not tolerates(tolerations, _CORDONED):
            return Departure(node.name, "is cordoned", by_hand=True)
        if (taint := OUT_OF_SERVICE.get(health(node))) and not tolerates(tolerations, taint):
            why = f"has the health {health(node)} (convoy guard why {node.name})"
            return Departure(node.name, why, by_hand=node.cordoned)
    return None


def health(node: NodeView) -> str:
    """Return the state of a node's health; empty if no policy acts on the node."""
    return node.labels.get(LABEL_NODE_HEALTH, "")


def unhealthy(observed: Observed) -> set[str]:
    """Return the names of the observed nodes that replicas leave because of the nodes' health."""
    return {name for name, node in observed.nodes.items() if health(node) in OUT_OF_SERVICE}


def tolerates(tolerations: Iterable[Mapping[str, Any]], taint: str) -> bool:
    """Return True if one of the tolerations lets the scheduler ignore the taint with effect NoSchedule."""
    for one in tolerations:
        key, effect = one.get("key") or "", one.get("effect") or ""
        every = not key and one.get("operator") == "Exists"
        if (every or key == taint) and effect in ("", "NoSchedule"):
            return True
    return False
