"""How likely a node has a fault that nobody has seen: gamma-Poisson by hardware, over its time since a sweep.

Faults concentrate on few nodes, so a node's own past says more than the fleet's mean: the posterior mean of
a Poisson rate whose prior, a gamma, is taken from the fleet (empirical Bayes, as in Clayton and Kaldor 1987).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Component(StrEnum):
    """A part of a node that a test can find wanting."""

    COMPUTE = "compute"
    MEMORY = "memory"
    HOST = "host"
    STORAGE = "storage"
    NETWORK = "network"


class Event(StrEnum):
    """What is known of a node's past."""

    FAILED = "failed"
    """A sweep failed it."""
    SUSPECTED = "suspected"
    """A job's detector named it."""
    HARDWARE = "hardware"
    """An error that the hardware itself reported."""
    REPAIRED = "repaired"


WEIGHT = {Event.FAILED: 1.0, Event.SUSPECTED: 0.5, Event.HARDWARE: 0.3, Event.REPAIRED: 0.5}
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
    events: tuple[tuple[Event, Component | None, int], ...] = field(default=())
    """How often each was; None where the component is not known."""

    def faults(self) -> float:
        """Events by their weight."""
        return sum(WEIGHT[event] * count for event, _, count in self.events)


def prior(fleet: Sequence[History], least_shape: float = 0.05, most_shape: float = 50.0) -> Prior:
    """By moments of the nodes' own rates: the more they differ beyond chance, the lower the shape.

    The default where nothing has happened, or too few nodes are known.
    """
    hours = math.fsum(one.hours for one in fleet)
    faults = math.fsum(one.faults() for one in fleet)
    known = [one for one in fleet if one.hours > 0]
    if len(known) < 2 or faults <= 0:
        return Prior()
    mean = faults / hours
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


def shares(history: History) -> dict[Component, float]:
    """Where a fault of this node would be: by its past, one fault more assumed, spread evenly."""
    weight = dict.fromkeys(Component, 1.0 / len(Component))
    for event, component, count in history.events:
        if component is not None:
            weight[component] += WEIGHT[event] * count
    total = math.fsum(weight.values())
    return {component: value / total for component, value in weight.items()}
