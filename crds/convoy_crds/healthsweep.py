"""HealthSweep: one run of tests over some nodes, and what each of them was found to be."""

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
"""Of one run: its status must fit into one object."""


class Tier(StrEnum):
    """How deep a sweep looks; each tier takes those nodes that passed the one before."""

    L0 = "L0"
    """Inventory: a minute; beside jobs, too."""
    L1 = "L1"
    """Every device of the node by itself: minutes, for which it has to be without jobs."""
    L2 = "L2"
    """Pairs of nodes without jobs, four at least: minutes more."""


class HealthSweepSpec(Model):
    """Which nodes, how deep, and until when."""

    model_config = validated(
        Rule(
            "has(self.nodes) != has(self.selector)",
            "a HealthSweep needs exactly one of nodes (by name) and selector (by labels)",
        ),
        Rule("self == oldSelf", "a HealthSweep is one run: make another one"),
    )

    nodes: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=253)]],
            Field(min_length=1, max_length=MOST_NODES, json_schema_extra={"x-kubernetes-list-type": "set"}),
        ]
        | None
    ) = None
    """Names of nodes. One that jobs are on is swept when they have left it."""
    selector: NodeSelector | None = None
    """Nodes by their labels, as they are when the sweep begins."""
    tiers: Annotated[
        list[Tier], Field(min_length=1, max_length=3, json_schema_extra={"x-kubernetes-list-type": "set"})
    ] = Field(default_factory=lambda: [Tier.L0, Tier.L1])
    deadline: Duration = "45m"
    """Nodes without a verdict by then are Inconclusive."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=31_536_000)] = 604_800
    """When it is deleted; the NodeHealth keeps the verdict."""


class SweepPhase(StrEnum):
    """Where the run stands."""

    PENDING = "Pending"
    RUNNING = "Running"
    COMPLETE = "Complete"
    FAILED = "Failed"
    """It could not be run at all; verdicts say what is wrong with nodes."""


class Finding(StatusModel):
    """One measured thing that decided, or would not decide."""

    name: Annotated[str, Field(max_length=64)]
    verdict: Verdict
    value: float | None = None
    reference: float | None = None
    """What peers have."""
    unit: Annotated[str, Field(max_length=32)] = ""
    message: Annotated[str, Field(max_length=256)] = ""


class NodeVerdict(StatusModel):
    """One node of the run: what it waits for, and what it was found to be."""

    node: Annotated[str, Field(max_length=253)]
    hardware: Annotated[str, Field(max_length=253)] = ""
    """Its NodeHealth."""
    hardware_class: Annotated[str, Field(max_length=253)] = ""
    """The HardwareClass that it was held against."""
    verdict: Verdict | None = None
    """Absent until there is one."""
    tier: Tier = Tier.L0
    """The deepest that it went through."""
    at: datetime | None = None
    """When it was judged."""
    message: Annotated[str, Field(max_length=256)] = ""
    """What it waits for, or why the verdict is what it is."""
    evidence: Annotated[list[Finding], Field(max_length=8)] = Field(default_factory=list)
    """What failed, or what it hangs on; nothing for a node that passed."""
    provenance: Provenance | None = None


class HealthSweepStatus(StatusModel):
    """How far the run is, and its verdicts."""

    observed_generation: int = 0
    phase: SweepPhase = SweepPhase.PENDING
    start_time: datetime | None = None
    completion_time: datetime | None = None
    desired: int = 0
    """Nodes of the run."""
    done: int = 0
    """Nodes with a verdict."""
    failed: int = 0
    """Nodes with the verdict Fail."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """How it stands, or why it could not be run."""
    progress: Annotated[str, Field(max_length=32)] = ""
    """`done/desired`."""
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
