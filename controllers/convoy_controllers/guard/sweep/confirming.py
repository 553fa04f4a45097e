"""The confirmation stage of a pair sweep: each suspect is tested with good partners in different racks.
Pairs of good nodes are tested at the same time, for comparison.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection
from dataclasses import dataclass
from statistics import NormalDist, median

from convoy_controllers.guard.sweep.measuring import Pair, pair
from convoy_controllers.guard.sweep.scores import Normal, Value, normal, values
from convoy_controllers.guard.sweep.state import PairState, Stage


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Results of a suspect's tests with good partners."""

    tests: int
    median: float
    """Median cost of the suspect's tests, minus the cost of good pairs. A cost is the logarithm of a test's
    result, with the sign that makes a slower result larger.
    """
    error: float
    limit: float
    """Value of `median` above which the node fails."""


def first_tests(state: PairState, rng: random.Random) -> tuple[Pair, ...]:
    """Return the first tests of every suspect with good partners, and tests of pairs of good nodes for
    comparison.
    """
    if not state.suspects:
        return ()
    load = dict.fromkeys(state.good, 0)
    rounds = [_partners(state, one, state.settings.partners, load) for one in state.suspects]
    return _references(state, rng) + tuple(
        # Test the first partner of every suspect before the second partner of any suspect. A round tests each
        # node at most once, so this order puts more tests into each round.
        found[turn]
        for turn in range(state.settings.partners)
        for found in rounds
        if turn < len(found)
    )


def further_tests(state: PairState) -> tuple[Pair, ...]:
    """Return further tests for suspects whose median is too close to the limit for a verdict."""
    load = dict.fromkeys(state.good, 0)
    found: list[Pair] = []
    for node, one in confirmed(state).items():
        if node not in state.left and abs(one.median - one.limit) < 1.5 * one.error:
            found += _partners(state, node, state.settings.more, load)
    return tuple(found)


def confirmed(state: PairState) -> dict[str, Confirmed]:
    """Return the results of each suspect that was tested with good partners."""
    found = values(state)
    reference = normal(found, state.suspects)
    beyond = NormalDist().inv_cdf(1 - state.settings.false_alarm / max(1, len(state.suspects)))
    result = {}
    for node in state.suspects:
        costs = [
            one.excess - reference.centre for one in found if _is_confirmation(one, node, state.suspects)
        ]
        if costs:
            error = reference.error(len(costs))
            limit = max(math.log1p(state.settings.deficit), beyond * error)
            result[node] = Confirmed(len(costs), median(costs), error, limit)
    return result


def reference(state: PairState) -> Normal:
    """Return the typical results of good pairs, and the noise of one test."""
    return normal(values(state), state.suspects)


def _is_confirmation(one: Value, node: str, suspects: Collection[str]) -> bool:
    """Return True if `one` is a confirmation test of the suspect `node` with a partner that is no suspect."""
    return (
        one.stage in (Stage.CONFIRM, Stage.MORE)
        and node in one.pair
        and not set(one.pair) - {node} <= set(suspects)
    )


def _partners(state: PairState, node: str, count: int, load: dict[str, int]) -> list[Pair]:
    """Return up to `count` pairs of `node` with good partners.

    Prefer partners that were not paired with `node` before, then racks from which `node` has had no
    partner, then partners with few pairs.
    """
    rack = {one.node: one.rack for one in state.members}
    met = {test.measured.pair for test in state.tests}
    used = {
        rack[one]
        for test in state.tests
        if test.stage >= Stage.CONFIRM
        for one in _others(test.measured.pair, node)
    }
    choice = [one for one in state.good if one != node and one not in state.left]
    found: list[Pair] = []
    while choice and len(found) < count:
        best = min(
            choice,
            key=lambda one: (pair(node, one) in met, rack[one] in used, rack[one] == rack[node], load[one]),
        )
        choice.remove(best)
        used.add(rack[best])
        load[best] += 1
        found.append(pair(node, best))
    return found


def _others(one: Pair, node: str) -> tuple[str, ...]:
    return tuple(other for other in one if other != node) if node in one else ()


def _references(state: PairState, rng: random.Random) -> tuple[Pair, ...]:
    """Return pairs of good nodes, in different racks if possible. Each node is in few of these pairs."""
    rack = {one.node: one.rack for one in state.members}
    good = list(state.good)
    found: list[Pair] = []
    # In a small sweep, a turn may find only pairs that are already chosen, so allow more turns than pairs.
    for _ in range(4 * state.settings.references):
        rng.shuffle(good)
        row = sorted(good, key=lambda node: rack[node])
        half = len(row) // 2
        fresh = [pair(row[at], row[at + half]) for at in range(half)]
        fresh = [one for one in fresh if one not in found]
        rng.shuffle(fresh)
        found += fresh
    return tuple(found[: state.settings.references])
