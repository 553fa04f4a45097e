"""Ends an active job in three cases: its ranks have completed, its deadline has passed, or a fault has
occurred that no restart heals.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from convoy_controllers.plan import Plan
from convoy_controllers.trainingjob import finished, provenance, trace_results
from convoy_controllers.trainingjob.goodput import FaultMark
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.result import set_result
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.views import PodView, RankView
from convoy_controllers.workers.pod_ends import ended, failed, leaving, overdue
from convoy_crds.layout import Slot
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob import ALL_ROLES_COMPLETE
from convoy_crds.trainingjob_status import PendingRecord, Phase


def completed(
    observed: Observed, draft: Draft, layout: tuple[Slot, ...], own: Mapping[str, PodView]
) -> Plan | None:
    """Return the plan that ends the job with success; None while it must go on. The job has succeeded once
    all ranks of the role that `spec.success` names have completed. By default the ranks of all roles
    must complete.
    """
    deciding = [slot for slot in layout if observed.job.spec.success in (ALL_ROLES_COMPLETE, slot.role)]
    if (
        not draft.status.formed
        or not deciding
        or not all(slot_completed(observed, slot, own, draft.status.incarnation) for slot in deciding)
    ):
        return None
    if last := max((rank.ended for slot in deciding for rank in _ranks(observed, slot, own)), default=0.0):
        draft.fault_mark = FaultMark(datetime.fromtimestamp(last, UTC), complete=True)
    set_result(observed, draft, layout[0], own)
    step = draft.status.progress.step if draft.status.progress else None
    roles = ", ".join(dict.fromkeys(slot.role for slot in deciding))
    what = f"all ranks of {roles} completed" + (f" after step {step}" if step is not None else "")
    return finish(
        observed, draft, own, Phase.SUCCEEDED, Reasons.COMPLETED, Reasons.COMPLETED.format(what=what)
    )


def _ranks(observed: Observed, slot: Slot, own: Mapping[str, PodView]) -> tuple[RankView, ...]:
    pod = own.get(slot.pod)
    view = observed.slots.get(pod.uid) if pod else None
    return view.ranks if view else ()


def slot_completed(observed: Observed, slot: Slot, own: Mapping[str, PodView], incarnation: int) -> bool:
    """Return True if all ranks of a slot have exited with code 0 and nobody asked them to stop."""
    pod = own.get(slot.pod)
    if pod is None or _stop_requested(observed, pod):
        return False
    if ended(pod):
        return not failed(pod)
    view = observed.slots.get(pod.uid)
    return (
        view is not None
        and view.incarnation == incarnation
        and len(view.ranks) == slot.processes
        and all(_ended_well(rank) for rank in view.ranks)
    )


def _ended_well(rank: RankView) -> bool:
    return rank.state == "EXITED" and not (rank.exit_code or rank.signal or rank.termination_requested)


def _stop_requested(observed: Observed, pod: PodView) -> bool:
    """Return True if a pod's ranks may have ended because they were asked to stop. Such ranks may exit with
    code 0 although their work is not complete.
    """
    view = observed.slots.get(pod.uid)
    if not pod.deleting:
        late = view is not None and any(overdue(pod, rank.ended) for rank in view.ranks)
        return leaving(pod) or late
    return view is None or any(rank.ended >= pod.leaving_since for rank in view.ranks)


def past_deadline(observed: Observed, draft: Draft, own: Mapping[str, PodView]) -> Plan | None:
    """Return the plan that fails the job if its `activeDeadlineSeconds` have passed; None otherwise."""
    limit, start = observed.job.spec.active_deadline_seconds, draft.status.start_time
    if limit is None or start is None or draft.now < start + timedelta(seconds=limit):
        return None
    message = Reasons.DEADLINE_EXCEEDED.format(seconds=limit)
    return finish(observed, draft, own, Phase.FAILED, Reasons.DEADLINE_EXCEEDED, message)


def finish(
    observed: Observed, draft: Draft, own: Mapping[str, PodView], phase: Phase, reason: Reason, message: str
) -> Plan:
    """Return the plan that stores a terminal phase and then ends the launchers."""
    draft.status.completion_time = draft.now
    draft.status.internal.pending = PendingRecord()
    draft.phase(phase, reason, message)
    draft.condition(ConditionType.RUNNING, False, reason, message)
    draft.drop(ConditionType.RESTARTING)
    trace_results.close_with_job(draft)
    provenance.record(draft, own.values())
    draft.condition(
        ConditionType.COMPLETE if phase is Phase.SUCCEEDED else ConditionType.FAILED, True, reason, message
    )
    found = finished.closing(observed, own.values(), finished.exit_code(draft.status), draft.now)
    return Plan(
        status=draft.stored(),
        status_first=True,
        commands=tuple(found.commands),
        children=found.children,
        events=tuple(draft.events),
        requeue_after=1.0,
    )
