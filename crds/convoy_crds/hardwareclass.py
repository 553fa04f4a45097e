"""HardwareClass: what nodes with the same hardware reach in the tests of health sweeps.

Its name is the digest of what their inventories have in common. To have it learned anew, delete it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from convoy_crds.kind import Column, Editors, Kind, Scope
from convoy_crds.meta import Model, ObjectMeta, StatusModel, map_list

MOST_ROWS = 64
"""Rows of one metric: the status must fit into one object."""
MOST_LEVELS = 64

_Text = Annotated[str, Field(max_length=128)]


class Row(StatusModel):
    """What one node, or one of its accelerators, reached."""

    name: Annotated[str, Field(max_length=300)]
    """Its NodeHealth, and `/N` for accelerator N."""
    at: datetime
    levels: Annotated[list[float], Field(max_length=MOST_LEVELS)] = Field(default_factory=list)
    """Quantiles of its samples, from least to most."""
    digest: _Text = ""
    """Of a metric that has no samples: what the equal computations gave."""


class ClassMetric(StatusModel):
    """One metric of the class."""

    name: Annotated[str, Field(max_length=64)]
    unit: Annotated[str, Field(max_length=32)] = ""
    higher_is_better: bool = True
    median: float | None = None
    """Of the nodes that the reference is made of."""
    moved: float | None = None
    """How far the last sweeps are from the reference, as a share; below zero they are slower."""
    reference: Annotated[list[Row], Field(max_length=MOST_ROWS, json_schema_extra=map_list("name"))] = Field(
        default_factory=list
    )
    """What nodes are held against; it does not change any more once there is enough of it."""
    recent: Annotated[list[Row], Field(max_length=MOST_ROWS, json_schema_extra=map_list("name"))] = Field(
        default_factory=list
    )
    """The last of every node, of those that were swept last."""


class HardwareClassSpec(Model):
    """Nothing is asked for: it is all found out."""


class HardwareClassStatus(StatusModel):
    """What was measured."""

    nodes: int = 0
    """Of which there are recent rows."""
    referenced: int = 0
    """Metrics that have a reference."""
    drifted: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=32)] = Field(
        default_factory=list
    )
    """Metrics in which the class has moved away from its reference."""
    facts: Annotated[dict[str, _Text], Field(max_length=64)] = Field(default_factory=dict)
    """What the inventories have in common."""
    metrics: Annotated[list[ClassMetric], Field(max_length=32, json_schema_extra=map_list("name"))] = Field(
        default_factory=list
    )


class HardwareClass(Model):
    """What nodes with the same hardware reach."""

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
