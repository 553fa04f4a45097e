"""What a node shall show of its health: taints, a label, a condition. It follows from what is stored alone.

So nothing leaks: whatever an operator did before it died, the next look makes the node as its state wants it.
Taints of others are never touched, and no node is ever cordoned or uncordoned.
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
    """What a Node shall carry of ours."""

    taints: Mapping[str, str]
    """Effect by key."""
    health: str = ""
    """Value of the label convoy.dev/node-health; empty for none."""


def marks(status: NodeHealthStatus, policy: GuardPolicy | None) -> Marks:
    """What the node of this hardware shall carry."""
    if policy is None:
        return Marks({})
    if policy.spec.mode is Mode.OBSERVE:
        return Marks({}, status.state)
    taints = {}
    if key := _TAINTS.get(status.state):
        taints[key] = _SOFT if key == TAINT_SUSPECT else _HARD
    if status.sweep is not None and TAINT_QUARANTINED not in taints:
        # Nothing else shall run beside a test.
        taints[TAINT_UNQUALIFIED] = _HARD
    return Marks(taints, status.state)


def marks_of_unknown(policy: GuardPolicy | None, facts: HardwareFacts) -> Marks:
    """What a node shall carry whose hardware has not been told of yet."""
    return Marks({TAINT_UNQUALIFIED: _HARD} if machine.gates(policy, facts) else {})


def retainted(
    current: Sequence[Mapping[str, Any]], wanted: Marks, now: datetime
) -> list[Mapping[str, Any]] | None:
    """The whole list of taints a Node shall have; None when it has it. That list has one owner in the API, so
    it is written with the version of the Node that was read.
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
