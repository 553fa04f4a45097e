"""Faults that agents inject into the pods of an Experiment: the agents' reports on them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FaultPhase(StrEnum):
    """State of a fault."""

    INJECTED = "Injected"
    """The fault is in effect."""
    UNDONE = "Undone"
    """The fault is over, and the agent has restored what it changed."""
    REFUSED = "Refused"
    """The fault was not injected. A repeated order is checked again."""


@dataclass(frozen=True, slots=True)
class FaultState:
    """A fault as its agent reported it."""

    id: str
    pod_uid: str
    kind: str
    """PerturbationKind of the fault."""
    phase: FaultPhase
    achieved: float | None = None
    """Magnitude that the agent measured, in the unit of the kind; None before the first measurement."""
    message: str = ""
    """Reason of a refusal, of an early end, or of an undo that fails and is retried."""
    injected: float = 0.0
    """Unix seconds at which the fault took effect; 0 if it has not."""
    undone: float = 0.0
    """Unix seconds at which the fault ended; 0 if it has not."""
