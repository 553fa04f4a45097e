"""Figures of a pair sweep: a score for every node, the limit for suspects, and the typical results of good
pairs.

The model is log t(i, j) = max(a(i), a(j)) + l(i, j) + noise, with a(i) for node i and l(i, j) for the link.
So the lowest of a node's values is an upper limit of the node's own a(i). Pairs inside a rack are compared
with pairs inside racks only, and pairs across racks with pairs across racks only.
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
"""Minimum assumed noise: no network test is more exact."""
_FEW = 4
"""Minimum number of test values of one kind of pair (inside a rack, or across racks) for a reference value
of that kind. With fewer values, the reference value is computed from both kinds together.
"""
_MOST_TURNS = 8


@dataclass(frozen=True, slots=True)
class Value:
    """A test result. `excess` is the cost of the test minus the cost of fast pairs of the same kind in the
    matchings.
    """

    stage: Stage
    pair: Pair
    excess: float


@dataclass(frozen=True, slots=True)
class Normal:
    """Typical results of good pairs on the scale of `Value.excess`, and the noise of one test. `centre`
    comes from the good pairs that are tested next to the suspects.
    """

    centre: float
    sigma: float
    count: int
    matched: float
    """Typical result of good pairs in the matchings."""

    def error(self, tests: int) -> float:
        """Return the standard error of the difference between the median of `tests` results and `centre`."""
        return MEDIAN_ERROR * self.sigma * math.sqrt(1 / tests + 1 / max(1, self.count))


def robust_sigma(values: Iterable[float], least: float = _LEAST_SIGMA) -> float:
    """Return a standard deviation that ignores outliers. The result is at least `least`."""
    row = np.fromiter(values, dtype=np.float64)
    return max(least, spread(row)) if len(row) else least


def values(state: PairState) -> tuple[Value, ...]:
    """Return all tests that gave a value. Each value is relative to the lower tercile of the matchings'
    tests of the same kind: pairs inside a rack, or pairs across racks.

    The median would be too high: if 29 % of the nodes are slow, half of the pairs contain a slow node.
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
    """Return the lower tercile, interpolated between the two nearest values."""
    at = (len(row) - 1) / 3
    ranked = sorted(row)
    low = int(at)
    return ranked[low] + (at - low) * (ranked[min(low + 1, len(row) - 1)] - ranked[low])


def _near(test: Test, rack: Mapping[str, str]) -> bool:
    one, other = test.measured.pair
    return rack[one] == rack[other]


def scores(found: Iterable[Value]) -> dict[str, float]:
    """Return each node's score: the lowest of its values in the matchings."""
    lowest: dict[str, float] = {}
    for one in found:
        if one.stage <= Stage.ACROSS:
            for node in one.pair:
                lowest[node] = min(one.excess, lowest.get(node, math.inf))
    return lowest


def suspicion(score: Mapping[str, float], settings: Settings) -> float:
    """Return the score above which a node is a suspect."""
    row = sorted(score.values())
    least = settings.suspect_share * math.log1p(settings.deficit)
    limit = math.inf
    # Slow nodes widen the spread and so raise the limit above their own scores. Leave out the nodes above the
    # limit and repeat until the limit is stable.
    for _ in range(_MOST_TURNS):
        kept = row[: bisect_right(row, limit)]
        beyond = settings.suspect_sigmas * robust_sigma(kept)
        before, limit = limit, median(kept) + max(beyond, least)
        if limit >= before:
            break
    return limit


def normal(found: Collection[Value], bad: Collection[str]) -> Normal:
    """Return the typical results of pairs without a node in `bad`. The noise is estimated from all these
    pairs.

    The centre comes from the pairs tested next to the suspects. It comes from the matchings only if there
    are no such pairs, because the matchings load the network differently.
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
    """Return the probability that a node slower by `Settings.detectable` is suspected.

    A node is suspected only if its values in all its `matchings` exceed the limit.
    """
    return NormalDist().cdf((math.log1p(settings.detectable) - limit) / sigma) ** matchings
