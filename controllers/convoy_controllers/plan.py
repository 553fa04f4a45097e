"""The plan of one reconcile, in plain data.

`plan(observed, now) -> Plan` of every kind returns one. The operator carries it out in this order: the status
first if `status_first`, children, the status, events, commands.
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
    """A question for the Events of one pod that does not come up."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything one reconcile wants done."""

    status: Mapping[str, Any] | None = None
    """The whole status; None when it is as stored."""
    status_first: bool = False
    """True when children and commands must wait until the status is stored (a risen incarnation)."""
    children: tuple[Child, ...] = ()
    prune: tuple[Resource, ...] = ()
    """Resources of which the parent owns what `children` applies, and nothing else: the rest is deleted."""
    delete_parent: bool = False
    events: tuple[Event, ...] = ()
    commands: tuple[Command, ...] = ()
    requeue_after: float | None = None
    """Seconds until time alone would change the plan."""
    inspect: Inspect | None = None
    """The pod that speaks for those that do not come up; None where none is late, or none need be asked."""
    fault_at: float = 0.0
    """Unix seconds at which the fault happened that this plan answers; 0 where that is not known."""

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
