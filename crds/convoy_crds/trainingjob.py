"""TrainingJob: roles of workers that train together, restarted, checkpointed and watched."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from convoy_crds import unchanged
from convoy_crds.kind import Column, Editors, Kind, Scope
from convoy_crds.meta import (
    MAX_REPLICAS,
    Model,
    ObjectMeta,
    ObjectName,
    Rule,
    map_list,
    validated,
)
from convoy_crds.podtemplate import PodTemplate, depth_checked
from convoy_crds.trainingjob_checkpoint import Checkpoint
from convoy_crds.trainingjob_status import TrainingJobStatus

ALL_ROLES_COMPLETE = "AllRolesComplete"
_CONTAINER = (
    "has(r.template) && r.template != null && has(r.template.spec) && r.template.spec != null"
    " && has(r.template.spec.containers)"
    " && type(r.template.spec.containers) == list && size(r.template.spec.containers) > 0"
)
"""CEL: whether role `r` has a container; a null is none."""


def _has_field(field: str, kind: str) -> str:
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


class TrainingJobSpec(Model):
    """What the user asks for."""

    model_config = validated(
        Rule(
            f"has(self.engine) || self.roles.all(r, {_CONTAINER} && {_has_field('image', 'string')})",
            "without spec.engine every role needs template.spec.containers[0].image",
            ".roles",
        ),
        Rule(
            f"has(self.engine) || self.roles.all(r, {_CONTAINER} && {_has_field('command', 'list')})",
            "without spec.engine every role needs template.spec.containers[0].command: Convoy starts the "
            "ranks itself and cannot read the image's entrypoint",
            ".roles",
        ),
        Rule(
            f"!has(self.engine) || self.roles.all(r, !({_CONTAINER})"
            f" || !({_has_field('args', 'list')}) || {_has_field('command', 'list')})",
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
