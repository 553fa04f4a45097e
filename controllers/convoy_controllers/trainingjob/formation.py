"""Forms an incarnation. It chooses the slots and lets slot 0 pick the rendezvous port. Then it sends each
slot's assignment until the slot's agent has confirmed it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from convoy_controllers.checkpoint.placement import Host, place
from convoy_controllers.commands import Assign, Command, Member, MemoryTiers, PickPort, StoreUse
from convoy_controllers.trainingjob import interval, nodes, numbering, tiers
from convoy_controllers.trainingjob.digests import digest
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.role_limits import RoleLimits
from convoy_controllers.trainingjob.tiers import Effective
from convoy_controllers.trainingjob.trace_orders import ordered, trace_order
from convoy_controllers.views import PodView, SlotView
from convoy_controllers.workers.membership import membership
from convoy_controllers.workers.pod import pod_incarnation
from convoy_controllers.workers.pod_ends import ended
from convoy_crds.layout import Slot, command, present, without, world_size
from convoy_crds.meta import seconds
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob_status import Phase, TrainingJobStatus

SHRINK_SECONDS = 10.0
"""Seconds after a fault for which an elastic job waits for a pod that is starting. After this time it goes
on without the pod.
"""


def ready(
    observed: Observed, layout: Iterable[Slot], pods: Mapping[str, PodView], lost: Collection[str]
) -> tuple[Slot, ...]:
    """Return the slots with a live pod whose launcher is connected to its agent, on a node that is not
    lost.
    """

    def is_ready(slot: Slot) -> bool:
        pod = pods.get(slot.pod)
        if pod is None or pod.deleting or pod.phase != "Running" or ended(pod) or pod.node in lost:
            return False
        view = observed.slots.get(pod.uid)
        return view is not None and view.launcher_connected

    return tuple(slot for slot in layout if is_ready(slot))


def participants(
    observed: Observed,
    status: TrainingJobStatus,
    layout: tuple[Slot, ...],
    up: tuple[Slot, ...],
    pods: Mapping[str, PodView],
    now: datetime,
) -> tuple[Slot, ...]:
    """Return the slots that can form an incarnation now, with their ranks; empty while the job must wait.

    If all slots are in `up`, all of them form it. An elastic job may also form from the slots in `up`
    alone, under three conditions. Every role has its `minReplicas` among them. The job need not wait any
    longer for a missing pod. Under Strict fencing, ranks of an earlier incarnation can no longer run in a
    missing pod.
    """
    if len(up) == len(layout):
        return layout
    for role in observed.job.spec.roles:
        if role.independent:
            continue
        if sum(slot.role == role.name for slot in up) < role.least:
            return ()
    names = {slot.pod for slot in up}
    missing = [slot for slot in layout if slot.pod not in names]
    limit = observed.job.spec.recovery.schedule_seconds
    # A pod that its SpotPool or its queue does not grant will not come, so nothing waits for it.
    rooms = RoleLimits(observed, layout, pods)
    given_up = {(one.role, one.replica) for one in observed.yielded}
    waited = [
        slot
        for slot in missing
        if slot.pod in pods or ((slot.role, slot.replica) not in given_up and rooms.reserve(slot))
    ]
    if not all(_may_be_left_out(observed, status, limit, pods.get(slot.pod), now) for slot in waited):
        return ()
    if nodes.strict(observed.job) and any(_may_run(observed, status, pods.get(slot.pod)) for slot in missing):
        return ()
    return without(layout, {(slot.role, slot.replica) for slot in missing})


def _may_be_left_out(
    observed: Observed, status: TrainingJobStatus, limit: int, pod: PodView | None, now: datetime
) -> bool:
    """Return True if an elastic job no longer waits for a missing pod. Either the scheduler finds no node
    for the pod, or the job has waited long enough and the pod's ranks are not saving their state. The
    job waits until `shrink_deadline` after a fault, otherwise `limit` seconds.
    """
    if pod is not None and pod.unschedulable and not pod.node and not pod.gated:
        return True
    if pod is not None and _may_save(observed, pod, now):
        return False
    since = status.internal.pending.since
    if status.phase is Phase.RESTARTING and (until := shrink_deadline(status)) is not None:
        return now >= until
    return since is not None and now >= since + timedelta(seconds=limit)


def _may_save(observed: Observed, pod: PodView, now: datetime) -> bool:
    """Return True if the ranks of a pod that is being deleted may still be saving their state."""
    if not pod.deleting or ended(pod) or pod.phase != "Running" or now.timestamp() >= pod.leaves_by:
        return False
    node, view = observed.nodes.get(pod.node or ""), observed.slots.get(pod.uid)
    connected = node is None or not node.silent_seconds
    return connected and view is not None and any(rank.state != "EXITED" for rank in view.ranks)


def shrink_deadline(status: TrainingJobStatus) -> datetime | None:
    """Return the time until which an elastic job waits for its missing pods after a fault; None if the job
    has had no fault.
    """
    last = status.restarts.last
    if last is None:
        return None
    # After the loss of a node and after a regrowth, the job has already waited for the missing pods. It does
    # not wait again.
    none = last.reason in (Reasons.NODE_LOST.name, Reasons.REGROW.name)
    start = max(last.at, status.internal.restarts.not_before or last.at)
    return start + timedelta(seconds=0.0 if none else SHRINK_SECONDS)


def _may_run(observed: Observed, status: TrainingJobStatus, pod: PodView | None) -> bool:
    """Return True if ranks of an earlier incarnation may still run in a pod. A pod on a lost node counts
    until fencing deletes it.
    """
    if pod is None or pod.phase != "Running" or ended(pod) or pod_incarnation(pod) >= status.incarnation:
        return False
    view = observed.slots.get(pod.uid)
    return view is None or view.incarnation > 0


def disband(status: TrainingJobStatus, failed: bool = False) -> None:
    """End the incarnation and reserve the next number. An incarnation that has not formed keeps its number,
    unless the attempt to form it `failed`.

    If the status is not `formed` and `incarnation` is K, incarnation K waits for its pods and no command has
    named K yet.
    """
    if status.formed or failed:
        status.internal.incarnation.membership = ""
        status.incarnation += 1
    status.internal.incarnation.whole_since = None


def form(
    status: TrainingJobStatus,
    observed: Observed,
    layout: tuple[Slot, ...],
    chosen: tuple[Slot, ...],
    pods: Mapping[str, PodView],
) -> None:
    """Form the reserved incarnation from the chosen slots. The incarnation gets a number higher than every
    number that agents have seen.
    """
    seen = [0]
    for view in observed.slots.values():
        seen += [view.incarnation, view.port_incarnation]
    status.incarnation = max(status.incarnation, max(seen) + 1)
    status.internal.incarnation.membership = membership(pods[slot.pod].uid for slot in chosen)
    status.internal.incarnation.spec = digest(observed.job)
    numbering.renumber(observed, status, chosen, pods)
    status.progress = None
    names = {slot.pod for slot in chosen}
    for role in status.roles:
        role.absent = [s.replica for s in layout if s.role == role.name and s.pod not in names]


def commands(
    observed: Observed, status: TrainingJobStatus, pods: Mapping[str, PodView]
) -> tuple[Command, ...]:
    """Return the commands that agents still need for the incarnation in `status`; empty after all have
    confirmed.
    """
    incarnation = status.incarnation
    job = observed.job.model_copy(update={"status": status})
    layout = present(job)
    placed = [(slot, pods[slot.pod]) for slot in layout if slot.pod in pods]
    if not placed or len(placed) < len(layout):
        return ()
    first = placed[0][1]
    view = observed.slots.get(first.uid)
    if view is None or first.node is None:
        return ()
    if view.port_incarnation != incarnation or not view.master_port:
        return (PickPort(first.node, first.uid, incarnation),)
    every = interval.assigned_seconds(job, status)
    effective = tiers.of(observed, status)
    names = {pod.node or "" for _, pod in placed}
    behind = [
        (slot, pod)
        for slot, pod in placed
        if (known := observed.slots.get(pod.uid)) is not None
        and (
            known.incarnation < incarnation
            or _outdated(known, incarnation, None if slot.position else every)
            or _other_copies(known, effective, len(names))
            or known.trace != ordered(trace_order(job, status, slot))
        )
    ]
    if not behind:
        return ()
    members = tuple(Member(slot.position, pod.uid, pod.node or "", slot.processes) for slot, pod in placed)
    strict = nodes.strict(job)
    memory = _memory(observed, members, effective)
    size = world_size(layout)
    return tuple(
        Assign(
            node=pod.node or "",
            pod_uid=pod.uid,
            job_uid=job.metadata.uid,
            job=f"{job.metadata.namespace}/{job.metadata.name}",
            incarnation=incarnation,
            slot=slot.position,
            rank_offset=slot.rank_offset,
            processes=slot.processes,
            world_size=size,
            master_addr=first.ip or "",
            master_port=view.master_port,
            hang_seconds=job.spec.recovery.hang_seconds,
            role=slot.role,
            replica=slot.replica,
            command=command(job, observed.engine, slot),
            members=members if strict or slot.position == 0 else members[:1],
            strict=strict,
            memory=memory.get(pod.node or "")
            if slot.position
            else _slot0_memory(memory, members, observed, every),
            slots=len(layout),
            trace=trace_order(job, status, slot),
            key_uid=job.metadata.uid,
        )
        for slot, pod in behind
    )


def _outdated(known: SlotView, incarnation: int, every: int | None) -> bool:
    """Return True if a slot's agent knows the incarnation, but needs another assignment.

    There are two reasons: other agents no longer accept the slot token, or the save interval of slot 0 is
    not `every`. `every` is None for all other slots, because only slot 0 gets the interval.
    """
    other = every is not None and known.interval_seconds != every
    return known.incarnation == incarnation and (other or not known.slot_token_valid)


def _other_copies(known: SlotView, effective: Effective, nodes: int) -> bool:
    """Return True if the agent of a job with tiers by default makes another number of copies than the job
    should have now. The number depends on the memory that the agents report.
    """
    if not effective.by_default or known.memory is None:
        return False
    return known.memory.copies != _copies(effective, nodes)


def _copies(effective: Effective, nodes: int) -> int:
    """Return the number of copies of each shard. The copies are on other nodes, so there can be no more
    copies than other nodes.
    """
    peer = effective.tiers.peer
    return min(peer.copies, nodes - 1) if peer else 0


def _memory(observed: Observed, members: Collection[Member], effective: Effective) -> dict[str, MemoryTiers]:
    """Return the memory settings of each node: its limit, and the nodes that keep its copies. Return
    nothing for a job that uses no memory.

    A job with tiers by default always gets memory settings. Its agents then grant memory as soon as there is
    some.
    """
    if effective.source is None:
        return {}
    names = {member.node for member in members}
    copies = _copies(effective, len(names))
    peer = effective.tiers.peer
    key = peer.domain_key(observed.job.spec.placement.topology_keys) if peer else ""
    hosts = [
        Host(name, node.labels.get(key, "") if (node := observed.nodes.get(name)) else "")
        for name in sorted(names)
    ]
    limit = observed.defaults.most if effective.by_default else effective.limit
    store = _store(observed)
    return {
        name: MemoryTiers(copies, limit, placed.hosts, store=store, by_default=effective.by_default)
        for name, placed in place(hosts, copies).items()
    }


def _store(observed: Observed) -> StoreUse | None:
    """Return the job's use of its CheckpointStore: how often to upload, what to keep, and the state to
    resume from.
    """
    wanted = observed.job.spec.checkpoint
    remote = wanted.tiers.remote
    if remote is None:
        return None
    use = StoreUse(remote.store, seconds(remote.every), remote.keep_last, remote.keep_every_steps)
    other = wanted.resume_from
    if other is None:
        return use
    uid = other.uid or (observed.source.metadata.uid if observed.source else "")
    return replace(use, resume_uid=uid, resume_step=other.step)


def _slot0_memory(
    memory: Mapping[str, MemoryTiers], members: tuple[Member, ...], observed: Observed, every: int
) -> MemoryTiers | None:
    """Return the memory settings of slot 0.

    Slot 0 also gets the names of all other nodes that may hold checkpoints of the job. It also gets the
    save interval `every` in seconds (0 for the pod's own setting).
    """
    own = memory.get(members[0].node)
    nodes_of_job = {member.node for member in members}
    holders = tuple(node for node in observed.holders if node not in nodes_of_job)
    return replace(own, holders=holders, interval_seconds=every) if own else None
