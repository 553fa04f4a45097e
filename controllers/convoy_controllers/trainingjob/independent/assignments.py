"""The commands that start the programs of independent slots.

For the agents, each slot is a job of its own with one pod and one rank. So its program gets its own
rendezvous and its own key, and no checkpoint of the process group ever waits for the slot.
"""

from __future__ import annotations

from collections.abc import Iterator

from convoy_controllers.commands import Assign, Command, Member, MemberAddress, PickPort, ReportMembers
from convoy_controllers.trainingjob.independent.records import runs_in
from convoy_controllers.trainingjob.independent.work import Work
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.views import PodView, SlotView
from convoy_crds.layout import Slot, command, present
from convoy_crds.trainingjob_independent import IndependentRecord
from convoy_crds.trainingjob_status import TrainingJobStatus

MAX_ADDRESSES = 256
"""Maximum number of pods of the process group whose addresses an Independent pod gets."""


def slot_uid(job_uid: str, record: IndependentRecord) -> str:
    """Return the identity of a slot for agents."""
    return f"{job_uid}.{record.role}.{record.replica}"


def addresses(members: Observed, status: TrainingJobStatus) -> tuple[MemberAddress, ...]:
    """Return the first pods of the process group, in the order of their ranks. Return none while the group
    has not formed, or while an address is not known: each incarnation is reported only once.
    """
    if not status.formed:
        return ()
    job = members.job.model_copy(update={"status": status})
    uid = job.metadata.uid
    pods = {pod.name: pod for pod in members.pods if pod.owner_uid == uid}
    layout = present(job)[:MAX_ADDRESSES]
    found = tuple(
        MemberAddress(slot.role, slot.replica, slot.rank_offset, slot.processes, pod.ip)
        for slot in layout
        if (pod := pods.get(slot.pod)) is not None and pod.ip
    )
    return found if len(found) == len(layout) else ()


def commands(work: Work, slot: Slot, record: IndependentRecord) -> Iterator[Command]:
    """Yield the commands that the slot's agent still needs; none after the agent has confirmed them."""
    pod = work.own.get(slot.pod)
    view = work.observed.slots.get(pod.uid) if pod else None
    if pod is None or view is None or not pod.node or pod.deleting or not runs_in(record, pod):
        return
    if view.incarnation > record.incarnation or pod.node in work.lost:
        return
    group = work.draft.status.incarnation
    if work.members and view.members_incarnation != group:
        # This comes first, so that the program finds the file when it starts.
        yield ReportMembers(pod.node, pod.uid, group, work.members)
    if view.port_incarnation != record.incarnation or not view.master_port:
        yield PickPort(pod.node, pod.uid, record.incarnation)
    elif view.incarnation < record.incarnation or not view.slot_token_valid:
        yield _assignment(work, slot, record, pod, view)


def _assignment(work: Work, slot: Slot, record: IndependentRecord, pod: PodView, view: SlotView) -> Assign:
    job = work.observed.job
    node = pod.node or ""
    return Assign(
        node=node,
        pod_uid=pod.uid,
        job_uid=slot_uid(job.metadata.uid, record),
        job=f"{job.metadata.namespace}/{job.metadata.name}",
        incarnation=record.incarnation,
        slot=0,
        rank_offset=0,
        processes=1,
        world_size=1,
        master_addr=pod.ip or "",
        master_port=view.master_port,
        hang_seconds=job.spec.recovery.hang_seconds,
        role=slot.role,
        replica=slot.replica,
        command=command(job, work.observed.engine, slot),
        members=(Member(0, pod.uid, node, 1),),
        slots=1,
        key_uid=job.metadata.uid,
    )
