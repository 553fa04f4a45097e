"""The plan of one reconcile, as plain data.

The `plan(observed, now)` function of every kind returns one. The operator carries out its parts in this
order: the status if `status_first`, children, the status otherwise, events, commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convoy_controllers.children import Child, Create, Delete, EndPod, Event
from convoy_controllers.commands import Command
from convoy_controllers.resources import Resource


@dataclass(frozen=True, slots=True)
class Inspect:
    """A request to read the Events of one pod that does not start."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes that one reconcile wants."""

    status: Mapping[str, Any] | None = None
    """The whole status; None if it equals the stored one."""
    status_first: bool = False
    """True if children and commands must wait until the status is stored, for example a higher incarnation.
    """
    children: tuple[Child, ...] = ()
    prune: tuple[Resource, ...] = ()
    """Resources whose objects the parent owns completely. The operator deletes owned objects that
    `children` does not apply.
    """
    delete_parent: bool = False
    events: tuple[Event, ...] = ()
    commands: tuple[Command, ...] = ()
    requeue_after: float | None = None
    """Seconds until the plan would change although nothing else does."""
    inspect: Inspect | None = None
    """The pod whose Events to read, as an example for all pods that do not start. None if no pod is late."""
    fault_at: float = 0.0
    """Unix seconds of the fault that this plan handles; 0 if the time is not known."""

    @property
    def creations(self) -> tuple[Create, ...]:
        """The objects to create."""
        return tuple(child for child in self.children if isinstance(child, Create))

    @property
    def manifests(self) -> tuple[Mapping[str, Any], ...]:
        """The manifests of the objects to create."""
        return tuple(child.manifest for child in self.creations)

    @property
    def deletions(self) -> tuple[Delete, ...]:
        """The objects to delete."""
        return tuple(child for child in self.children if isinstance(child, Delete))

    @property
    def endings(self) -> tuple[EndPod, ...]:
        """The pods to end."""
        return tuple(child for child in self.children if isinstance(child, EndPod))
