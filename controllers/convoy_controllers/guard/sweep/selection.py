"""Which nodes are swept although nothing asks for it: those where a sweep finds more than it costs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from convoy_controllers.guard.sweep import risk
from convoy_controllers.guard.sweep.risk import History, Prior


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that could be swept now."""

    node: str
    """Its hardware id."""
    history: History = field(default_factory=History)
    age_hours: float | None = None
    """Since its last sweep; None if it never had one."""


@dataclass(frozen=True, slots=True)
class SweepCosts:
    """What a fault costs while nobody knows of it, and what it costs to look."""

    slow: float = 0.15
    """The share of a job's pace that a defective node takes."""
    hours: float = 24.0
    """For which it would go on until something else finds it."""
    minutes: float = 10.0
    """Of a node, for a sweep."""


def worth(one: Candidate, prior: Prior, costs: SweepCosts) -> float:
    """Hours of waiting that a sweep is expected to find, over those that it takes: above 1 it pays. A node
    that was never swept is always worth it: others are held against what it reaches.
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
    """The nodes that are worth it, the best first, as far as the budget of node-minutes goes."""
    prior, costs = prior or Prior(), costs or SweepCosts()
    found = sorted(
        (-worth(one, prior, costs), -risk.hazard(one.history, prior), one.node) for one in candidates
    )
    fit = max(0, int(budget_minutes // costs.minutes))
    return [node for lost, _, node in found if lost < -1][:fit]
