"""Selection of nodes for routine sweeps: nodes for which the expected gain of a sweep exceeds its cost."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from convoy_controllers.guard.sweep import risk
from convoy_controllers.guard.sweep.risk import History, Prior


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that can be swept now."""

    node: str
    """Name of the node's hardware."""
    history: History = field(default_factory=History)
    age_hours: float | None = None
    """Hours since the last sweep of the hardware; None if there was none."""


@dataclass(frozen=True, slots=True)
class SweepCosts:
    """Cost of an undetected fault, and duration of a sweep."""

    slow: float = 0.15
    """Share of a job's speed that is lost to a defective node."""
    hours: float = 24.0
    """Hours for which a fault stays undetected without a sweep."""
    minutes: float = 10.0
    """Duration of a sweep of one node, in minutes."""


def worth(one: Candidate, prior: Prior, costs: SweepCosts) -> float:
    """Return the time that a sweep is expected to save, divided by the duration of the sweep. A sweep is
    worthwhile if the result is above 1.

    A node that was never swept is always worth a sweep, because other nodes are compared with its values.
    """
    if one.age_hours is None:
        return math.inf
    chance = risk.defective(risk.hazard(one.history, prior), one.age_hours)
    return chance * costs.slow * costs.hours * 60 / costs.minutes


def choose(
    candidates: Iterable[Candidate],
    budget_minutes: float,
    prior: Prior | None = None,
    costs: SweepCosts | None = None,
) -> list[str]:
    """Return the nodes that are worth a sweep, the most valuable first, within the budget of node-minutes."""
    prior, costs = prior or Prior(), costs or SweepCosts()
    found = sorted(
        (-worth(one, prior, costs), -risk.hazard(one.history, prior), one.node) for one in candidates
    )
    fit = max(0, int(budget_minutes // costs.minutes))
    return [node for lost, _, node in found if lost < -1][:fit]
