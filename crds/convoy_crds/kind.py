"""The description of one API kind. The CRDs, the chart and the client are derived from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from convoy_crds.meta import API_VERSION, GROUP, VERSION, Model

_WORD = re.compile("[A-Z][a-z0-9]*")

M = TypeVar("M", bound=Model)
"""Type variable for the model of the kind's objects."""


class Scope(StrEnum):
    """Scope of a kind, with the names that a CustomResourceDefinition uses."""

    NAMESPACED = "Namespaced"
    CLUSTER = "Cluster"


class Editors(StrEnum):
    """Users who may write objects of a kind. They get this right through Kubernetes' aggregated roles."""

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
    """True if the column is shown only with `-o wide`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the column in the form of a CustomResourceDefinition."""
        column = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return column | ({"priority": 1} if self.wide else {})


@dataclass(frozen=True, slots=True)
class Scale:
    """JSONPaths for the scale subresource, which `kubectl scale` and HorizontalPodAutoscalers use."""

    replicas: str
    """Path of the desired number of replicas, such as `.spec.replicas`."""
    ready: str
    """Path of the observed number of replicas, such as `.status.replicas`."""
    selector: str = ""
    """Path of the label selector of the pods, such as `.status.selector`. Empty if the kind has no such
    field.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the subresource in the form of a CustomResourceDefinition."""
        scale = {"specReplicasPath": self.replicas, "statusReplicasPath": self.ready}
        return scale | ({"labelSelectorPath": self.selector} if self.selector else {})


@dataclass(frozen=True, slots=True)
class CreatedKind:
    """A kind whose objects the operator creates for the author of another object."""

    plural: str
    when: str = "true"
    """CEL that is true for an `object` for which the operator creates such objects."""


@dataclass(frozen=True)
class Kind(Generic[M]):
    """One kind: its model, and the facts about it that the API server, the chart and the client need."""

    model: type[M]
    plural: str
    short: tuple[str, ...]
    """Short names of the kind for kubectl."""
    scope: Scope
    columns: tuple[Column, ...]
    editors: Editors
    selectable: tuple[str, ...] = ()
    """JSONPaths of the fields that may be used in field selectors."""
    scale: Scale | None = None
    pod_templates: tuple[str, ...] = ()
    """Paths of the templates from which the operator creates pods. A path has `[]` after each list, such as
    `spec.roles[].template`. The admission policy checks the templates at all these paths.
    """

    creates: tuple[CreatedKind, ...] = ()
    """Kinds whose objects the operator creates for an object of this kind. The admission policy demands that
    the author may create such objects too.
    """

    marks_nodes: bool = False
    """True if Nodes get labels or taints because of objects of this kind. Such objects must be deleted before
    Convoy is uninstalled, because only the operator removes the marks.
    """

    group = GROUP
    version = VERSION
    api_version = API_VERSION

    @property
    def name(self) -> str:
        """Return the kind's name as it stands in objects, such as `TrainingJob`."""
        return self.model.__name__

    @property
    def attribute(self) -> str:
        """Return the kind's plural as a Python name, such as `training_jobs`."""
        words = [word.lower() for word in _WORD.findall(self.name)]
        return "_".join([*words[:-1], self.plural.removeprefix("".join(words[:-1]))])

    @property
    def crd(self) -> str:
        """Return the name of the CustomResourceDefinition, such as `trainingjobs.convoy.dev`."""
        return f"{self.plural}.{self.group}"

    @property
    def namespaced(self) -> bool:
        """Return True if objects of the kind belong to a namespace."""
        return self.scope is Scope.NAMESPACED

    @property
    def admitted(self) -> bool:
        """Return True if an admission policy checks the objects of the kind."""
        return self.makes_pods or bool(self.creates)

    @property
    def makes_pods(self) -> bool:
        """Return True if the operator creates pods from templates in objects of the kind."""
        return bool(self.pod_templates)
