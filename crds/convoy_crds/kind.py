"""The description of one API kind. The CRDs, the chart and the client derive everything else from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from convoy_crds.meta import API_VERSION, GROUP, VERSION, Model

_WORD = re.compile("[A-Z][a-z0-9]*")

M = TypeVar("M", bound=Model)
"""Model of the kind's objects."""


class Scope(StrEnum):
    """Scope of a kind, in the words of a CustomResourceDefinition."""

    NAMESPACED = "Namespaced"
    CLUSTER = "Cluster"


class Editors(StrEnum):
    """Users whom Kubernetes' aggregated roles allow to write objects of a kind."""

    NAMESPACE_USERS = "NamespaceUsers"
    """Users with the role `edit` or `admin`."""
    CLUSTER_ADMINS = "ClusterAdmins"
    """Users with the role `admin` only, because the kind affects nodes, credentials or all users' jobs."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`."""

    name: str
    path: str
    """JSONPath of the value inside the object."""
    type: str = "string"
    wide: bool = False
    """True shows the column only with `-o wide`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the column in the form of a CustomResourceDefinition."""
        column = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return column | ({"priority": 1} if self.wide else {})


@dataclass(frozen=True, slots=True)
class Scale:
    """JSONPaths of the scale subresource, which `kubectl scale` and HorizontalPodAutoscalers use."""

    replicas: str
    """Path of the desired number, such as `.spec.replicas`."""
    ready: str
    """Path of the observed number, such as `.status.replicas`."""
    selector: str = ""
    """Path of the pods' label selector, such as `.status.selector`. Empty if the kind has none."""

    def to_dict(self) -> dict[str, Any]:
        """Return the subresource in the form of a CustomResourceDefinition."""
        scale = {"specReplicasPath": self.replicas, "statusReplicasPath": self.ready}
        return scale | ({"labelSelectorPath": self.selector} if self.selector else {})


@dataclass(frozen=True)
class Kind(Generic[M]):
    """One kind: its model and what the API server, the chart and the client need to know about it."""

    model: type[M]
    plural: str
    short: tuple[str, ...]
    """Short names for kubectl."""
    scope: Scope
    columns: tuple[Column, ...]
    editors: Editors
    selectable: tuple[str, ...] = ()
    """JSONPaths of the fields that field selectors may use."""
    scale: Scale | None = None
    pod_templates: tuple[str, ...] = ()
    """Paths of the templates from which the operator creates pods, with `[]` after each list:
    `spec.roles[].template`. The admission policy checks every one of them.
    """

    group = GROUP
    version = VERSION
    api_version = API_VERSION

    @property
    def name(self) -> str:
        """Kind in the form that objects carry, such as `TrainingJob`."""
        return self.model.__name__

    @property
    def attribute(self) -> str:
        """Plural as a Python name, such as `training_jobs`."""
        words = [word.lower() for word in _WORD.findall(self.name)]
        return "_".join([*words[:-1], self.plural.removeprefix("".join(words[:-1]))])

    @property
    def crd(self) -> str:
        """Name of the CustomResourceDefinition, such as `trainingjobs.convoy.dev`."""
        return f"{self.plural}.{self.group}"

    @property
    def namespaced(self) -> bool:
        """True if objects of the kind live in a namespace."""
        return self.scope is Scope.NAMESPACED

    @property
    def makes_pods(self) -> bool:
        """True if the operator creates pods from templates that the object's author writes."""
        return bool(self.pod_templates)
