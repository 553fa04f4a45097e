"""What a decision is made of: the plan of one reconcile, in plain data.

`plan(observed, now) -> Plan` of every kind returns this; the operator performs it in the order of the fields:
status first where an incarnation rises, children, events, commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convoy_controllers.commands import Command
from convoy_crds.reasons.reason import Reason


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes Event on the parent."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Deletes one pod, and only the incarnation of it that was seen."""

    name: str
    uid: str
    grace_seconds: int | None = None
    """None leaves the pod's own grace period."""


@dataclass(frozen=True, slots=True)
class EndPod:
    """Has the kubelet end what still runs of one pod, and leaves the pod for its logs."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Inspect:
    """Asks for the Events of one pod that does not come up."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything one reconcile wants done."""

    status: Mapping[str, Any] | None = None
    """The whole status; None when it is as stored."""
    status_first: bool = False
    """True when children and commands must wait until the status is stored (a risen incarnation)."""
    create: tuple[Mapping[str, Any], ...] = ()
    """Pods, by plain POST."""
    dry_run: tuple[Mapping[str, Any], ...] = ()
    """Pods of `create` that the API server is asked to check first; refused, none is created."""
    delete: tuple[DeletePod, ...] = ()
    end: tuple[EndPod, ...] = ()
    delete_parent: bool = False
    events: tuple[Event, ...] = ()
    commands: tuple[Command, ...] = ()
    requeue_after: float | None = None
    """Seconds until time alone would change the plan."""
    inspect: Inspect | None = None
    """The pod that speaks for those that do not come up; None where none is late, or none need be asked."""
    struck: float = 0.0
    """Of a plan that answers a fault: when that happened, in Unix seconds; 0 where it is not known."""
