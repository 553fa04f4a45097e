"""Which nodes are swept next, and with which tests: what must be, then the most loss found per minute."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from convoy_controllers.guard.sweep import risk
from convoy_controllers.guard.sweep.risk import Component, History, Prior

EXPIRY_HOURS = 14 * 24.0


class Cause(StrEnum):
    """Why a node is swept."""

    FIRST_USE = "FirstUse"
    REPAIRED = "Repaired"
    CHANGED = "Changed"
    """Its driver or firmware."""
    SUSPECTED = "Suspected"
    EXPIRED = "Expired"
    RISK = "Risk"


@dataclass(frozen=True, slots=True)
class Probe:
    """One of the sweep's tests."""

    name: str
    minutes: float
    finds: Mapping[Component, float]
    """The chance to find a fault of that component."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that could be swept now."""

    node: str
    """Its hardware id."""
    history: History = field(default_factory=History)
    age_hours: float | None = None
    """Since its last whole sweep; None if it never had one."""
    repaired: bool = False
    """Since its last sweep, as the next."""
    changed: bool = False
    suspected: Component | None = None
    """What a job's detector blames; a cause of its own, whatever the age."""
    devices: float = 8.0
    """Accelerators that wait while it is slow: of its job, or its own when it is idle."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A node and the tests to run on it now."""

    node: str
    tests: tuple[str, ...]
    minutes: float
    cause: Cause
    gain: float
    """Device-hours of waiting that are expected to be found."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What is run, in this order, and who must be swept but did not fit."""

    chosen: tuple[Chosen, ...]
    over: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stakes:
    """What a fault costs while nobody knows of it."""

    slow: float = 0.15
    """The share of a job's pace that a defective node takes."""
    hours: float = 24.0
    """For which it would go on until something else finds it."""
    least_gain_per_minute: float = 0.0
    """Device-hours; what gains less is not worth a test."""


def choose(
    candidates: Iterable[Candidate],
    tests: Sequence[Probe],
    budget_minutes: float,
    prior: Prior | None = None,
    stakes: Stakes | None = None,
) -> Selection:
    """Node-minutes up to the budget; nodes that are out of use until they are swept come first and always.

    Those expired come next, the oldest first, as far as the budget goes; what is left is spent on single
    tests by their gain per minute.
    """
    prior, stakes = prior or Prior(), stakes or Stakes()
    unique = {one.node: one for one in candidates}
    chosen: list[Chosen] = []
    left = budget_minutes
    expired: list[Candidate] = []
    rest: list[Candidate] = []
    for one in sorted(unique.values(), key=lambda one: one.node):
        cause = _must(one)
        if cause is not None:
            run = _matching(tests, one.suspected) if cause is Cause.SUSPECTED else list(tests)
            chosen.append(_chosen(one, run, cause, prior, stakes))
            left -= chosen[-1].minutes
        elif one.age_hours is not None and one.age_hours >= EXPIRY_HOURS:
            expired.append(one)
        else:
            rest.append(one)
    order = {Cause.SUSPECTED: 0, Cause.REPAIRED: 1, Cause.CHANGED: 2, Cause.FIRST_USE: 3}
    chosen.sort(key=lambda one: (order[one.cause], -one.gain, one.node))
    over = []
    for one in sorted(expired, key=lambda one: (-(one.age_hours or 0.0), one.node)):
        whole = _chosen(one, tests, Cause.EXPIRED, prior, stakes)
        if whole.minutes <= left:
            chosen.append(whole)
            left -= whole.minutes
        else:
            over.append(one.node)
    if not over:
        chosen += _by_gain(rest, tests, left, prior, stakes)
    return Selection(tuple(chosen), tuple(over))


def _must(one: Candidate) -> Cause | None:
    """Why it may not be used before it is swept, or is to be swept at once."""
    if one.age_hours is None:
        return Cause.FIRST_USE
    if one.repaired:
        return Cause.REPAIRED
    if one.changed:
        return Cause.CHANGED
    return Cause.SUSPECTED if one.suspected is not None else None


def _matching(tests: Sequence[Probe], component: Component | None) -> list[Probe]:
    """The tests that look at this component; all where none does."""
    found = [one for one in tests if component is not None and one.finds.get(component, 0.0) > 0]
    return found or list(tests)


def _chosen(one: Candidate, tests: Sequence[Probe], cause: Cause, prior: Prior, stakes: Stakes) -> Chosen:
    unseen = _unseen(one, prior)
    gain = 0.0
    for test in tests:
        gain += _found(test, unseen) * _loss(one, stakes)
        _see(test, unseen)
    names = tuple(test.name for test in tests)
    return Chosen(one.node, names, sum(test.minutes for test in tests), cause, gain)


def _by_gain(
    candidates: Sequence[Candidate], tests: Sequence[Probe], budget: float, prior: Prior, stakes: Stakes
) -> list[Chosen]:
    """The best test of any node, again and again: what a test has found the next one cannot find."""
    by_node = {one.node: one for one in candidates}
    unseen = {one.node: _unseen(one, prior) for one in candidates}
    gains: dict[str, float] = {}
    run: dict[str, list[Probe]] = {}

    def rate(node: str, test: Probe) -> float:
        return _found(test, unseen[node]) * _loss(by_node[node], stakes) / max(test.minutes, 1e-9)

    # Gains only shrink as others are chosen: the best of a stale heap is the best if it is still as good.
    heap = [(-rate(one.node, test), one.node, at) for one in candidates for at, test in enumerate(tests)]
    heapq.heapify(heap)
    while heap:
        stale, node, at = heapq.heappop(heap)
        test = tests[at]
        now = rate(node, test)
        if now <= stakes.least_gain_per_minute or test.minutes > budget:
            continue
        if now < -stale:
            heapq.heappush(heap, (-now, node, at))
            continue
        budget -= test.minutes
        gains[node] = gains.get(node, 0.0) + now * test.minutes
        run.setdefault(node, []).append(test)
        _see(test, unseen[node])
    found = [
        Chosen(
            node, tuple(one.name for one in some), sum(one.minutes for one in some), Cause.RISK, gains[node]
        )
        for node, some in run.items()
    ]
    return sorted(found, key=lambda one: (-one.gain / one.minutes, one.node))


def _unseen(one: Candidate, prior: Prior) -> dict[Component, float]:
    """The chance of a fault by component."""
    # Before its first sweep anything may have come to it.
    age = max(EXPIRY_HOURS, one.history.hours) if one.age_hours is None else one.age_hours
    chance = risk.defective(risk.hazard(one.history, prior), age)
    return {component: chance * share for component, share in risk.shares(one.history).items()}


def _found(test: Probe, unseen: Mapping[Component, float]) -> float:
    return sum(unseen[component] * chance for component, chance in test.finds.items())


def _see(test: Probe, unseen: dict[Component, float]) -> None:
    for component, chance in test.finds.items():
        unseen[component] *= 1 - chance


def _loss(one: Candidate, stakes: Stakes) -> float:
    """Device-hours that a fault of this node costs."""
    return one.devices * stakes.slow * stakes.hours
