"""How likely a node has a fault that nobody has seen: gamma-Poisson by hardware, over its time since a sweep.

Faults concentrate on few nodes, so a node's own past says more than the fleet's mean: the posterior mean of
a Poisson rate whose prior, a gamma, is taken from the fleet (empirical Bayes, as in Clayton and Kaldor 1987).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Event(StrEnum):
    """What is known of a node's past."""

    CONFIRMED = "confirmed"
    """It was taken out of service for a fault."""
    SUSPECTED = "suspected"
    """A job's detector named it, or a sweep failed it once."""


WEIGHT = {Event.CONFIRMED: 1.0, Event.SUSPECTED: 0.5}
"""Faults that one event counts for."""


@dataclass(frozen=True, slots=True)
class Prior:
    """A gamma over faults per hour: mean shape/hours."""

    shape: float = 0.5
    hours: float = 5_000.0


@dataclass(frozen=True, slots=True)
class History:
    """Of one hardware id."""

    hours: float = 0.0
    """For which it has been watched."""
    events: tuple[tuple[Event, int], ...] = field(default=())
    """How often each was."""

    def faults(self) -> float:
        """Events by their weight."""
        return sum(WEIGHT[event] * count for event, count in self.events)


def prior(fleet: Sequence[History], least_shape: float = 0.05, most_shape: float = 50.0) -> Prior:
    """By moments of the nodes' own rates: the more they differ beyond chance, the lower the shape. What is
    taken for granted, the default, counts as much as it says; it is all there is where nothing has happened,
    or too few nodes are known.
    """
    before = Prior()
    hours = math.fsum(one.hours for one in fleet)
    faults = math.fsum(one.faults() for one in fleet)
    known = [one for one in fleet if one.hours > 0]
    if len(known) < 2 or faults <= 0:
        return before
    mean = (before.shape + faults) / (before.hours + hours)
    # The variance of a node's count is mean*T + (mean*T)^2/shape.
    beyond = math.fsum((one.faults() - mean * one.hours) ** 2 - mean * one.hours for one in known)
    square = math.fsum((mean * one.hours) ** 2 for one in known)
    shape = square / beyond if beyond > 0 else most_shape
    shape = min(most_shape, max(least_shape, shape))
    return Prior(shape, shape / mean)


def hazard(history: History, before: Prior) -> float:
    """Faults per hour of this hardware: the posterior mean."""
    return (before.shape + history.faults()) / (before.hours + max(0.0, history.hours))


def defective(per_hour: float, age_hours: float) -> float:
    """The chance that a fault has come since the last sweep."""
    return -math.expm1(-per_hour * max(0.0, age_hours))
