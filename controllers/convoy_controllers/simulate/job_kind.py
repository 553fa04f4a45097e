"""The kinds of jobs that a simulated cluster runs, each described by what scenarios and the cluster need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from convoy_controllers.controller import Controller
from convoy_controllers.simulate.workers import RankProgram
from convoy_controllers.views import PodView
from convoy_controllers.workers.refusal import Refusal
from convoy_crds.meta import Model

if TYPE_CHECKING:
    from convoy_controllers.simulate.cluster import Cluster


class JobSimulation(Protocol):
    """The jobs of one kind in one cluster."""

    controller: Controller[Any]
    """The operator's controller of the kind. It decides about the jobs."""
    program: RankProgram

    def add(self, job: Any, program: Any) -> None:
        """Add a job that was just created. Its ranks run `program`; None for none."""
        ...

    def observed(
        self, job: Any, pods: tuple[PodView, ...], refused: Mapping[str, Refusal], memory: Any = None
    ) -> Any:
        """Return the state of a job from which the controller makes plans. `memory` is that of its newest
        executed plan.
        """
        ...

    def progressing(self, job: Any) -> bool:
        """Return True if the job's progress changes all the time."""
        ...

    def term_code(self, job_uid: str) -> int:
        """Return the exit code of a rank that SIGTERM ends."""
        ...


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a report. All columns except the first are aligned to the right."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one job, for people and for programs."""

    summary: str
    """One line of text."""
    tables: tuple[Table, ...]
    values: Mapping[str, Any]
    """The result as JSON values."""


class JobResult(Protocol):
    """A job at the end of a scenario."""

    @property
    def job(self) -> Any:
        """The job as it was at the end of the scenario."""

    def report(self) -> Report:
        """Return the report of the job."""
        ...


class JobMonitor(Protocol):
    """The observer of all jobs of one kind in one replay. It knows what happens in truth, and raises
    InvariantViolation when Convoy breaks a guarantee.
    """

    def line(self, before: Any, after: Any) -> str:
        """Return the line of the timeline for the change of a job's status; empty if it needs none."""
        ...

    def result(self, job: Any) -> JobResult:
        """Return the result of a job."""
        ...


@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind of jobs."""

    controller: Controller[Any]
    program: type[Model]
    """Model of the field `program` in scenario files."""
    simulate: Callable[[Cluster], JobSimulation]
    monitor: Callable[[Cluster], JobMonitor]
    engines: Callable[[Any], Mapping[str, str]]
    """(job) -> the role kind of each Engine that the job names, by name of the Engine."""
    has_pod: Callable[[Any, str], bool]
    """(job, name) -> True if the job may have a pod of this name."""
    ranks: Callable[[Any], int]
    """(job) -> the number of ranks; 0 if the ranks have no numbers over the whole job."""
    ended: Callable[[Any], bool]
    """(job) -> True if the job has ended for good."""
    serves: bool = False
    """True if the jobs receive requests."""

    @property
    def name(self) -> str:
        """Return the name of the kind, such as `TrainingJob`."""
        return self.controller.resource.kind

    @property
    def model(self) -> type[Model]:
        """Return the model of the kind's jobs. Raises ValueError if they are not one of Convoy's kinds."""
        kind = self.controller.kind
        if kind is None:
            raise ValueError(f"{self.name} is not one of Convoy's kinds")
        model: type[Model] = kind.model
        return model
