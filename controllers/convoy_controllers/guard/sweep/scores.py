"""The figures of a sweep of pairs: a score for every node, who is suspected, and what good pairs reach.

Model: log t(i, j) = max(a(i), a(j)) + l(i, j) + noise, so the lowest of a node's values bounds its own.
Values of pairs inside a rack and across racks are each held against their own kind.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

import numpy as np

from convoy_controllers.guard.robust import MEDIAN_ERROR, spread
from convoy_controllers.guard.sweep.measuring import Pair, cost
from convoy_controllers.guard.sweep.state import PairState, Settings, Stage, Test

_LEAST_SIGMA = 0.003
"""No test of a network is more exact than this."""
_FEW = 4
"""Values below which a kind of pair has no centre of its own."""
_MOST_TURNS = 8


@dataclass(frozen=True, slots=True)
class Value:
    """A test on the scale of costs, less what the faster pairs of its kind cost in the matchings."""

    stage: Stage
    pair: Pair
    excess: float


@dataclass(frozen=True, slots=True)
class Normal:
    """What good pairs reach beside the suspects, less `Value.excess`' own zero, and the noise of one test."""

    centre: float
    sigma: float
    count: int
    matched: float
    """The same as `centre`, in the matchings."""

    def error(self, tests: int) -> float:
        """Standard error of the median of so many tests, and of the centre itself."""
        return MEDIAN_ERROR * self.sigma * math.sqrt(1 / tests + 1 / max(1, self.count))


def robust_sigma(values: Iterable[float], least: float = _LEAST_SIGMA) -> float:
    """A standard deviation that outliers do not move, and never less than `least`."""
    row = np.fromiter(values, dtype=np.float64)
    return max(least, spread(row)) if len(row) else least


def values(state: PairState) -> tuple[Value, ...]:
    """All tests that gave a figure, each less the lower tercile of the matchings' tests of its kind.

    The median would do only while less than half of the pairs hold a slow node: 29 % of the nodes.
    """
    rack = {one.node: one.rack for one in state.members}
    costs = [(test, cost(test.measured.value, state.settings.better)) for test in state.tests]
    kinds: dict[bool, list[float]] = {True: [], False: []}
    for test, value in costs:
        if value is not None and test.stage <= Stage.ACROSS:
            kinds[_near(test, rack)].append(value)
    both = kinds[True] + kinds[False]
    if not both:
        return ()
    centres = {kind: _tercile(row if len(row) >= _FEW else both) for kind, row in kinds.items()}
    return tuple(
        Value(test.stage, test.measured.pair, value - centres[_near(test, rack)])
        for test, value in costs
        if value is not None
    )


def _tercile(row: Sequence[float]) -> float:
    """The lower one, between the two values next to it."""
    at = (len(row) - 1) / 3
    ranked = sorted(row)
    low = int(at)
    return ranked[low] + (at - low) * (ranked[min(low + 1, len(row) - 1)] - ranked[low])


def _near(test: Test, rack: Mapping[str, str]) -> bool:
    one, other = test.measured.pair
    return rack[one] == rack[other]


def scores(found: Iterable[Value]) -> dict[str, float]:
    """The lowest value of every node in the matchings."""
    lowest: dict[str, float] = {}
    for one in found:
        if one.stage <= Stage.ACROSS:
            for node in one.pair:
                lowest[node] = min(one.excess, lowest.get(node, math.inf))
    return lowest


def suspicion(score: Mapping[str, float], settings: Settings) -> float:
    """The score above which a node is a suspect."""
    row = sorted(score.values())
    least = settings.suspect_share * math.log1p(settings.deficit)
    limit = math.inf
    # What is slow must not hide itself by widening the spread: without it, again, until nothing changes.
    for _ in range(_MOST_TURNS):
        kept = row[: bisect_right(row, limit)]
        beyond = settings.suspect_sigmas * robust_sigma(kept)
        before, limit = limit, median(kept) + max(beyond, least)
        if limit >= before:
            break
    return limit


def normal(found: Collection[Value], bad: Collection[str]) -> Normal:
    """From pairs without a node in `bad`: the centre of those beside the suspects, the noise of all.

    The matchings load the network otherwise than a few pairs do, so their centre is not used.
    """
    clean = [one for one in found if not set(one.pair) & set(bad)]
    stages: dict[bool, list[float]] = {True: [], False: []}
    for one in clean:
        if one.stage <= Stage.CONFIRM:
            stages[one.stage is Stage.CONFIRM].append(one.excess)
    beside = stages[True]
    matched = median(stages[False]) if stages[False] else 0.0
    centre = median(beside) if beside else matched
    rest = [value - middle for row in stages.values() if row for middle in [median(row)] for value in row]
    return Normal(centre, robust_sigma(rest), len(beside), matched)


def power(limit: float, sigma: float, matchings: int, settings: Settings) -> float:
    """Return the chance that a node slower by `Settings.detectable` is suspected.

    A node is suspected if its values in all its `matchings` exceed the limit.
    """
    return NormalDist().cdf((math.log1p(settings.detectable) - limit) / sigma) ** matchings
