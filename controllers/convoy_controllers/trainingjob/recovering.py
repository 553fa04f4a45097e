"""Handles the faults of an active job: picks the root cause, then fails the job or lets it form again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from convoy_controllers.liveness.timings import verdict_seconds
from convoy_controllers.plan import Plan
from convoy_controllers.trainingjob import budget, escalation, formation, offenders
from convoy_controllers.trainingjob.early import early_ends
from convoy_controllers.trainingjob.ending import finish
from convoy_controllers.trainingjob.goodput import FaultMark
from convoy_controllers.trainingjob.observed import Observed, Yielded
from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.views import PodView, SlotView
from convoy_controllers.workers.blame import primary
from convoy_controllers.workers.faults import (
    Fault,
    idle_fault,
    missing_fault,
    node_fault,
    pod_fault,
    slot_faults,
)
from convoy_controllers.workers.membership import membership
from convoy_controllers.workers.pod import pod_incarnation
from convoy_controllers.workers.pod_ends import ended, leaving, overdue
from convoy_crds.layout import Slot, world_size
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import ANNOTATION_QUEUE_DOMAIN, LABEL_SPOT_POOL, ConditionType
from convoy_crds.trainingjob import Recovery
from convoy_crds.trainingjob_status import Phase, TrainingJobStatus

STEADY_SECONDS = 30.0
"""Seconds that missing pods must be up before a job restarts to include them. Without this limit, a node
that fails again and again would cause a restart each time it returns.
"""


def requested(observed: Observed) -> Fault | None:
    """Return the restart that a changed `recovery.restartId` requests; None before an incarnation has
    formed.
    """
    status, wanted = observed.job.status, observed.job.spec.recovery.restart_id
    if wanted == status.internal.restart_id or not status.formed:
        return None
    reason = Reasons.RESTART_REQUESTED
    return Fault(reason, reason.format(restart_id=wanted))


def overtaken(observed: Observed) -> Fault | None:
    """Return the restart that is needed if agents have seen a later incarnation than the one in the job's
    status; None otherwise.
    """
    status = observed.job.status
    seen = max((max(v.incarnation, v.port_incarnation) for v in observed.slots.values()), default=0)
    if not status.formed or seen <= status.incarnation:
        return None
    reason = Reasons.STATUS_BEHIND
    return Fault(reason, reason.format(seen=seen, incarnation=status.incarnation))


def fault(
    observed: Observed, layout: tuple[Slot, ...], own: Mapping[str, PodView], lost: dict[str, str]
) -> Fault | None:
    """Return the fault of the incarnation that has formed, or of a pod that failed before an incarnation
    could form.

    `layout` are the slots of the incarnation. `lost` has the reason why each lost node is lost, by name of
    the node.
    """
    status = observed.job.status
    formed, incarnation = status.formed, status.incarnation
    found: list[Fault] = []
    given_up = {(one.role, one.replica): one for one in observed.yielded}
    for slot in layout:
        pod = own.get(slot.pod)
        if formed and (claim := given_up.get((slot.role, slot.replica))) and (pod is None or pod.deleting):
            found.append(_yield_fault(observed, claim, slot, pod))
            continue
        if pod is None:
            found += [missing_fault(slot)] if formed else []
            continue
        if pod.node in lost and (formed or _loss_already_handled(observed, pod)):
            found.append(node_fault(pod, observed.nodes[pod.node], lost[pod.node]))
            continue
        broken = pod_fault(pod, observed.nodes.get(pod.node or ""), observed.warnings.get(pod.uid))
        broken = broken or (None if formed else idle_fault(pod))
        if broken and (formed or _fails_early(observed, pod)):
            # A node of a SpotPool takes its pods with it, so the loss of such a pod is no failure.
            spot = broken.reason is Reasons.POD_LOST and LABEL_SPOT_POOL in pod.labels
            found.append(replace(broken, free=True) if spot else broken)
        if formed and (view := observed.slots.get(pod.uid)):
            hang = observed.job.spec.recovery.hang_seconds
            ends = slot_faults(slot, view, incarnation, hang, leaving=leaving(pod))
            # The kubelet reports that the pod's own deadline has passed only after all containers of the pod
            # have ended. Until then, ends of ranks after the deadline are ignored.
            found += [end for end in ends if not overdue(pod, end.at)]
    # The membership is in the order of the slots, whatever the order of the ranks.
    ordered = sorted(layout, key=lambda slot: slot.index)
    present = [own[slot.pod].uid for slot in ordered if slot.pod in own]
    if not found and formed and membership(present) != status.internal.incarnation.membership:
        known = {uid for uid, view in observed.slots.items() if view.incarnation == incarnation}
        found = [missing_fault(slot) for slot in layout if own[slot.pod].uid not in known]
        found = found or [missing_fault(layout[0])]
    if not found or not formed:
        return primary(found)
    views = [observed.slots.get(uid) for uid in present]
    running = [rank.rank for view in views if view for rank in view.ranks if rank.state != "EXITED"]
    return primary(found, early_ends(observed, layout, own), running)


def _yield_fault(observed: Observed, claim: Yielded, slot: Slot, pod: PodView | None) -> Fault:
    """Return the fault of a pod that leaves, to make room for a job of higher priority."""
    reason = Reasons.YIELDED
    names = [f"{one.role}-{one.replica}" for one in observed.yielded if one.claimant == claim.claimant]
    message = reason.format(
        pods=", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else ""),
        claimant=claim.claimant,
        priority=claim.priority,
        own=observed.priority,
    )
    at = pod.leaving_since if pod else 0.0
    return Fault(
        reason, message, pod=slot.pod, node=pod.node if pod else None, at=at, ended=at, role=slot.role
    )


def cause_report_due(observed: Observed, layout: Iterable[Slot], own: Mapping[str, PodView]) -> bool:
    """Return True if the cause of an end will be reported soon.

    Either a launcher of the incarnation has disconnected although its pod seems to run, or a rank's main
    program has returned and its exit code is not known. The wait delays no replacement, because a pod or
    rank is replaced only after it has ended.
    """
    there = (own[slot.pod] for slot in layout if slot.pod in own)
    views = (observed.slots.get(pod.uid) for pod in there if not ended(pod) and not pod.deleting)
    incarnation = observed.job.status.incarnation
    return any(
        view.incarnation == incarnation
        and not view.agent_away
        and (not view.launcher_connected or _ending(view))
        for view in views
        if view is not None
    )


def _ending(view: SlotView) -> bool:
    return any(rank.state == "RUNNING" and rank.finished for rank in view.ranks)


def _fails_early(observed: Observed, pod: PodView) -> bool:
    """Return True if a pod ended before its incarnation formed, and no earlier fault caused that.

    Kueue ends a pod without a node if the node that it chose for the pod has failed. That is no fault.
    """
    if pod.node is None and ANNOTATION_QUEUE_DOMAIN in pod.annotations:
        return False
    return ended(pod) and not pod.deleting and pod_incarnation(pod) >= observed.job.status.incarnation


def _loss_already_handled(observed: Observed, pod: PodView) -> bool:
    """Return True if the last restart was an echo of the loss of this pod's node. Convoy did not yet know
    of the loss at that time.
    """
    status, node = observed.job.status, observed.nodes[pod.node or ""]
    known = pod_incarnation(pod) < status.incarnation and bool(node.silent_since)
    return known and budget.forgivable(status.restarts, node.silent_since)


def handle_fault(
    observed: Observed, draft: Draft, fault: Fault, own: Mapping[str, PodView], now: datetime
) -> Plan | None:
    """Fail the job, or record its restart and reserve the next incarnation.

    Return a plan if the job fails, or if the job must wait before it fails: a lost node may still turn out
    to be the cause. Return None if a restart was recorded.
    """
    status, recovery = draft.status, observed.job.spec.recovery
    happened = datetime.fromtimestamp(fault.at, UTC) if fault.at else now
    draft.fault_mark = FaultMark(happened, node_lost=fault.reason is Reasons.NODE_LOST)
    if fault.policy.terminal:
        return finish(observed, draft, own, Phase.FAILED, fault.reason, fault.message)
    if fault.reason is Reasons.NODE_LOST:
        budget.forgive(status, happened.timestamp())
    if verdict := _verdict(status, recovery, fault, now):
        if wait := _verdict_seconds(observed, fault, now):
            draft.fault_mark = None
            return Plan(status=draft.stored(), events=tuple(draft.events), requeue_after=wait)
        return finish(observed, draft, own, Phase.FAILED, *verdict)
    if fault.node and fault.blames_node:
        status.offenders = offenders.after(status.offenders, fault.node, fault.reason.name, now)
    steps = [status.progress.step if status.progress else None, fault.step]
    step = max((one for one in steps if one is not None), default=None)
    budget.record_restart(status, fault, recovery, now, step)
    formation.disband(status, failed=True)
    draft.phase(Phase.RESTARTING, fault.reason, fault.message)
    draft.condition(ConditionType.RESTARTING, True, fault.reason, fault.message)
    draft.condition(ConditionType.RUNNING, False, fault.reason, fault.message)
    return None


def _verdict(
    status: TrainingJobStatus, recovery: Recovery, fault: Fault, now: datetime
) -> tuple[Reason, str] | None:
    """Return the reason and message if the job must not restart after this fault; None if it may restart."""
    identical, limit = escalation.count_identical(status, fault), recovery.max_identical_errors
    if limit and identical >= limit:
        reason = Reasons.REPEATED_ERROR
        where = " at the same step" if fault.step else ""
        return reason, reason.format(count=identical, where=where, limit=limit, why=fault.message)
    if budget.exceeded(status, fault, recovery, now):
        reason = Reasons.MAX_RESTARTS
        return reason, reason.format(
            count=len(status.internal.restarts.within(recovery.window_seconds, now)) + 1,
            window=recovery.window_seconds,
            limit=recovery.max_restarts,
            why=fault.message,
        )
    return None


def _verdict_seconds(observed: Observed, fault: Fault, now: datetime) -> float:
    """Return the seconds to wait before the job fails, because a lost node may still turn out to be the
    cause.
    """
    nodes_used = {pod.node for pod in observed.pods if pod.node}
    if not fault.at or len(nodes_used) < 2 or not (fault.echo or fault.policy.user_error):
        return 0.0
    wait = verdict_seconds(observed.silent_seconds)
    left = fault.at + wait - now.timestamp()
    # Normally at most `wait` seconds are left. If clearly more seconds are left, the clocks of the node and
    # the operator differ, and the job does not wait.
    return left if 0 < left <= 2 * wait else 0.0


def regrowth(observed: Observed, draft: Draft, layout: tuple[Slot, ...], missing: int) -> Fault | None:
    """Return the restart that includes the `missing` pods, which are up again. Return None until a
    checkpoint has been saved after they were up for STEADY_SECONDS.

    If Convoy saves no checkpoints, such a restart would lose work. The pods then join at the next restart
    for another reason.
    """
    status = draft.status
    if not missing:
        status.internal.incarnation.whole_since = None
        return None
    status.internal.incarnation.whole_since = status.internal.incarnation.whole_since or draft.now
    steady = status.internal.incarnation.whole_since + timedelta(seconds=STEADY_SECONDS)
    if status.saved is None or status.saved.time < steady:
        return None
    reason = Reasons.REGROW
    world = world_size(layout)
    return Fault(reason, reason.format(count=missing, world=world))
