"""The status of an Experiment: its plan, its blocks and the verdicts."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from convoy_crds.meta import Bookkeeping, Condition, StatusModel, map_list

MAX_BLOCKS = 200
"""Maximum number of blocks of an experiment, over all conditions."""
MAX_FIGURES = 16
"""Maximum number of figures of one block: arms x outcomes."""
MAX_HYPOTHESES = 32
"""Maximum number of hypotheses: predictions x magnitudes."""
MAX_VALUE = 1e100
"""Largest absolute value of an outcome. The squares of larger ones could overflow."""


class ExperimentPhase(StrEnum):
    """State of the experiment in one word."""

    PENDING = "Pending"
    """The spec is being checked."""
    REGISTERING = "Registering"
    """The plan is being written to the store."""
    TUNING = "Tuning"
    RUNNING = "Running"
    """Blocks run."""
    SUSPENDED = "Suspended"
    ANALYSING = "Analysing"
    SUCCEEDED = "Succeeded"
    """The verdicts are in the status, and the report is in the store."""
    INVALID = "Invalid"
    """The report is in the store, but a control failed, so there are no verdicts."""
    FAILED = "Failed"


EXPERIMENT_ENDED = frozenset({ExperimentPhase.SUCCEEDED, ExperimentPhase.INVALID, ExperimentPhase.FAILED})


class Verdict(StrEnum):
    """Result for one prediction under one condition."""

    SUPPORTED = "Supported"
    """The data show that the prediction is right."""
    CONTRADICTED = "Contradicted"
    """The data show that the prediction is wrong."""
    UNDECIDED = "Undecided"
    """The data show neither. `minimumEffect` says how large a difference they could have shown."""
    COMPARATOR_COLLAPSED = "ComparatorCollapsed"
    """The comparator did not work as it should, so the comparison says nothing."""


class Figure(StatusModel):
    """The value of one outcome in one arm's run."""

    arm: str
    outcome: str
    value: float
    censored: bool | None = None
    """True if the run did not reach the value's event in time. Absent otherwise."""


class RunFailure(StatusModel):
    """An arm's run that has no figures."""

    arm: str
    reason: str
    message: Annotated[str, Field(max_length=256)] = ""


class Achieved(StatusModel):
    """The magnitude of the perturbation that was measured in one arm's run."""

    arm: str
    magnitude: float


class BlockStatus(StatusModel):
    """A block that has ended. All its arms ran with the same seed under the same condition."""

    id: int
    """Number of the block in the plan."""
    perturbation: str = ""
    """Name of the perturbation; absent for the unperturbed condition."""
    magnitude: float | None = None
    repetition: int
    """Number of the repetition. Blocks of the same repetition have the same seed under all conditions."""
    seed: int
    arms: Annotated[list[str], Field(max_length=16)] = Field(default_factory=list)
    """Arms in the order in which they ran. For a sweep, the number of the combination."""
    figures: Annotated[list[Figure], Field(max_length=MAX_FIGURES)] = Field(default_factory=list)
    failures: Annotated[list[RunFailure], Field(max_length=16)] = Field(default_factory=list)
    achieved: Annotated[list[Achieved], Field(max_length=16)] = Field(default_factory=list)
    start_time: datetime | None = None
    completion_time: datetime | None = None

    @property
    def failed(self) -> bool:
        """Return True if an arm's run of the block failed."""
        return bool(self.failures)


class RunState(StrEnum):
    """State of a run."""

    PENDING = "Pending"
    """The run's job is being created."""
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


RUN_ENDED = frozenset({RunState.SUCCEEDED, RunState.FAILED})


class FaultRecord(StatusModel):
    """The perturbation of one run on the cluster."""

    started_at: datetime
    """Time of the run's first step, from which `startSeconds` counts."""
    pods: Annotated[list[str], Field(max_length=128)] = Field(default_factory=list)
    """Uids of the disturbed pods, in the order in which they were chosen."""
    node: str = ""
    """Node of the disturbed pod, to which the orders go."""
    ordered_at: datetime | None = None
    """Time at which the fault was first ordered."""
    injected: bool = False
    """True once the agent has reported the fault as injected in the last of the pods, or the pods were
    deleted.
    """
    before: float = 0.0
    """Measured magnitude on the pods before the last one: a kill may replace the pod."""


class RunStatus(StatusModel):
    """A run that is not finished, or whose block is not finished."""

    name: str
    """Name of the run's job."""
    block: int
    arm: str
    """Name of the arm; for a sweep, the number of the combination."""
    attempt: int
    state: RunState
    uid: str = ""
    """Uid of the run's job. Absent until the job exists."""
    load_uid: str = ""
    """Uid of the job that sends the requests of a ServingJob. Absent until it exists."""
    fault: FaultRecord | None = None
    """The perturbation of a run on the cluster. Absent until the run's first step."""
    start_time: datetime | None = None
    """Time at which the run's first attempt started."""
    completion_time: datetime | None = None
    figures: Annotated[list[Figure], Field(max_length=MAX_FIGURES)] = Field(default_factory=list)
    failure: RunFailure | None = None
    achieved: float | None = None
    """Measured magnitude of the perturbation."""

    @property
    def ended(self) -> bool:
        """Return True if the run has succeeded or failed."""
        return self.state in RUN_ENDED


class TunedValue(StatusModel):
    """A parameter that the tuning chose."""

    path: str
    value: str
    """The value as JSON."""
    at_edge: bool = False
    """True if the value is at the edge of its range, so that a better value may lie outside."""


class TuningSource(StatusModel):
    """The tuning that an arm has taken over from another Experiment."""

    experiment: str
    arm: str
    plan: str
    """Hash of that experiment's plan."""


class TuningStatus(StatusModel):
    """The tuning of one arm."""

    arm: str
    trials: int = 0
    """Trials that are done."""
    best: float | None = None
    """Best value of the tuning's outcome."""
    values: Annotated[list[TunedValue], Field(max_length=16)] = Field(default_factory=list)
    seconds: float | None = None
    failure: str = ""
    source: TuningSource | None = None
    """Absent if the experiment has tuned the arm itself."""


class ControlStatus(StatusModel):
    """The result of a control."""

    name: str
    passed: bool
    message: Annotated[str, Field(max_length=256)] = ""


class VerdictStatus(StatusModel):
    """The verdict on one prediction under one condition."""

    prediction: str
    perturbation: str = ""
    magnitude: float | None = None
    verdict: Verdict
    effect: float | None = None
    """Mean paired difference of candidate and comparator, in the outcome's unit; above 0, the candidate is
    better.
    """
    low: float | None = None
    """Lower end of the confidence interval of the effect."""
    high: float | None = None
    """Upper end of the confidence interval of the effect."""
    p: float | None = None
    """p-value after Holm's correction."""
    minimum_effect: float | None = None
    """Smallest difference that would have been found with the probability `analysis.power`."""
    blocks: int = 0
    """Number of paired blocks behind the verdict."""
    unequal: bool | None = None
    """True if the measured magnitudes of the perturbation differ by more than 10 % between candidate and
    comparator. Absent otherwise.
    """


class PlanEngine(StatusModel):
    """An Engine as it was at registration."""

    name: str
    image: str


class PlanStatus(StatusModel):
    """The plan that the store had before the first run."""

    hash: str
    """SHA-256 of the plan as canonical JSON (RFC 8785), with the prefix `sha256:`."""
    registered_at: datetime | None = None
    """Time at which the store had the plan. No run starts earlier."""
    engines: Annotated[list[PlanEngine], Field(max_length=16)] = Field(default_factory=list)
    document: str = ""
    """The plan as canonical JSON. `hash` is the digest of this text."""


class ArtefactStatus(StatusModel):
    """The data and the report in the store."""

    store: str
    job_uid: str = ""
    """Uid of the analysis job, under which the store keeps the files."""
    digest: str = ""
    """SHA-256 of the machine-readable result, with the prefix `sha256:`."""


class StepRecord(Bookkeeping):
    """The job of one step of the experiment besides its runs: the registration, the tuning of an arm, or the
    analysis.
    """

    name: str
    """Name of the step: `plan`, `t-<arm>` or `result`."""
    attempt: int
    uid: str = ""
    """Uid of the step's job. Absent until the job exists."""


class ExperimentInternal(Bookkeeping):
    """Bookkeeping of the operator, for Convoy only. It is not part of the API and may change in any
    release.
    """

    steps: Annotated[list[StepRecord], Field(max_length=32)] = Field(default_factory=list)
    stopped: str = ""
    """Reason why no further run starts. Absent while runs may start."""
    kept: Annotated[list[str], Field(max_length=512)] = Field(default_factory=list)
    """Names of failed jobs that are kept for their logs, the oldest first."""
    stale: Annotated[list[str], Field(max_length=256)] = Field(default_factory=list)
    """Names of jobs that `staleResults` counts and that still exist."""


class ExperimentStatus(StatusModel):
    """State of the experiment. Only the operator writes the status."""

    observed_generation: int = 0
    phase: ExperimentPhase | None = None
    reason: str = ""
    """Reason of the condition that explains `phase`."""
    message: str = ""
    """Message of that condition, shortened to 240 characters."""
    plan: PlanStatus | None = None
    progress: str = ""
    """Number of ended blocks, and number of all blocks, such as `12/27`."""
    percent: int = 0
    """Percentage of all blocks that have ended."""
    failed_blocks: int = 0
    """Number of ended blocks with a failed run."""
    stale_results: int = 0
    """Results of earlier attempts that were refused."""
    start_time: datetime | None = None
    completion_time: datetime | None = None
    conditions: Annotated[list[Condition], Field(max_length=16, json_schema_extra=map_list("type"))] = Field(
        default_factory=list
    )
    tuning: Annotated[list[TuningStatus], Field(max_length=16, json_schema_extra=map_list("arm"))] = Field(
        default_factory=list
    )
    runs: Annotated[list[RunStatus], Field(max_length=256, json_schema_extra=map_list("name"))] = Field(
        default_factory=list
    )
    """Runs of blocks that have not ended, and runs whose jobs still exist."""
    blocks: Annotated[list[BlockStatus], Field(max_length=MAX_BLOCKS)] = Field(default_factory=list)
    """Blocks that have ended, in the order in which they ended."""
    controls: Annotated[list[ControlStatus], Field(max_length=32)] = Field(default_factory=list)
    verdicts: Annotated[list[VerdictStatus], Field(max_length=MAX_HYPOTHESES)] = Field(default_factory=list)
    summary: str = ""
    """Verdicts in one line, such as `3 Supported, 1 Undecided`."""
    artefact: ArtefactStatus | None = None
    internal: ExperimentInternal = Field(default_factory=ExperimentInternal)
