"""How an incarnation forms: port first, then every slot is told, again until it reports that it knows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from convoy_controllers.plan import Assign, Command, Member, PickPort, PodView, SlotView
from convoy_controllers.trainingjob.faults import ended
from convoy_controllers.trainingjob.observed import Observed
from convoy_crds.layout import Slot, command, slots, world_size
from convoy_crds.trainingjob import TrainingJobStatus


def whole(layout: tuple[Slot, ...], pods: Mapping[str, PodView], views: Mapping[str, SlotView]) -> bool:
    """Whether every slot has a live pod whose launcher has met its agent."""
    return all(
        (pod := pods.get(slot.pod)) is not None
        and not pod.deleting
        and pod.phase == "Running"
        and not ended(pod)
        and (view := views.get(pod.uid)) is not None
        and view.launcher_connected
        for slot in layout
    )


def membership(uids: Iterable[str]) -> str:
    """A digest of the pods, in slot order, that form an incarnation."""
    return hashlib.sha256("\n".join(uids).encode()).hexdigest()[:16]


def disband(status: TrainingJobStatus) -> None:
    """Ends the incarnation that has formed, if one has, and reserves the next number.

    An empty `membership` with `incarnation` K means: K waits for its pods, and no command has named it yet.
    """
    if status.membership:
        status.membership = ""
        status.incarnation += 1


def form(status: TrainingJobStatus, observed: Observed, uids: Iterable[str]) -> None:
    """Forms the reserved incarnation from these pods, above whatever any agent has seen."""
    seen = [0]
    for view in observed.slots.values():
        seen += [view.incarnation, view.port_incarnation]
    status.incarnation = max(status.incarnation, max(seen) + 1)
    status.membership = membership(uids)


def commands(observed: Observed, pods: Mapping[str, PodView], incarnation: int) -> tuple[Command, ...]:
    """What the agents have still to be told for `incarnation`; nothing once all know."""
    job = observed.job
    layout = slots(job)
    placed = [(slot, pods[slot.pod]) for slot in layout if slot.pod in pods]
    if len(placed) < len(layout):
        return ()
    first = placed[0][1]
    view = observed.slots.get(first.uid)
    if view is None or first.node is None:
        return ()
    if view.port_incarnation != incarnation or not view.master_port:
        return (PickPort(first.node, first.uid, incarnation),)
    behind = [
        (slot, pod)
        for slot, pod in placed
        if (known := observed.slots.get(pod.uid)) is not None and known.incarnation < incarnation
    ]
    if not behind:
        return ()
    members = tuple(Member(slot.index, pod.uid, pod.node or "", slot.processes) for slot, pod in placed)
    return tuple(
        Assign(
            node=pod.node or "",
            pod_uid=pod.uid,
            job_uid=job.metadata.uid,
            job=f"{job.metadata.namespace}/{job.metadata.name}",
            incarnation=incarnation,
            slot=slot.index,
            rank_offset=slot.rank_offset,
            processes=slot.processes,
            world_size=world_size(job),
            master_addr=first.ip or "",
            master_port=view.master_port,
            hang_seconds=job.spec.recovery.hang_seconds,
            role=slot.role,
            replica=slot.replica,
            command=command(job, observed.engine, slot),
            members=members,
        )
        for slot, pod in behind
    )
