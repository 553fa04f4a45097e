"""Merges the agents' reports on a recording into `status.trace`. Pure."""

from __future__ import annotations

from typing import Any

from convoy_controllers.trainingjob.status import Draft
from convoy_controllers.views import TraceView
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.reasons.reason import Reason
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob_trace import TraceFile, TraceState, TraceStatus, file_name

MISSING_SECONDS = 300.0
"""Seconds from the last recorded step until the traces of all ranks must be stored. It covers the conversion,
and the repeated attempts of an agent whose store does not respond.
"""
PASSED = "STEPS_PASSED"
FAILURES = {
    "TOO_LARGE": Reasons.TRACE_TOO_LARGE,
    "NOT_STORED": Reasons.TRACE_NOT_STORED,
    "NOT_RECORDED": Reasons.TRACE_NOT_RECORDED,
}
"""Reasons for failed traces, by the names of the failures in hub.proto. The first that applies is shown."""


def advance(draft: Draft) -> tuple[bool, float | None]:
    """Merge the reports of this incarnation. Return True if a rank was past the first step, and the seconds
    until the traces count as missing.
    """
    current, status = draft.status.trace, draft.status
    if current is None or current.over or current.first_step is None or current.last_step is None:
        return False, None
    if current.incarnation != status.incarnation:
        return False, None
    found = _reports(draft, current)
    if any(one.failure == PASSED for one in found.values()):
        return True, None
    current.files = [_file(current, one) for _, one in sorted(found.items()) if one.stored]
    _sum(current)
    step = status.progress.step if status.progress else 0
    if current.files or found or step >= current.first_step - 1:
        current.state = TraceState.RECORDING
    if found.keys() >= set(current.ranks):
        _finish(draft, current, found)
        return False, None
    return False, _missing(draft, current, found, step)


def clear(current: TraceStatus) -> None:
    """Remove the steps and files of an attempt, so that the recording can begin again."""
    current.state, current.files = TraceState.WAITING, []
    current.first_step = current.last_step = None
    _sum(current)


def close_with_job(draft: Draft) -> None:
    """End the recording because the job has ended."""
    current, progress = draft.status.trace, draft.status.progress
    if current is None:
        return
    end, last = progress.step if progress else 0, current.last_step
    if not current.files and (last is None or end < last):
        what = steps_of(current) if last is not None else "later steps"
        close(draft, Reasons.TRACE_BEYOND_END, ends="ended", end=end, what=what)
    else:
        close(draft, Reasons.TRACE_JOB_ENDED)


def close(draft: Draft, reason: Reason | None, **facts: Any) -> None:
    """End the recording: it is stored, or has failed for `reason`."""
    current = draft.status.trace
    if current is None or current.over:
        return
    shown = reason or Reasons.TRACE_STORED
    message = shown.format(
        **{
            "recording": name_of(current),
            "store": current.store,
            "steps": f"{current.first_step} to {current.last_step}",
            "ranks": _listed(current.ranks),
            "job": draft.observed.job.metadata.name,
            **facts,
        }
    )
    current.state = TraceState.STORED if reason is None else TraceState.FAILED
    current.reason, current.message, current.completed_at = shown.name, message, draft.now
    draft.event(shown, message)
    draft.condition(ConditionType.TRACE_RECORDED, reason is None, shown, message)


def name_of(current: TraceStatus) -> str:
    """Return the number of a recording and, if it has one, its straggler."""
    slow = current.straggler
    if slow is None:
        return str(current.recording)
    place = f" on {slow.node}" if slow.node else ""
    return (
        f"{current.recording} (straggler: rank {slow.rank}{place}, {slow.cause} since step {slow.since_step})"
    )


def steps_of(current: TraceStatus) -> str:
    """Return the recorded steps for messages."""
    if current.first_step == current.last_step:
        return f"step {current.first_step}"
    return f"steps {current.first_step} to {current.last_step}"


def _reports(draft: Draft, current: TraceStatus) -> dict[int, TraceView]:
    """Return the reports on the newest attempt, by rank."""
    order = current.recording, draft.status.internal.trace.attempt
    views = draft.observed.slots.values()
    known = [view for view in views if (view.incarnation, view.trace) == (current.incarnation, order)]
    return {one.rank: one for view in known for one in view.traces if one.rank in current.ranks}


def _finish(draft: Draft, current: TraceStatus, found: dict[int, TraceView]) -> None:
    for kind, reason in FAILURES.items():
        failed = [one for one in found.values() if not one.stored and one.failure == kind]
        if failed:
            who = _who([one.rank for one in failed])
            close(draft, reason, who=who, why=failed[0].message or "the rank gave no cause")
            return
    close(draft, None)


def _missing(draft: Draft, current: TraceStatus, found: dict[int, TraceView], step: int) -> float | None:
    """Fail the recording if its traces are missing for too long. Return the seconds until then; None if the
    ranks have not made all steps.
    """
    record = draft.status.internal.trace
    if current.last_step is None or step < current.last_step:
        record.passed_at = None
        return None
    record.passed_at = record.passed_at or draft.now
    left = MISSING_SECONDS - (draft.now - record.passed_at).total_seconds()
    if left > 0:
        return left
    absent = [rank for rank in current.ranks if rank not in found]
    close(draft, Reasons.TRACE_MISSING, who=_who(absent), seconds=int(MISSING_SECONDS))
    return None


def _file(current: TraceStatus, one: TraceView) -> TraceFile:
    return TraceFile(
        rank=one.rank,
        file=f"traces/{file_name(current.recording, one.rank)}",
        bytes=one.bytes,
        sha256=one.sha256,
        nodes=one.nodes,
        comm_bytes_per_step=one.comm_bytes_per_step,
        exposed_communication_ratio=round(one.exposed_communication_ratio, 4),
    )


def _sum(current: TraceStatus) -> None:
    files = current.files
    current.bytes = sum(one.bytes for one in files)
    current.nodes = sum(one.nodes for one in files)
    current.comm_bytes_per_step = max((one.comm_bytes_per_step for one in files), default=0)
    current.exposed_communication_ratio = max((one.exposed_communication_ratio for one in files), default=0.0)


def _who(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_listed(sorted(ranks))}"


def _listed(ranks: list[int]) -> str:
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return ", ".join(map(str, ranks[:8])) + more
