"""Changes to objects other than the parent: the typed children of a plan.

The operator carries children out in the order of the plan, but creates objects last. It runs consecutive
children of one type concurrently, and starts the next type after all of them have ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convoy_controllers.resources import PODS, Resource
from convoy_crds.reasons.reason import Reason


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event on the object that the plan or child belongs to."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Create:
    """An object to create by POST, such as a pod.

    An existing object of that name counts as created if it belongs to the parent.
    """

    resource: Resource
    manifest: Mapping[str, Any]
    dry_run: bool = False
    """True first asks the API server for a dry run. If that is refused, the object is not created."""

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Apply:
    """Fields of an object to set by server-side apply.

    The manifest names the parent as its controller (`owner_reference`), unless `subresource` is set.
    """

    resource: Resource
    manifest: Mapping[str, Any]
    """The wanted fields, with `metadata.name`. The namespace is the parent's."""
    subresource: str = ""
    """`status` to apply fields of the status; empty otherwise."""

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Delete:
    """An object to delete if it still has this uid. The namespace is the parent's."""

    resource: Resource
    name: str
    uid: str
    grace_seconds: int | None = None
    """Grace period in seconds; None keeps the pod's own."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A JSON merge patch of an object, except its status. The namespace is the parent's.

    A `resourceVersion` in the patch makes it fail if the object has changed in the meantime.
    """

    resource: Resource
    name: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """The whole status of an object of another kind. Only differences from the stored status are written.

    An object that does not exist is created first, with an empty spec.
    """

    resource: Resource
    name: str
    status: Mapping[str, Any]
    version: str = ""
    """The resourceVersion that the decision is based on; empty if there was no object. If another status
    was stored in the meantime, that status stays and the decision is made again.
    """
    events: tuple[Event, ...] = ()
    """Events on the object, recorded after the status is stored."""


@dataclass(frozen=True, slots=True)
class EndPod:
    """Makes the kubelet end the containers of one pod that still run. The pod object stays, for its logs."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Evicts a pod through the eviction API, which respects PodDisruptionBudgets."""

    namespace: str
    name: str
    uid: str


Child = Create | Apply | Delete | Patch | PatchStatus | EndPod | EvictPod


def delete_pod(name: str, uid: str, grace_seconds: int | None = None) -> Delete:
    """Return the deletion of one pod, if it still has this uid."""
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
    """Return the owner reference that makes an object a child of its controller."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
