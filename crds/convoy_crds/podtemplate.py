"""The pod template of a role. Fields that Convoy reads or extends are typed. All other fields are kept
unchanged.

The CustomResourceDefinition validates the typed fields. The API server validates the other fields when the
operator creates the pod. A null means an absent field, because the template of a Deployment also accepts
nulls anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from convoy_crds.meta import DnsLabel, Model
from convoy_crds.structural import NULLABLE

MAX_DEPTH = 64
"""Maximum number of nested levels of objects and lists in a pod template or in an engine's parameters. A
typical pod has about 15 levels.
"""
MAX_WORD = 128 * 1024
"""Maximum number of characters in one word of a command. Linux has the same limit. An inline script is one
word.
"""
MAX_WORDS = 1024
_MAPS = frozenset(
    {"labels", "annotations", "nodeSelector", "matchLabels", "limits", "requests", "overhead"}
    | {"volumeAttributes", "options"}
)
"""Fields of a pod that are maps with keys chosen by the user. The API server reads a null in such a map as
an empty value.
"""
_TOO_DEEP = f"has more than {MAX_DEPTH} levels of objects and lists"
_OPEN = {"x-kubernetes-preserve-unknown-fields": True}

OpenObject = Annotated[dict[str, Any], Field(json_schema_extra=_OPEN)]
"""An object that only the API server validates, as part of the pod."""
Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""A text in a list, or in a map with keys chosen by the user. A null is read as an empty text."""
Word = Annotated[Text, Field(max_length=MAX_WORD, json_schema_extra={"nullable": True})]
"""One word of a command line, such as an argument."""
Labels = dict[str, Annotated[Text, Field(json_schema_extra={"nullable": True})]]


def without_nulls(value: Any, levels: int = MAX_DEPTH) -> Any:
    """Return a JSON value without its null fields. Raises ValueError if it has more than `levels` nested
    levels.

    Nulls in lists are kept, because removing them would change the positions of other items. Nulls in maps
    with keys chosen by the user are kept too.
    """
    if isinstance(value, (dict, list)) and levels == 0:
        raise ValueError(_TOO_DEEP)
    if isinstance(value, list):
        return [without_nulls(item, levels - 1) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: item if key in _MAPS and _is_map(item) else without_nulls(item, levels - 1)
        for key, item in value.items()
        if item is not None
    }


def _is_map(value: Any) -> bool:
    """Return True if the value is an object whose values are neither objects nor lists."""
    return isinstance(value, dict) and not any(isinstance(item, (dict, list)) for item in value.values())


def depth_checked(value: Any) -> Any:
    """Return the value unchanged. Raises ValueError if it has too many nested levels."""
    if any(level > MAX_DEPTH for level in _levels(value)):
        raise ValueError(_TOO_DEEP)
    return value


def _levels(value: Any) -> Iterator[int]:
    """Yield the depth of each object and list in a JSON value. The outermost value has depth 0."""
    level, found = 0, [value]
    while found:
        yield level
        level += 1
        inside = (list(one.values()) if isinstance(one, dict) else one for one in found)
        found = [item for items in inside if isinstance(items, list) for item in items]


class TemplatePart(Model):
    """A part of a pod template. Null fields are accepted."""

    model_config = ConfigDict(
        json_schema_extra={NULLABLE: True}, validate_by_name=False, validate_by_alias=True
    )


class OpenPart(TemplatePart):
    """A part of a pod template of which only some fields are typed."""

    model_config = ConfigDict(extra="allow", json_schema_extra={NULLABLE: True, **_OPEN})


class EnvVar(OpenPart):
    """An environment variable with a `value`, or with `valueFrom` as in a pod."""

    name: Annotated[str, Field(min_length=1)]
    value: str | None = None
    """Value of the variable. Numbers, true and false must be in quotes."""
    value_from: OpenObject | None = None


class VolumeMount(OpenPart):
    """A mount of one of the pod's volumes into the container."""

    name: Annotated[str, Field(min_length=1)]
    mount_path: Annotated[str, Field(min_length=1)]


class Capabilities(OpenPart):
    """Linux capabilities, as in a Kubernetes container."""

    add: list[str] | None = None
    drop: list[str] | None = None


class SecurityContext(OpenPart):
    """Security context, as in a Kubernetes container."""

    capabilities: Capabilities | None = None
    privileged: bool | None = None
    run_as_user: int | None = None
    run_as_non_root: bool | None = None


class PodSecurityContext(OpenPart):
    """Security context, as in a Kubernetes pod."""

    run_as_user: int | None = None
    run_as_non_root: bool | None = None


class Resources(OpenPart):
    """Resource requests and limits, as in a Kubernetes container."""

    limits: OpenObject | None = None
    requests: OpenObject | None = None


class Container(OpenPart):
    """A container of the pod template."""

    name: DnsLabel = "worker"
    image: Annotated[str, Field(max_length=512)] | None = None
    command: Annotated[list[Word], Field(min_length=1, max_length=MAX_WORDS)] | None = None
    args: Annotated[list[Word], Field(max_length=MAX_WORDS)] | None = None
    env: list[EnvVar] | None = None
    volume_mounts: list[VolumeMount] | None = None
    resources: Resources | None = None
    security_context: SecurityContext | None = None
    readiness_probe: OpenObject | None = None


class InitContainer(OpenPart):
    """An init container, as in a Kubernetes pod."""

    security_context: SecurityContext | None = None


class Volume(OpenPart):
    """A volume of the pod."""

    name: Annotated[str, Field(min_length=1)]


class NodeAffinity(OpenPart):
    """Rules for choosing the nodes of the pods. Convoy adds the nodes to avoid."""

    preferred_during_scheduling_ignored_during_execution: list[OpenObject] | None = None


class Affinity(OpenPart):
    """Affinity, as in a Kubernetes pod."""

    node_affinity: NodeAffinity | None = None


class PodSpec(OpenPart):
    """The pod spec of the template. Its first container runs the ranks."""

    containers: Annotated[list[Container], Field(max_length=16)] = Field(default_factory=list)
    init_containers: list[InitContainer] | None = None
    volumes: list[Volume] | None = None
    node_selector: Labels | None = None
    tolerations: list[OpenObject] | None = None
    affinity: Affinity | None = None
    security_context: PodSecurityContext | None = None
    termination_grace_period_seconds: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """Seconds from SIGTERM until the kubelet kills the containers."""


class TemplateMeta(TemplatePart):
    """Labels and annotations for the pods of a role."""

    labels: Annotated[Labels, Field(max_length=64)] = Field(default_factory=dict)
    annotations: Annotated[Labels, Field(max_length=64)] = Field(default_factory=dict)
    name: str | None = None
    """Accepted but ignored, as in a Deployment, because Convoy chooses the names of the pods."""
    namespace: str | None = None
    """Accepted but ignored."""
    creation_timestamp: str | None = None
    """Accepted but ignored, because tools write `creationTimestamp: null`."""


class PodTemplate(TemplatePart):
    """The part of a role's pods that the user defines."""

    metadata: TemplateMeta = Field(default_factory=TemplateMeta)
    spec: PodSpec = Field(default_factory=PodSpec)

    @model_validator(mode="before")
    @classmethod
    def _nulls(cls, value: Any) -> Any:
        return without_nulls(value)
