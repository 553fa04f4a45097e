"""Pure functions that convert between messages on the wire and the plain data of plans."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire.slot_tokens import SlotToken
from convoy_controllers.commands import (
    Assign,
    DeliverModel,
    Endpoints,
    JobCommand,
    MemoryTiers,
    PickPort,
    ReplicaState,
    ReportMembers,
    StoreUse,
)
from convoy_controllers.views import (
    CommitView,
    MemoryView,
    MetricView,
    ModelSource,
    ModelView,
    RankView,
    ReplicaStateView,
    SlotView,
)
from convoy_crds.job_result import MAX_RESULT_BYTES
from convoy_crds.metric_names import MAX_METRICS, is_metric_name
from convoy_operator.hub.run_messages import run_view
from convoy_operator.hub.trace_messages import trace_view

MAX_RANKS = 64
"""Maximum number of ranks in one pod's report; further ranks are ignored. `processesPerReplica` has the
same limit.
"""
MAX_TIERS = 8
MAX_NAME = 256
"""Maximum number of characters of a name or an address; the rest is cut off. Convoy's own names are
shorter.
"""
MAX_ENDPOINTS = 64
"""Maximum number of addresses in one pod's report; further ones are ignored."""
MAX_HOSTS = 4
"""Maximum number of nodes that keep copies of a replica's state, as `spec.checkpoint.tiers.peer.copies`
allows.
"""
MAX_TROUBLES = 8
"""Maximum number of checkpoint problems (`Trouble`) in one pod's report; further ones are ignored. An agent
reports at most one problem of each kind.
"""
_STDERR = 2048
_MAX_SECONDS = 2**32 - 1
_MAX_STEP = 2**53
_MAX_BYTES = 2**53

_STATES = {
    wire.RankReport.State.STARTING: "STARTING",
    wire.RankReport.State.RUNNING: "RUNNING",
    wire.RankReport.State.EXITED: "EXITED",
}


def seconds(unix_ms: int) -> float:
    """Convert a time on the wire from Unix milliseconds to Unix seconds. Return 0 if the time is not set."""
    return max(0, unix_ms) / 1000


def rank_view(report: wire.RankReport) -> RankView:
    """Return one rank's report in the form that plans use."""
    progress = report.progress if report.HasField("progress") else None
    return RankView(
        rank=report.rank,
        state=_STATES.get(report.state, "STARTING"),
        exit_code=report.exit_code,
        signal=report.signal,
        oom=report.oom,
        hung=report.hung,
        command_not_found=report.command_not_found,
        stderr=report.stderr_tail[-_STDERR:],
        step=progress.step if progress else None,
        total_steps=progress.total_steps or None if progress else None,
        samples_per_second=progress.samples_per_second if progress else None,
        loss=progress.loss if progress and progress.HasField("loss") else None,
        metrics=_metrics(progress) if progress and progress.metrics else (),
        diverged=bool(progress and progress.diverged),
        time=seconds(progress.time_unix_ms) if progress else 0.0,
        checkpoint_seconds=progress.checkpoint_ms / 1000 if progress else 0.0,
        save_seconds=progress.save_ms / 1000 if progress else 0.0,
        copy_seconds=progress.copy_ms / 1000 if progress else 0.0,
        restore_seconds=progress.restore_ms / 1000 if progress else 0.0,
        started=seconds(report.started_unix_ms),
        first_step=seconds(report.first_step_unix_ms),
        ended=seconds(report.ended_unix_ms),
        finished=seconds(report.finished_unix_ms),
        termination_requested=report.termination_requested,
        loading=seconds(report.loading_unix_ms),
        result=report.result[: MAX_RESULT_BYTES + 1],
        facts=run_view(progress.facts) if progress and progress.HasField("facts") else None,
    )


def _metrics(progress: wire.Progress) -> tuple[MetricView, ...]:
    """Return at most MAX_METRICS metrics; those with invalid names are left out. A value that is NaN or
    infinity becomes None.
    """
    return tuple(
        MetricView(
            one.name,
            one.value if one.HasField("value") and math.isfinite(one.value) else None,
            min(one.step, _MAX_STEP),
        )
        for one in progress.metrics[:MAX_METRICS]
        if is_metric_name(one.name)
    )


def slot_view(report: wire.PodReport, node: str, *, slot_token_valid: bool = True) -> SlotView:
    """Return a pod's report in the form that plans use. `node` is the node of the reporting agent.
    `slot_token_valid` is True if other agents accept the pod's slot token.
    """
    return SlotView(
        pod_uid=report.pod_uid,
        node=node,
        launcher_connected=report.launcher_connected,
        incarnation=report.incarnation,
        master_port=report.master_port,
        port_incarnation=report.port_incarnation,
        ranks=tuple(rank_view(rank) for rank in report.ranks[:MAX_RANKS]),
        committed={
            one.tier[:MAX_NAME]: CommitView(one.incarnation, one.step, seconds(one.time_unix_ms))
            for one in report.committed[:MAX_TIERS]
        },
        troubles=tuple(_trouble(one) for one in report.troubles[:MAX_TROUBLES]),
        interval_seconds=report.interval_seconds,
        memory=_memory_view(report.memory) if report.HasField("memory") else None,
        slot_token_valid=slot_token_valid,
        replica_state=_state_view(report.replica_state) if report.HasField("replica_state") else None,
        model=_model_view(report.model) if report.HasField("model") else None,
        endpoints=tuple(one[:MAX_NAME] for one in report.endpoints[:MAX_ENDPOINTS]),
        members_incarnation=report.members_incarnation,
        trace=(report.trace_recording, report.trace_attempt),
        traces=tuple(trace_view(one) for one in report.traces[:MAX_RANKS]),
    )


def _model_view(report: wire.ModelReport) -> ModelView:
    source = report.source
    failed = report.state == wire.ModelReport.FAILED
    known = report.failure in wire.ModelReport.Failure.values()
    # Map an unknown failure, which an agent of another version may report, to one that passes.
    failure = wire.ModelReport.Failure.Name(report.failure) if known else "STORE_UNREACHABLE"
    return ModelView(
        ModelSource(
            source.namespace[:MAX_NAME],
            source.job_uid[:MAX_NAME],
            source.store[:MAX_NAME],
            source.incarnation,
            source.step,
        ),
        ready=report.state == wire.ModelReport.READY,
        failure=failure if failed else "",
        message=report.message[:_STDERR],
        progress=seconds(report.progress_unix_ms),
    )


def _memory_view(memory: wire.CheckpointMemory) -> MemoryView:
    return MemoryView(
        opened=memory.opened,
        wanted=min(memory.wanted_bytes, _MAX_BYTES),
        limit=min(memory.limit_bytes, _MAX_BYTES),
        copies=memory.copies,
    )


def _state_view(report: wire.ReplicaStateReport) -> ReplicaStateView:
    hosts = tuple(one[:MAX_NAME] for one in report.hosts[:MAX_HOSTS])
    return ReplicaStateView(hosts, min(report.limit, _MAX_BYTES))


def _trouble(trouble: wire.Trouble) -> tuple[str, str]:
    # Map an unknown kind, which an agent of another version may report, to NO_MEMORY.
    known = trouble.kind in wire.Trouble.Kind.values()
    return wire.Trouble.Kind.Name(trouble.kind) if known else "NO_MEMORY", trouble.message[:_STDERR]


def skeleton(view: SlotView) -> tuple[object, ...]:
    """Return the parts of a report that change rarely, not at every step. If one of them changes, the job
    must be reconciled.
    """
    return (
        view.launcher_connected,
        view.incarnation,
        view.master_port,
        view.port_incarnation,
        view.troubles,
        view.slot_token_valid,
        view.memory,
        view.replica_state,
        view.endpoints,
        view.members_incarnation,
        view.trace,
        view.traces,
        view.model and (view.model.source, view.model.ready, view.model.failure, view.model.message),
        # Each of many replicas may save its state every minute, which changes nothing for its job.
        tuple(
            sorted(
                (tier, one.incarnation, 0 if view.replica_state else one.step)
                for tier, one in view.committed.items()
            )
        ),
        tuple(
            (
                (rank.rank, rank.state, rank.exit_code, rank.signal, rank.hung, rank.oom),
                (rank.step is None, rank.started, rank.first_step, rank.ended),
            )
            for rank in view.ranks
        ),
    )


def urgent(before: SlotView | None, after: SlotView) -> bool:
    """Return True if the job must be reconciled at once because of a report.

    That is the case if a rank exited, hung or completed its first step, if an incarnation started, or if
    the agent reported the port for the rendezvous, the delivery of a model or a trace.
    """
    if before is None:
        return bool(_ended(after))
    return (
        (before.incarnation, before.port_incarnation, before.master_port)
        != (after.incarnation, after.port_incarnation, after.master_port)
        or bool(_ended(after) - _ended(before))
        or bool(_stepping(after) - _stepping(before))
        or (after.model is not None and after.model.ready and after.model != before.model)
        or before.traces != after.traces
    )


def progressed(before: SlotView, after: SlotView) -> bool:
    """Return True if a rank completed a step between two reports of the same incarnation."""
    if before.incarnation != after.incarnation:
        return False
    steps = {rank.rank: rank.step for rank in before.ranks if rank.step is not None}
    return any(rank.step is not None and rank.step > steps.get(rank.rank, -1) for rank in after.ranks)


def _ended(view: SlotView) -> set[int]:
    return {rank.rank for rank in view.ranks if rank.state == "EXITED" or rank.hung}


def _stepping(view: SlotView) -> set[int]:
    return {rank.rank for rank in view.ranks if rank.first_step}


def command(
    given: JobCommand, peer_address: Callable[[str], str], slot_token: Callable[[SlotToken], str]
) -> wire.HubMessage:
    """Return the message for a plan's command. `peer_address` returns the address of a node's Peer service.
    `slot_token` signs a slot token.
    """
    if isinstance(given, PickPort):
        return wire.HubMessage(pick_port=wire.PickPort(pod_uid=given.pod_uid, incarnation=given.incarnation))
    if isinstance(given, DeliverModel):
        order = wire.DeliverModel(pod_uid=given.pod_uid, source=_model_source(given.source))
        return wire.HubMessage(deliver_model=order)
    if isinstance(given, Endpoints):
        ready = wire.Endpoints(
            pod_uid=given.pod_uid, incarnation=given.incarnation, addresses=given.addresses[:MAX_ENDPOINTS]
        )
        return wire.HubMessage(endpoints=ready)
    if isinstance(given, ReportMembers):
        return wire.HubMessage(group_members=_group_members(given))
    if isinstance(given, Assign):
        return wire.HubMessage(assignment=_assignment(given, peer_address, slot_token))
    return wire.HubMessage(
        shutdown=wire.Shutdown(
            pod_uid=given.pod_uid,
            exit_code=given.exit_code,
            reason=given.reason,
            immediate=given.immediate,
        )
    )


def _group_members(given: ReportMembers) -> wire.GroupMembers:
    members = [wire.MemberAddress(**asdict(one)) for one in given.members]
    return wire.GroupMembers(pod_uid=given.pod_uid, incarnation=given.incarnation, members=members)


def _model_source(given: ModelSource) -> wire.ModelSource:
    return wire.ModelSource(
        namespace=given.namespace,
        job_uid=given.job_uid,
        store=given.store,
        incarnation=given.incarnation,
        step=given.step,
    )


def heartbeat_reply(heartbeat: wire.Heartbeat) -> wire.HubMessage:
    """Return the reply to a heartbeat."""
    return wire.HubMessage(heartbeat_reply=wire.HeartbeatReply(sent_unix_ms=heartbeat.sent_unix_ms))


def peer_moved(pod_uid: str, node: str, address: str) -> wire.HubMessage:
    """Return the message that tells an agent the current address of the Peer service on `node`."""
    return wire.HubMessage(peer_moved=wire.PeerMoved(pod_uid=pod_uid, node=node, peer_address=address))


def _assignment(
    given: Assign, peer_address: Callable[[str], str], slot_token: Callable[[SlotToken], str]
) -> wire.Assignment:
    return wire.Assignment(
        pod_uid=given.pod_uid,
        job_uid=given.job_uid,
        job=given.job,
        incarnation=given.incarnation,
        slot=given.slot,
        rank_offset=given.rank_offset,
        processes=given.processes,
        world_size=given.world_size,
        master_addr=given.master_addr,
        master_port=given.master_port,
        hang_seconds=given.hang_seconds,
        role=given.role,
        replica=given.replica,
        command=given.command,
        members=[
            wire.Member(
                slot=member.slot,
                pod_uid=member.pod_uid,
                node=member.node,
                peer_address=peer_address(member.node),
                processes=member.processes,
            )
            for member in given.members
        ],
        strict=given.strict,
        memory=_memory(given.memory, peer_address) if given.memory else None,
        slots=given.slots,
        scrape=wire.Scrape(**asdict(given.scrape)) if given.scrape else None,
        trace=wire.TraceOrder(**asdict(given.trace)) if given.trace else None,
        replica_state=_replica_state(given, given.replica_state, peer_address, slot_token)
        if given.replica_state
        else None,
        slot_token=slot_token(SlotToken(given.job_uid, given.incarnation, given.slot, given.node)),
    )


def _replica_state(
    assign: Assign,
    given: ReplicaState,
    peer_address: Callable[[str], str],
    slot_token: Callable[[SlotToken], str],
) -> wire.ReplicaState:
    return wire.ReplicaState(
        uid=given.uid,
        limit=given.limit,
        hosts=_places(given.hosts, peer_address),
        holders=_places(given.holders, peer_address),
        token=slot_token(SlotToken(given.uid, assign.incarnation, assign.slot, assign.node)),
    )


def _places(nodes: tuple[str, ...], peer_address: Callable[[str], str]) -> list[wire.NodeAddress]:
    return [wire.NodeAddress(node=node, peer_address=peer_address(node)) for node in nodes]


def _memory(given: MemoryTiers, peer_address: Callable[[str], str]) -> wire.MemoryTiers:
    return wire.MemoryTiers(
        copies=given.copies,
        limit=given.limit,
        hosts=_places(given.hosts, peer_address),
        holders=_places(given.holders, peer_address),
        store=_store_use(given.store) if given.store else None,
        interval_seconds=given.interval_seconds,
        by_default=given.by_default,
    )


def _store_use(given: StoreUse) -> wire.StoreUse:
    return wire.StoreUse(
        name=given.name,
        every_seconds=min(given.every_seconds, _MAX_SECONDS),
        keep_last=given.keep_last,
        keep_every_steps=given.keep_every_steps,
        resume_uid=given.resume_uid,
        resume_step=given.resume_step,
    )


def release_memory(job_uid: str) -> wire.HubMessage:
    """Return the message that orders an agent to release the memory of a job."""
    return wire.HubMessage(drop_job=wire.DropJob(job_uid=job_uid))
