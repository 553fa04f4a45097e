"""The kind ToyServer, which only tests use. Convoy derives everything about the kind from its KIND."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from convoy_crds.kind import Column, Editors, Kind, Scale, Scope
from convoy_crds.meta import Condition, Model, ObjectMeta, Rule, StatusModel, map_list, validated
from convoy_crds.podtemplate import PodTemplate


class ToyServerSpec(Model):
    """The server pods that the user wants."""

    model_config = validated(
        Rule("self.replicas <= self.mostReplicas", "replicas must not exceed mostReplicas", ".replicas")
    )

    replicas: Annotated[int, Field(ge=0, le=10)] = 1
    """Number of server pods."""
    most_replicas: Annotated[int, Field(ge=1, le=10)] = 5
    template: Annotated[PodTemplate | None, Field(json_schema_extra={"nullable": True})] = None
    """Pod template of the servers."""


class ToyServerStatus(StatusModel):
    """The server pods that exist."""

    observed_generation: int = 0
    replicas: int = 0
    conditions: Annotated[list[Condition], Field(max_length=8, json_schema_extra=map_list("type"))] = Field(
        default_factory=list
    )


class ToyServer(Model):
    """A toy server behind a Service."""

    api_version: Literal["convoy.dev/v1alpha1"] = "convoy.dev/v1alpha1"
    kind: Literal["ToyServer"] = "ToyServer"
    metadata: ObjectMeta
    spec: ToyServerSpec
    status: ToyServerStatus = Field(default_factory=ToyServerStatus)


KIND = Kind(
    ToyServer,
    plural="toyservers",
    short=("toy",),
    scope=Scope.NAMESPACED,
    columns=(
        Column("Replicas", ".status.replicas", "integer"),
        Column("Age", ".metadata.creationTimestamp", "date", wide=True),
    ),
    editors=Editors.NAMESPACE_USERS,
    scale=Scale(".spec.replicas", ".status.replicas"),
    pod_templates=("spec.template",),
)
