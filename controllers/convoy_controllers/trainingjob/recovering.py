"""How an active job goes on after a fault: find the one to blame, then fail the job or let it form anew."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from convoy_controllers.plan import Plan, PodView
from convoy_controllers.trainingjob import budget, formation
from convoy_controllers.trainingjob.ending import finish
from convoy_controllers.trainingjob.faults import (
    Fault,
    failed,
    missing_fault,
    pod_fault,
    primary,
    slot_faults,
)
from convoy_controllers.trainingjob.formation import membership
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.status import Draft
from convoy_crds.layout import Slot
from convoy_crds.terms import ConditionType, Reasons
from convoy_crds.trainingjob import Phase


def requested(observed: Observed) -> Fault | None:
    """The restart that a change of `recovery.restartId` asks for, of an incarnation that has formed."""
    status, wanted = observed.job.status, observed.job.spec.recovery.restart_id
    if wanted == status.restart_id or not status.membership:
        return None
    reason = Reasons.RESTART_REQUESTED
    return Fault(reason, reason.format(restart_id=wanted), counted=False)


def fault(observed: Observed, layout: tuple[Slot, ...], own: Mapping[str, PodView]) -> Fault | None:
    """The fault of the incarnation that has formed, or of a pod that failed before one could."""
    members, incarnation = observed.job.status.membership, observed.job.status.incarnation
    found: list[Fault] = []
    for slot in layout:
        pod = own.get(slot.pod)
        if pod is None:
            found += [missing_fault(slot)] if members else []
            continue
        lost = pod_fault(pod)
        if lost and (members or _fails_early(observed, pod)):
            found.append(lost)
        if members and (view := observed.slots.get(pod.uid)):
            hang = observed.job.spec.recovery.hang_seconds
            found += slot_faults(slot, view, incarnation, hang, leaving=pod.deleting)
    present = [own[slot.pod].uid for slot in layout if slot.pod in own]
    if not found and members and membership(present) != members:
        found = [
            missing_fault(slot) for slot in layout if own[slot.pod].uid not in _known(observed, incarnation)
        ]
        found = found or [missing_fault(layout[0])]
    return primary(found)


def _fails_early(observed: Observed, pod: PodView) -> bool:
    """Whether a pod failed before its incarnation formed, and is no leftover of a fault already answered."""
    last = observed.job.status.restarts.last
    answered = last is not None and pod.created <= last.at.timestamp()
    return failed(pod) and not pod.deleting and not answered


def _known(observed: Observed, incarnation: int) -> set[str]:
    return {uid for uid, view in observed.slots.items() if view.incarnation == incarnation}


def answer(
    observed: Observed, draft: Draft, fault: Fault, own: Mapping[str, PodView], now: datetime
) -> Plan | None:
    """Fails the job, or records the restart and raises the incarnation."""
    status, recovery = draft.status, observed.job.spec.recovery
    if fault.terminal:
        return finish(observed, draft, own, Phase.FAILED, fault.reason, fault.message)
    if budget.exceeded(status.restarts, fault, recovery, now):
        message = Reasons.MAX_RESTARTS.format(
            count=status.restarts.in_window + 1,
            window=recovery.window_seconds,
            limit=recovery.max_restarts,
            why=fault.message,
        )
        return finish(observed, draft, own, Phase.FAILED, Reasons.MAX_RESTARTS, message)
    status.restarts = budget.after(status.restarts, fault, recovery, draft.now)
    formation.disband(status)
    draft.phase(Phase.RESTARTING, fault.reason, fault.message)
    draft.condition(ConditionType.RESTARTING, True, fault.reason, fault.message)
    draft.condition(ConditionType.RUNNING, False, fault.reason, fault.message)
    return None
