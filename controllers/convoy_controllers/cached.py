"""The operator's cached objects. Pods and nodes are reduced to the fields that decisions need. All other
objects are cached as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from convoy_controllers.views import PodView
from convoy_crds import trainingjob
from convoy_crds.terms import LABEL_KIND


@dataclass(frozen=True, slots=True)
class Pod:
    """A cached pod: its job, and those of its fields that plans read (`view`)."""

    namespace: str
    version: int
    job: str
    """Value of the pod's job label: the name of its job."""
    view: PodView

    @property
    def kind(self) -> str:
        """Return the kind of the pod's job, according to the pod's label. A pod without this label counts
        as a TrainingJob's.
        """
        return self.view.labels.get(LABEL_KIND, trainingjob.KIND.name)

    @property
    def name(self) -> str:
        """Return the pod's name."""
        return self.view.name

    @property
    def uid(self) -> str:
        """Return the pod's uid."""
        return self.view.uid


@dataclass(frozen=True, slots=True)
class OtherPod:
    """A cached pod that belongs to no job of Convoy: what it takes from its node."""

    namespace: str
    name: str
    uid: str
    version: int
    node: str
    """Name of the pod's node; empty without one, and for a pod that has ended."""
    requests: Mapping[str, int] = field(default_factory=dict)
    """Thousandths of each resource's unit, by name of the resource."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """A true condition of a Node that may announce its end (spotpool/conventions.py)."""

    type: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A cached Node object: those of its fields that plans read."""

    name: str
    uid: str
    version: int
    agent_ready: bool
    """True if the node carries the agent-ready label."""
    ready: bool = False
    """The node's Ready condition: True while its kubelet reports and is healthy."""
    cordoned: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""
    created: datetime | None = None
    machine_id: str = ""
    boot_id: str = ""
    provider_id: str = ""
    """Id of the instance at its provider; empty if the Node does not have one."""
    taints: tuple[Mapping[str, Any], ...] = ()
    announcements: tuple[Announcement, ...] = ()
    """The Node's true conditions that may announce its end."""
    shutting_down: bool = False
    """True while the node's kubelet reports that the node shuts down."""
    allocatable: Mapping[str, int] = field(default_factory=dict)
    """Thousandths of each resource's unit that pods may request on the node, by name of the resource."""
    qualified: Mapping[str, Any] = field(default_factory=dict)
    """The Node's Qualified condition, which Convoy itself sets; empty if the Node does not have this
    condition.
    """


@dataclass(frozen=True, slots=True)
class CachedObject:
    """An object of one of Convoy's kinds, or an applied child, as JSON without its managed fields."""

    namespace: str
    name: str
    uid: str
    version: int
    raw: Mapping[str, Any]
    owned_fields: int = 0
    """Hash of the set of fields that the operator owns by server-side apply. If another manager overwrites
    one of these fields, the operator loses its ownership and the hash changes.
    """

    @property
    def generation(self) -> int:
        """Return the object's metadata generation."""
        return int(self.raw["metadata"].get("generation", 0))

    @property
    def owner(self) -> Mapping[str, Any]:
        """Return the owner reference of the object's controller; empty if the object has no controller."""
        found = self.raw["metadata"].get("ownerReferences") or ()
        return next((one for one in found if one.get("controller")), {})

    @property
    def status(self) -> Mapping[str, Any]:
        """Return the stored status; empty if none has been stored."""
        return self.raw.get("status") or {}
