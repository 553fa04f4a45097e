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
"""Maximum number of nodes in one run, so that the status fits into one object."""


MOST_PAIRS = 2000
"""Maximum number of pairs in the status. Two matchings of all nodes have 1000 pairs."""


class Tier(StrEnum):
    """Depth of a sweep. Each tier tests only the nodes that have passed the previous tier."""

    L0 = "L0"
    """Inventory of the node. It takes a minute, and may run while the node runs jobs."""
    L1 = "L1"
    """Tests of each device of the node by itself. They take minutes, and the node must not run jobs."""
    L2 = "L2"
    """Tests of pairs of nodes. They need at least four nodes that run no jobs, and take some more minutes."""


class HealthSweepSpec(Model):
    """The nodes to test, the tiers of tests, and the deadline."""

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
    """Names of the nodes to test. A node that runs jobs is tested when the jobs have left the node."""
    selector: NodeSelector | None = None
    """Selects the nodes to test, by their labels at the start of the sweep."""
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
    """The run could not start or finish. If a node is faulty, the run does not fail; the node gets the
    verdict Fail.
    """


class Finding(StatusModel):
    """One measurement that decided the verdict, or that gave no clear result."""

    name: Annotated[str, Field(max_length=64)]
    verdict: Verdict
    value: float | None = None
    reference: float | None = None
    """Value that the node's peers have."""
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
    """Verdict on the node. Absent until there is a verdict."""
    tier: Tier = Tier.L0
    """Deepest tier that the node completed."""
    at: datetime | None = None
    """Time of the verdict."""
    message: Annotated[str, Field(max_length=256)] = ""
    """Event for which the node is waiting, or the reason for its verdict."""
    evidence: Annotated[list[Finding], Field(max_length=8)] = Field(default_factory=list)
    """Measurements that failed or gave no clear result. Empty for a node that passed."""
    provenance: Provenance | None = None


class PairBandwidth(StatusModel):
    """Bandwidth between two nodes, as their agents measured it."""

    node: Annotated[str, Field(max_length=253)]
    partner: Annotated[str, Field(max_length=253)]
    bandwidth: Annotated[float, Field(alias="bandwidthMBps")]
    """Rate of one connection in MB/s, with MB = 10^6 bytes: the best one, if the pair was tested more than
    once. The network may carry more than one connection does.
    """


class HealthSweepStatus(StatusModel):
    """Progress of the run, and its verdicts."""

    observed_generation: int = 0
    phase: SweepPhase = SweepPhase.PENDING
    start_time: datetime | None = None
    completion_time: datetime | None = None
    desired: int = 0
    """Number of nodes in the run."""
    done: int = 0
    """Number of nodes with a verdict."""
    failed: int = 0
    """Number of nodes with the verdict Fail."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """State of the run, or the reason why it could not run."""
    progress: Annotated[str, Field(max_length=32)] = ""
    """The text `done/desired`, such as `3/8`."""
    nodes: Annotated[list[NodeVerdict], Field(max_length=MOST_NODES, json_schema_extra=map_list("node"))] = (
        Field(default_factory=list)
    )
    pairs: Annotated[list[PairBandwidth], Field(max_length=MOST_PAIRS)] = Field(default_factory=list)
    """Bandwidths of the pair tests of tier L2, in the order of the nodes' names."""


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
