"""Requests for traces of a TrainingJob's steps, and the wait for them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from convoy.client.errors import Refused
from convoy.client.waiting import Goal
from convoy_crds.reasons.catalogue import Reasons
from convoy_crds.terms import ConditionType
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL
from convoy_crds.trainingjob_trace import DEFAULT_STEPS, TraceState

_REFUSALS = frozenset(
    one.name
    for one in (Reasons.TRACE_RANKS_UNKNOWN, Reasons.TRACE_STORE_UNKNOWN, Reasons.TRACE_STORE_NOT_ALLOWED)
)


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """Steps to record now."""

    count: int = DEFAULT_STEPS
    """Number of steps."""
    first: int | None = None
    """Number of the first step; None for steps that are just ahead."""
    ranks: Sequence[int] | None = None
    """Ranks that record; None for all."""
    store: str | None = None
    """CheckpointStore for the files; None for the one that the job's spec names."""

    def patch(self, request_id: str) -> dict[str, Any]:
        """Return the merge patch of a job that asks for the trace. A null removes a field."""
        trace: dict[str, Any] = {
            "steps": {"count": self.count, "first": self.first},
            "ranks": list(self.ranks) if self.ranks is not None else None,
            "requestId": request_id,
        }
        return {"spec": {"trace": {**trace, **({"store": self.store} if self.store else {})}}}


def refusal(job: TrainingJob) -> str:
    """Return why a job cannot record now; empty if it can."""
    name = job.metadata.name
    if job.status.phase in TERMINAL:
        return f"trainingjob/{name} has ended ({job.status.phase}), so there are no steps to record"
    if job.spec.suspend:
        return f"trainingjob/{name} is suspended; `convoy resume {name}` continues it"
    return ""


def traced(request_id: str, notify: Callable[[str], None]) -> Goal[TrainingJob]:
    """Return the goal that the recording with this id is stored or has failed. `notify` gets a sentence about
    each change.
    """
    last = [""]

    def reached(job: TrainingJob) -> bool:
        sentence = describe(job, request_id)
        if sentence != last[0]:
            last[0] = sentence
            notify(sentence)
        trace = job.status.trace
        if trace is not None and trace.request_id == request_id and trace.over:
            return True
        for one in job.status.conditions:
            current = job.status.observed_generation >= job.metadata.generation
            if one.type == ConditionType.TRACE_RECORDED and current and one.reason in _REFUSALS:
                raise Refused(one.message)
        if why := refusal(job):
            raise Refused(why)
        return False

    return Goal("recorded", reached, lambda job: describe(job, request_id))


def describe(job: TrainingJob, request_id: str) -> str:
    """Return the state of a recording as a sentence."""
    trace = job.status.trace
    if trace is None or trace.request_id != request_id:
        return "the operator has not handled the request yet"
    if trace.state is TraceState.RECORDING:
        steps = f"steps {trace.first_step} to {trace.last_step}"
        return f"recording {steps}: {len(trace.files)} of {len(trace.ranks)} ranks have stored them"
    return trace.message or f"the recording is {trace.state}"
