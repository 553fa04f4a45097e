"""ServingJob: a job whose replicas load a model and serve requests behind a Service. Convoy rolls, restarts
and drains the replicas.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from convoy_crds.advice import Lint
from convoy_crds.kind import Column, Editors, Kind, Scale, Scope
from convoy_crds.meta import Model, ObjectMeta, Rule, map_list, validated
from convoy_crds.placement import Packing
from convoy_crds.podtemplate import PodTemplate
from convoy_crds.servingjob_checkpoint import ServingCheckpoint
from convoy_crds.servingjob_model import ModelSource
from convoy_crds.servingjob_rollout import (
    DEFAULT_DRAIN_SECONDS,
    ENDPOINT_LAG_SECONDS,
    Rollout,
    Service,
    ServingRecovery,
    Slo,
)
from convoy_crds.servingjob_scaling import Scaling
from convoy_crds.servingjob_status import MAX_GROUPS, ServingJobStatus
from convoy_crds.template_cel import has_container, has_field
from convoy_crds.terms import ROLE_ACTIVATOR
from convoy_crds.trainingjob import EngineRef

_CONTAINER = has_container("self")
_SCALED = "(has(self.scaledRole) ? self.scaledRole : self.roles[0].name)"
_BY_CONVOY = "(has(r.scaling) && (!has(r.scaling.mode) || r.scaling.mode == 'Convoy'))"
_BY_HPA = "(has(r.scaling) && has(r.scaling.mode) && r.scaling.mode == 'HorizontalPodAutoscaler')"
_TO_ZERO = "(has(r.scaling) && has(r.scaling.minReplicas) && r.scaling.minReplicas == 0)"
_SERVING = f"(has(self.service) && has(self.service.role) ? self.service.role : {_SCALED})"
_GRACE = "r.template.spec.terminationGracePeriodSeconds"
_HAS_GRACE = (
    "has(r.template) && r.template != null && has(r.template.spec) && r.template.spec != null"
    f" && has({_GRACE}) && type({_GRACE}) == int"
)
_DRAIN = (
    "(has(self.rollout) && has(self.rollout.drainSeconds)"
    f" ? self.rollout.drainSeconds : {DEFAULT_DRAIN_SECONDS})"
)

_NAME_AT_ZERO = 63 - len(f"-{ROLE_ACTIVATOR}-0000-0")
"""Maximum number of characters in the name of a job with activators."""


class MetricsEndpoint(Model):
    """The Prometheus metrics of a program that does not report its requests to Convoy itself."""

    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of the metrics. If absent, it is `spec.service.port`."""
    path: Annotated[str, Field(pattern=r"^/[!-~]{0,255}$")] = "/metrics"
    """Path of the metrics."""


class ServingRole(Model):
    """A set of identical replicas. Each replica is a group of pods that starts, restarts and rolls as one."""

    model_config = validated(
        Rule(
            f"has(self.engine) || ({_CONTAINER} && {has_field('self', 'image', 'string')}"
            f" && {has_field('self', 'command', 'list')})",
            "without engine the role needs template.spec.containers[0] with image and command: Convoy starts "
            "the program itself and cannot read the image's entrypoint",
            ".template",
        ),
        Rule(
            f"has(self.engine) || !({_CONTAINER}) || {has_field('self', 'readinessProbe', 'map')}",
            "without engine the role needs template.spec.containers[0].readinessProbe: otherwise requests "
            "would reach replicas that cannot serve yet",
            ".template",
        ),
        Rule(
            f"!has(self.engine) || !({_CONTAINER}) || !({has_field('self', 'readinessProbe', 'map')})",
            "with engine, readinessProbe of template.spec.containers[0] must be absent: the engine reports "
            "its readiness itself",
            ".template",
        ),
        Rule(
            f"!has(self.engine) || !({_CONTAINER}) || !({has_field('self', 'args', 'list')})"
            f" || {has_field('self', 'command', 'list')}",
            "args without command would be ignored, because the engine has its own command line: set "
            "command too",
            ".template",
        ),
    )

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=24)]
    replicas: Annotated[int, Field(ge=0, le=MAX_GROUPS)] | None = None
    """Number of replicas of this role. The scaled role has none here, because `spec.replicas` is its number.
    A role whose `scaling` has mode Convoy has none either.
    """
    scaling: Scaling | None = None
    """Limits and metrics by which the number of replicas follows the load. If absent, Convoy does not scale
    the role.
    """
    group_size: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of pods of each replica. Slot 0 receives the requests."""
    engine: EngineRef | None = None
    """Serving Engine of the catalogue. If absent, `template` has its own image and command."""
    template: Annotated[PodTemplate | None, Field(json_schema_extra={"nullable": True})] = None
    """Pod template with the role's own image, command and readiness probe. For a role with an engine:
    additions to the engine's pods, such as resources, volumes and tolerations.
    """
    metrics: MetricsEndpoint | None = None
    """Metrics of slot 0 that the node's agent reads for `status.traffic`: those of vLLM, or the same names
    with the prefix `convoy_`. Engines with Convoy's serving front need none.
    """


class ServingJobSpec(Model):
    """The service that the user wants."""

    model_config = validated(
        Rule(
            "size(self.roles) == 1 || has(self.scaledRole)",
            "with more than one role, scaledRole must name the role that spec.replicas scales",
            ".scaledRole",
        ),
        Rule(
            "!has(self.scaledRole) || self.roles.exists(r, r.name == self.scaledRole)",
            "scaledRole must be the name of a role",
            ".scaledRole",
        ),
        Rule(
            f"self.roles.all(r, has(r.replicas) == (r.name != {_SCALED} && !{_BY_CONVOY}))",
            "spec.replicas is the number of replicas of the scaled role; every other role needs its own "
            "replicas or scaling with mode Convoy; the scaled role, and a role with mode Convoy, must have "
            "no replicas of its own",
            ".roles",
        ),
        Rule(
            f"!has(self.replicas) || !self.roles.exists(r, r.name == {_SCALED} && {_BY_CONVOY})",
            "spec.replicas must be absent, because Convoy itself scales the role: change "
            "scaling.minReplicas and maxReplicas, or set scaling.mode: None to choose the number yourself",
            ".replicas",
        ),
        Rule(
            f"self.roles.all(r, !{_TO_ZERO} || r.name == {_SERVING})",
            "scaling.minReplicas: 0 is only for the role that receives requests (service.role), because "
            "only requests can start its replicas again",
            ".roles",
        ),
        Rule(
            f"self.roles.all(r, r.name != '{ROLE_ACTIVATOR}')",
            f"the name {ROLE_ACTIVATOR} is reserved for the pods that hold requests at 0 replicas: choose "
            "another name",
            ".roles",
        ),
        Rule(
            f"self.roles.all(r, !{_BY_HPA} || (r.name == {_SCALED} && has(self.replicas)))",
            "scaling.mode HorizontalPodAutoscaler is only for the scaled role, because the scale subresource "
            "has no path to another; it needs spec.replicas, which the HorizontalPodAutoscaler then changes",
            ".roles",
        ),
        Rule(
            "!has(self.service) || !has(self.service.role)"
            " || self.roles.exists(r, r.name == self.service.role)",
            "service.role must be the name of a role",
            ".service.role",
        ),
        Rule(
            f"self.roles.all(r, !({_HAS_GRACE}) || {_GRACE} > {ENDPOINT_LAG_SECONDS} + {_DRAIN})",
            "terminationGracePeriodSeconds must be greater than rollout.drainSeconds plus "
            f"{ENDPOINT_LAG_SECONDS} s, in which proxies drop the pod: otherwise requests in flight are lost",
            ".roles",
        ),
        Rule(
            "has(self.managedBy) == has(oldSelf.managedBy) && "
            "(!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
            "managedBy is immutable",
        ),
    )

    roles: Annotated[list[ServingRole], Field(min_length=1, max_length=8, json_schema_extra=map_list("name"))]
    replicas: Annotated[int, Field(ge=0, le=MAX_GROUPS)] | None = None
    """Number of replicas of the scaled role. If absent, the number stays as it is, and a job starts with 1.
    If `scaling` of the role has mode Convoy, it must be absent.
    """
    scaled_role: Annotated[str, Field(max_length=24)] | None = None
    """Role whose number of replicas is `spec.replicas`. If absent, it is the only role."""
    model: ModelSource | None = None
    """The model that the replicas load. If absent, they serve what the engine or image brings."""
    checkpoint: ServingCheckpoint = Field(default_factory=ServingCheckpoint)
    """Memory in which the replicas keep states that cost time to build again. A program saves and restores
    such a state with `convoy.ReplicaState`.
    """
    placement: Packing = Field(default_factory=Packing)
    """Where the pods of a replica run, if its role has a `groupSize` above 1. Each replica is a gang of its
    own. A change is no new revision: it applies to replicas that start later.
    """
    service: Service = Field(default_factory=Service)
    rollout: Rollout = Field(default_factory=Rollout)
    recovery: ServingRecovery = Field(default_factory=ServingRecovery)
    slo: Slo | None = None
    lint: Lint | None = None
    """Rules of advice that the operator checks the job against. If absent, it checks none."""
    suspend: bool = False
    """True: Convoy drains and deletes all pods, but keeps the job. False: the job runs."""
    managed_by: Annotated[str, Field(max_length=63)] | None = None
    """Name of the controller that reconciles this job. Convoy ignores the job if the name is not
    `convoy.dev/operator`.
    """

    @property
    def scaled(self) -> str:
        """Return the name of the role that `replicas` scales."""
        return self.scaled_role or self.roles[0].name

    @property
    def serving_role(self) -> str:
        """Return the name of the role that receives the requests."""
        return self.service.role or self.scaled

    @property
    def scales_to_zero(self) -> bool:
        """Return True if the role that receives requests may have 0 replicas while there are no requests."""
        found = self.role(self.serving_role)
        return bool(
            self.decides(self.serving_role) and found and found.scaling and found.scaling.min_replicas == 0
        )

    def role(self, name: str) -> ServingRole | None:
        """Return the role of this name; None if there is none."""
        return next((one for one in self.roles if one.name == name), None)

    def fixed(self, role: str) -> int | None:
        """Return the number of replicas that the spec demands of a role; 0 for an unknown role. None if
        Convoy decides the number, or if it stays as it is.
        """
        found = self.role(role)
        if found is None:
            return 0
        return self.replicas if role == self.scaled else found.replicas

    def decides(self, role: str) -> bool:
        """Return True if Convoy decides the number of replicas of a role."""
        found = self.role(role)
        return bool(found and found.scaling and found.scaling.decides)

    def least(self, role: str) -> int:
        """Return the number of replicas with which a role starts if the spec demands none."""
        found = self.role(role)
        return max(1, found.scaling.min_replicas) if found and found.scaling else 1


class ServingJob(Model):
    """Replicas of a model behind a Service."""

    model_config = validated(
        Rule(
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "the name is also the name of a Service: it must begin with a letter, and have only a-z, 0-9 "
            "and -",
        ),
        Rule(
            "self.spec.roles.all(r, size(self.metadata.name) + size(r.name) + 9 <= 63)",
            "pod names are <job>-<role>-<replica>-<slot> and must fit 63 characters: "
            "shorten metadata.name or a role's name",
        ),
        Rule(
            f"!self.spec.roles.exists(r, {_TO_ZERO}) || size(self.metadata.name) <= {_NAME_AT_ZERO}",
            f"with scaling.minReplicas: 0, metadata.name may have at most {_NAME_AT_ZERO} characters: pods "
            f"are named <job>-{ROLE_ACTIVATOR}-<number>-0",
        ),
    )

    api_version: Literal["convoy.dev/v1alpha1"] = "convoy.dev/v1alpha1"
    kind: Literal["ServingJob"] = "ServingJob"
    metadata: ObjectMeta
    spec: ServingJobSpec
    status: ServingJobStatus = Field(default_factory=ServingJobStatus)

    def desired(self, role: str) -> int:
        """Return the desired number of replicas of a role: that of the spec, else the newest decision of the
        autoscaler; 0 for an unknown role.

        A role that nothing scales any more does not stay at 0, because no request could start it again.
        """
        fixed = self.spec.fixed(role)
        if fixed is not None:
            return fixed
        held = next((one.desired for one in self.status.roles if one.name == role), None)
        if held is None or (held == 0 and not self.spec.decides(role)):
            return self.spec.least(role)
        return held


KIND = Kind(
    ServingJob,
    plural="servingjobs",
    short=("sj",),
    scope=Scope.NAMESPACED,
    columns=(
        Column("Ready", ".status.ready"),
        Column("Revision", ".status.updateRevision"),
        Column("P95", ".status.traffic.p95Ms", "number"),
        Column("Req/s", ".status.traffic.requestsPerSecond", "number"),
        Column("Queue", ".status.traffic.queue", "integer"),
        Column("Reason", ".status.reason"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Scaled", ".status.lastScaleTime", "date", wide=True),
        Column("Step", ".status.model.step", "integer", wide=True),
        Column("Packed", ".status.packed", wide=True),
        Column("Message", ".status.message", wide=True),
    ),
    editors=Editors.NAMESPACE_USERS,
    scale=Scale(".spec.replicas", ".status.replicas", ".status.selector"),
    pod_templates=("spec.roles[].template",),
)
