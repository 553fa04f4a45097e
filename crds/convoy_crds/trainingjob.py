"""TrainingJob: roles of workers that train together, restarted, checkpointed and watched."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from convoy_crds import unchanged
from convoy_crds.kind import Column, Editors, Kind, Scope
from convoy_crds.meta import (
    AUTO,
    Bytes,
    Condition,
    Duration,
    DurationOrAuto,
    Model,
    ObjectMeta,
    ObjectName,
    Rule,
    StatusModel,
    map_list,
    seconds,
    validated,
)
from convoy_crds.podtemplate import PodTemplate, depth_checked

MAX_REPLICAS = 10_000
UNMEASURED_SECONDS = 300
"""Between two checkpoints of a job whose interval is `Auto`, until it is known what one costs."""
ALL_ROLES_COMPLETE = "AllRolesComplete"
_CONTAINER = (
    "has(r.template) && r.template != null && has(r.template.spec) && r.template.spec != null"
    " && has(r.template.spec.containers)"
    " && type(r.template.spec.containers) == list && size(r.template.spec.containers) > 0"
)
"""CEL: whether role `r` has a container; a null is none."""


def _given(field: str, kind: str) -> str:
    """CEL: whether the first container of role `r` has a field, of a CEL type; a null is none."""
    path = f"r.template.spec.containers[0].{field}"
    return f"has({path}) && type({path}) == {kind}"


class EngineRef(Model):
    """An Engine of the catalogue and the parameters for it."""

    name: ObjectName
    params: Annotated[
        dict[str, Any],
        Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
        AfterValidator(depth_checked),
    ] = Field(default_factory=dict)
    """Checked against the Engine's `paramsSchema`."""


class Role(Model):
    """Identical workers of the job. Ranks are numbered through the roles in order."""

    model_config = validated(
        Rule(
            "!has(self.minReplicas) || self.minReplicas <= self.replicas",
            "minReplicas must not exceed replicas",
            ".minReplicas",
        )
    )

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=24)]
    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)]
    """Pods of this role."""
    min_replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] | None = None
    """The fewest pods this role is worth running with: where no node is free for the others the job runs on
    without them, and takes them in again at the next checkpoint after they are there."""
    processes_per_replica: Annotated[int, Field(ge=1, le=64)] = 1
    """Ranks in each pod."""
    template: Annotated[PodTemplate | None, Field(json_schema_extra={"nullable": True})] = None
    """Own image and command, or additions (resources, volumes, tolerations) to the engine's pod."""


class Fencing(StrEnum):
    """How a replacement is kept apart from a worker that may still run on a node nobody hears of."""

    AUTO = "Auto"
    """`Commit` for engines, `Strict` for own images."""
    COMMIT = "Commit"
    """At once: what the old worker still does can no longer be committed as a checkpoint."""
    STRICT = "Strict"
    """Only when the old worker must have stopped: for programs that write elsewhere themselves."""


class Recovery(Model):
    """How the job survives faults."""

    max_restarts: Annotated[int, Field(ge=0, le=1000)] = 10
    """Counted restarts allowed within the window; one more fails the job."""
    window_seconds: Annotated[int, Field(ge=1, le=31_536_000)] = 3600
    """Length of the sliding window, in seconds."""
    hang_seconds: Annotated[int, Field(ge=5, le=86_400)] = 600
    """A rank that makes no step for this long, in seconds, is taken for hung and restarted."""
    in_place: bool = True
    """True restarts the ranks in the pods that are left; false replaces all pods after every fault."""
    warm: bool = True
    """True forks the ranks of a `python` command from a process with PyTorch loaded; false executes each."""
    fencing: Fencing = Fencing.AUTO
    """`Auto`, `Commit` or `Strict`: when the worker of a lost node may be replaced."""
    avoid_repeat_offenders: Annotated[int, Field(ge=0, le=100)] = 2
    """Faults of a node after which the job's pods go elsewhere if they can; 0 avoids none."""
    max_identical_errors: Annotated[int, Field(ge=0, le=1000)] = 3
    """The job fails when a rank has ended this often in a row in the same way at the same step; 0: never."""
    restart_id: Annotated[str, Field(max_length=64)] = ""
    """Any change of it forms the process group anew, once; not counted."""
    schedule_seconds: Annotated[int, Field(ge=10, le=86_400)] = 600
    """A job whose pods are not all up after this long, in seconds, gives them back and tries again."""


class GuardAction(StrEnum):
    """What may be done when a node slows the job."""

    OBSERVE = "Observe"
    """It is only told of; the job stays where it is."""
    SWAP = "Swap"
    """The job is moved off the node, once its state is saved."""


class Guard(Model):
    """What may be done to the job for the sake of its speed."""

    action: GuardAction = GuardAction.SWAP
    """`Swap` or `Observe`. Nodes are only acted on where a GuardPolicy says `mode: Act`."""


class RemoteTier(Model):
    """Checkpoints that outlive the cluster's memory."""

    store: ObjectName
    """CheckpointStore to which the nodes' agents upload what is in memory."""
    every: Duration = "10m"
    """Shortest time between two generations that go to the store."""
    keep_last: Annotated[int, Field(ge=1, le=100)] = 2
    """Newest generations that stay in the store."""
    keep_every_steps: Annotated[int, Field(ge=0)] = 0
    """Besides, the first generation at or after each multiple of so many steps stays; 0 for none."""


class LocalTier(Model):
    """Checkpoints in the memory of the node that each rank runs on; they outlive its pod, and its agent."""

    memory: Bytes | None = None
    """Most memory of one node that the job may fill with them; without it, whatever the node's agent has."""


class PeerTier(Model):
    """Copies in the memory of other nodes of the job; they outlive the node."""

    copies: Annotated[int, Field(ge=1, le=4)] = 1
    """Of each rank's share. So many nodes may be lost at once."""
    topology_key: Annotated[str, Field(min_length=1, max_length=253)] = "topology.kubernetes.io/zone"
    """Node label; copies go to nodes with another value of it, as far as there are any."""


class Tiers(Model):
    """Where checkpoints are kept."""

    model_config = validated(
        Rule(
            "!has(self.peer) || has(self.local)",
            "peer copies are made of what is in local memory: add local: {}",
            ".peer",
        ),
        Rule(
            "!has(self.remote) || has(self.local)",
            "what goes to a store is read from memory: add local: {}",
            ".remote",
        ),
    )

    local: LocalTier | None = None
    peer: PeerTier | None = None
    remote: RemoteTier | None = None

    @property
    def any(self) -> bool:
        """Whether the job's state is saved at all."""
        return self.local is not None

    @property
    def store(self) -> str | None:
        """The CheckpointStore to which memory is uploaded."""
        return self.remote.store if self.remote else None

    @property
    def names(self) -> tuple[str, ...]:
        """Those that are used, nearest first."""
        return tuple(name for name in ("local", "peer", "remote") if getattr(self, name) is not None)


class ResumeFrom(Model):
    """Another job of the same namespace, with whose state in the same CheckpointStore a job begins."""

    model_config = validated(
        Rule("has(self.job) != has(self.uid)", "resumeFrom needs exactly one of job and uid"),
    )

    job: ObjectName | None = None
    """Its name, while it exists."""
    uid: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$", min_length=1, max_length=64)] | None = None
    """Its `metadata.uid`, when it is gone."""
    step: Annotated[int, Field(ge=0)] = 0
    """Which of its generations, by the steps behind it; 0 for the newest."""


class Checkpoint(Model):
    """When and where the job saves its state."""

    model_config = validated(
        Rule(
            f"!has(self.interval) || self.interval != '{AUTO}' || (has(self.tiers) && has(self.tiers.local))",
            "interval Auto goes by what saves to memory cost: add tiers.local: {}, or name a time such as 5m",
            ".interval",
        ),
        Rule(
            "!has(self.resumeFrom) || (has(self.tiers) && has(self.tiers.remote))",
            "resumeFrom reads from the store that both jobs save to: name it in tiers.remote.store",
            ".resumeFrom",
        ),
    )

    interval: DurationOrAuto = "5m"
    """Longest time between two checkpoints while the job trains. `Auto`, with `tiers.local`, chooses it by
    what a checkpoint costs and how often the job fails; `status.checkpoint.interval` says what and why."""
    tiers: Tiers = Field(default_factory=Tiers)
    resume_from: ResumeFrom | None = None
    """What the job begins with, if it has saved nothing itself; else it begins at step 0."""

    @property
    def automatic(self) -> bool:
        """Whether the operator chooses the interval."""
        return self.interval == AUTO

    @property
    def interval_seconds(self) -> int:
        """Seconds between two checkpoints that the job's pods begin with."""
        return UNMEASURED_SECONDS if self.interval == AUTO else seconds(self.interval)


class TrainingJobSpec(Model):
    """What the user asks for."""

    model_config = validated(
        Rule(
            f"has(self.engine) || self.roles.all(r, {_CONTAINER} && {_given('image', 'string')})",
            "without spec.engine every role needs template.spec.containers[0].image",
            ".roles",
        ),
        Rule(
            f"has(self.engine) || self.roles.all(r, {_CONTAINER} && {_given('command', 'list')})",
            "without spec.engine every role needs template.spec.containers[0].command: Convoy starts the "
            "ranks itself and cannot read the image's entrypoint",
            ".roles",
        ),
        Rule(
            f"!has(self.engine) || self.roles.all(r, !({_CONTAINER})"
            f" || !({_given('args', 'list')}) || {_given('command', 'list')})",
            "args without command would be dropped: the engine brings its own command line",
            ".roles",
        ),
        Rule(
            f"self.success == '{ALL_ROLES_COMPLETE}' || self.roles.exists(r, r.name == self.success)",
            f"success must be {ALL_ROLES_COMPLETE} or the name of a role",
            ".success",
        ),
        Rule(
            "has(self.managedBy) == has(oldSelf.managedBy) && "
            "(!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
            "managedBy is immutable",
        ),
    )

    engine: EngineRef | None = None
    roles: Annotated[list[Role], Field(min_length=1, max_length=8, json_schema_extra=map_list("name"))]
    success: Annotated[str, Field(max_length=24)] = ALL_ROLES_COMPLETE
    """`AllRolesComplete`, or the role whose completion completes the job."""
    recovery: Recovery = Field(default_factory=Recovery)
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    guard: Guard = Field(default_factory=Guard)
    suspend: bool = False
    """True takes a checkpoint, gives all pods back and keeps the job; false lets it run on."""
    managed_by: Annotated[str, Field(max_length=63)] | None = None
    """The controller that reconciles this job; Convoy leaves it to any other than `convoy.dev/operator`."""
    active_deadline_seconds: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """The job fails when it has been active (not suspended) for longer, in seconds."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """The job is deleted this long after it finished, in seconds."""


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


class Progress(StatusModel):
    """How far the training is."""

    step: int = 0
    total_steps: int | None = None
    percent: int | None = None
    samples_per_second: float | None = None
    """Of all ranks together."""
    loss: float | None = None
    held_out_loss: float | None = None
    diverged: bool | None = None
    """True when the loss is no number: NaN or infinite. `loss` is then left out."""
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


class TrainingJob(Model):
    """A synchronous training job."""

    model_config = validated(
        Rule(
            "self.spec.roles.all(r, size(self.metadata.name) + size(r.name) + 6 <= 63)",
            "pod names are <job>-<role>-<index> and must fit 63 characters: "
            "shorten metadata.name or a role's name",
        ),
        Rule(
            # The cheapest alternatives stand first: `||` skips the rest.
            "(has(self.spec.suspend) && self.spec.suspend)"
            " || !has(self.status) || !has(self.status.phase)"
            " || self.status.phase in ['Pending', 'Suspending', 'Suspended']"
            f" || ({unchanged.roles('self.spec.roles', 'oldSelf.spec.roles')}"
            f" && {unchanged.checkpoint('self.spec.checkpoint', 'oldSelf.spec.checkpoint')}"
            " && has(self.spec.engine) == has(oldSelf.spec.engine)"
            " && (!has(self.spec.engine) || self.spec.engine == oldSelf.spec.engine))",
            "engine, roles and checkpoint may change only while status.phase is Pending, Suspending or "
            "Suspended, or in the update that sets suspend: true; a job that has ended is made anew instead",
            ".spec",
        ),
        Rule(
            "(self.spec.recovery.fencing == oldSelf.spec.recovery.fencing"
            " && has(self.spec.engine) == has(oldSelf.spec.engine))"
            " || !has(self.status) || !has(self.status.phase)"
            " || self.status.phase in ['Pending', 'Suspended']",
            "recovery.fencing, and whether there is an engine, may change only while status.phase is Pending "
            "or Suspended: until then pods of the job may run that are fenced in the old way",
            ".spec",
        ),
    )

    api_version: Literal["convoy.dev/v1alpha1"] = "convoy.dev/v1alpha1"
    kind: Literal["TrainingJob"] = "TrainingJob"
    metadata: ObjectMeta
    spec: TrainingJobSpec
    status: TrainingJobStatus = Field(default_factory=TrainingJobStatus)


KIND = Kind(
    TrainingJob,
    plural="trainingjobs",
    short=("tj",),
    scope=Scope.NAMESPACED,
    columns=(
        Column("Phase", ".status.phase"),
        Column("Ready", ".status.ready"),
        Column("Step", ".status.progress.step", "integer"),
        Column("%", ".status.progress.percent", "integer"),
        Column("Checkpoint", ".status.checkpoint.time", "date"),
        Column("Tier", ".status.checkpoint.tier"),
        Column("Restarts", ".status.restarts.total", "integer"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Engine", ".spec.engine.name", wide=True),
        Column("Loss", ".status.progress.loss", "number", wide=True),
        Column("Diverged", ".status.progress.diverged", "boolean", wide=True),
        Column("Incarnation", ".status.incarnation", "integer", wide=True),
        Column("Goodput", ".status.goodput.ratio", "number", wide=True),
        Column("Reason", ".status.reason", wide=True),
        Column("Message", ".status.message", wide=True),
    ),
    selectable=(".status.phase",),
    editors=Editors.NAMESPACE_USERS,
    pod_templates=("spec.roles[].template",),
)
