"""The state machine of a pod, as pure functions.

`reduce(state, event)` returns the next state and the actions. The pod's session performs the actions
(session.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from convoy_agents.models.source import ModelState
from convoy_agents.pods.assignment import Assignment, Member, MemoryTiers, NodeAddress, ReplicaState
from convoy_agents.pods.messages import (
    RANK_STATES,
    LauncherHello,
    PortPicked,
    Progress,
    RankUpdate,
)
from convoy_agents.pods.state import (
    CheckpointTroubles,
    CheckpointUse,
    CommitDecided,
    Committed,
    Endpoints,
    Event,
    GroupMembers,
    LauncherDisconnected,
    Outcome,
    PeerMoved,
    PickPort,
    PodState,
    RankLoading,
    RankProgress,
    RankState,
    Shutdown,
    Urgency,
)
from convoy_agents.tracing.order import TraceResult
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import Generation

P = TypeVar("P", Member, NodeAddress)
K = TypeVar("K", MemoryTiers, ReplicaState)

LOADING_MS = 5_000
"""Minimum milliseconds between two reports to the hub that a model is being loaded."""


def reduce(state: PodState, event: Event) -> Outcome:
    """Return the next state after an event, and the actions to perform. An event of an earlier incarnation
    changes nothing.
    """
    match event:
        case LauncherHello():
            return _launcher_hello(state, event)
        case LauncherDisconnected():
            return Outcome(replace(state, connected=False), urgency=Urgency.NOW)
        case PortPicked():
            return _port_picked(state, event)
        case RankUpdate():
            return _rank_update(state, event)
        case RankProgress() | RankLoading():
            return _from_rank(state, event)
        case Assignment():
            return _assign(state, event)
        case PickPort():
            return _pick_port(state, event)
        case PeerMoved():
            return _peer_moved(state, event)
        case Endpoints() | GroupMembers():
            return _set_addresses(state, event)
        case Shutdown():
            frames = (event.frame(),) if state.connected else ()
            return Outcome(replace(state, shutdown=event), to_launcher=frames)
        case CommitDecided():
            return _decided(state, event)
        case CheckpointTroubles() | CheckpointUse() | ModelState() | TraceResult():
            return _from_agent(state, event)


def _launcher_hello(state: PodState, hello: LauncherHello) -> Outcome:
    assigned = state.assignment.incarnation if state.assignment else 0
    ranks = state.ranks if hello.incarnation == state.launcher_incarnation else {}
    state = replace(state, connected=True, launcher_incarnation=hello.incarnation, ranks=ranks)
    if state.shutdown:
        return Outcome(state, to_launcher=(state.shutdown.frame(),), urgency=Urgency.NOW)
    frames: list[Mapping[str, Any]] = []
    if state.assignment and assigned > hello.incarnation:
        frames.append(state.assignment.frame())
        state = replace(state, launcher_incarnation=assigned)
    if state.port_wanted > max(state.port_incarnation, state.launcher_incarnation):
        frames.append({"type": "pickPort", "incarnation": state.port_wanted})
    return Outcome(state, to_launcher=tuple(frames), urgency=Urgency.NOW)


def _port_picked(state: PodState, picked: PortPicked) -> Outcome:
    # `port_wanted` is 0 if this agent knows no request, for example because it lost its state. Accept the
    # port in this case, because an earlier agent requested it.
    if picked.incarnation <= state.port_incarnation or state.port_wanted not in (0, picked.incarnation):
        return Outcome(state)
    known = replace(state, port_incarnation=picked.incarnation, master_port=picked.port)
    return Outcome(known, urgency=Urgency.NOW)


def _rank_update(state: PodState, update: RankUpdate) -> Outcome:
    if update.incarnation != state.current:
        return Outcome(state)
    if why := state.rank_refusal(update.incarnation, update.rank):
        return Outcome(state, problem=why)
    before = state.ranks.get(update.rank)
    if before and RANK_STATES.index(update.state) <= RANK_STATES.index(before.update.state):
        update = _merge_same_state(before.update, update)
        if update == before.update:
            return Outcome(state)
    progress = _last_progress(before.progress if before else None, update)
    known = RankState(update, progress, before.loading_ms if before else 0)
    return Outcome(_with_rank(state, update.rank, known), urgency=Urgency.NOW)


def _merge_same_state(before: RankUpdate, update: RankUpdate) -> RankUpdate:
    """Return `before`, the rank's newest update so far, with the values that a later `update` adds. The
    later update reports the same state as `before` or an earlier state.

    A rank's first progress report can set its state to RUNNING before its launcher reports the start time.
    So a missing start time is taken from the later update. A running rank counts as finished after its main
    program ends, until it makes steps again. So the finish time of a running rank is also taken from the
    later update.
    """
    started = before.started_ms or update.started_ms
    running = update.state == before.state == "RUNNING"
    return replace(
        before, started_ms=started, finished_ms=update.finished_ms if running else before.finished_ms
    )


def _last_progress(before: Progress | None, update: RankUpdate) -> Progress | None:
    """Return a rank's progress after the launcher's update `update`. If that update contains a later step
    than `before`, it replaces the step. A rank reports its progress once a second, so it may not have
    reported its last step before it ended.
    """
    if not update.step or (before and before.step > update.step):
        return before
    known = before or Progress(update.step)
    return replace(
        known,
        step=update.step,
        time_ms=update.step_ms,
        first_step_ms=known.first_step_ms or update.first_step_ms,
        checkpoint_ms=max(known.checkpoint_ms, update.checkpoint_ms),
    )


def _from_rank(state: PodState, event: RankProgress | RankLoading) -> Outcome:
    if why := state.rank_refusal(event.incarnation, event.rank):
        return Outcome(state, problem=why)
    if isinstance(event, RankLoading):
        return _loading(state, event)
    return _progress(state, event, event.message)


def _progress(state: PodState, event: RankProgress, message: Progress) -> Outcome:
    before = state.ranks.get(event.rank)
    update = before.update if before else RankUpdate(event.incarnation, event.rank, "STARTING")
    urgency = Urgency.BATCHED
    if update.state == "STARTING" and message.step:
        update = replace(update, state="RUNNING")
        urgency = Urgency.NOW
    last = before.progress if before else None
    if message.first_step_ms and not (last and last.first_step_ms):
        urgency = Urgency.NOW  # the first step ends a restart, so the hub needs it without delay
    if last and update.state == "EXITED" and last.step > message.step:
        # The launcher's update contains a later step than this report of the rank, so keep the update's
        # values.
        saving = max(message.checkpoint_ms, last.checkpoint_ms)
        message = replace(message, step=last.step, time_ms=last.time_ms, checkpoint_ms=saving)
    return Outcome(
        _with_rank(state, event.rank, RankState(update, message, before.loading_ms if before else 0)),
        urgency=urgency,
    )


def _loading(state: PodState, event: RankLoading) -> Outcome:
    before = state.ranks.get(event.rank)
    update = before.update if before else RankUpdate(event.incarnation, event.rank, "STARTING")
    known = before or RankState(update)
    if known.loading_ms and event.time_ms < known.loading_ms + LOADING_MS:
        return Outcome(state)
    loading = replace(known, loading_ms=event.time_ms)
    return Outcome(_with_rank(state, event.rank, loading), urgency=Urgency.BATCHED)


def _assign(state: PodState, assignment: Assignment) -> Outcome:
    if assignment.incarnation < state.current:
        return Outcome(state, urgency=Urgency.NOW)
    if assignment.incarnation == state.current:
        # The incarnation is unchanged, so the ranks keep running. Store the assignment, because other fields
        # such as a peer's address may have changed.
        known = replace(state, assignment=assignment)
        traced = state.assignment.trace if state.assignment else None
        to_ranks = None
        if assignment.trace != traced:
            known = replace(known, traces={})
            to_ranks = known.trace_frame
        if state.connected and state.launcher_incarnation < assignment.incarnation:
            known = replace(known, launcher_incarnation=assignment.incarnation)
            return Outcome(known, save=True, to_launcher=(assignment.frame(),), urgency=Urgency.NOW)
        save = assignment != state.assignment
        return Outcome(known, save=save, to_ranks=to_ranks, urgency=Urgency.NOW)
    state = replace(
        state,
        assignment=assignment,
        ranks={},
        shutdown=None,
        troubles={},
        memory_use=None,
        traces={},
        endpoints=(),
    )
    if not state.connected:
        return Outcome(state, save=True, urgency=Urgency.NOW)
    state = replace(state, launcher_incarnation=assignment.incarnation)
    return Outcome(state, save=True, to_launcher=(assignment.frame(),), urgency=Urgency.NOW)


def _pick_port(state: PodState, event: PickPort) -> Outcome:
    if event.incarnation == state.port_incarnation:
        return Outcome(state, urgency=Urgency.NOW)
    if event.incarnation <= state.seen:
        return Outcome(state)
    frames = ({"type": "pickPort", "incarnation": event.incarnation},) if state.connected else ()
    # Save the state, because the agent must refuse earlier incarnations even after its own restart.
    return Outcome(replace(state, port_wanted=event.incarnation), save=True, to_launcher=frames)


def _peer_moved(state: PodState, event: PeerMoved) -> Outcome:
    if not state.assignment:
        return Outcome(state)
    plan = state.assignment
    moved = replace(
        plan,
        members=_moved(plan.members, event),
        memory=_with_moved(plan.memory, event),
        replica_state=_with_moved(plan.replica_state, event),
    )
    if moved == plan:
        return Outcome(state)
    return Outcome(replace(state, assignment=moved), save=True, urgency=Urgency.NOW)


def _with_moved(kept: K | None, event: PeerMoved) -> K | None:
    if kept is None:
        return None
    return replace(kept, hosts=_moved(kept.hosts, event), holders=_moved(kept.holders, event))


def _moved(places: tuple[P, ...], event: PeerMoved) -> tuple[P, ...]:
    return tuple(
        replace(one, peer_address=event.peer_address) if one.node == event.node else one for one in places
    )


def _set_addresses(state: PodState, event: Endpoints | GroupMembers) -> Outcome:
    return _set_endpoints(state, event) if isinstance(event, Endpoints) else _set_members(state, event)


def _set_endpoints(state: PodState, event: Endpoints) -> Outcome:
    if event.incarnation != state.current or event.addresses == state.endpoints:
        return Outcome(state, urgency=Urgency.NOW)
    known = replace(state, endpoints=event.addresses)
    return Outcome(known, to_ranks=known.endpoints_frame, urgency=Urgency.NOW)


def _set_members(state: PodState, event: GroupMembers) -> Outcome:
    if event == state.members or (state.members and event.incarnation < state.members.incarnation):
        return Outcome(state, urgency=Urgency.NOW)
    return Outcome(replace(state, members=event), save=True, urgency=Urgency.NOW)


def _decided(state: PodState, event: CommitDecided) -> Outcome:
    generation = event.generation
    if event.verdict is not Verdict.COMMITTED:
        seen = max(event.seen, state.seen)
        # Send the refusal only if the incarnation is outdated; its ranks then exit. If only the generation is
        # outdated, its ranks need no message.
        refused = event.verdict is Verdict.STALE and seen > generation.incarnation
        return Outcome(state, to_ranks=_refused(generation, seen) if refused else None)
    known = state.committed.get(event.tier)
    if known and known.generation >= generation:
        return Outcome(state)
    newest = {**state.committed, event.tier: Committed(generation, event.time_ms)}
    return Outcome(replace(state, committed=newest), save=True, urgency=Urgency.NOW)


def _set_troubles(state: PodState, event: CheckpointTroubles) -> Outcome:
    if event.incarnation != state.current or event.troubles == state.troubles:
        return Outcome(state)
    return Outcome(replace(state, troubles=event.troubles), urgency=Urgency.BATCHED)


def _from_agent(
    state: PodState, event: CheckpointTroubles | CheckpointUse | ModelState | TraceResult
) -> Outcome:
    match event:
        case CheckpointTroubles():
            return _set_troubles(state, event)
        case CheckpointUse():
            return _set_memory_use(state, event)
        case ModelState():
            return _set_model(state, event)
        case TraceResult():
            return _traced(state, event)


def _traced(state: PodState, event: TraceResult) -> Outcome:
    """Record the trace of a rank. The first failure stays until the trace is stored, and a stored trace
    stays. So a rank that repeats its frames changes nothing.
    """
    order = state.assignment.trace if state.assignment else None
    if event.incarnation != state.current or order is None or order.id != event.order:
        return Outcome(state)
    known = state.traces.get(event.rank)
    if event.rank not in order.ranks or event == known or (known and not event.stored):
        return Outcome(state)
    # Save the state, because the operator would wait in vain for a result that a restart of the agent loses.
    return Outcome(replace(state, traces={**state.traces, event.rank: event}), save=True, urgency=Urgency.NOW)


def _set_memory_use(state: PodState, event: CheckpointUse) -> Outcome:
    if event.incarnation != state.current or event == state.memory_use:
        return Outcome(state)
    return Outcome(replace(state, memory_use=event), urgency=Urgency.BATCHED)


def _set_model(state: PodState, event: ModelState) -> Outcome:
    before = state.model
    only_progress = before is not None and event == replace(before, progress_ms=event.progress_ms)
    return Outcome(replace(state, model=event), urgency=Urgency.BATCHED if only_progress else Urgency.NOW)


def _with_rank(state: PodState, rank: int, value: RankState) -> PodState:
    return replace(state, ranks={**state.ranks, rank: value})


def _refused(generation: Generation, seen: int) -> dict[str, Any]:
    return {"type": "refused", "incarnation": generation.incarnation, "step": generation.step, "seen": seen}
