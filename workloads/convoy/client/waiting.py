"""Checks whether a job has reached a phase or condition. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from convoy.client.errors import JobEnded, JobFailed
from convoy_crds.condition_doc import EVENTS
from convoy_crds.conditions import CONDITION_DOCS
from convoy_crds.experiment import Experiment
from convoy_crds.experiment_status import EXPERIMENT_ENDED
from convoy_crds.servingjob import ServingJob
from convoy_crds.suggest import suggestion
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL, Phase

J = TypeVar("J", TrainingJob, ServingJob, Experiment)
"""The model of a kind whose objects reach a state that a program waits for."""


def _conditions_of(kind: str) -> frozenset[str]:
    return frozenset(doc.name for doc in CONDITION_DOCS if doc.kind == kind and doc.name != EVENTS)


CONDITIONS = _conditions_of("TrainingJob")
"""The conditions that a TrainingJob may have."""
SERVING_CONDITIONS = _conditions_of("ServingJob")
"""The conditions that a ServingJob may have."""


@dataclass(frozen=True, slots=True)
class Goal(Generic[J]):
    """A state of a job that a wait ends with."""

    name: str
    """Name of the state for messages, such as `Complete`."""
    reached: Callable[[J], bool]
    """(job) -> True if the job is in this state. Raises an error if the job can no longer reach it."""
    describe: Callable[[J], str]
    """(job) -> a sentence about the job's present state."""


def experiment_end() -> Goal[Experiment]:
    """Return the goal that an Experiment has ended, in whatever phase."""
    return Goal("at its end", lambda found: found.status.phase in EXPERIMENT_ENDED, describe_experiment)


def describe_experiment(found: Experiment) -> str:
    """Return the state of an Experiment as a sentence."""
    status = found.status
    if status.phase is None:
        return "no operator has reconciled it yet"
    why = f" ({status.reason}): {status.message}" if status.reason else ""
    return f"it is {status.phase}, {status.progress or 'no'} blocks have ended{why}"


def training(until: str) -> Goal[TrainingJob]:
    """Return the goal that a TrainingJob has the phase or the condition `until`."""
    check_target(until)
    return Goal(until, partial(has_reached, until=until), describe)


def serving(until: str) -> Goal[ServingJob]:
    """Return the goal that the condition `until` of a ServingJob is True."""
    if until not in SERVING_CONDITIONS:
        hint = suggestion(until, SERVING_CONDITIONS)
        raise ValueError(f"{until!r} is not a condition of a ServingJob{hint}")
    return Goal(until, partial(_holds, until=until), describe_serving)


def _holds(job: ServingJob, until: str) -> bool:
    """Return True if the condition `until` is True and belongs to the newest spec."""
    status = job.status
    if status.observed_generation < job.metadata.generation:
        return False
    return any(one.type == until and one.status == "True" for one in status.conditions)


def describe_serving(job: ServingJob) -> str:
    """Return the state of a ServingJob as a sentence."""
    status = job.status
    if not status.observed_generation:
        return "no operator has reconciled it yet"
    why = f" ({status.reason}): {status.message}" if status.reason else ""
    return f"{status.ready or '0/0'} replicas are ready{why}{_late(job)}"


def _late(job: TrainingJob | ServingJob) -> str:
    behind = job.status.observed_generation < job.metadata.generation
    return "; the operator has not reconciled its newest spec yet" if behind else ""


def check_target(until: str) -> None:
    """Raise ValueError if `until` is neither a phase nor a condition of a TrainingJob."""
    names = {*map(str, Phase), *CONDITIONS}
    if until not in names:
        hint = suggestion(until, names)
        raise ValueError(f"{until!r} is neither a phase nor a condition of a TrainingJob{hint}")


def has_reached(job: TrainingJob, until: str) -> bool:
    """Return True if the job has the phase `until`, or if its condition `until` is True.

    While the operator has not yet reconciled the newest spec, the status belongs to an earlier spec. Then
    return False, unless the job has ended. Raises JobFailed or JobEnded if the job has ended in another
    way.
    """
    status = job.status
    ended = status.phase in TERMINAL
    if status.observed_generation < job.metadata.generation and not ended:
        return False
    if status.phase == until or any(one.type == until and one.status == "True" for one in status.conditions):
        return True
    if status.phase == Phase.FAILED:
        raise JobFailed(job)
    if ended:
        raise JobEnded(f"{job.metadata.name} has ended ({status.phase}) and will not be {until}", job)
    return False


def describe(job: TrainingJob) -> str:
    """Return the job's state as a sentence."""
    status = job.status
    if status.phase is None:
        return "no operator has reconciled it yet"
    step = f" at step {status.progress.step}" if status.progress else ""
    why = f" ({status.reason}): {status.message}" if status.reason else ""
    return f"it is {status.phase}{step}{why}{_late(job)}"
