"""The status of a TrainingJob: its phase, restarts, progress, checkpoints and stragglers."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from convoy_crds.meta import (
    MAX_REPLICAS,
    Condition,
    StatusModel,
    map_list,
)
from convoy_crds.metric_names import MAX_METRICS


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
    """The pods of one role."""

    name: str
    desired: int = 0
    ready: int = 0
    """Pods whose ranks run."""
    absent: Annotated[list[int], Field(max_length=MAX_REPLICAS)] = Field(default_factory=list)
    """Replicas that are missing from the incarnation."""


class RestartScope(StrEnum):
    """Part of the job that a restart replaces."""

    PROCESS = "Process"
    """The ranks, inside their pods."""
    POD = "Pod"
    """The faulty pod."""
    JOB = "Job"
    """All pods."""


class LastRestart(StatusModel):
    """The fault that caused the latest restart."""

    reason: str
    message: str = ""
    rank: int | None = None
    node: str | None = None
    pod: str | None = None
    exit_code: int | None = None
    step: int | None = None
    """Last step of the faulty rank."""
    counted: bool = True
    """True if the restart counts against `recovery.maxRestarts`."""
    scope: RestartScope = RestartScope.PROCESS
    at: datetime
    """Time of the operator's decision."""


class Restarts(StatusModel):
    """Restarts of the job's ranks."""

    total: int = 0
    counted: int = 0
    """Restarts that count against `recovery.maxRestarts`."""
    in_window: int = 0
    """Counted restarts in the `recovery.windowSeconds` before the latest restart."""
    times: Annotated[list[datetime], Field(max_length=1024)] = Field(default_factory=list)
    """Times of the counted restarts in the window, oldest first."""
    identical: int = 0
    """Consecutive failures in which a rank ended in the same way at the same step."""
    stalled: int = 0
    """Consecutive counted restarts without a step beyond `best`. Each one replaces more than the one
    before.
    """
    best: int = 0
    """Furthest step of the job at any fault."""
    not_before: datetime | None = None
    """Earliest time at which the next incarnation may form."""
    last: LastRestart | None = None

    def within(self, seconds: float, now: datetime) -> list[datetime]:
        """Return the times of the counted restarts in the last `seconds`."""
        start = now - timedelta(seconds=seconds)
        return [time for time in self.times if time > start]


class Offender(StatusModel):
    """A node, and the faults of this job that it caused."""

    node: str
    faults: int
    reason: str
    """Reason of the latest fault."""
    at: datetime


class Goodput(StatusModel):
    """The job's time by cause. Each second has one cause, so the sum is the job's age."""

    ratio: float | None = None
    """Productive share of the time since the job's creation."""
    seconds: dict[str, float] = Field(default_factory=dict)
    """Seconds by cause, up to `since`."""
    cause: str = ""
    """Cause of the time since `since`."""
    since: datetime | None = None
    best: int = 0
    """Furthest step so far. After a fault, steps up to it count as recompute."""
    checkpoint: float = 0.0
    """Seconds of checkpoint delay in this incarnation that `seconds` already includes."""
    straggler: float = 0.0
    """Share of the time since `since` that counts as `straggler` instead, if `cause` is about steps."""
    anchor_step: int = 0
    """First step observed in this incarnation. With `anchorAt` it gives the pace of a recomputation."""
    anchor_at: datetime | None = None
    """Time of `anchorStep`."""


class Metric(StatusModel):
    """The newest value of a metric that the program reports."""

    name: str
    value: float | None = None
    """Absent for NaN and infinity."""
    step: int = 0
    """Step at which the rank reported the value."""


class Progress(StatusModel):
    """Progress of the training."""

    step: int = 0
    total_steps: int | None = None
    percent: int | None = None
    samples_per_second: float | None = None
    """Samples per second of all ranks together."""
    loss: float | None = None
    diverged: bool | None = None
    """True if the loss is NaN or infinite. `loss` is then absent."""
    metrics: Annotated[list[Metric], Field(max_length=MAX_METRICS, json_schema_extra=map_list("name"))] = (
        Field(default_factory=list)
    )
    """The program's own metrics: those that the Engine declares, or the first 16 of a job without an
    Engine.
    """
    eta_at: datetime | None = None
    """Estimated time of completion."""
    time: datetime | None = None
    """Time of the report."""


class Watermark(StatusModel):
    """The newest complete generation at a tier."""

    incarnation: int
    step: int
    time: datetime


class Watermarks(StatusModel):
    """The newest complete generation at each tier. A watermark only advances."""

    local: Watermark | None = None
    peer: Watermark | None = None
    remote: Watermark | None = None


class ChosenInterval(StatusModel):
    """The checkpoint interval that the operator chose."""

    seconds: int
    reason: str
    """Reason for this interval."""


class CheckpointStatus(StatusModel):
    """The newest committed generation, and the farthest tier that holds it."""

    incarnation: int
    step: int
    tier: str
    time: datetime
    watermarks: Watermarks = Field(default_factory=Watermarks)
    interval: ChosenInterval | None = None
    """Set if `spec.checkpoint.interval` is `Auto`."""


class Straggler(StatusModel):
    """A cause that slows the job down."""

    cause: str
    """Compute, Thermal, Communication, Input, Host, Imbalance, CommonMode or Unknown."""
    place: str
    """Kind of the slow part: rank, node, link, group, rack, class, replica, stages, replicas or job."""
    ranks: Annotated[list[int], Field(max_length=64)] = Field(default_factory=list)
    """Ranks to blame, at most 64. Empty if no rank is to blame."""
    nodes: Annotated[list[str], Field(max_length=16)] = Field(default_factory=list)
    """Nodes of these ranks, at most 16."""
    since_step: int = 0
    slowdown: float = 0.0
    """0.4: takes 40 % longer than its peers.
    """
    lost: float = 0.0
    """Most time that the job could save, as a share: 0.3 for 30 %."""
    persistent: bool = False
    """True if the slowness has lasted long, for most of that time."""


class TrainingJobStatus(StatusModel):
    """State of the job. Only the operator writes it."""

    observed_generation: int = 0
    phase: Phase | None = None
    reason: str = ""
    """Reason of the condition that explains the phase."""
    message: str = ""
    ready: str = ""
    """Pods with running ranks, of the desired pods: `3/4`."""
    incarnation: int = 0
    """Number of times that the job's pods have formed a group. It only increases."""
    membership: str = ""
    """Digest of the pods in this incarnation. Empty while the incarnation waits for its pods."""
    formed_spec: str = ""
    """Digest of the engine, roles and checkpoint that this incarnation runs with."""
    layout: str = ""
    """Digest of the roles, without their containers, when the job was last Pending."""
    restart_id: str = ""
    """The `recovery.restartId` that last took effect."""
    start_time: datetime | None = None
    """Time when the job last became active. As in batch/v1, a resume resets it."""
    pending_since: datetime | None = None
    """Time since which the job's pods have been starting. In the future during the back-off before the next
    attempt.
    """
    pending_cause: str = ""
    """Reason why Convoy last deleted the pods at `recovery.scheduleSeconds`. Empty once the pods have
    formed a group.
    """
    completion_time: datetime | None = None
    conditions: Annotated[list[Condition], Field(max_length=16, json_schema_extra=map_list("type"))] = Field(
        default_factory=list
    )
    roles: Annotated[list[RoleStatus], Field(max_length=8, json_schema_extra=map_list("name"))] = Field(
        default_factory=list
    )
    restarts: Restarts = Field(default_factory=Restarts)
    offenders: Annotated[list[Offender], Field(max_length=64, json_schema_extra=map_list("node"))] = Field(
        default_factory=list
    )
    whole_since: datetime | None = None
    """Time since which the absent pods could rejoin."""
    goodput: Goodput = Field(default_factory=Goodput)
    progress: Progress | None = None
    checkpoint: CheckpointStatus | None = None
    stragglers: Annotated[list[Straggler], Field(max_length=16)] = Field(default_factory=list)
    """Stragglers of this incarnation at the latest check."""
