"""Objects as the caches keep them: of a pod or node what decisions need, of all others their JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from convoy_controllers.views import PodView


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod: where it is, its version, and the view that plans see."""

    namespace: str
    version: int
    job: str
    """Value of the job label."""
    view: PodView

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.view.name

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.view.uid


@dataclass(frozen=True, slots=True)
class Node:
    """A node."""

    name: str
    uid: str
    version: int
    agent_ready: bool
    """True if the node carries the agent-ready label."""
    ready: bool = False
    """True if the node's Ready condition is True: its kubelet reports, and is well."""
    cordoned: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""
    created: datetime | None = None
    machine_id: str = ""
    boot_id: str = ""
    taints: tuple[Mapping[str, Any], ...] = ()
    qualified: Mapping[str, Any] = field(default_factory=dict)
    """Convoy's own condition; empty while the node has none."""


@dataclass(frozen=True, slots=True)
class CachedObject:
    """An object of one of Convoy's kinds, or a child that is applied, as JSON without its managed fields."""

    namespace: str
    name: str
    uid: str
    version: int
    raw: Mapping[str, Any]
    owned_fields: int = 0
    """Differs if the operator holds other fields by server-side apply: who writes to one takes it."""

    @property
    def generation(self) -> int:
        """The version of the object's spec."""
        return int(self.raw["metadata"].get("generation", 0))

    @property
    def owner(self) -> Mapping[str, Any]:
        """The owner reference of the object's controller; empty without one."""
        found = self.raw["metadata"].get("ownerReferences") or ()
        return next((one for one in found if one.get("controller")), {})

    @property
    def status(self) -> Mapping[str, Any]:
        """The stored status; empty before the first."""
        return self.raw.get("status") or {}
