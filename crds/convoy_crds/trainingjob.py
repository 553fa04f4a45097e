"""TrainingJob: roles of workers that train together. Convoy restarts, checkpoints and observes them."""

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
"""CEL that is true if role `r` has a container. A null counts as absent."""


def _has_field(field: str, kind: str) -> str:
    """Return CEL that is true if the first container of role `r` has a field of a CEL type. A null counts
    as absent.
    """
    path = f"r.template.spec.containers[0].{field}"
    return f"has({path}) && type({path}) == {kind}"


class EngineRef(Model):
    """An Engine of the catalogue, and the parameters for it."""

    name: ObjectName
    params: Annotated[
        dict[str, Any],
        Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
        AfterValidator(depth_checked),
    ] = Field(default_factory=dict)
    """Parameters, which must match the Engine's `paramsSchema`."""


class Role(Model):
    """Identical workers of the job. Ranks are numbered consecutively through the roles, in order."""

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
    """Fewest pods that this role can run with. If the others have no free node, the job runs without them.
    They rejoin at the next checkpoint after they are ready.
    """
    processes_per_replica: Annotated[int, Field(ge=1, le=64)] = 1
    """Ranks in each pod."""
    template: Annotated[PodTemplate | None, Field(json_schema_extra={"nullable": True})] = None
    """The role's own image and command, or additions to the engine's pod: resources, volumes, tolerations."""


class Fencing(StrEnum):
    """Isolation of the worker of a lost node, which may still run, from its replacement."""

    AUTO = "Auto"
    """`Commit` for engines, `Strict` for jobs with their own image."""
    COMMIT = "Commit"
    """Replaces the worker at once. The old worker can no longer commit a checkpoint."""
    STRICT = "Strict"
    """Replaces the worker only when the old one must have stopped, for programs that also write to other
    places.
    """


class Recovery(Model):
    """Recovery of the job from faults."""

    max_restarts: Annotated[int, Field(ge=0, le=1000)] = 10
    """Most counted restarts within the window. One more fails the job."""
    window_seconds: Annotated[int, Field(ge=1, le=31_536_000)] = 3600
    """Length of the sliding window in seconds."""
    hang_seconds: Annotated[int, Field(ge=5, le=86_400)] = 600
    """Seconds without a step after which a rank counts as hung and is restarted."""
    in_place: bool = True
    """True restarts the ranks in the remaining pods. False replaces all pods after every fault."""
    warm: bool = True
    """True forks the ranks of a `python` command from a process that has PyTorch loaded. False starts each
    rank with a new interpreter.
    """
    fencing: Fencing = Fencing.AUTO
    """Condition for replacing the worker of a lost node."""
    avoid_repeat_offenders: Annotated[int, Field(ge=0, le=100)] = 2
    """Faults of a node after which the job's pods avoid the node if possible. 0 avoids no node."""
    max_identical_errors: Annotated[int, Field(ge=0, le=1000)] = 3
    """Consecutive identical failures after which the job fails: a rank ends in the same way at the same
    step. 0 disables the limit.
    """
    restart_id: Annotated[str, Field(max_length=64)] = ""
    """Any change restarts the ranks once. That restart does not count against `maxRestarts`."""
    schedule_seconds: Annotated[int, Field(ge=10, le=86_400)] = 600
    """Seconds that all pods have to start. After that Convoy deletes them, waits and tries again."""


class GuardAction(StrEnum):
    """Allowed action when a node slows the job."""

    OBSERVE = "Observe"
    """Convoy only reports the node. The job stays on it."""
    SWAP = "Swap"
    """Convoy swaps the job off the node, after the job has saved its state."""


class Guard(Model):
    """Permission to act on nodes that slow the job."""

    action: GuardAction = GuardAction.SWAP
    """Convoy acts on nodes only if their GuardPolicy has `mode: Act`."""


class TrainingJobSpec(Model):
    """The job that the user requests."""

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
            "args without command would be ignored, because the engine has its own command line: set "
            "command too",
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
    """`AllRolesComplete`, or the name of the role whose completion completes the job."""
    recovery: Recovery = Field(default_factory=Recovery)
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    guard: Guard = Field(default_factory=Guard)
    suspend: bool = False
    """True saves a checkpoint and deletes all pods but keeps the job. False lets the job run on."""
    managed_by: Annotated[str, Field(max_length=63)] | None = None
    """Controller that reconciles this job. Convoy ignores the job if it is not `convoy.dev/operator`."""
    active_deadline_seconds: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Seconds of activity, without suspensions, after which the job fails."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Seconds between the end of the job and its deletion. Absent: Convoy does not delete it."""


class TrainingJob(Model):
    """A synchronous training job."""

    model_config = validated(
        Rule(
            "self.spec.roles.all(r, size(self.metadata.name) + size(r.name) + 6 <= 63)",
            "pod names are <job>-<role>-<index> and must fit 63 characters: "
            "shorten metadata.name or a role's name",
        ),
        Rule(
            # The cheapest alternatives come first, because `||` skips the rest.
            "(has(self.spec.suspend) && self.spec.suspend)"
            " || !has(self.status) || !has(self.status.phase)"
            " || self.status.phase in ['Pending', 'Suspending', 'Suspended']"
            f" || ({unchanged.roles('self.spec.roles', 'oldSelf.spec.roles')}"
            f" && {unchanged.checkpoint('self.spec.checkpoint', 'oldSelf.spec.checkpoint')}"
            " && has(self.spec.engine) == has(oldSelf.spec.engine)"
            " && (!has(self.spec.engine) || self.spec.engine == oldSelf.spec.engine))",
            "engine, roles and checkpoint may change only while status.phase is Pending, Suspending or "
            "Suspended, or in the update that sets suspend: true; if the job has ended, create another job",
            ".spec",
        ),
        Rule(
            "(self.spec.recovery.fencing == oldSelf.spec.recovery.fencing"
            " && has(self.spec.engine) == has(oldSelf.spec.engine))"
            " || !has(self.status) || !has(self.status.phase)"
            " || self.status.phase in ['Pending', 'Suspended']",
            "recovery.fencing, and the presence of spec.engine, may change only while status.phase is "
            "Pending or Suspended: in other phases pods with the old fencing may still run",
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
