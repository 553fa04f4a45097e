"""Converts a pod's state to the report that the agent sends to the hub."""

from __future__ import annotations

from collections.abc import Iterator

from convoy_agents.models.source import Failure, ModelState
from convoy_agents.pods.assignment import Assignment, MemoryTiers, NodeAddress
from convoy_agents.pods.messages import Progress, RunFacts
from convoy_agents.pods.state import PodState, RankState
from convoy_agents.wire import hub_pb2, slot_tokens
from convoy_crds.metric_names import MAX_METRICS

MAX_TROUBLE = 1024
"""Maximum characters of a message about a problem with a checkpoint or a model."""

_STATES = {
    "STARTING": hub_pb2.RankReport.STARTING,
    "RUNNING": hub_pb2.RankReport.RUNNING,
    "EXITED": hub_pb2.RankReport.EXITED,
}


def to_wire(state: PodState) -> hub_pb2.PodReport:
    """Return the pod's full report. The report contains the ranks only if the agent and the launcher know
    the same newest incarnation.

    An agent that lost the assignment reports incarnation 0, even if the launcher still knows the
    assignment. The hub then sends the assignment again, because without it the agent cannot commit a
    generation.
    """
    assigned = state.assignment.incarnation if state.assignment else 0
    informed = min(state.launcher_incarnation, assigned)
    report = hub_pb2.PodReport(
        pod_uid=state.uid,
        launcher_connected=state.connected,
        incarnation=informed,
        master_port=state.master_port,
        port_incarnation=state.port_incarnation,
    )
    if state.assignment:
        report.peers.extend(_peers(state.assignment))
        report.interval_seconds = state.assignment.interval_seconds
        if state.assignment.memory is not None:
            report.memory.CopyFrom(_memory(state, state.assignment.memory))
        if (kept := state.assignment.replica_state) is not None:
            names = [one.node for one in kept.hosts]
            report.replica_state.CopyFrom(hub_pb2.ReplicaStateReport(hosts=names, limit=kept.limit))
        report.authority = slot_tokens.signing_key_id(state.assignment.slot_token)
    if state.assignment and (order := state.assignment.trace) is not None:
        report.trace_recording, report.trace_attempt = order.id
        report.traces.extend(one.to_wire() for _, one in sorted(state.traces.items()))
    if informed == state.current:
        report.ranks.extend(_ranks(state))
        report.endpoints.extend(state.endpoints)
    for tier, commit in state.committed.items():
        report.committed.add(
            incarnation=commit.generation.incarnation,
            step=commit.generation.step,
            time_unix_ms=commit.time_ms,
            tier=tier.value,
        )
    for kind, message in sorted(state.troubles.items()):
        report.troubles.add(kind=hub_pb2.Trouble.Kind.Value(kind), message=message[:MAX_TROUBLE])
    if state.members is not None:
        report.members_incarnation = state.members.incarnation
    if state.model is not None:
        report.model.CopyFrom(_model(state.model))
    return report


def _model(state: ModelState) -> hub_pb2.ModelReport:
    kinds = hub_pb2.ModelReport.State
    failed = state.failure is not Failure.NONE
    return hub_pb2.ModelReport(
        source=state.source.to_wire(),
        state=kinds.READY if state.ready else kinds.FAILED if failed else kinds.LOADING,
        failure=hub_pb2.ModelReport.Failure.Value(state.failure.value),
        message=state.message[:MAX_TROUBLE],
        progress_unix_ms=state.progress_ms,
    )


def _memory(state: PodState, given: MemoryTiers) -> hub_pb2.CheckpointMemory:
    found = hub_pb2.CheckpointMemory(copies=given.copies)
    if (use := state.memory_use) is not None:
        found.opened, found.wanted_bytes, found.limit_bytes = True, use.wanted, use.limit
    return found


def _peers(plan: Assignment) -> list[hub_pb2.NodeAddress]:
    """Return the addresses of the agents that this agent calls for the pod: slot 0's agent first, then
    those that keep copies.
    """
    first = plan.members[0]
    addresses = [NodeAddress(first.node, first.peer_address)]
    for kept in (plan.memory, plan.replica_state):
        if kept is not None:
            addresses += [*kept.hosts, *kept.holders]
    return [hub_pb2.NodeAddress(node=one.node, peer_address=one.peer_address) for one in addresses]


def _ranks(state: PodState) -> Iterator[hub_pb2.RankReport]:
    """Yield the reports of the pod's ranks in ascending order.

    Most programs report the same metrics from each rank. The reports therefore contain each metric once,
    with the value of the lowest rank that reports it. Together they contain at most `MAX_METRICS` metrics.
    """
    names: set[str] = set()
    for number in sorted(state.ranks):
        rank = state.ranks[number]
        report = _rank(rank)
        for metric in rank.progress.metrics if rank.progress else ():
            if metric.name not in names and len(names) < MAX_METRICS:
                names.add(metric.name)
                report.progress.metrics.add(name=metric.name, value=metric.value, step=metric.step)
        yield report


def _rank(rank: RankState) -> hub_pb2.RankReport:
    update = rank.update
    report = hub_pb2.RankReport(
        rank=update.rank,
        state=_STATES[update.state],
        exit_code=update.exit_code,
        signal=update.signal,
        oom=update.oom,
        hung=update.hung,
        command_not_found=update.command_not_found,
        stderr_tail=update.stderr,
        started_unix_ms=update.started_ms,
        ended_unix_ms=update.ended_ms,
        finished_unix_ms=update.finished_ms,
        termination_requested=update.termination_requested,
        loading_unix_ms=rank.loading_ms,
        result=update.result,
    )
    if rank.progress:
        report.first_step_unix_ms = rank.progress.first_step_ms
        report.progress.CopyFrom(_progress(rank.progress))
    return report


def _facts(facts: RunFacts) -> hub_pb2.RunFacts:
    return hub_pb2.RunFacts(
        folders=[
            hub_pb2.DataFolder(path=one.path, files=one.files, median_bytes=one.median_bytes)
            for one in facts.folders
        ],
        ms=facts.ms,
        cpu_ms=facts.cpu_ms,
        accelerator_ms=facts.accelerator_ms,
        accelerators=facts.accelerators,
        python=facts.python,
        torch=facts.torch,
    )


def _progress(progress: Progress) -> hub_pb2.Progress:
    return hub_pb2.Progress(
        step=progress.step,
        total_steps=progress.total_steps,
        samples_per_second=progress.samples_per_second,
        loss=progress.loss,
        time_unix_ms=progress.time_ms,
        checkpoint_ms=progress.checkpoint_ms,
        save_ms=progress.save_ms,
        copy_ms=progress.copy_ms,
        restore_ms=progress.restore_ms,
        diverged=progress.diverged,
        facts=_facts(progress.facts) if progress.facts is not None else None,
    )
