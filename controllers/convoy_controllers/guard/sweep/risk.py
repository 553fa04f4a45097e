"""Probability that a node has an undetected fault. A gamma-Poisson model gives the fault rate of each piece
of hardware; the probability grows with the time since the last sweep.

Faults concentrate on few nodes, so a node's own past predicts more than the fleet's mean. The rate is the
posterior mean of a Poisson rate. Its gamma prior is estimated from the fleet (empirical Bayes, as in
Clayton and Kaldor 1987).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Event(StrEnum):
    """Kind of event in a node's past."""

    CONFIRMED = "confirmed"
    """The node was taken out of service for a fault."""
    SUSPECTED = "suspected"
    """A job's detector accused the node, or the node failed one sweep."""


WEIGHT = {Event.CONFIRMED: 1.0, Event.SUSPECTED: 0.5}
"""Number of faults that one event counts as."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Gamma distribution of the faults per hour, with mean `shape` / `hours`."""

    shape: float = 0.5
    hours: float = 5_000.0


@dataclass(frozen=True, slots=True)
class History:
    """Observed hours and events of one piece of hardware."""

    hours: float = 0.0
    """Hours for which the hardware has been observed."""
    events: tuple[tuple[Event, int], ...] = field(default=())
    """Number of events of each kind, as pairs of kind and number."""

    def faults(self) -> float:
        """Return the number of events, weighted by WEIGHT."""
        return sum(WEIGHT[event] * count for event, count in self.events)


def prior(fleet: Sequence[History], least_shape: float = 0.05, most_shape: float = 50.0) -> Prior:
    """Return the prior, estimated from the moments of the nodes' fault rates. The more the rates differ,
    the lower the shape.

    For the mean rate, the default prior counts as one more node: `shape` faults in `hours` hours. The
    default prior is returned if there were no faults or fewer than two nodes were observed.
    """
    before = Prior()
    hours = math.fsum(one.hours for one in fleet)
    faults = math.fsum(one.faults() for one in fleet)
    known = [one for one in fleet if one.hours > 0]
    if len(known) < 2 or faults <= 0:
        return before
    mean = (before.shape + faults) / (before.hours + hours)
    # Estimate the shape from the variance of a node's fault count over T hours, which is mean*T +
    # (mean*T)^2/shape.
    beyond = math.fsum((one.faults() - mean * one.hours) ** 2 - mean * one.hours for one in known)
    square = math.fsum((mean * one.hours) ** 2 for one in known)
    shape = square / beyond if beyond > 0 else most_shape
    shape = min(most_shape, max(least_shape, shape))
    return Prior(shape, shape / mean)


def hazard(history: History, before: Prior) -> float:
    """Return the expected faults per hour of this hardware: the posterior mean."""
    return (before.shape + history.faults()) / (before.hours + max(0.0, history.hours))


def defective(per_hour: float, age_hours: float) -> float:
    """Return the probability of at least one fault since the last sweep, `age_hours` ago."""
    return -math.expm1(-per_hour * max(0.0, age_hours))
