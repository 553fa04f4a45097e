"""HealthSweep: one run of tests over some nodes, and the verdict on each node."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from convoy_crds.kind import Column, Editors, Kind, Scope
from convoy_crds.meta import Duration, Model, ObjectMeta, Rule, StatusModel, map_list, validated
from convoy_crds.nodehealth import Provenance, Verdict
from convoy_crds.selector import NodeSelector

MOST_NODES = 1000
"""Most nodes of one run, so that the status fits into one object."""


class Tier(StrEnum):
    """Depth of a sweep. Each tier tests the nodes that passed the tier before it."""

    L0 = "L0"
    """Inventory. It takes a minute and may run beside jobs."""
    L1 = "L1"
    """Each device of the node by itself. It takes minutes, and the node must run no jobs."""
    L2 = "L2"
    """Pairs of nodes without jobs, at least four nodes. It takes some more minutes."""


class HealthSweepSpec(Model):
    """The nodes to test, the tiers and the deadline."""

    model_config = validated(
        Rule(
            "has(self.nodes) != has(self.selector)",
            "a HealthSweep needs exactly one of nodes (by name) and selector (by labels)",
        ),
        Rule(
            "self == oldSelf",
            "spec is immutable, because a HealthSweep is one run: create another HealthSweep",
        ),
    )

    nodes: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=253)]],
            Field(min_length=1, max_length=MOST_NODES, json_schema_extra={"x-kubernetes-list-type": "set"}),
        ]
        | None
    ) = None
    """Names of nodes. A node that runs jobs is swept when the jobs have left it."""
    selector: NodeSelector | None = None
    """Nodes by their labels at the start of the sweep."""
    tiers: Annotated[
        list[Tier], Field(min_length=1, max_length=3, json_schema_extra={"x-kubernetes-list-type": "set"})
    ] = Field(default_factory=lambda: [Tier.L0, Tier.L1])
    deadline: Duration = "45m"
    """Time after which nodes without a verdict are Inconclusive."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=31_536_000)] = 604_800
    """Seconds between the end of the run and the deletion of the HealthSweep. The NodeHealth keeps the
    verdict.
    """


class SweepPhase(StrEnum):
    """State of the run."""

    PENDING = "Pending"
    RUNNING = "Running"
    COMPLETE = "Complete"
    FAILED = "Failed"
    """The run could not start or finish. A faulty node does not fail the run, but its verdict."""


class Finding(StatusModel):
    """One measurement that decided the verdict, or that was inconclusive."""

    name: Annotated[str, Field(max_length=64)]
    verdict: Verdict
    value: float | None = None
    reference: float | None = None
    """Value of the node's peers."""
    unit: Annotated[str, Field(max_length=32)] = ""
    message: Annotated[str, Field(max_length=256)] = ""


class NodeVerdict(StatusModel):
    """State and verdict of one node in the run."""

    node: Annotated[str, Field(max_length=253)]
    hardware: Annotated[str, Field(max_length=253)] = ""
    """Name of the node's NodeHealth."""
    hardware_class: Annotated[str, Field(max_length=253)] = ""
    """Name of the HardwareClass that the node was compared with."""
    verdict: Verdict | None = None
    """Absent until the node has a verdict."""
    tier: Tier = Tier.L0
    """Deepest tier that the node completed."""
    at: datetime | None = None
    """Time of the verdict."""
    message: Annotated[str, Field(max_length=256)] = ""
    """Event that the node is waiting for, or the reason for its verdict."""
    evidence: Annotated[list[Finding], Field(max_length=8)] = Field(default_factory=list)
    """Measurements that failed or were inconclusive. Empty for a node that passed."""
    provenance: Provenance | None = None


class HealthSweepStatus(StatusModel):
    """Progress of the run, and its verdicts."""

    observed_generation: int = 0
    phase: SweepPhase = SweepPhase.PENDING
    start_time: datetime | None = None
    completion_time: datetime | None = None
    desired: int = 0
    """Nodes in the run."""
    done: int = 0
    """Nodes with a verdict."""
    failed: int = 0
    """Nodes with the verdict Fail."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """State of the run, or the reason why it could not run."""
    progress: Annotated[str, Field(max_length=32)] = ""
    """`done/desired`, such as `3/8`."""
    nodes: Annotated[list[NodeVerdict], Field(max_length=MOST_NODES, json_schema_extra=map_list("node"))] = (
        Field(default_factory=list)
    )


class HealthSweep(Model):
    """One run of tests over some nodes."""

    api_version: Literal["convoy.dev/v1alpha1"] = "convoy.dev/v1alpha1"
    kind: Literal["HealthSweep"] = "HealthSweep"
    metadata: ObjectMeta
    spec: HealthSweepSpec
    status: HealthSweepStatus = Field(default_factory=HealthSweepStatus)


KIND = Kind(
    HealthSweep,
    plural="healthsweeps",
    short=("hs",),
    scope=Scope.CLUSTER,
    columns=(
        Column("Phase", ".status.phase"),
        Column("Progress", ".status.progress"),
        Column("Failed", ".status.failed", "integer"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Tiers", ".spec.tiers", wide=True),
        Column("Completed", ".status.completionTime", "date", wide=True),
        Column("Message", ".status.message", wide=True),
    ),
    selectable=(".status.phase",),
    editors=Editors.CLUSTER_ADMINS,
)
