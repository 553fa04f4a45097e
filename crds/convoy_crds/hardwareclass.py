"""HardwareClass: results of health sweeps for nodes with the same hardware.

The object's name is a digest of the facts that the nodes' inventories share. If a HardwareClass is deleted,
Convoy collects its results again.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from convoy_crds.kind import Column, Editors, Kind, Scope
from convoy_crds.meta import Model, ObjectMeta, StatusModel, map_list

MOST_ROWS = 64
"""Maximum number of rows in each list of a ClassMetric, so that the status fits into one object."""
MOST_LEVELS = 64

_Text = Annotated[str, Field(max_length=128)]


class Row(StatusModel):
    """Test result of one node, or of one accelerator of a node."""

    name: Annotated[str, Field(max_length=300)]
    """Name of the NodeHealth, followed by `/N` for accelerator N."""
    at: datetime
    levels: Annotated[list[float], Field(max_length=MOST_LEVELS)] = Field(default_factory=list)
    """Quantiles of the samples, in ascending order."""
    digest: _Text = ""
    """Digest of the computed results, for a metric without samples. Nodes that compute the same results
    have the same digest.
    """


class ClassMetric(StatusModel):
    """Results of one metric for the nodes of the class."""

    name: Annotated[str, Field(max_length=64)]
    unit: Annotated[str, Field(max_length=32)] = ""
    higher_is_better: bool = True
    median: float | None = None
    """Median over the reference nodes."""
    drift: float | None = None
    """Deviation of the latest sweeps from the reference, as a fraction: 0.1 is 10 %. A negative value means
    slower.
    """
    reference: Annotated[list[Row], Field(max_length=MOST_ROWS, json_schema_extra=map_list("name"))] = Field(
        default_factory=list
    )
    """Rows with which nodes are compared. Convoy sets them when enough nodes, at least four, have been
    swept, and does not change them after that.
    """
    recent: Annotated[list[Row], Field(max_length=MOST_ROWS, json_schema_extra=map_list("name"))] = Field(
        default_factory=list
    )
    """Row of the latest sweep of each node. If there are more than 64 rows, Convoy removes the oldest ones.
    """


class HardwareClassSpec(Model):
    """Empty, because Convoy learns the class from sweeps."""


class HardwareClassStatus(StatusModel):
    """Test results of the class."""

    nodes: int = 0
    """Number of nodes that have a row in `recent` of a metric."""
    referenced: int = 0
    """Number of metrics that have a reference."""
    drifted: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=32)] = Field(
        default_factory=list
    )
    """Metrics whose latest results deviate from the reference by more than 2 %."""
    facts: Annotated[dict[str, _Text], Field(max_length=64)] = Field(default_factory=dict)
    """Facts that the nodes' inventories share."""
    metrics: Annotated[list[ClassMetric], Field(max_length=32, json_schema_extra=map_list("name"))] = Field(
        default_factory=list
    )


class HardwareClass(Model):
    """Test results of nodes with the same hardware."""

    api_version: Literal["convoy.dev/v1alpha1"] = "convoy.dev/v1alpha1"
    kind: Literal["HardwareClass"] = "HardwareClass"
    metadata: ObjectMeta
    spec: HardwareClassSpec = Field(default_factory=HardwareClassSpec)
    status: HardwareClassStatus = Field(default_factory=HardwareClassStatus)


KIND = Kind(
    HardwareClass,
    plural="hardwareclasses",
    short=("hc",),
    scope=Scope.CLUSTER,
    columns=(
        Column("CPU", ".status.facts.cpu\\.model"),
        Column("Nodes", ".status.nodes", "integer"),
        Column("Referenced", ".status.referenced", "integer"),
        Column("Drifted", ".status.drifted"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Memory", ".status.facts.memory\\.gib", wide=True),
        Column("Kernel", ".status.facts.kernel", wide=True),
        Column("Driver", ".status.facts.driver\\.nvidia", wide=True),
    ),
    editors=Editors.CLUSTER_ADMINS,
)
