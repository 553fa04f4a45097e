"""Engine: an entry in the catalogue of workloads. A job can name an Engine instead of its own image."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from convoy_crds.kind import Column, Editors, Kind, Scope
from convoy_crds.meta import Condition, Model, ObjectMeta, StatusModel, map_list
from convoy_crds.metric_names import MAX_METRIC_NAME, MAX_METRICS, METRIC_NAME


class EngineMetric(Model):
    """A metric that the engine reports by `job.report(metrics=...)`."""

    name: Annotated[str, Field(pattern=METRIC_NAME, max_length=MAX_METRIC_NAME)]
    """Name of the metric."""
    unit: Annotated[str, Field(max_length=32)] = ""
    """Base unit, such as `seconds`, `bytes` or `ratio`. Empty for a plain count."""
    help: Annotated[str, Field(max_length=512)] = ""


class EngineSpec(Model):
    """The image, command and parameters of the workload."""

    image: Annotated[str, Field(min_length=1, max_length=512)]
    """Container image that contains the engine."""
    command: Annotated[list[Annotated[str, Field(max_length=1024)]], Field(min_length=1, max_length=32)]
    """Command line of each rank. If it is `python FILE` or `python -m MODULE`, Convoy forks the rank from a
    process that has already loaded PyTorch. Any other command starts as a new process.
    """
    role_kind: Literal["Training", "Serving"] = "Training"
    """Kind of job that may name this engine."""
    params_schema: Annotated[
        dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
    ] = Field(default_factory=dict)
    """JSON Schema (2020-12) for `spec.engine.params` of a job. Convoy rejects unknown parameters unless the
    schema allows them.
    """
    replica_peers: bool = False
    """True if the replicas of a ServingJob talk to each other. Convoy then sends each replica the addresses
    of the others.
    """
    metrics: Annotated[
        list[EngineMetric],
        Field(
            max_length=MAX_METRICS,
            json_schema_extra=map_list("name"),
        ),
    ] = Field(default_factory=list)
    """Metrics that the engine reports in addition to step, loss and samples. Convoy drops metrics that are
    not listed here.
    """
    description: Annotated[str, Field(max_length=1024)] = ""
    """One sentence that says what the engine trains or serves, and by which method."""


class EngineStatus(StatusModel):
    """Conditions of the Engine. The condition `Ready` says whether jobs may name the Engine."""

    observed_generation: int = 0
    conditions: Annotated[
        list[Condition],
        Field(
            max_length=8,
            json_schema_extra=map_list("type"),
        ),
    ] = Field(default_factory=list)


class Engine(Model):
    """Catalogue entry of a workload: image, command, kind of job, parameter schema and reported metrics."""

    api_version: Literal["convoy.dev/v1alpha1"] = "convoy.dev/v1alpha1"
    kind: Literal["Engine"] = "Engine"
    metadata: ObjectMeta
    spec: EngineSpec
    status: EngineStatus = Field(default_factory=EngineStatus)


KIND = Kind(
    Engine,
    plural="engines",
    short=("eng",),
    scope=Scope.CLUSTER,
    columns=(
        Column("For", ".spec.roleKind"),
        Column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        Column("Image", ".spec.image"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', wide=True),
        Column("Description", ".spec.description", wide=True),
    ),
    editors=Editors.NAMESPACE_USERS,
)
