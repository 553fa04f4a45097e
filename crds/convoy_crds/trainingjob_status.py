"""The status of a TrainingJob: its phase, restarts, progress, checkpoints and stragglers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from convoy_crds.advice import MAX_FINDINGS, AdviceFinding, RunFacts
from convoy_crds.meta import MAX_REPLICAS, Bookkeeping, Condition, StatusModel, map_list
from convoy_crds.metric_names import MAX_METRICS
from convoy_crds.placement import PlacementStatus
from convoy_crds.provenance import JobProvenance
from convoy_crds.trainingjob_independent import MAX_RECORDS, MAX_ROLES, IndependentRecord, IndependentStatus
from convoy_crds.trainingjob_straggler import Straggler
from convoy_crds.trainingjob_trace import TraceRecord, TraceStatus


class Phase(StrEnum):
    """State of the job in one word."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


TERMINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED})


class RoleStatus(StatusModel):
    """The state of one role's pods."""

    name: str
    desired: int = 0
    ready: int = 0
    """Number of pods whose ranks run."""
    absent: Annotated[list[int], Field(max_length=MAX_REPLICAS)] = Field(default_factory=list)
    """Numbers of the replicas that are missing from the incarnation."""
    order: Annotated[list[int], Field(max_length=MAX_REPLICAS)] = Field(default_factory=list)
    """Numbers of the replicas in the order of their ranks. Absent if the ranks follow the numbers."""
    independent: IndependentStatus | None = None
    """Further counts of an Independent role. Absent for a Member role."""


class RestartScope(StrEnum):
    """Part of the job that a restart replaces."""

    PROCESS = "Process"
    """Only the ranks, inside their pods."""
    POD = "Pod"
    """Only the faulty pod."""
    JOB = "Job"
    """All pods of the job."""


class LastRestart(StatusModel):
    """The fault that caused the last restart."""

    reason: str
    message: str = ""
    rank: int | None = None
    node: str | None = None
    pod: str | None = None
    exit_code: int | None = None
    step: int | None = None
    """Last step that the faulty rank made."""
    counted: bool = True
    """True if the restart counts against `recovery.maxRestarts`."""
    scope: RestartScope = RestartScope.PROCESS
    at: datetime
    """Time at which the operator decided to restart."""


class Restarts(StatusModel):
    """The number of restarts of the job's ranks, and the last restart."""

    total: int = 0
    counted: int = 0
    """Number of restarts that count against `recovery.maxRestarts`."""
    last: LastRestart | None = None


class Offender(StatusModel):
    """A node on which faults of this job have occurred."""

    node: str
    faults: int
    reason: str
    """Reason of the last fault on the node."""
    at: datetime


class Goodput(StatusModel):
    """The job's time, divided by cause. Each second has one cause, so the sum is the age of the job."""

    ratio: float | None = None
    """Productive part of the time since the job was created, as a fraction."""
    elapsed_seconds: float | None = None
    """Time since the job was created, until its end."""
    seconds: dict[str, float] = Field(default_factory=dict)
    """Seconds of each cause up to the time `since`."""
    cause: str = ""
    """Cause of the time from `since` on."""
    since: datetime | None = None
    straggler: float | None = None
    """Part of the time from `since` on, as a fraction, that has the cause `straggler` instead of `cause`.
    Absent if there is no such part.
    """


class Metric(StatusModel):
    """The newest value of a metric that the program reports."""

    name: str
    value: float | None = None
    """The value. Absent if it is NaN or infinite."""
    step: int = 0
    """Step at which the rank reported the value."""


class Progress(StatusModel):
    """Progress of the job's training."""

    step: int = 0
    total_steps: int | None = None
    percent: int | None = None
    samples_per_second: float | None = None
    """Samples per second, over all ranks."""
    loss: float | None = None
    diverged: bool | None = None
    """True if the loss is NaN or infinite. Then `loss` is absent."""
    metrics: Annotated[list[Metric], Field(max_length=MAX_METRICS, json_schema_extra=map_list("name"))] = (
        Field(default_factory=list)
    )
    """The program's own metrics: the metrics that the Engine declares or, for a job without an Engine, the
    first 16 metrics.
    """
    eta_at: datetime | None = None
    """Estimated time at which the training is complete."""
    time: datetime | None = None
    """Time at which a rank reported this progress."""


class Watermark(StatusModel):
    """The newest complete generation of one tier."""

    incarnation: int
    step: int
    time: datetime


class Watermarks(StatusModel):
    """The newest complete generation of each tier. A watermark never goes back to an older generation."""

    local: Watermark | None = None
    peer: Watermark | None = None
    remote: Watermark | None = None


class ChosenInterval(StatusModel):
    """The checkpoint interval that the operator chose."""

    seconds: int
    reason: str
    """Reason why the operator chose this interval."""


class TierSource(StrEnum):
    """Origin of the job's tiers."""

    SPEC = "Spec"
    """`spec.checkpoint.tiers`."""
    DEFAULT = "Default"
    """`spec.checkpoint.default`, or the chart's value `checkpoints.default`."""


class EffectiveTiers(StatusModel):
    """The tiers that the job uses: the memory of its nodes, and what is copied from there."""

    source: TierSource
    memory: int | None = None
    """Maximum bytes on one node. Absent if only the memory of the node's agent limits the job."""
    copies: int = 0
    """Copies of each rank's part in the memory of other nodes; 0 if all pods are on one node, or if copies do
    not fit.
    """
    store: str = ""
    """CheckpointStore for uploads. Absent without one."""


class SavedCheckpoint(NamedTuple):
    """The newest committed generation, and the farthest tier that has it."""

    incarnation: int
    step: int
    tier: str
    time: datetime


class CheckpointStatus(StatusModel):
    """The tiers that the job uses, and the newest committed generation."""

    incarnation: int | None = None
    """Incarnation that saved the newest generation. Absent before the first save, as are `step`, `tier` and
    `time`.
    """
    step: int | None = None
    tier: str = ""
    """The farthest tier that has the newest generation: local, peer or remote."""
    time: datetime | None = None
    tiers: EffectiveTiers | None = None
    """The tiers that the job uses. Absent if it has none, also if memory by default does not fit."""
    watermarks: Watermarks = Field(default_factory=Watermarks)
    interval: ChosenInterval | None = None
    """The interval that the operator chose, if `spec.checkpoint.interval` is `Auto`."""


class IncarnationRecord(Bookkeeping):
    """The pods and the spec of the newest incarnation that has formed."""

    membership: str = ""
    """Digest of the pods in this incarnation. Absent while the incarnation waits for its pods."""
    spec: str = ""
    """Digest of the engine, roles and checkpoint settings with which the incarnation runs."""
    whole_since: datetime | None = None
    """Time at which the absent pods became ready to rejoin the job."""


class PendingRecord(Bookkeeping):
    """The wait for the job's pods."""

    since: datetime | None = None
    """Time at which the job's pods began to start. During the back-off before the next attempt this is the
    future time of that attempt.
    """
    cause: str = ""
    """Reason why the previous pods did not start within `recovery.scheduleSeconds`. Convoy deleted those
    pods. Absent when the pods have formed a group.
    """


class RestartRecord(Bookkeeping):
    """The history on which the restart budget, the back-off and the scope of a restart depend."""

    times: Annotated[list[datetime], Field(max_length=1024)] = Field(default_factory=list)
    """Times of the counted restarts within `recovery.windowSeconds` up to the latest restart, the oldest
    first.
    """
    identical: int = 0
    """Number of consecutive failures in which a rank ended in the same way at the same step."""
    stalled: int = 0
    """Number of consecutive counted restarts between which the job made no step beyond `best`. Each such
    restart replaces more of the job than the previous one.
    """
    best: int = 0
    """Furthest step that the job had made at any fault."""
    not_before: datetime | None = None
    """Time before which the next incarnation must not form."""

    def within(self, seconds: float, now: datetime) -> list[datetime]:
        """Return the times of the counted restarts within the last `seconds` before `now`."""
        start = now - timedelta(seconds=seconds)
        return [time for time in self.times if time > start]


class GoodputRecord(Bookkeeping):
    """The steps and saves that the goodput ledger has already booked."""

    best: int = 0
    """Furthest step so far. After a fault, the time of steps up to this step has the cause `recompute`."""
    checkpoint: float = 0.0
    """Seconds of this incarnation's checkpoint delay that the ledger already includes."""
    anchor_step: int = 0
    """First step that Convoy observed in this incarnation. Convoy computes the speed of recomputed steps
    from this step and `anchorAt`.
    """
    anchor_at: datetime | None = None
    """Time at which `anchorStep` was observed."""


class TrainingJobInternal(Bookkeeping):
    """Bookkeeping of the operator, for Convoy only. It is not part of the API and may change in any release.
    Fields with an empty value or 0 are absent.
    """

    incarnation: IncarnationRecord = Field(default_factory=IncarnationRecord)
    layout: str = ""
    """Digest of the roles, without their containers, at the time when the job was last Pending."""
    restart_id: str = ""
    """Value of `recovery.restartId` for the last requested restart."""
    pending: PendingRecord = Field(default_factory=PendingRecord)
    restarts: RestartRecord = Field(default_factory=RestartRecord)
    goodput: GoodputRecord = Field(default_factory=GoodputRecord)
    trace: TraceRecord = Field(default_factory=TraceRecord)
    independent_incarnation: int = 0
    """Number of the newest start of an Independent pod's program. It never decreases."""
    independent: Annotated[list[IndependentRecord], Field(max_length=MAX_RECORDS)] = Field(
        default_factory=list
    )


class TrainingJobStatus(StatusModel):
    """State of the job. Only the operator writes the status."""

    observed_generation: int = 0
    phase: Phase | None = None
    reason: str = ""
    """Reason of the condition that explains `phase`."""
    message: str = ""
    ready: str = ""
    """Number of pods of Member roles whose ranks run, and number of desired pods, such as `3/4`."""
    independent: str = ""
    """The same numbers for Independent roles. Absent without such a role."""
    incarnation: int = 0
    """Number of times that the job's pods have formed a group. It never decreases."""
    start_time: datetime | None = None
    """Time at which the job last became active. A resume resets it, as in batch/v1."""
    completion_time: datetime | None = None
    result: (
        Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
        | None
    ) = None
    """The result that the program set, at most 3,500 bytes. Absent before the job has succeeded."""
    conditions: Annotated[list[Condition], Field(max_length=24, json_schema_extra=map_list("type"))] = Field(
        default_factory=list
    )
    roles: Annotated[list[RoleStatus], Field(max_length=MAX_ROLES, json_schema_extra=map_list("name"))] = (
        Field(default_factory=list)
    )
    restarts: Restarts = Field(default_factory=Restarts)
    offenders: Annotated[list[Offender], Field(max_length=64, json_schema_extra=map_list("node"))] = Field(
        default_factory=list
    )
    goodput: Goodput = Field(default_factory=Goodput)
    progress: Progress | None = None
    checkpoint: CheckpointStatus | None = None
    stragglers: Annotated[list[Straggler], Field(max_length=16)] = Field(default_factory=list)
    """Stragglers of this incarnation that the detector found in the newest window."""
    placement: PlacementStatus | None = None
    """Where the pods run, and who placed them."""
    trace: TraceStatus | None = None
    advice: Annotated[list[AdviceFinding], Field(max_length=MAX_FINDINGS)] = Field(default_factory=list)
    """Rules of advice that the job violates, at most 16. Absent without `spec.lint`."""
    facts: RunFacts | None = None
    """Facts about the run that these rules need. Absent without `spec.lint`."""
    provenance: JobProvenance | None = None
    """Record of the run, for a repetition. Absent before the job has ended."""
    internal: TrainingJobInternal = Field(default_factory=TrainingJobInternal)

    @property
    def saved(self) -> SavedCheckpoint | None:
        """Return the newest committed generation; None before the first."""
        found = self.checkpoint
        if found is None or found.incarnation is None or found.step is None or found.time is None:
            return None
        return SavedCheckpoint(found.incarnation, found.step, found.tier, found.time)

    @property
    def formed(self) -> bool:
        """Return True if the incarnation has formed. False while it waits for its pods."""
        return bool(self.internal.incarnation.membership)


def has_formed(status: Mapping[str, Any]) -> bool:
    """Return `TrainingJobStatus.formed` of a status in JSON."""
    internal = status.get("internal") or {}
    return bool((internal.get("incarnation") or {}).get("membership"))
