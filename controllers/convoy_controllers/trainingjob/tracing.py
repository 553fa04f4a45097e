"""Decides which steps of a job are recorded, and keeps `status.trace` and the condition TraceRecorded. Pure.

A recording is ordered with the assignments of its slots, so it needs no restart. If the spec names no first
step, Convoy chooses one a little ahead of the ranks. A rank that is already past it says so; Convoy then
chooses one further ahead. A new incarnation records again from the start, because the ranks of a recording
must have made the same steps together. Each attempt has a number of its own in the names of its files.

A recording keeps the request with which it started, so a spec that is invalid meanwhile does not stop it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import timedelta

from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.trainingjob.trace_check import refusal
from convoy_controllers.trainingjob.trace_results import advance, clear, close, name_of
from convoy_crds.layout import present, world_size
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob_straggler import Straggler
from convoy_crds.trainingjob_trace import (
    MAX_RANKS,
    RequestedTrace,
    Trace,
    TraceState,
    TraceStatus,
    TraceStraggler,
    TraceTrigger,
)

MARGIN, GROWTH, MAX_ATTEMPTS = 2, 8, 6
"""The first chosen step is MARGIN steps ahead of the ranks. Each further attempt is GROWTH times as far
ahead: a rank learns of the order a second or two after it has reported its step.
"""


def reconcile(draft: Draft) -> float | None:
    """Start, advance or end the recording of a job that should run, and set the condition. Return the seconds
    until the next call; None if any change of the reports suffices.
    """
    trace, record = draft.observed.job.spec.trace, draft.status.internal.trace
    _withdraw(draft, trace)
    if trace is None:
        draft.drop(ConditionType.TRACE_RECORDED)
        record.request = ""
        return None
    stored = next((one for one in draft.status.conditions if one.type == ConditionType.TRACE_RECORDED), None)
    rearm(draft)
    wrong = refusal(draft.observed)
    if wrong is None:
        asked = _digest(draft, trace)
        if asked != record.request:
            record.request = asked
            if trace.steps is not None:
                _start(draft, TraceTrigger.REQUEST, trace.steps.first, trace.steps.count, trace.ranks or ())
        _start_for_straggler(draft, trace)
    # A recording that runs goes on while the spec is invalid: the user may take the edit back.
    _choose_steps(draft)
    again, wait = advance(draft)
    if again:
        _choose_again(draft)
    _describe(draft.status.trace)
    if wrong is None:
        _set_condition(draft, trace)
        return wait
    if stored is None or stored.reason != wrong.reason.name:
        draft.event(wrong.reason, wrong.message)
    draft.condition(ConditionType.TRACE_RECORDED, False, wrong.reason, wrong.message)
    return wait


def rearm(draft: Draft) -> None:
    """Let a recording that is not over begin again in a new incarnation. The recording of a straggler fails,
    because its ranks have other numbers or nodes now.
    """
    current, status, record = draft.status.trace, draft.status, draft.status.internal.trace
    if current is None or current.over or not status.formed:
        return
    if current.incarnation == status.incarnation:
        return
    if current.trigger is TraceTrigger.STRAGGLER:
        close(draft, Reasons.TRACE_INTERRUPTED)
        return
    if current.incarnation:
        _restart_recording(draft, current)
    world = _world(draft)
    current.incarnation = status.incarnation
    current.ranks = [rank for rank in record.order.ranks or range(world) if rank < world][:MAX_RANKS]
    current.first_step = record.order.first
    record.attempt = 0
    if not current.ranks:
        why = f"the job runs with {world} ranks now, without any of those"
        close(draft, Reasons.TRACE_RANKS_UNKNOWN, why=why)
        return
    _choose_steps(draft)


def _withdraw(draft: Draft, trace: Trace | None) -> None:
    """Drop a recording that is not over if the spec no longer asks for it."""
    current = draft.status.trace
    if current is None or current.over:
        return
    straggler = current.trigger is TraceTrigger.STRAGGLER
    if trace is None or (trace.on_straggler if straggler else trace.steps) is None:
        draft.status.trace = None
        if not straggler:
            draft.status.internal.trace.request = ""


def _start(
    draft: Draft,
    trigger: TraceTrigger,
    first: int | None,
    count: int,
    ranks: Sequence[int],
    straggler: TraceStraggler | None = None,
) -> None:
    """Start a recording. It replaces one that is not over. The ranks of a straggler's recording belong to the
    present incarnation.
    """
    status, trace = draft.status, draft.observed.job.spec.trace
    if trace is None:
        return
    record = status.internal.trace
    record.recordings += 1
    record.attempt, record.passed_at = 0, None
    record.order = RequestedTrace(
        first=first, count=count, ranks=list(ranks), max_mebibytes=trace.max_mebibytes
    )
    status.trace = TraceStatus(
        recording=record.recordings,
        trigger=trigger,
        request_id=trace.request_id if trigger is TraceTrigger.REQUEST else "",
        store=draft.observed.job.spec.trace_store or "",
        straggler=straggler,
        ranks=list(ranks) if straggler else [],
        incarnation=status.incarnation if straggler else 0,
    )
    rearm(draft)


def _restart_recording(draft: Draft, current: TraceStatus) -> None:
    """Give the recording the next number for another attempt, whose files have other names."""
    record = draft.status.internal.trace
    record.recordings += 1
    record.passed_at = None
    current.recording = record.recordings
    current.attempt += 1
    clear(current)


def _start_for_straggler(draft: Draft, trace: Trace) -> None:
    """Start a recording of a persistent straggler that has not been recorded, and of a peer."""
    rule, current, record = trace.on_straggler, draft.status.trace, draft.status.internal.trace
    if rule is None or not draft.status.formed or record.stragglers >= rule.max_recordings:
        return
    if current is not None:
        rest = timedelta(seconds=rule.cooldown_seconds)
        if not current.over or (current.completed_at and draft.now < current.completed_at + rest):
            return
    named = [one for one in draft.status.stragglers if one.ranks and one.persistent]
    if not named:
        return
    slow = named[0]
    incident = f"{draft.status.incarnation}/{slow.ranks[0]}/{slow.since_step}"
    if incident == record.incident:
        return
    record.incident = incident
    record.stragglers += 1
    rank, peer = slow.ranks[0], _peer(draft, named)
    pair = (rank,) if peer is None else (rank, peer)
    cause = TraceStraggler(rank=rank, node=_node(draft, rank), cause=slow.cause, since_step=slow.since_step)
    _start(draft, TraceTrigger.STRAGGLER, None, rule.count, sorted(pair), cause)


def _node(draft: Draft, rank: int) -> str:
    """Return the node of a rank; empty if it is not known."""
    views = [view for view in draft.observed.slots.values() if view.incarnation == draft.status.incarnation]
    return next((view.node for view in views if any(one.rank == rank for one in view.ranks)), "")


def _peer(draft: Draft, named: list[Straggler]) -> int | None:
    """Return a rank that is not slow, if possible on another node than the slow ranks."""
    accused = {rank for one in named for rank in one.ranks}
    nodes = {node for one in named for node in one.nodes}
    views = [view for view in draft.observed.slots.values() if view.incarnation == draft.status.incarnation]
    found = [
        (view.node in nodes, rank.rank) for view in views for rank in view.ranks if rank.rank not in accused
    ]
    return min(found)[1] if found else None


def _choose_steps(draft: Draft) -> None:
    """Set the steps of the recording once it is known where the ranks are. They end with the job, if its
    number of steps is known.
    """
    current, progress, record = draft.status.trace, draft.status.progress, draft.status.internal.trace
    if current is None or current.over or current.incarnation != draft.status.incarnation:
        return
    count, total = record.order.count, progress.total_steps if progress else None
    if current.first_step is None and progress is not None:
        step = _furthest(draft, progress.step)
        first = step + MARGIN * GROWTH**record.attempt
        if total:
            first = max(step + 1, min(first, total - count + 1))
        current.first_step = first
    first = current.first_step
    if first is None:
        return
    if total and first > total:
        close(draft, Reasons.TRACE_BEYOND_END, ends="ends", end=total, what=f"step {first}")
        return
    if total and current.state is TraceState.WAITING and total < (current.last_step or 0):
        # The ranks have an order for steps that will not come, so they need another one.
        _restart_recording(draft, current)
        current.first_step = first
    if current.last_step is None:
        last = first + count - 1
        current.last_step = min(last, total) if total else last


def _furthest(draft: Draft, step: int) -> int:
    """Return the furthest step of any rank; `step` if none has reported one."""
    views = [view for view in draft.observed.slots.values() if view.incarnation == draft.status.incarnation]
    return max((rank.step or 0 for view in views for rank in view.ranks), default=step)


def _choose_again(draft: Draft) -> None:
    """Choose steps further ahead, because a rank was past the chosen ones. Fail if the spec has chosen them,
    or after MAX_ATTEMPTS.
    """
    current, record = draft.status.trace, draft.status.internal.trace
    if current is None:
        return
    if record.order.first is not None or record.attempt + 1 >= MAX_ATTEMPTS:
        close(draft, Reasons.TRACE_STEPS_PASSED, who="a rank", first=current.first_step)
        return
    record.attempt += 1
    _restart_recording(draft, current)
    _choose_steps(draft)


def _describe(current: TraceStatus | None) -> None:
    """Set the reason and the message of a recording that is not over."""
    if current is None or current.over:
        return
    if current.state is TraceState.WAITING:
        reason = Reasons.TRACE_WAITING
        what = "the ranks" if current.first_step is None else f"step {current.first_step}"
        message = reason.format(recording=name_of(current), what=what)
    else:
        reason = Reasons.TRACE_RECORDING
        message = reason.format(
            recording=name_of(current),
            done=len(current.files),
            wanted=len(current.ranks),
            steps=f"{current.first_step} to {current.last_step}",
        )
    current.reason, current.message = reason.name, message


def _set_condition(draft: Draft, trace: Trace) -> None:
    """Set the condition of a valid spec."""
    current, kind, rule = draft.status.trace, ConditionType.TRACE_RECORDED, trace.on_straggler
    if current is not None:
        holds = {TraceState.STORED: True, TraceState.FAILED: False}.get(current.state)
        draft.condition(kind, holds, Reason(current.reason, ""), current.message)
    elif rule is not None:
        facts = {"count": draft.status.internal.trace.stragglers, "most": rule.max_recordings}
        draft.condition(kind, None, Reasons.TRACE_ARMED, Reasons.TRACE_ARMED.format(**facts))
    else:
        draft.drop(kind)


def _digest(draft: Draft, trace: Trace) -> str:
    """Return a digest of the recording that the spec asks for; empty if it asks for none."""
    if trace.steps is None:
        return ""
    asked = [
        trace.steps.first,
        trace.steps.count,
        trace.ranks,
        trace.request_id,
        trace.max_mebibytes,
        draft.observed.job.spec.trace_store,
    ]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def _world(draft: Draft) -> int:
    return world_size(present(draft.observed.job.model_copy(update={"status": draft.status})))
