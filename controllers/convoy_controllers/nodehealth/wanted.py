"""Marks of a node's health: taints, a label and a condition. The marks follow from the stored status alone.

No mark stays on a node by mistake: whatever an operator did before it died, the next reconcile corrects the
node. Taints of other owners stay, and no node is cordoned or uncordoned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from convoy_controllers.nodehealth import machine
from convoy_controllers.nodehealth.observed import HardwareFacts
from convoy_crds.guardpolicy import GuardPolicy, Mode
from convoy_crds.nodehealth import NodeHealthStatus, State
from convoy_crds.terms import (
    TAINT_QUARANTINED,
    TAINT_SUSPECT,
    TAINT_UNQUALIFIED,
    TAINTS,
)

_TAINTS = {
    State.GATED: TAINT_UNQUALIFIED,
    State.SWEEPING: TAINT_UNQUALIFIED,
    State.SUSPECT: TAINT_SUSPECT,
    State.QUARANTINED: TAINT_QUARANTINED,
    State.DRAINING: TAINT_QUARANTINED,
    State.REPAIRING: TAINT_QUARANTINED,
    State.REQUALIFYING: TAINT_QUARANTINED,
    State.CONDEMNED: TAINT_QUARANTINED,
}
_SOFT = "PreferNoSchedule"
_HARD = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Marks:
    """Convoy's marks that a Node must carry."""

    taints: Mapping[str, str]
    """Effect of each taint, by taint key."""
    health: str = ""
    """Value of the label convoy.dev/node-health; empty for no label."""


def marks(status: NodeHealthStatus, policy: GuardPolicy | None) -> Marks:
    """Return the marks that the node of this hardware must carry. An observed node carries none."""
    if policy is None or policy.spec.mode is Mode.OBSERVE:
        return Marks({})
    taints = {}
    if key := _TAINTS.get(status.state):
        taints[key] = _SOFT if key == TAINT_SUSPECT else _HARD
    if status.sweep is not None and TAINT_QUARANTINED not in taints:
        # Keep other pods away: no job may run beside a test.
        taints[TAINT_UNQUALIFIED] = _HARD
    # The label tells jobs why their pods are evicted.
    swaps = status.sweep is not None and status.sweep.swaps
    return Marks(taints, State.SWEEPING if swaps else status.state)


def marks_of_unknown(policy: GuardPolicy | None, facts: HardwareFacts) -> Marks:
    """Return the marks of a node whose agent has not reported its hardware."""
    return Marks({TAINT_UNQUALIFIED: _HARD} if machine.gates(policy, facts) else {})


def retainted(
    current: Sequence[Mapping[str, Any]], wanted: Marks, now: datetime
) -> list[Mapping[str, Any]] | None:
    """Return the complete list of taints that a Node must have; None if the list is already correct.

    A write replaces the whole list, including taints of other owners. So the write must carry the
    resourceVersion that was read.
    """
    ours = {one["key"]: one.get("effect", "") for one in current if one.get("key") in TAINTS}
    doubled = len(ours) != sum(1 for one in current if one.get("key") in TAINTS)
    if ours == dict(wanted.taints) and not doubled:
        return None
    kept = [one for one in current if one.get("key") not in TAINTS]
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return [
        *kept,
        *(
            {"key": key, "effect": effect, "timeAdded": stamp}
            for key, effect in sorted(wanted.taints.items())
        ),
    ]
