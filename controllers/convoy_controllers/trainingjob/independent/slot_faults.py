"""Finds the fault of one independent slot."""

from __future__ import annotations

from convoy_controllers.trainingjob.independent.records import runs_in
from convoy_controllers.trainingjob.independent.work import Work
from convoy_controllers.views import PodView
from convoy_controllers.workers.faults import (
    Fault,
    idle_fault,
    missing_fault,
    node_fault,
    pod_fault,
    slot_faults,
)
from convoy_controllers.workers.pod_ends import ended, leaving
from convoy_crds.layout import Slot
from convoy_crds.trainingjob_independent import IndependentRecord


def slot_fault(work: Work, slot: Slot, record: IndependentRecord) -> Fault | None:
    """Return the fault that ends the slot's incarnation, or that keeps its program from starting; None if
    there is none.
    """
    pod = work.own.get(slot.pod)
    if not record.pod:
        return _early_fault(work, pod)
    if pod is None or not runs_in(record, pod):
        return missing_fault(slot)
    if pod.node and pod.node in work.lost:
        return node_fault(pod, work.observed.nodes[pod.node], work.lost[pod.node])
    return _of_pod(work, pod) or _of_rank(work, slot, record, pod)


def _early_fault(work: Work, pod: PodView | None) -> Fault | None:
    """Return the fault of a pod that ended before its program started."""
    if pod is None or pod.deleting or not ended(pod) or pod.node in work.lost:
        return None
    return _of_pod(work, pod) or idle_fault(pod)


def _of_pod(work: Work, pod: PodView) -> Fault | None:
    return pod_fault(pod, work.observed.nodes.get(pod.node or ""), work.observed.warnings.get(pod.uid))


def _of_rank(work: Work, slot: Slot, record: IndependentRecord, pod: PodView) -> Fault | None:
    view = work.observed.slots.get(pod.uid)
    if view is None:
        return None
    # The launcher reports a request to stop earlier than the API server if the node itself shuts down.
    asked = leaving(pod) or any(rank.termination_requested for rank in view.ranks)
    hang = work.observed.job.spec.recovery.hang_seconds
    found = slot_faults(slot, view, record.incarnation, hang, leaving=asked)
    return found[0] if found else None
