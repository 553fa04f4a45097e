"""Reports the autoscaler's decisions: records, Events and conditions of the status."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from convoy_controllers.autoscale.conditions import Condition, ConditionReason, ConditionType
from convoy_controllers.autoscale.decision import Decision
from convoy_controllers.autoscale.failure import Failure
from convoy_controllers.autoscale.proposals import Proposal
from convoy_controllers.autoscale.spec import TargetType
from convoy_controllers.servingjob.draft import Draft
from convoy_controllers.servingjob.scaling.memory import Memories
from convoy_crds import terms
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.reasons.scaling import ABLE_TO_SCALE, SCALING_ACTIVE, SCALING_LIMITED
from convoy_crds.servingjob_status import MAX_DECISIONS, ScalingDecision, ScalingStatus

_REASONS = {one.name: one for one in (*ABLE_TO_SCALE, *SCALING_ACTIVE, *SCALING_LIMITED)}
_SHOWN = {
    ConditionType.ABLE_TO_SCALE: terms.ConditionType.ABLE_TO_SCALE,
    ConditionType.SCALING_ACTIVE: terms.ConditionType.SCALING_ACTIVE,
    ConditionType.SCALING_LIMITED: terms.ConditionType.SCALING_LIMITED,
}
"""Conditions of the autoscaler that the job's status shows."""
_UNWANTED: Mapping[ConditionType, bool] = {
    ConditionType.ABLE_TO_SCALE: False,
    ConditionType.SCALING_ACTIVE: False,
    ConditionType.SCALING_LIMITED: True,
}
"""Status that needs attention first, by type of condition."""


def record(draft: Draft, role: str, decision: Decision) -> None:
    """Add a change of a role's number of replicas to the status, with an Event."""
    if not decision.changes:
        return
    status, why = draft.status, explained(decision)
    entry = ScalingDecision(
        time=draft.now,
        from_replicas=decision.present,
        to_replicas=decision.desired,
        reason=decision.reason.value,
        message=why,
    )
    known = {one.role: one.decisions for one in status.scaling}
    known[role] = [entry, *known.get(role, ())][:MAX_DECISIONS]
    status.scaling = [ScalingStatus(role=name, decisions=found) for name, found in sorted(known.items())]
    status.last_scale_time = draft.now
    draft.event(Reasons.SUCCESSFUL_RESCALE, Reasons.SUCCESSFUL_RESCALE.format(role=role, why=why))


def set_conditions(draft: Draft, memories: Memories, starting: Collection[str]) -> None:
    """Set the autoscaler's conditions; remove them, and the decisions, of roles that Convoy does not scale.
    `starting` has the names of the roles whose metrics may still lack values.
    """
    status = draft.status
    known = {one.role: one for one in status.scaling}
    status.scaling = [known.get(role) or ScalingStatus(role=role) for role in sorted(memories)]
    if not memories:
        status.last_scale_time = None
        for shown in _SHOWN.values():
            draft.drop(shown)
        return
    for kind, shown in _SHOWN.items():
        found = [
            (role, one)
            for role, memory in sorted(memories.items())
            for one in memory.conditions
            if one.type is kind
        ]
        if found:
            role, one = min(found, key=lambda pair: pair[1].status is not _UNWANTED[kind])
            reason, message = _worded(draft, role, one, memories, starting=role in starting)
            draft.condition(shown, one.status, reason, message)


def _worded(
    draft: Draft, role: str, one: Condition, memories: Memories, *, starting: bool
) -> tuple[Reason, str]:
    """Return the reason and message of a condition. The message has no figure that changes all the time,
    because each change would cost a write.
    """
    sync = memories[role].sync
    if one.type is ConditionType.SCALING_ACTIVE and not one.status and starting:
        reason = Reasons.REPLICAS_STARTING
    else:
        reason = _REASONS[one.reason.value]
    why = one.message
    if one.reason is ConditionReason.SUCCEEDED_RESCALE and sync is not None and sync.decision.changes:
        why = explained(sync.decision)
    spec = draft.observed.job.spec.role(role)
    scaling = spec.scaling if spec else None
    limit = 0
    if scaling is not None:
        most = one.reason is ConditionReason.TOO_MANY_REPLICAS
        limit = scaling.max_replicas if most else scaling.min_replicas
    return reason, reason.format(role=role, why=why, limit=limit)


def explained(decision: Decision) -> str:
    """Return the message of a decision, with the values of the metrics."""
    figures = ", ".join(_figures(decision.proposals))
    return f"{decision.message} ({figures})" if figures else decision.message


def _figures(proposals: tuple[Proposal, ...]) -> Iterator[str]:
    for one in proposals:
        if isinstance(one.result, Failure):
            yield f"{one.metric.name} is not known"
        elif one.metric.target.type is TargetType.UTILIZATION:
            yield f"{one.metric.name} {one.result.current} %, target {one.metric.target.value} %"
        else:
            target = one.metric.target.value / 1000
            yield f"{one.metric.name} {one.result.current / 1000:g}, target {target:g}"
