"""Decides which steps of a job are recorded, and keeps `status.trace` and the condition TraceRecorded. Pure.

A recording is ordered with the assignments of its slots, so it needs no restart. If the spec names no first
step, Convoy chooses one a little ahead of the ranks. A rank that is already past it says so; Convoy then
chooses one further ahead. A new incarnation records again from the start, because the ranks of a recording
must have made the same steps together.
"""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta

from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.trainingjob.trace_check import refusal
from convoy_controllers.trainingjob.trace_results import advance, close
from convoy_crds.layout import present, world_size
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob_status import Straggler
from convoy_crds.trainingjob_trace import MAX_RANKS, Trace, TraceState, TraceStatus, TraceTrigger

MARGIN, GROWTH, MAX_ATTEMPTS = 2, 8, 6
"""The first chosen step is MARGIN steps ahead of the ranks. Each further attempt is GROWTH times as far
ahead: a rank learns of the order a second or two after it has reported its step.
"""


def reconcile(draft: Draft) -> float | None:
    """Start, advance or end the recording of a job that should run, and set the condition. Return the seconds
    until the next call; None if any change of the reports suffices.
    """
    status, record = draft.status, draft.status.internal.trace
    trace = draft.observed.job.spec.trace
    if trace is None:
        draft.drop(ConditionType.TRACE_RECORDED)
        record.request = ""
        if status.trace is not None and not status.trace.over:
            status.trace = None
        return None
    if wrong := refusal(draft.observed):
        known = next((one for one in status.conditions if one.type == ConditionType.TRACE_RECORDED), None)
        if known is None or known.reason != wrong.reason.name:
            draft.event(wrong.reason, wrong.message)
        draft.condition(ConditionType.TRACE_RECORDED, False, wrong.reason, wrong.message)
        return None
    rearm(draft)
    asked = _digest(trace)
    if asked != record.request:
        record.request = asked
        if trace.steps is not None:
            _start(draft, TraceTrigger.REQUEST)
    _start_for_straggler(draft, trace)
    _choose_steps(draft, trace)
    again, wait = advance(draft)
    if again:
        _choose_again(draft, trace)
    _set_condition(draft, trace)
    return wait


def rearm(draft: Draft) -> None:
    """Let a recording that is not over begin again in a new incarnation. The recording of a straggler fails,
    because its ranks have other numbers or nodes now.
    """
    current, status, trace = draft.status.trace, draft.status, draft.observed.job.spec.trace
    if trace is None or current is None or current.over or not status.formed:
        return
    if current.incarnation == status.incarnation:
        return
    if current.trigger is TraceTrigger.STRAGGLER:
        close(draft, Reasons.TRACE_INTERRUPTED)
        _set_condition(draft, trace)
        return
    world = _world(draft)
    current.incarnation = status.incarnation
    current.ranks = [rank for rank in trace.ranks or range(world) if rank < world][:MAX_RANKS]
    current.state, current.files = TraceState.WAITING, []
    current.first_step = trace.steps.first if trace.steps else None
    status.internal.trace.attempt, status.internal.trace.passed_at = 0, None
    if not current.ranks:
        why = f"the job runs with {world} ranks now, without any of those"
        close(draft, Reasons.TRACE_RANKS_UNKNOWN, why=why)
        return
    _choose_steps(draft, trace)


def _start(draft: Draft, trigger: TraceTrigger, ranks: tuple[int, ...] = ()) -> None:
    """Start a recording. It replaces one that is not over."""
    status, trace = draft.status, draft.observed.job.spec.trace
    if trace is None:
        return
    record = status.internal.trace
    record.recordings += 1
    record.attempt, record.passed_at = 0, None
    status.trace = TraceStatus(
        recording=record.recordings,
        trigger=trigger,
        request_id=trace.request_id if trigger is TraceTrigger.REQUEST else "",
        store=draft.observed.job.spec.trace_store or "",
        ranks=list(ranks),
        incarnation=status.incarnation if ranks else 0,
    )
    rearm(draft)


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
    peer = _peer(draft, named)
    pair = (slow.ranks[0],) if peer is None else (slow.ranks[0], peer)
    _start(draft, TraceTrigger.STRAGGLER, tuple(sorted(pair)))


def _peer(draft: Draft, named: list[Straggler]) -> int | None:
    """Return a rank that is not slow, if possible on another node than the slow ranks."""
    accused = {rank for one in named for rank in one.ranks}
    nodes = {node for one in named for node in one.nodes}
    views = [view for view in draft.observed.slots.values() if view.incarnation == draft.status.incarnation]
    found = [
        (view.node in nodes, rank.rank) for view in views for rank in view.ranks if rank.rank not in accused
    ]
    return min(found)[1] if found else None


def _choose_steps(draft: Draft, trace: Trace) -> None:
    """Set the steps of the recording once it is known where the ranks are."""
    current, progress = draft.status.trace, draft.status.progress
    if current is None or current.over or current.incarnation != draft.status.incarnation:
        return
    rule = trace.on_straggler if current.trigger is TraceTrigger.STRAGGLER else trace.steps
    count = rule.count if rule else 0
    if current.first_step is None and progress is not None and count:
        step = _furthest(draft, progress.step)
        first = step + MARGIN * GROWTH**draft.status.internal.trace.attempt
        if progress.total_steps:
            first = max(step + 1, min(first, progress.total_steps - count + 1))
        current.first_step = first
        current.last_step = None
    if current.first_step is not None and count and current.last_step is None:
        current.last_step = current.first_step + count - 1


def _furthest(draft: Draft, step: int) -> int:
    """Return the furthest step of any rank; `step` if none has reported one."""
    views = [view for view in draft.observed.slots.values() if view.incarnation == draft.status.incarnation]
    return max((rank.step or 0 for view in views for rank in view.ranks), default=step)


def _choose_again(draft: Draft, trace: Trace) -> None:
    """Choose steps further ahead, because a rank was past the chosen ones. Fail if the spec has chosen them,
    or after MAX_ATTEMPTS.
    """
    current, record = draft.status.trace, draft.status.internal.trace
    if current is None:
        return
    fixed = current.trigger is TraceTrigger.REQUEST and trace.steps is not None and trace.steps.first
    if fixed or record.attempt + 1 >= MAX_ATTEMPTS:
        close(draft, Reasons.TRACE_STEPS_PASSED, who="a rank", first=current.first_step)
        return
    record.attempt += 1
    current.first_step = current.last_step = None
    current.state, current.files = TraceState.WAITING, []
    _choose_steps(draft, trace)


def _set_condition(draft: Draft, trace: Trace) -> None:
    current, kind = draft.status.trace, ConditionType.TRACE_RECORDED
    if current is None:
        rule = trace.on_straggler
        facts = {"count": draft.status.internal.trace.stragglers, "most": rule.max_recordings if rule else 0}
        draft.condition(kind, None, Reasons.TRACE_ARMED, Reasons.TRACE_ARMED.format(**facts))
        return
    if current.over:
        return  # `close` has set the condition
    steps = f"{current.first_step} to {current.last_step}"
    if current.state is TraceState.WAITING:
        reason = Reasons.TRACE_WAITING
        what = "the ranks" if current.first_step is None else f"step {current.first_step}"
        message = reason.format(recording=current.recording, what=what)
    else:
        reason = Reasons.TRACE_RECORDING
        message = reason.format(
            recording=current.recording, done=len(current.files), wanted=len(current.ranks), steps=steps
        )
    current.reason, current.message = reason.name, message
    draft.condition(kind, None, reason, message)


def _digest(trace: Trace) -> str:
    """Return a digest of the recording that the spec asks for; empty if it asks for none."""
    if trace.steps is None:
        return ""
    asked = [trace.steps.first, trace.steps.count, trace.ranks, trace.request_id]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def _world(draft: Draft) -> int:
    return world_size(present(draft.observed.job.model_copy(update={"status": draft.status})))
