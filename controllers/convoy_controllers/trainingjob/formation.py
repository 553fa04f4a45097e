"""How an incarnation forms: who takes part, then the port, then every slot is told until it says it knows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from convoy_controllers.checkpoint.placement import Host, place
from convoy_controllers.commands import Assign, Command, Member, MemoryTiers, PickPort, StoreUse
from convoy_controllers.trainingjob import interval, nodes
from convoy_controllers.trainingjob.observed import Observed
from convoy_controllers.trainingjob.pod_ends import ended
from convoy_controllers.trainingjob.pods import pod_incarnation
from convoy_controllers.views import PodView, SlotView
from convoy_crds.layout import Slot, command, present, without, world_size
from convoy_crds.meta import in_bytes, seconds
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import Phase, TrainingJobStatus

SHRINK_SECONDS = 10.0
"""How long, after a fault, an elastic job waits for a pod that is on its way before it goes on without it."""


def ready(
    observed: Observed, layout: Iterable[Slot], pods: Mapping[str, PodView], lost: Collection[str]
) -> tuple[Slot, ...]:
    """The slots with a live pod whose launcher has met its agent, on a node that is not lost."""

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
    """The slots that can form an incarnation now, with their ranks; empty while the job has to wait.

    All of them, or what is `up` where every role has its `minReplicas` and the others would keep it waiting.
    """
    if len(up) == len(layout):
        return layout
    for role in observed.job.spec.roles:
        if sum(slot.role == role.name for slot in up) < (role.min_replicas or role.replicas):
            return ()
    names = {slot.pod for slot in up}
    missing = [slot for slot in layout if slot.pod not in names]
    limit = observed.job.spec.recovery.schedule_seconds
    if not all(_may_be_left_out(observed, status, limit, pods.get(slot.pod), now) for slot in missing):
        return ()
    if nodes.strict(observed.job) and any(_may_run(observed, status, pods.get(slot.pod)) for slot in missing):
        return ()
    return without(layout, {(slot.role, slot.replica) for slot in missing})


def _may_be_left_out(
    observed: Observed, status: TrainingJobStatus, limit: int, pod: PodView | None, now: datetime
) -> bool:
    """Whether a pod that is not up need not be waited for: it has no node, or has had its time."""
    if pod is not None and pod.unschedulable and not pod.node and not pod.gated:
        return True
    if pod is not None and _may_save(observed, pod, now):
        return False
    since = status.pending_since
    if status.phase is Phase.RESTARTING and (until := shrink_deadline(status)) is not None:
        return now >= until
    return since is not None and now >= since + timedelta(seconds=limit)


def _may_save(observed: Observed, pod: PodView, now: datetime) -> bool:
    """Whether the ranks of a pod that was told to go may still save their state, with all others."""
    if not pod.deleting or ended(pod) or pod.phase != "Running" or now.timestamp() >= pod.leaves_by:
        return False
    node, view = observed.nodes.get(pod.node or ""), observed.slots.get(pod.uid)
    connected = node is None or not node.silent_seconds
    return connected and view is not None and any(rank.state != "EXITED" for rank in view.ranks)


def shrink_deadline(status: TrainingJobStatus) -> datetime | None:
    """Until when, after a fault, an elastic job waits for its pods; None without a fault."""
    last = status.restarts.last
    if last is None:
        return None
    # Whoever was not there when others were taken in again has been waited for already.
    none = last.reason in (Reasons.NODE_LOST.name, Reasons.REGROW.name)
    begin = max(last.at, status.restarts.not_before or last.at)
    return begin + timedelta(seconds=0.0 if none else SHRINK_SECONDS)


def _may_run(observed: Observed, status: TrainingJobStatus, pod: PodView | None) -> bool:
    """Whether ranks of an earlier incarnation may live in a pod: on a lost node it goes once it is fenced."""
    if pod is None or pod.phase != "Running" or ended(pod) or pod_incarnation(pod) >= status.incarnation:
        return False
    view = observed.slots.get(pod.uid)
    return view is None or view.incarnation > 0


def membership(uids: Iterable[str]) -> str:
    """A digest of the pods, in slot order, that form an incarnation."""
    return hashlib.sha256("\n".join(uids).encode()).hexdigest()[:16]


def digest(job: TrainingJob) -> str:
    """A digest of what may not change while the job runs.

    Defaults are left out: a field that a later operator knows must not look like a change.
    """
    spec = job.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    fixed = {name: spec.get(name) for name in ("engine", "roles", "checkpoint")}
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:16]


def layout_digest(job: TrainingJob) -> str:
    """A digest of the layout and the placement of the pods: the roles without their containers.

    How a later operator reads containers must not look like a suspension that was missed.
    """
    containers = {"template": {"spec": {"containers"}}}
    roles = [
        role.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude_defaults=True, exclude=containers
        )
        for role in job.spec.roles
    ]
    return hashlib.sha256(json.dumps(roles, sort_keys=True).encode()).hexdigest()[:16]


def disband(status: TrainingJobStatus, failed: bool = False) -> None:
    """Ends the incarnation that has formed, or `failed` to, and reserves the next number.

    An empty `membership` with `incarnation` K means: K waits for its pods, and no command has named it yet.
    """
    if status.membership or failed:
        status.membership = ""
        status.incarnation += 1
    status.whole_since = None


def form(
    status: TrainingJobStatus,
    observed: Observed,
    layout: tuple[Slot, ...],
    chosen: tuple[Slot, ...],
    pods: Mapping[str, PodView],
) -> None:
    """Forms the reserved incarnation from the chosen slots, above whatever any agent has seen."""
    seen = [0]
    for view in observed.slots.values():
        seen += [view.incarnation, view.port_incarnation]
    status.incarnation = max(status.incarnation, max(seen) + 1)
    status.membership = membership(pods[slot.pod].uid for slot in chosen)
    status.formed_spec = digest(observed.job)
    status.progress = None
    names = {slot.pod for slot in chosen}
    for role in status.roles:
        role.absent = [s.replica for s in layout if s.role == role.name and s.pod not in names]


def commands(
    observed: Observed, status: TrainingJobStatus, pods: Mapping[str, PodView]
) -> tuple[Command, ...]:
    """What the agents have still to be told of the incarnation in `status`; nothing once all know."""
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
    behind = [
        (slot, pod)
        for slot, pod in placed
        if (known := observed.slots.get(pod.uid)) is not None
        and (
            known.incarnation < incarnation or _outdated(known, incarnation, None if slot.position else every)
        )
    ]
    if not behind:
        return ()
    members = tuple(Member(slot.position, pod.uid, pod.node or "", slot.processes) for slot, pod in placed)
    strict = nodes.strict(job)
    memory = _memory(observed, members)
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
        )
        for slot, pod in behind
    )


def _outdated(known: SlotView, incarnation: int, every: int | None) -> bool:
    """Whether a slot's agent knows the incarnation, but has a slot token that nobody believes any more, or
    another interval, which slot 0 alone is told.
    """
    other = every is not None and known.interval_seconds != every
    return known.incarnation == incarnation and (other or not known.slot_token_valid)


def _memory(observed: Observed, members: Collection[Member]) -> dict[str, MemoryTiers]:
    """By node, what is kept in its memory and who has the copies; empty for a job that keeps none there."""
    tiers = observed.job.spec.checkpoint.tiers
    if tiers.local is None:
        return {}
    names = {member.node for member in members}
    # A node alone has nobody to keep its copies.
    copies = min(tiers.peer.copies, len(names) - 1) if tiers.peer else 0
    key = tiers.peer.topology_key if tiers.peer else ""
    hosts = [
        Host(name, node.labels.get(key, "") if (node := observed.nodes.get(name)) else "")
        for name in sorted(names)
    ]
    limit = in_bytes(tiers.local.memory) if tiers.local.memory else 0
    store = _store(observed)
    return {
        name: MemoryTiers(copies, limit, placed.hosts, store=store)
        for name, placed in place(hosts, copies).items()
    }


def _store(observed: Observed) -> StoreUse | None:
    """Where memory is uploaded to, how often, and with whose state the job begins."""
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
    """For slot 0, which asks everybody who may hold something of the job, and saves `every` so many seconds
    (0: as its pod was told).
    """
    own = memory.get(members[0].node)
    nodes_of_job = {member.node for member in members}
    holders = tuple(node for node in observed.holders if node not in nodes_of_job)
    return replace(own, holders=holders, interval_seconds=every) if own else None
