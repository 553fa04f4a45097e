"""Events in a simulated cluster. Listeners receive each event when it happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from convoy_controllers.commands import JobCommand
from convoy_controllers.plan import Plan
from convoy_controllers.simulate.gang import Gang


@dataclass(frozen=True, slots=True)
class PlanMade:
    """Event: the operator has made a plan."""

    observed: Any
    """The input of the plan, in the form that the kind's controller takes."""
    plan: Plan


@dataclass(frozen=True, slots=True)
class StatusStored:
    """Event: the status of a job was stored."""

    before: Any
    after: Any
    decided: float
    """Unix time in seconds at which the operator made the plan with this status."""


@dataclass(frozen=True, slots=True)
class CommandSent:
    """Event: the operator has sent a command."""

    job: Any
    """The job as it is stored; None if it is deleted."""
    command: JobCommand


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """Event: the operator is about to delete a pod."""

    job: str
    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class RanksStarted:
    """Event: the ranks of a pod have started."""

    job: str
    job_uid: str
    pod: str
    uid: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class FirstStep:
    """Event: a gang (the ranks of one incarnation) has finished its first step."""

    gang: Gang


@dataclass(frozen=True, slots=True)
class TrainingPaused:
    """Event: a gang (the ranks of one incarnation) stops stepping while it saves a checkpoint."""

    gang: Gang


@dataclass(frozen=True, slots=True)
class TrainingResumed:
    """Event: a gang (the ranks of one incarnation) makes steps again after a checkpoint or a stall."""

    gang: Gang


@dataclass(frozen=True, slots=True)
class TrainingStopped:
    """Event: a gang (the ranks of one incarnation) makes no more steps. Either a rank has ended, hangs or
    is unreachable, or all steps are done.
    """

    gang: Gang
    hung: bool = False
    """True if the gang has stopped because a rank hangs."""


@dataclass(frozen=True, slots=True)
class CheckpointCommitted:
    """Event: a checkpoint is committed."""

    gang: Gang
    step: int


@dataclass(frozen=True, slots=True)
class FaultInjected:
    """Event: a fault was injected, or a user acted."""

    description: str
    harmless: bool = False
    """True if a user changed a spec. Such a change must cost no request."""


ClusterEvent = (
    PlanMade
    | StatusStored
    | CommandSent
    | PodDeleted
    | RanksStarted
    | FirstStep
    | TrainingPaused
    | TrainingResumed
    | TrainingStopped
    | CheckpointCommitted
    | FaultInjected
)
Notify = Callable[[ClusterEvent], None]
