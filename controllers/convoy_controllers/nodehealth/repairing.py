"""The way from quarantine through drain and repair to the retest."""

from __future__ import annotations

from datetime import datetime

from convoy_controllers.nodehealth import evidence
from convoy_controllers.nodehealth.observed import HardwareFacts
from convoy_controllers.nodehealth.record import parse_duration, with_state, within
from convoy_crds.guardpolicy import GuardPolicySpec, Repair
from convoy_crds.nodehealth import NodeHealthStatus, RepairStatus, State
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason

_BOOTS = (Repair.REBOOT, Repair.REIMAGE, Repair.REPLACE)
"""Repairs that end with a boot of the node."""


def reason_to_drain(
    status: NodeHealthStatus, facts: HardwareFacts, spec: GuardPolicySpec, now: datetime
) -> str:
    """Return why a quarantined node may be drained now; empty while the node must wait for its jobs to
    save.
    """
    since = status.since or now
    if facts.idle:
        return "no pod of a job runs on it"
    if facts.node is not None and facts.node.unswappable:
        return ""
    if facts.saved is not None and facts.saved >= since:
        return "its jobs have saved their state"
    waited = now - since
    if waited >= parse_duration(spec.drain.checkpoint_wait):
        return f"its jobs have not saved their state within {int(waited.total_seconds())} s"
    lost = sum(
        one.loss * (now - since) / (now - one.since)
        for one in facts.suspicions
        if evidence.is_evidence(one, spec.detection, now) and now > one.since
    )
    if lost >= facts.unsaved > 0:
        return "waiting longer costs its jobs more than the unsaved work"
    return ""


def next_state(
    status: NodeHealthStatus, facts: HardwareFacts, spec: GuardPolicySpec, now: datetime
) -> NodeHealthStatus:
    """Return the status of a draining or repairing node, moved to its next state if the drain or repair has
    ended.
    """
    if status.state is State.DRAINING and facts.idle:
        rules = spec.qualification
        count = within(status.quarantines, parse_duration(rules.quarantine_window), now)
        if count >= rules.condemn_after_quarantines:
            words = Reasons.LEMON.format(
                count=count, seconds=int(parse_duration(rules.quarantine_window).total_seconds())
            )
            return with_state(status, State.CONDEMNED, now, Reasons.LEMON, words)
        return _step(status, spec, status.repair.step, now)
    if status.state is State.REPAIRING:
        return _repairing(status, facts, spec, now)
    return status


def _repairing(
    status: NodeHealthStatus, facts: HardwareFacts, spec: GuardPolicySpec, now: datetime
) -> NodeHealthStatus:
    repair = status.repair
    since = repair.since or status.since or now
    booted = (
        facts.node is not None
        and repair.action in _BOOTS
        and facts.node.boot_id not in ("", status.node_ref.boot_id)
    )
    if booted or (facts.repaired is not None and facts.repaired >= since):
        message = Reasons.REPAIR_DONE.format(action=repair.action or "repair")
        ref = status.node_ref
        if facts.node is not None:
            ref = ref.model_copy(update={"boot_id": facts.node.boot_id})
        status = status.model_copy(update={"node_ref": ref})
        return with_state(status, State.REQUALIFYING, now, Reasons.REPAIR_DONE, message)
    step = next((one for one in spec.repair.ladder if one.action == repair.action), None)
    if step is not None and now - since < parse_duration(step.timeout):
        return status
    waited = int((now - since).total_seconds())
    reason = Reasons.REPAIR_TIMED_OUT
    message = reason.format(owner=repair.owner, action=repair.action or "repair", seconds=waited)
    return _step(status, spec, repair.step + 1, now, reason, message)


def _step(
    status: NodeHealthStatus,
    spec: GuardPolicySpec,
    number: int,
    now: datetime,
    reason: Reason | None = None,
    message: str = "",
) -> NodeHealthStatus:
    """Return the status with the node handed to the owner of repair step `number`. Without a step of that
    number, the node is condemned. If no repair is configured at all, the node is retested.
    """
    ladder = spec.repair.ladder
    if not ladder:
        words = message or "no repair is configured: spec.repair.ladder of the GuardPolicy is empty"
        return with_state(status, State.REQUALIFYING, now, reason or Reasons.REPAIR_DONE, words)
    if number >= len(ladder):
        exhausted = Reasons.REPAIRS_EXHAUSTED
        return with_state(status, State.CONDEMNED, now, exhausted, exhausted.message)
    step = ladder[number]
    words = Reasons.REPAIR_NEEDED.format(owner=step.owner, step=number, action=step.action)
    repair = RepairStatus(step=number, action=step.action, owner=step.owner, since=now)
    status = status.model_copy(update={"repair": repair})
    return with_state(status, State.REPAIRING, now, reason or Reasons.REPAIR_NEEDED, message or words)
