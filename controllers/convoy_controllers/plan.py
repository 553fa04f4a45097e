"""The plan of one reconcile, as plain data.

The function `plan(observed, now)` of each controller returns a `Plan`. The operator carries out its parts
in this order: the status if `status_first` is set, the children, otherwise the status, the Events, the
commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convoy_controllers.children import Child, Create, Delete, EndPod, Event
from convoy_controllers.commands import Command
from convoy_controllers.placement.forecast.case import Case
from convoy_controllers.resources import Resource


@dataclass(frozen=True, slots=True)
class Inspect:
    """A request to read the Events of one pod that does not start."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes that result from one reconcile."""

    status: Mapping[str, Any] | None = None
    """The whole status; None if it equals the stored one."""
    status_first: bool = False
    """True if the status must be stored before children and commands are carried out, for example because
    it contains a new incarnation.
    """
    children: tuple[Child, ...] = ()
    prune: tuple[Resource, ...] = ()
    """Resources whose objects the parent owns completely. The operator deletes each owned object that no
    child in `children` applies.
    """
    delete_parent: bool = False
    events: tuple[Event, ...] = ()
    commands: tuple[Command, ...] = ()
    requeue_after: float | None = None
    """Seconds until the operator plans again even if nothing has changed; None if only a change leads to
    another plan.
    """
    inspect: Inspect | None = None
    """The pod whose Events the operator reads next, as an example for all pods that do not start. None if
    no pod is late.
    """
    simulate: tuple[Case, ...] = ()
    """Steps that the operator simulates in the background. Their results are in later observations."""
    memory: object = None
    """Data for the next plan of the same object, which the operator keeps once this plan is executed. A
    restart of the operator loses the data. None: the operator keeps what it has.
    """
    fault_at: float = 0.0
    """Unix seconds of the fault that this plan handles; 0 if the time is not known."""

    @property
    def creations(self) -> tuple[Create, ...]:
        """Return the children that create objects."""
        return tuple(child for child in self.children if isinstance(child, Create))

    @property
    def manifests(self) -> tuple[Mapping[str, Any], ...]:
        """Return the manifests of the objects to create."""
        return tuple(child.manifest for child in self.creations)

    @property
    def deletions(self) -> tuple[Delete, ...]:
        """Return the children that delete objects."""
        return tuple(child for child in self.children if isinstance(child, Delete))

    @property
    def endings(self) -> tuple[EndPod, ...]:
        """Return the children that end the containers of pods."""
        return tuple(child for child in self.children if isinstance(child, EndPod))
