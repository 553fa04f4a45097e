"""Events in a simulated cluster. Listeners receive them as they happen."""

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
    """The operator has made a plan."""

    observed: Observed
    plan: Plan


@dataclass(frozen=True, slots=True)
class StatusStored:
    """The status of a job was stored."""

    before: TrainingJob
    after: TrainingJob
    decided: float
    """Time of the plan with this status, in Unix seconds."""


@dataclass(frozen=True, slots=True)
class CommandSent:
    """The operator has sent a command."""

    job: TrainingJob | None
    """The job as it is stored; None if it is deleted."""
    command: JobCommand


@dataclass(frozen=True, slots=True)
class RanksStarted:
    """The ranks of a pod have started."""

    job: str
    job_uid: str
    pod: str
    uid: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class FirstStep:
    """A gang has finished its first step."""

    gang: Gang


@dataclass(frozen=True, slots=True)
class TrainingPaused:
    """A gang pauses for a checkpoint."""

    gang: Gang


@dataclass(frozen=True, slots=True)
class TrainingResumed:
    """A gang steps again after a checkpoint or a stall."""

    gang: Gang


@dataclass(frozen=True, slots=True)
class TrainingStopped:
    """A gang has stopped: a rank ended, hangs or is unreachable, or all steps are done."""

    gang: Gang
    hung: bool = False
    """True if a rank has hung since the gang's last step."""


@dataclass(frozen=True, slots=True)
class CheckpointCommitted:
    """A checkpoint is committed."""

    gang: Gang
    step: int


@dataclass(frozen=True, slots=True)
class FaultInjected:
    """A fault was injected, or a user acted."""

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
