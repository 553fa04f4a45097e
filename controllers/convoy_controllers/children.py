"""The typed children of a plan. A plan belongs to one object, its parent. The children are changes to all
other objects.

The operator carries out the children in the order of the plan, but creates objects last. Consecutive
children of one type run concurrently. The operator waits for all of them before it starts the next type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convoy_controllers.resources import PODS, Resource
from convoy_crds.reasons.reason import Reason


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event on the plan's parent, or on the object of the child that contains the Event."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Create:
    """An object to create by POST, such as a pod.

    If an object of that name already exists and belongs to the parent, it counts as created.
    """

    resource: Resource
    manifest: Mapping[str, Any]
    dry_run: bool = False
    """True if the operator first sends a dry run. If the API server refuses the dry run, the object is not
    created.
    """
    required: bool = True
    """False if the plan's other objects are created even if the API server refuses this one. Such objects are
    created last.
    """

    @property
    def name(self) -> str:
        """Return the object's name."""
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Check:
    """An object that the API server checks as it would for a create. It is not created.

    The refusal of a wrong object counts as the refusal of the child of that name.
    """

    resource: Resource
    manifest: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Return the object's name."""
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
    required: bool = True
    """False if the plan's other objects are created even if the API server refuses this one."""

    @property
    def name(self) -> str:
        """Return the object's name."""
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Delete:
    """An object to delete if it still has this uid. The namespace is the parent's."""

    resource: Resource
    name: str
    uid: str
    grace_seconds: int | None = None
    """Grace period in seconds; None for the pod's own grace period."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A JSON merge patch of an object, except its status. The namespace is the parent's.

    If the patch contains a `resourceVersion`, it fails if the object has changed since that version.
    """

    resource: Resource
    name: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """The whole status of an object whose kind differs from the parent's. The operator writes only the
    differences from the stored status.

    If the object does not exist, the operator first creates it with an empty spec.
    """

    resource: Resource
    name: str
    status: Mapping[str, Any]
    version: str = ""
    """The resourceVersion that the plan is based on; empty if the object did not exist. If the stored
    status has a newer version, the operator keeps it and plans again.
    """
    events: tuple[Event, ...] = ()
    """Events on the object, recorded after the status is stored."""


@dataclass(frozen=True, slots=True)
class EndPod:
    """Makes the kubelet end the running containers of one pod. The pod object stays, so that its logs can
    be read.
    """

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Evicts a pod through the eviction API, which respects PodDisruptionBudgets."""

    namespace: str
    name: str
    uid: str


Child = Create | Check | Apply | Delete | Patch | PatchStatus | EndPod | EvictPod


def delete_pod(name: str, uid: str, grace_seconds: int | None = None) -> Delete:
    """Return the child that deletes the pod `name` if its uid is still `uid`."""
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
    """Return the owner reference to the object with these fields. A child carries it to name its
    controller.
    """
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
