"""Forms the incarnations of replicas, each independent of the others.

A group forms when every slot's launcher is connected to its agent, however long that takes: pods may pull
images and read a model of any size before that. Only then does slot 0 pick the rendezvous port, so no rank
waits in a rendezvous for a pod that is still starting.

All groups of a job share one sequence of incarnation numbers. A new group that reuses a number of a deleted
group therefore never reuses an incarnation that an agent has seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from convoy_controllers.commands import Assign, Command, Member, PickPort, ReplicaState, Scrape
from convoy_controllers.servingjob import states
from convoy_controllers.servingjob.groups import Group, slots
from convoy_controllers.servingjob.observed import Observed
from convoy_controllers.servingjob.restarts import pause_seconds
from convoy_controllers.servingjob.revision import RoleRevision
from convoy_controllers.servingjob.states import Rings
from convoy_controllers.views import PodView
from convoy_controllers.workers.membership import membership
from convoy_controllers.workers.pod_ends import ended
from convoy_crds.layout import Slot
from convoy_crds.servingjob_status import GroupRecord


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """The place where the ranks of one incarnation meet, and the slots that meet there."""

    address: str
    port: int
    members: tuple[Member, ...]


def seen_incarnation(observed: Observed) -> int:
    """Return the highest incarnation that the status or an agent of the job knows."""
    internal = observed.job.status.internal
    known = [internal.incarnation, *(one.incarnation for one in internal.groups)]
    known += [max(view.incarnation, view.port_incarnation) for view in observed.slots.values()]
    return max(known)


def can_form(observed: Observed, group: Group, lost: Mapping[str, str], now: datetime) -> bool:
    """Return True if the group has no incarnation and all its pods are up."""
    record = group.record
    if record.membership or record.failed or pause_seconds(record, now) > 0 or group.size == 0:
        return False
    return all(
        (pod := group.pods.get(index)) is not None and _up(observed, pod, lost) for index in range(group.size)
    )


def _up(observed: Observed, pod: PodView, lost: Mapping[str, str]) -> bool:
    if pod.deleting or pod.phase != "Running" or ended(pod) or pod.node in lost:
        return False
    view = observed.slots.get(pod.uid)
    return view is not None and view.launcher_connected


def formed(group: Group, incarnation: int) -> GroupRecord:
    """Return the group's record with the incarnation that its pods form now."""
    uids = (group.pods[index].uid for index in range(group.size))
    return group.record.model_copy(
        update={"incarnation": incarnation, "membership": membership(uids), "not_before": None}
    )


def commands(
    observed: Observed, group: Group, record: GroupRecord, role: RoleRevision, rings: Rings
) -> tuple[Command, ...]:
    """Return the commands that the group's agents still need for its incarnation; empty after all have
    confirmed. `rings`: the nodes that may keep copies of replicas' states.
    """
    layout = slots(observed.job.metadata.name, record, group.size)
    placed = [(slot, group.pods[slot.index]) for slot in layout if slot.index in group.pods]
    if not record.membership or len(placed) < len(layout) or not placed:
        return ()
    if membership(pod.uid for _, pod in placed) != record.membership:
        # A pod was replaced before the fault of the others has a cause. It joins the next incarnation.
        return ()
    first = placed[0][1]
    view = observed.slots.get(first.uid)
    if view is None or first.node is None:
        return ()
    if view.port_incarnation != record.incarnation or not view.master_port:
        return (PickPort(first.node, first.uid, record.incarnation),)
    members = tuple(Member(slot.position, pod.uid, pod.node or "", slot.processes) for slot, pod in placed)
    rendezvous = Rendezvous(first.ip or "", view.master_port, members)
    kept = states.settings(observed, record, first.node, rings)
    return tuple(
        _assignment(observed, record, role, slot, rendezvous)
        if slot.position
        else _with_state(observed, _assignment(observed, record, role, slot, rendezvous), kept)
        for slot, pod in placed
        if _behind(observed, pod, record.incarnation) or (not slot.position and states.outdated(view, kept))
    )


def _with_state(observed: Observed, assign: Assign, kept: ReplicaState | None) -> Assign:
    """Return the assignment of slot 0 with the settings of the replica's state."""
    if kept is None:
        return assign
    taken = {assign.node, *kept.hosts}
    others = tuple(node for node in states.holders(observed, kept.uid) if node not in taken)
    return replace(assign, replica_state=replace(kept, holders=others))


def _behind(observed: Observed, pod: PodView, incarnation: int) -> bool:
    """Return True if the pod's agent is connected, but still needs the assignment."""
    known = observed.slots.get(pod.uid)
    if known is None or known.incarnation > incarnation:
        return False
    return known.incarnation < incarnation or not known.slot_token_valid


def _assignment(
    observed: Observed, record: GroupRecord, role: RoleRevision, slot: Slot, rendezvous: Rendezvous
) -> Assign:
    job, members = observed.job, rendezvous.members
    own = members[slot.position]
    return Assign(
        node=own.node,
        pod_uid=own.pod_uid,
        job_uid=group_uid(job.metadata.uid, record),
        job=f"{job.metadata.namespace}/{job.metadata.name}",
        incarnation=record.incarnation,
        slot=slot.position,
        rank_offset=slot.rank_offset,
        processes=slot.processes,
        world_size=len(members),
        master_addr=rendezvous.address,
        master_port=rendezvous.port,
        hang_seconds=job.spec.recovery.hang_seconds,
        role=record.role,
        replica=record.number,
        command=tuple(role.command),
        members=members if slot.position == 0 else members[:1],
        slots=len(members),
        scrape=_scrape(role, slot, rendezvous.address),
    )


def _scrape(role: RoleRevision, slot: Slot, address: str) -> Scrape | None:
    """Return the metrics that the agent of slot 0 reads; None without `spec.roles[].metrics`. `address` is
    the IP of slot 0's pod.
    """
    if slot.position or not role.metrics_port or not address:
        return None
    return Scrape(address, role.metrics_port, role.metrics_path)


def group_uid(job_uid: str, record: GroupRecord) -> str:
    """Return the identity of a group for agents. For them, each group is a job of its own."""
    return f"{job_uid}.{record.role}.{record.number}"
