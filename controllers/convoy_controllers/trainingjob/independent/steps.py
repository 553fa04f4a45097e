"""Decides what one independent slot needs: a pod, a start of its program, a restart, or nothing more."""

from __future__ import annotations

from collections.abc import Iterable

from convoy_controllers.children import Create, delete_pod
from convoy_controllers.commands import Shutdown
from convoy_controllers.resources import PODS
from convoy_controllers.trainingjob.ending import slot_completed
from convoy_controllers.trainingjob.independent import assignments, records
from convoy_controllers.trainingjob.independent.records import runs_in
from convoy_controllers.trainingjob.independent.slot_faults import slot_fault
from convoy_controllers.trainingjob.independent.work import Work
from convoy_controllers.trainingjob.pods import pod as pod_manifest
from convoy_controllers.trainingjob.role_limits import RoleLimits
from convoy_controllers.views import PodView
from convoy_controllers.workers.faults import Fault
from convoy_controllers.workers.pod import with_incarnation
from convoy_controllers.workers.pod_ends import ended
from convoy_crds.layout import Slot
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ANNOTATION_INTENT
from convoy_crds.trainingjob_independent import Ending, IndependentRecord
from convoy_crds.trainingjob_status import RestartScope

MAX_EVENTS = 5
"""Maximum number of Events about Independent pods in one plan. The counts in the status include all."""
FUTILE_RESTARTS = 2
"""Number of failures within the window of the budget from which on a restart replaces the pod."""
RESEND_SECONDS = 5.0
"""Seconds until commands that no agent has confirmed are sent again."""
STRANDED_SECONDS = 30.0
"""Seconds for which a node's agent must be silent before a pod that has not started there is replaced."""


def advance(work: Work, slot: Slot) -> None:
    """Take all steps of one slot."""
    key = (slot.role, slot.replica)
    record, pod = work.records[key], work.own.get(slot.pod)
    fault: Fault | None = None
    if not record.ending:
        if runs_in(record, pod) and slot_completed(work.observed, slot, work.own, record.incarnation):
            record = records.completed(record)
        elif (fault := slot_fault(work, slot, record)) is not None:
            record = _after_fault(work, slot, record, fault)
    if pod is not None and _delete(work, slot, record, pod, fault):
        pod = None
    elif pod is not None:
        record = _form(work, record, pod)
    work.records[key] = record
    if record.ending is Ending.COMPLETED:
        _end_launcher(work, pod)
    elif not record.ending:
        found = list(assignments.commands(work, slot, record))
        work.commands += found
        work.waits.append(RESEND_SECONDS if found else None)
        if pause := records.pause_seconds(record, work.now):
            work.waits.append(pause)


def _after_fault(work: Work, slot: Slot, record: IndependentRecord, fault: Fault) -> IndependentRecord:
    """Record a fault of a slot, and count it."""
    after = records.after_fault(record, fault, work.budget(slot.role), work.now)
    counts = work.counts[slot.role]
    if records.preempted(fault):
        counts.preemptions += 1
    elif not after.ending:
        counts.restarts += 1
    if len(work.draft.events) < MAX_EVENTS:
        work.draft.event(fault.reason, f"Independent pod {slot.pod}: {fault.message}")
        if after.ending:
            reason = Reasons.INDEPENDENT_GIVEN_UP
            work.draft.event(reason, reason.format(pods=slot.pod, why=fault.message))
    return after


def _delete(work: Work, slot: Slot, record: IndependentRecord, pod: PodView, fault: Fault | None) -> bool:
    """Delete the slot's pod if it must go. Return True if the pod is being deleted.

    No fencing is needed on a lost node, because the pod saves no checkpoint of the job.
    """
    if pod.node and pod.node in work.lost:
        work.deletions.append(delete_pod(pod.name, pod.uid, grace_seconds=0))
    elif pod.deleting:
        # While its agent is away, the kubelet cannot unmount the CSI volume and never removes the pod.
        if ended(pod) and _agent_away(work, pod):
            work.deletions.append(delete_pod(pod.name, pod.uid, grace_seconds=0))
    elif _must_go(work, slot, record, pod, fault):
        work.deletions.append(delete_pod(pod.name, pod.uid))
    else:
        return False
    return True


def _must_go(work: Work, slot: Slot, record: IndependentRecord, pod: PodView, fault: Fault | None) -> bool:
    if record.ending is Ending.COMPLETED:
        return False  # The pod is kept for its log.
    if record.ending or ended(pod):
        return True
    if fault is not None:
        futile = record.failures >= FUTILE_RESTARTS and not records.preempted(fault)
        whole = fault.policy.scope is not RestartScope.PROCESS
        return futile or whole or not work.observed.job.spec.recovery.in_place
    return not record.pod and (_agent_away(work, pod) or _outdated(work, slot, pod))


def _agent_away(work: Work, pod: PodView) -> bool:
    """Return True if the agent of a pod's node has been silent for STRANDED_SECONDS, although the node is
    not lost.
    """
    node = work.observed.nodes.get(pod.node or "")
    return node is not None and not node.agent_ready and node.silent_seconds >= STRANDED_SECONDS


def _outdated(work: Work, slot: Slot, pod: PodView) -> bool:
    """Return True if a pod differs from the spec."""
    job = work.observed.job
    wanted = pod_manifest(job, work.observed.engine, slot)["metadata"]["annotations"][ANNOTATION_INTENT]
    return bool(pod.annotations.get(ANNOTATION_INTENT) != wanted)


def _form(work: Work, record: IndependentRecord, pod: PodView) -> IndependentRecord:
    """Return the record with the incarnation that `pod` runs from now on, if its launcher is up and the
    back-off is over.
    """
    view = work.observed.slots.get(pod.uid)
    if record.pod or record.ending or view is None or not view.launcher_connected or ended(pod):
        return record
    if pod.phase != "Running" or records.pause_seconds(record, work.now) > 0:
        return record
    if view.incarnation and record.at is None:
        return records.formed(record, pod, view.incarnation)  # The record was lost, and the program runs.
    work.incarnation += 1
    return records.formed(record, pod, work.incarnation)


def _end_launcher(work: Work, pod: PodView | None) -> None:
    """End the launcher of a completed slot. Its pod stays for its log."""
    view = work.observed.slots.get(pod.uid) if pod else None
    if pod is None or view is None or ended(pod) or pod.deleting:
        return
    work.commands.append(Shutdown(view.node, pod.uid, 0, "the program has completed"))
    work.waits.append(RESEND_SECONDS)


def create_missing(work: Work, slots: Iterable[Slot], rooms: RoleLimits) -> None:
    """Create the pods that the slots lack. A slot in its back-off gets no pod. `rooms`: the room that
    SpotPools and queues leave.
    """
    freed = {one.name for one in work.deletions if one.grace_seconds == 0}
    taken = {one.name for one in work.observed.pods} - freed
    tried = {slot.role for slot in work.layout if slot.pod in work.own}
    # Most pods of a role are refused for one cause, so the role waits as a whole.
    refused = {slot.role for slot in work.layout if slot.pod in work.observed.create_errors}
    for slot in slots:
        record = work.records[slot.role, slot.replica]
        if slot.pod in taken or slot.role in refused or record.ending:
            continue
        if records.pause_seconds(record, work.now) > 0:
            continue
        body = rooms.place(slot, pod_manifest(work.observed.job, work.observed.engine, slot))
        if body is None:
            continue
        body = with_incarnation(body, work.incarnation, set(work.lost))
        work.creations.append(Create(PODS, body, dry_run=slot.role not in tried, required=False))
        tried.add(slot.role)
