"""TrainingJob: a job whose workers train together in roles. Convoy restarts, checkpoints and observes the
workers.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from convoy_crds import unchanged
from convoy_crds.advice import Lint
from convoy_crds.kind import Column, Editors, Kind, Scope
from convoy_crds.meta import (
    MAX_REPLICAS,
    DnsLabel,
    Model,
    ObjectMeta,
    ObjectName,
    Rule,
    map_list,
    validated,
)
from convoy_crds.placement import Placement
from convoy_crds.podtemplate import PodTemplate, depth_checked
from convoy_crds.template_cel import has_container, has_field
from convoy_crds.trainingjob_checkpoint import Checkpoint
from convoy_crds.trainingjob_independent import MAX_INDEPENDENT, MAX_ROLES, Budget, Membership
from convoy_crds.trainingjob_status import TrainingJobStatus
from convoy_crds.trainingjob_trace import Trace

ALL_ROLES_COMPLETE = "AllRolesComplete"
_CONTAINER = has_container("r")
_INDEPENDENT = "(has({0}.membership) && {0}.membership == 'Independent')"
_SELF_INDEPENDENT, _R_INDEPENDENT = _INDEPENDENT.format("self"), _INDEPENDENT.format("r")


class EngineRef(Model):
    """An Engine of the catalogue, and the parameters for the Engine."""

    name: ObjectName
    params: Annotated[
        dict[str, Any],
        Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}),
        AfterValidator(depth_checked),
    ] = Field(default_factory=dict)
    """Parameters for the Engine. They must match the Engine's `paramsSchema`."""


class Role(Model):
    """A group of identical workers. The ranks are numbered consecutively through all Member roles, in the
    order of the roles.
    """

    model_config = validated(
        Rule(
            "!has(self.minReplicas) || self.minReplicas <= self.replicas",
            "minReplicas must not exceed replicas",
            ".minReplicas",
        ),
        Rule(
            f"{_SELF_INDEPENDENT} || !has(self.minReplicas) || self.minReplicas > 0",
            "minReplicas may be 0 only with membership Independent: the process group needs a pod of each "
            "Member role",
            ".minReplicas",
        ),
        Rule(
            f"!{_SELF_INDEPENDENT} || !has(self.processesPerReplica) || self.processesPerReplica == 1",
            "each pod of an Independent role runs one process: remove processesPerReplica, and let the "
            "program start the other processes",
            ".processesPerReplica",
        ),
        Rule(
            f"!{_SELF_INDEPENDENT} || self.replicas <= {MAX_INDEPENDENT}",
            f"an Independent role may have at most {MAX_INDEPENDENT} replicas",
            ".replicas",
        ),
        Rule(
            f"{_SELF_INDEPENDENT} || !has(self.budget)",
            "budget is only for membership Independent: Member roles share spec.recovery.maxRestarts",
            ".budget",
        ),
        Rule(
            f"!has(self.spotPool) || {_SELF_INDEPENDENT}"
            " || (has(self.minReplicas) && self.minReplicas < self.replicas)",
            "spotPool needs membership Independent, or minReplicas below replicas: the process group must "
            "run without the pods whose nodes are lost",
            ".spotPool",
        ),
    )

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=24)]
    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)]
    """Number of pods of this role."""
    membership: Membership = Membership.MEMBER
    """Place of the pods in relation to the job's process group."""
    min_replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] | None = None
    """Minimum number of pods with which this role can run. If there is no free node for the other pods, the
    job runs without them. They rejoin the job at the next checkpoint after they are ready. For an Independent
    role: if fewer pods run, the condition IndependentReady is False, and the job runs on; default 0.
    """
    budget: Budget | None = None
    """Restarts that each pod of an Independent role may use."""
    spot_pool: DnsLabel | None = None
    """Name of the SpotPool on whose nodes the pods run. The role must be Independent or elastic. The pool
    grants pods within its budgets, and drains its nodes before the provider takes them back. The pods get
    the pool's node selector and tolerations.
    """
    processes_per_replica: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of ranks in each pod."""
    template: Annotated[PodTemplate | None, Field(json_schema_extra={"nullable": True})] = None
    """Pod template with the role's own image and command. For a job with an engine: additions to the
    engine's pod, such as resources, volumes and tolerations.
    """

    @property
    def least(self) -> int:
        """Return the number of pods without which a Member role cannot run."""
        return self.min_replicas or self.replicas

    @property
    def independent(self) -> bool:
        """Return True if the role's pods are outside the process group."""
        return self.membership is Membership.INDEPENDENT


class Fencing(StrEnum):
    """Rule for replacing the worker of a lost node. That worker may still run."""

    AUTO = "Auto"
    """`Commit` for jobs with an engine, `Strict` for jobs with their own image."""
    COMMIT = "Commit"
    """Convoy replaces the worker at once. The old worker can no longer commit a checkpoint."""
    STRICT = "Strict"
    """Convoy replaces the worker only when the old worker has certainly stopped. This is for programs that
    also write to places outside Convoy's checkpoints.
    """


class Recovery(Model):
    """Settings for the recovery of the job from faults."""

    max_restarts: Annotated[int, Field(ge=0, le=1000)] = 10
    """Maximum number of counted restarts within `windowSeconds`. The job fails at the next fault."""
    window_seconds: Annotated[int, Field(ge=1, le=31_536_000)] = 3600
    """Length of the sliding window for `maxRestarts`, in seconds."""
    hang_seconds: Annotated[int, Field(ge=5, le=86_400)] = 600
    """Number of seconds without a step after which a rank counts as hung and is restarted."""
    in_place: bool = True
    """True: after a fault the ranks restart in the remaining pods. False: after every fault Convoy replaces
    all pods.
    """
    warm: bool = True
    """True: the ranks of a `python` command are forked from a process that has already loaded PyTorch.
    False: each rank starts a new interpreter.
    """
    fencing: Fencing = Fencing.AUTO
    """Rule for replacing the worker of a lost node."""
    avoid_repeat_offenders: Annotated[int, Field(ge=0, le=100)] = 2
    """Number of faults on a node after which the job's pods avoid the node if possible. 0 means that no
    node is avoided.
    """
    max_identical_errors: Annotated[int, Field(ge=0, le=1000)] = 3
    """Number of consecutive identical failures after which the job fails. Failures are identical if a rank
    ends in the same way at the same step. 0 disables the limit.
    """
    restart_id: Annotated[str, Field(max_length=64)] = ""
    """Any change of this text restarts the ranks once. The restart does not count against `maxRestarts`."""
    schedule_seconds: Annotated[int, Field(ge=10, le=86_400)] = 600
    """Number of seconds within which all pods must have started. After this time Convoy deletes the pods,
    waits and tries again.
    """


class GuardAction(StrEnum):
    """Action that Convoy may take if a node slows the job."""

    OBSERVE = "Observe"
    """Convoy only reports the node. The job stays on the node."""
    SWAP = "Swap"
    """Convoy swaps the job off the node, after the job has saved its state."""


class Guard(Model):
    """Action that Convoy may take about nodes that slow the job."""

    action: GuardAction = GuardAction.SWAP
    """Action that Convoy may take. Convoy acts on a node only if the GuardPolicy of the node has `mode:
    Act`.
    """


class TrainingJobSpec(Model):
    """The job that the user wants."""

    model_config = validated(
        Rule(
            f"has(self.engine) || self.roles.all(r, {_CONTAINER} && {has_field('r', 'image', 'string')})",
            "without spec.engine every role needs template.spec.containers[0].image",
            ".roles",
        ),
        Rule(
            f"has(self.engine) || self.roles.all(r, {_CONTAINER} && {has_field('r', 'command', 'list')})",
            "without spec.engine every role needs template.spec.containers[0].command: Convoy starts the "
            "ranks itself and cannot read the image's entrypoint",
            ".roles",
        ),
        Rule(
            f"!has(self.engine) || self.roles.all(r, !({_CONTAINER})"
            f" || !({has_field('r', 'args', 'list')}) || {has_field('r', 'command', 'list')})",
            "args without command would be ignored, because the engine has its own command line: set "
            "command too",
            ".roles",
        ),
        Rule(
            f"self.success == '{ALL_ROLES_COMPLETE}'"
            f" || self.roles.exists(r, r.name == self.success && !{_R_INDEPENDENT})",
            f"success must be {ALL_ROLES_COMPLETE} or the name of a role with membership Member",
            ".success",
        ),
        Rule(
            f"self.roles.exists(r, !{_R_INDEPENDENT})",
            "at least one role needs membership Member: the process group needs a pod",
            ".roles",
        ),
        Rule(
            "!has(self.trace) || has(self.trace.store) || (has(self.checkpoint) && has(self.checkpoint.tiers)"
            " && has(self.checkpoint.tiers.remote))",
            "traces need a CheckpointStore: set trace.store, or checkpoint.tiers.remote.store",
            ".trace",
        ),
        Rule(
            "has(self.managedBy) == has(oldSelf.managedBy) && "
            "(!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
            "managedBy is immutable",
        ),
    )

    engine: EngineRef | None = None
    roles: Annotated[
        list[Role], Field(min_length=1, max_length=MAX_ROLES, json_schema_extra=map_list("name"))
    ]
    success: Annotated[str, Field(max_length=24)] = ALL_ROLES_COMPLETE
    """`AllRolesComplete`, which means all Member roles, or the name of a Member role. If it is a role, the
    job is complete when this role is complete.
    """
    recovery: Recovery = Field(default_factory=Recovery)
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    guard: Guard = Field(default_factory=Guard)
    placement: Placement = Field(default_factory=Placement)
    trace: Trace | None = None
    lint: Lint | None = None
    """Rules of advice that the operator checks the job against. If absent, it checks none."""
    suspend: bool = False
    """True: Convoy saves a checkpoint and deletes all pods, but keeps the job. False: the job runs."""
    managed_by: Annotated[str, Field(max_length=63)] | None = None
    """Name of the controller that reconciles this job. Convoy ignores the job if the name is not
    `convoy.dev/operator`.
    """
    active_deadline_seconds: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """Number of seconds after which an active job fails. Time during which the job is suspended does not
    count.
    """
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Number of seconds from the end of the job until Convoy deletes it. If absent, Convoy does not delete
    the job.
    """

    @property
    def trace_store(self) -> str | None:
        """Return the name of the CheckpointStore for traces; None if the job records none."""
        return (self.trace.store or self.checkpoint.tiers.store) if self.trace else None


class TrainingJob(Model):
    """A synchronous training job."""

    model_config = validated(
        Rule(
            "self.spec.roles.all(r, size(self.metadata.name) + size(r.name) + 6 <= 63)",
            "pod names are <job>-<role>-<index> and must fit 63 characters: "
            "shorten metadata.name or a role's name",
        ),
        Rule(
            # Check the cheapest alternatives first, because `||` skips the others if one is true.
            "(has(self.spec.suspend) && self.spec.suspend)"
            " || !has(self.status) || !has(self.status.phase)"
            " || self.status.phase in ['Pending', 'Suspending', 'Suspended']"
            f" || ({unchanged.roles('self.spec.roles', 'oldSelf.spec.roles')}"
            f" && {unchanged.checkpoint('self.spec.checkpoint', 'oldSelf.spec.checkpoint')}"
            " && has(self.spec.engine) == has(oldSelf.spec.engine)"
            " && (!has(self.spec.engine) || self.spec.engine == oldSelf.spec.engine)"
            f" && {unchanged.placement('self.spec.placement', 'oldSelf.spec.placement')})",
            "engine, roles, checkpoint and placement may change only while status.phase is Pending, "
            "Suspending or Suspended, or in the update that sets suspend: true; if the job has ended, create "
            "another job",
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
        Column("Independent", ".status.independent", wide=True),
        Column("Goodput", ".status.goodput.ratio", "number", wide=True),
        Column("Placement", ".status.placement.summary", wide=True),
        Column("Gang", ".status.placement.gang", wide=True),
        Column("Queue", ".status.placement.queue.name", wide=True),
        Column("Reason", ".status.reason", wide=True),
        Column("Message", ".status.message", wide=True),
    ),
    selectable=(".status.phase",),
    editors=Editors.NAMESPACE_USERS,
    pod_templates=("spec.roles[].template",),
)
