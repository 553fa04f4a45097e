"""Finds the fault of one replica: the end or hang of a rank, the end of a pod, or a lost node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from convoy_controllers.servingjob.groups import Group, slots
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.views import PodView, RankView, SlotView
from convoy_controllers.workers.blame import primary, root_cause_wait
from convoy_controllers.workers.faults import (
    Fault,
    idle_fault,
    missing_fault,
    node_fault,
    pod_fault,
    slot_faults,
)
from convoy_controllers.workers.membership import membership
from convoy_controllers.workers.pod_ends import ended, leaving
from convoy_crds.layout import Slot
from convoy_crds.reasons.catalogue import Reasons


@dataclass(frozen=True, slots=True)
class LostNodes:
    """The lost nodes of the job, with the reason of each loss, by name of the node."""

    all: Mapping[str, str]
    replaceable: Mapping[str, str]
    """The lost nodes whose pods are replaced now."""


def group_fault(observed: Observed, group: Group, lost: LostNodes) -> Fault | None:
    """Return the fault that ends the group's incarnation, or that keeps it from forming; None if there is
    none.

    While a node of the group is lost but may still return, errors of other ranks are its consequences and
    count for nothing.
    """
    waits = [pod for pod in group.pods.values() if pod.node in lost.all and pod.node not in lost.replaceable]
    if waits:
        return None
    layout = slots(observed.job.metadata.name, group.record, group.size)
    if not group.record.membership:
        return primary(_early_faults(observed, group, layout))
    found = [fault for slot in layout for fault in _slot_faults(observed, group, slot, lost)]
    present = [group.pods[slot.index].uid for slot in layout if slot.index in group.pods]
    if not found and membership(present) != group.record.membership:
        known = {pod.uid for pod in group.pods.values() if _runs(observed, pod, group.record.incarnation)}
        replaced = [slot for slot in layout if group.pods[slot.index].uid not in known]
        found = [missing_fault(slot) for slot in (replaced or layout)[:1]]
    views = [observed.slots.get(uid) for uid in present]
    running = [rank.rank for view in views if view for rank in view.ranks if rank.state != "EXITED"]
    return primary(found, running=running)


def wait_for_cause(group: Group, fault: Fault, now: datetime) -> float:
    """Return the seconds to wait until another rank of the group may explain the fault; 0 if the fault
    itself is the cause.
    """
    return root_cause_wait(fault, False, now) if group.size > 1 else 0.0


def _runs(observed: Observed, pod: PodView, incarnation: int) -> bool:
    view = observed.slots.get(pod.uid)
    return view is not None and view.incarnation == incarnation


def _early_faults(observed: Observed, group: Group, layout: tuple[Slot, ...]) -> Iterator[Fault]:
    """Yield the faults of pods that ended before the incarnation formed."""
    for slot in layout:
        pod = group.pods.get(slot.index)
        if pod is None or pod.deleting or not ended(pod):
            continue
        node = observed.nodes.get(pod.node or "")
        found = pod_fault(pod, node, observed.warnings.get(pod.uid)) or idle_fault(pod)
        if found is not None:
            yield found


def _slot_faults(observed: Observed, group: Group, slot: Slot, lost: LostNodes) -> Iterator[Fault]:
    pod = group.pods.get(slot.index)
    if pod is None:
        yield missing_fault(slot)
        return
    if pod.node and pod.node in lost.replaceable:
        yield node_fault(pod, observed.nodes[pod.node], lost.replaceable[pod.node])
        return
    node = observed.nodes.get(pod.node or "")
    if found := pod_fault(pod, node, observed.warnings.get(pod.uid)):
        yield found
    elif idle := idle_fault(pod):
        yield idle
    view = observed.slots.get(pod.uid)
    if view is not None and view.incarnation == group.record.incarnation:
        hang = observed.job.spec.recovery.hang_seconds
        yield from slot_faults(slot, view, group.record.incarnation, hang, leaving=leaving(pod))
        if not leaving(pod):
            yield from (_unasked_end(slot, view, rank) for rank in view.ranks if _ended_well(rank))


def _ended_well(rank: RankView) -> bool:
    return rank.state == "EXITED" and rank.exit_code == 0 and rank.signal == 0


def _unasked_end(slot: Slot, view: SlotView, rank: RankView) -> Fault:
    """Return the fault of a rank that exited with code 0. A server must run until it is asked to stop."""
    message = (
        f"rank {rank.rank} on node {view.node} exited with code 0, but a server must run until it is asked "
        f"to stop; see kubectl logs {slot.pod}"
    )
    return Fault(
        Reasons.RANK_FAILED,
        message,
        rank.rank,
        view.node,
        slot.pod,
        exit_code=0,
        at=rank.ended,
        ended=rank.ended,
        role=slot.role,
    )
