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
    """Where the job stands, in one word."""

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
    """Pods of one role."""

    name: str
    desired: int = 0
    ready: int = 0
    """Pods whose ranks run."""
    absent: Annotated[list[int], Field(max_length=MAX_REPLICAS)] = Field(default_factory=list)
    """Replicas that the incarnation runs without."""


class RestartScope(StrEnum):
    """What a restart replaces."""

    PROCESS = "Process"
    """The ranks, in their pods."""
    POD = "Pod"
    """The pod at fault."""
    JOB = "Job"
    """All pods."""


class LastRestart(StatusModel):
    """The fault behind the latest restart."""

    reason: str
    message: str = ""
    rank: int | None = None
    node: str | None = None
    pod: str | None = None
    exit_code: int | None = None
    step: int | None = None
    """The last step of the rank at fault."""
    counted: bool = True
    """Against `recovery.maxRestarts`."""
    scope: RestartScope = RestartScope.PROCESS
    at: datetime
    """When the operator decided on it."""


class Restarts(StatusModel):
    """How often the process group was formed again."""

    total: int = 0
    counted: int = 0
    """Those that count against `recovery.maxRestarts`."""
    in_window: int = 0
    """Counted ones within the last `recovery.windowSeconds` before the latest restart."""
    times: Annotated[list[datetime], Field(max_length=1024)] = Field(default_factory=list)
    """When the counted ones of the window happened, oldest first."""
    identical: int = 0
    """How often in a row a rank has ended in the same way at the same step."""
    stalled: int = 0
    """Counted ones in a row without a step beyond `best`; each replaces more than the one before."""
    best: int = 0
    """The furthest step at any fault so far."""
    not_before: datetime | None = None
    """The next incarnation forms no earlier."""
    last: LastRestart | None = None

    def within(self, seconds: float, now: datetime) -> list[datetime]:
        """When the counted ones of the last so many seconds happened."""
        start = now - timedelta(seconds=seconds)
        return [time for time in self.times if time > start]


class Offender(StatusModel):
    """A node and the faults of this job that are laid to it."""

    node: str
    faults: int
    reason: str
    """Of the latest."""
    at: datetime


class Goodput(StatusModel):
    """Where the job's time went; every second has one cause, all together they are its age."""

    ratio: float | None = None
    """Productive share of the time since the job was made."""
    seconds: dict[str, float] = Field(default_factory=dict)
    """By cause, up to `since`."""
    cause: str = ""
    """What the time since `since` goes to."""
    since: datetime | None = None
    best: int = 0
    """The furthest step so far; steps up to it are recomputed after a fault."""
    checkpoint: float = 0.0
    """Seconds for which saving held up this incarnation, as far as `seconds` has them."""
    straggler: float = 0.0
    """Of the time since `since`, the share that goes to slow ranks instead, while `cause` is one of steps."""
    anchor_step: int = 0
    """The first step that was seen of this incarnation, and when, for the pace of a recomputation."""
    anchor_at: datetime | None = None


class Metric(StatusModel):
    """The newest value of a figure that the program measures itself."""

    name: str
    value: float | None = None
    """Absent for NaN and infinity."""
    step: int = 0
    """The step at which the rank reported the value."""


class Progress(StatusModel):
    """How far the training is."""

    step: int = 0
    total_steps: int | None = None
    percent: int | None = None
    samples_per_second: float | None = None
    """Of all ranks together."""
    loss: float | None = None
    diverged: bool | None = None
    """True when the loss is no number: NaN or infinite. `loss` is then left out."""
    metrics: Annotated[list[Metric], Field(max_length=MAX_METRICS, json_schema_extra=map_list("name"))] = (
        Field(default_factory=list)
    )
    """Figures of the program's own: those that the Engine declares, or the first 16 of a job without one."""
    eta_at: datetime | None = None
    time: datetime | None = None
    """When the step was reported."""


class Watermark(StatusModel):
    """The newest generation that is whole at a tier."""

    incarnation: int
    step: int
    time: datetime


class Watermarks(StatusModel):
    """Each only grows."""

    local: Watermark | None = None
    peer: Watermark | None = None
    remote: Watermark | None = None


class ChosenInterval(StatusModel):
    """The time between two checkpoints that the operator has chosen."""

    seconds: int
    reason: str
    """Why not more or less often."""


class CheckpointStatus(StatusModel):
    """The newest committed generation, and the farthest tier that has it."""

    incarnation: int
    step: int
    tier: str
    time: datetime
    watermarks: Watermarks = Field(default_factory=Watermarks)
    interval: ChosenInterval | None = None
    """Under `spec.checkpoint.interval: Auto`."""


class Straggler(StatusModel):
    """Something that makes the job slower than it could be."""

    cause: str
    """Compute, Thermal, Communication, Input, Host, Imbalance, CommonMode or Unknown."""
    place: str
    """What is slow: rank, node, link, group, rack, class, replica, stages, replicas or job."""
    ranks: Annotated[list[int], Field(max_length=64)] = Field(default_factory=list)
    """The culprits, 64 at most; empty when nobody is accused."""
    nodes: Annotated[list[str], Field(max_length=16)] = Field(default_factory=list)
    """Where they are, 16 at most."""
    since_step: int = 0
    slowdown: float = 0.0
    """0.4: takes 40 % longer than its peers."""
    lost: float = 0.0
    """0.3: without it all ranks would be done in 30 % less time, at most."""
    persistent: bool = False
    """Slow for long, and most of that time."""


class TrainingJobStatus(StatusModel):
    """What the operator knows. Written by the operator alone."""

    observed_generation: int = 0
    phase: Phase | None = None
    reason: str = ""
    """Why it is in this phase: the reason of the condition that decides it."""
    message: str = ""
    ready: str = ""
    """Pods whose ranks run, of those desired: `3/4`."""
    incarnation: int = 0
    """Formation of the process group; only ever grows."""
    membership: str = ""
    """Digest of the pods that form this incarnation; empty while it waits for them."""
    formed_spec: str = ""
    """Digest of the engine, roles and checkpoint that this incarnation runs with."""
    layout: str = ""
    """Digest of the roles, without their containers, as they were when the job was last Pending."""
    restart_id: str = ""
    """The `recovery.restartId` that has been acted on."""
    start_time: datetime | None = None
    """When the job last became active; a resume starts it anew, as in batch/v1."""
    pending_since: datetime | None = None
    """Since when its pods have been coming up; in the future while it holds back before it tries again."""
    pending_cause: str = ""
    """Why its pods were last given back at `recovery.scheduleSeconds`; empty once they have formed."""
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
    """Since when pods that this incarnation runs without could be taken in again."""
    goodput: Goodput = Field(default_factory=Goodput)
    progress: Progress | None = None
    checkpoint: CheckpointStatus | None = None
    stragglers: Annotated[list[Straggler], Field(max_length=16)] = Field(default_factory=list)
    """What was slow in this incarnation when last looked at."""
