"""Objects as the caches keep them. Of pods and nodes they keep what decisions need, of other objects the
JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from convoy_controllers.views import PodView


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod: its namespace and version, and the view that plans get."""

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
    """The node's Ready condition: True while its kubelet reports and is healthy."""
    cordoned: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = ""
    created: datetime | None = None
    machine_id: str = ""
    boot_id: str = ""
    taints: tuple[Mapping[str, Any], ...] = ()
    qualified: Mapping[str, Any] = field(default_factory=dict)
    """The condition that Convoy itself sets on the node; empty while there is none."""


@dataclass(frozen=True, slots=True)
class CachedObject:
    """An object of one of Convoy's kinds, or an applied child, as JSON without its managed fields."""

    namespace: str
    name: str
    uid: str
    version: int
    raw: Mapping[str, Any]
    owned_fields: int = 0
    """Hash of the fields that the operator owns by server-side apply. It changes if another manager writes
    to one of them, and thereby owns it.
    """

    @property
    def generation(self) -> int:
        """The object's metadata generation."""
        return int(self.raw["metadata"].get("generation", 0))

    @property
    def owner(self) -> Mapping[str, Any]:
        """The owner reference of the object's controller; empty if it has none."""
        found = self.raw["metadata"].get("ownerReferences") or ()
        return next((one for one in found if one.get("controller")), {})

    @property
    def status(self) -> Mapping[str, Any]:
        """The stored status; empty before the first."""
        return self.raw.get("status") or {}
