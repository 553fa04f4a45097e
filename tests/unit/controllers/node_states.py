"""Nodes, policies and NodeHealths at a fixed time, and the next state of a node."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from convoy_controllers.nodehealth.fleet import decide
from convoy_controllers.nodehealth.observed import Fleet, HardwareFacts, Member, NodeFacts, Suspicion
from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.nodehealth import NodeHealth, NodeHealthStatus

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NODE = NodeFacts("n", "u", NOW - 9 * HOUR, rack="r", boot_id="b")
IDLE = HardwareFacts(NODE)
BUSY = HardwareFacts(replace(NODE, pods=2, jobs=("ns/j",)))
LADDER = [{"action": "Reset", "timeout": "1h"}, {"action": "Reboot", "owner": "machines", "timeout": "2h"}]
SAID = {"reason": "a drill", "user": "ops"}


def text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def policy(**spec: Any) -> GuardPolicy:
    body = {"mode": "Act", "sweeps": {"timePercent": 0}, "repair": {"ladder": LADDER}, **spec}
    return GuardPolicy.model_validate({"metadata": {"name": "p"}, "spec": body})


def health(state: str, ago: timedelta = HOUR, spec: Any = None, **status: Any) -> NodeHealth:
    holds = state in ("Draining", "Repairing")
    internal = {"cleanSince": text(NOW - ago), "holdsToken": holds, **status.pop("internal", {})}
    stored = {"state": state, "since": text(NOW - ago), "internal": internal, **status}
    if holds:
        stored = {"actions": [{"at": text(NOW - ago), "jobs": ["ns/j"]}], **stored}
    return NodeHealth.model_validate({"metadata": {"name": "hw"}, "spec": spec or {}, "status": stored})


def after(
    found: NodeHealth, facts: HardwareFacts = IDLE, rules: GuardPolicy | None = None
) -> NodeHealthStatus:
    """Return the node's status after one decision. The fleet consists of this node and an idle one."""
    stored = {"state": "Unverified", "since": text(NOW - HOUR)}
    spare = NodeHealth.model_validate({"metadata": {"name": "spare"}, "status": stored})
    idle = Member(spare, HardwareFacts(replace(NODE, name="spare", uid="spare")))
    plan = decide(Fleet(rules or policy(), (Member(found, facts), idle)), NOW)
    return plan.statuses.get("hw", found.status)


def swept(name: str = "hw-1") -> dict[str, Any]:
    return {"kind": "Sweep", "source": name, "since": text(NOW - HOUR), "seen": text(NOW - HOUR)}


def slow(minutes: float = 10, slowdown: float = 1.3, loss: float = 100.0, seen: float = 0) -> Suspicion:
    return Suspicion(
        "ns/j", NOW - timedelta(minutes=minutes), NOW - timedelta(minutes=seen), slowdown, loss, "Compute"
    )


def online(loss: float = 100.0, forgiven: float = 0.0) -> dict[str, Any]:
    times = {"since": text(NOW - HOUR), "seen": text(NOW - HOUR)}
    return {"kind": "Online", "source": "ns/j", "loss": loss, "forgiven": forgiven, **times}
