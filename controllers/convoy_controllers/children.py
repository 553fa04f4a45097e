"""Changes to objects other than the parent: the typed children of a plan.

The operator carries children out in the order of the plan, but creates objects last. Neighbours of one type
are carried out side by side; the next type begins when all of them have ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convoy_controllers.resources import PODS, Resource
from convoy_crds.reasons.reason import Reason


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event on the object that it is given with."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Create:
    """An object to create by POST, such as a pod.

    An object that has the name already counts as created if it belongs to the parent.
    """

    resource: Resource
    manifest: Mapping[str, Any]
    dry_run: bool = False
    """True asks the API server to check the object first. If that is refused, no object is created."""

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Apply:
    """Fields of an object that the parent wants so, by server-side apply.

    The manifest names the parent as its controller (`owner_reference`), unless `subresource` is set.
    """

    resource: Resource
    manifest: Mapping[str, Any]
    """The wanted fields, with `metadata.name`. The namespace is the parent's."""
    subresource: str = ""
    """`status`, to apply fields of the status; empty for all else."""

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Delete:
    """An object to delete, and only the one of that uid. The namespace is the parent's."""

    resource: Resource
    name: str
    uid: str
    grace_seconds: int | None = None
    """None leaves a pod its own grace period."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch of an object, its status excepted. The namespace is the parent's.

    A `resourceVersion` in the patch makes it fail if the object has changed since.
    """

    resource: Resource
    name: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """The whole status of an object of another kind. Only what differs from the stored status is written.

    An object that does not exist is created first, with an empty spec.
    """

    resource: Resource
    name: str
    status: Mapping[str, Any]
    version: str = ""
    """The resourceVersion that the decision was made on; empty if there was no object. A status that was
    stored meanwhile is kept: the decision is then made again."""
    events: tuple[Event, ...] = ()
    """Events on the object, recorded once the status is stored."""


@dataclass(frozen=True, slots=True)
class EndPod:
    """Has the kubelet end what still runs of one pod, and leaves the pod for its logs."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Has a pod leave its node, if its PodDisruptionBudgets let it."""

    namespace: str
    name: str
    uid: str


Child = Create | Apply | Delete | Patch | PatchStatus | EndPod | EvictPod


def delete_pod(name: str, uid: str, grace_seconds: int | None = None) -> Delete:
    """Return the deletion of one pod, and only the incarnation of it that was seen."""
    return Delete(PODS, name, uid, grace_seconds)


def manifest(resource: Resource, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of an object of a cluster-scoped kind."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def owner_reference(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    """Return the owner reference by which an object is the child of its one controller."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
