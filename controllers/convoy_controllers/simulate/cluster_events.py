"""What happens in a simulated cluster, told at that moment to whoever records or judges it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convoy_controllers.commands import JobCommand
from convoy_controllers.plan import Plan
from convoy_controllers.simulate.gang import Gang
from convoy_controllers.trainingjob.observed import Observed
from convoy_crds.trainingjob import TrainingJob


@dataclass(frozen=True, slots=True)
class PlanMade:
    """The operator has decided."""

    observed: Observed
    plan: Plan


@dataclass(frozen=True, slots=True)
class StatusStored:
    """A status was written."""

    before: TrainingJob
    after: TrainingJob
    decided: float
    """Unix seconds of the plan that it comes from."""


@dataclass(frozen=True, slots=True)
class CommandSent:
    """A command leaves the operator."""

    job: TrainingJob | None
    """As the API server has it; None when it is gone."""
    command: JobCommand


@dataclass(frozen=True, slots=True)
class RanksStarted:
    """Ranks of a pod begin to run."""

    job: str
    job_uid: str
    pod: str
    uid: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class FirstStep:
    """The first step of a gang has ended."""

    gang: Gang


@dataclass(frozen=True, slots=True)
class TrainingPaused:
    """A checkpoint holds a gang up."""

    gang: Gang


@dataclass(frozen=True, slots=True)
class TrainingResumed:
    """A gang steps again, after a checkpoint or a stall."""

    gang: Gang


@dataclass(frozen=True, slots=True)
class TrainingStopped:
    """A gang makes no more steps: a rank is gone, stands still or cannot be reached, or all are through."""

    gang: Gang
    hung: bool = False
    """A rank stands still: it has done so since the gang's last step."""


@dataclass(frozen=True, slots=True)
class CheckpointCommitted:
    """A checkpoint counts from now on."""

    gang: Gang
    step: int


@dataclass(frozen=True, slots=True)
class FaultInjected:
    """Something was done to the cluster from outside."""

    description: str


ClusterEvent = (
    PlanMade
    | StatusStored
    | CommandSent
    | RanksStarted
    | FirstStep
    | TrainingPaused
    | TrainingResumed
    | TrainingStopped
    | CheckpointCommitted
    | FaultInjected
)
Notify = Callable[[ClusterEvent], None]
