"""Patches that make a Node show the stored health of its hardware. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from convoy_controllers.cached import Node
from convoy_controllers.nodehealth.wanted import Marks, retainted
from convoy_crds.meta import Condition
from convoy_crds.terms import LABEL_NODE_HEALTH, NODE_CONDITION_QUALIFIED

_CONDITION_FIELDS = ("status", "reason", "message", "lastTransitionTime")


@dataclass(frozen=True, slots=True)
class NodePatches:
    """Changes to one Node. A part without a change is None."""

    merge: Mapping[str, Any] | None = None
    """Merge patch of label and taints. Its resourceVersion prevents the patch from undoing another client's
    change.
    """
    status: Mapping[str, Any] | None = None
    """Server-side apply of Convoy's condition, or of no conditions to remove it."""

    @property
    def any(self) -> bool:
        """Return True if the Node needs a change."""
        return self.merge is not None or self.status is not None


def patches(node: Node, wanted: Marks, qualified: Condition | None, now: datetime) -> NodePatches:
    """Return the patches of a node. `qualified`: condition of its NodeHealth; None removes the Node's
    condition.
    """
    merge: dict[str, Any] = {}
    if node.labels.get(LABEL_NODE_HEALTH, "") != wanted.health:
        merge["metadata"] = {"labels": {LABEL_NODE_HEALTH: wanted.health or None}}
    if (taints := retainted(node.taints, wanted, now)) is not None:
        merge["spec"] = {"taints": taints}
        merge.setdefault("metadata", {})["resourceVersion"] = str(node.version)
    return NodePatches(merge or None, _status(node.qualified, qualified))


def _status(known: Mapping[str, Any], qualified: Condition | None) -> Mapping[str, Any] | None:
    if qualified is None:
        return {"status": {"conditions": []}} if known else None
    fields = qualified.to_dict()
    body = {
        "type": NODE_CONDITION_QUALIFIED,
        **{name: fields[name] for name in _CONDITION_FIELDS if name in fields},
    }
    if all(known.get(name) == body.get(name) for name in _CONDITION_FIELDS):
        return None
    return {"status": {"conditions": [body]}}
