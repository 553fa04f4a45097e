"""Rules that find slow nodes in a sweep: Convoy's, and published rules of other projects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from convoy_controllers.guard.sweep import judging, pairs
from convoy_controllers.guard.sweep.measuring import Better, Measured, Member, Pair
from convoy_controllers.guard.sweep.state import PairState, Settings
from convoy_controllers.guard.sweep.verdict import Outcome
from e2e.bench.guard.sweeping.fleets import RACK, Fleet


@dataclass(frozen=True)
class Verdict:
    """The nodes of a fleet that a rule fails, and those on which it cannot decide."""

    failed: frozenset[int]
    unknown: frozenset[int] = frozenset()
    rounds: int = 0


Rule = Callable[[Fleet, int], Verdict]


def convoy(fleet: Fleet, seed: int) -> Verdict:
    """Apply Convoy's rule. After two rounds of random pairs, test each suspect node again, with partners
    that tested fast.

    The rule derives its thresholds from the test times of the same fleet.
    """
    state, rounds = _start(fleet, seed), 0
    while todo := pairs.next_round(state):
        rounds += 1
        state = _run(fleet, state, todo)
    nodes_by_outcome: dict[Outcome, set[int]] = {outcome: set() for outcome in Outcome}
    for one in judging.verdicts(state)[: fleet.count]:
        nodes_by_outcome[one.outcome].add(int(one.subject))
    return Verdict(
        frozenset(nodes_by_outcome[Outcome.FAIL]), frozenset(nodes_by_outcome[Outcome.INCONCLUSIVE]), rounds
    )


def unconfirmed(fleet: Fleet, seed: int) -> Verdict:
    """Apply Convoy's rule without confirmation: every node that is suspect after two rounds fails."""
    state = _start(fleet, seed)
    for _ in range(2):
        state = _run(fleet, state, pairs.next_round(state))
    return Verdict(frozenset(int(one) for one in state.suspects), rounds=2)


def _start(fleet: Fleet, seed: int) -> PairState:
    members = [Member(f"{at:04d}", f"rack-{at // RACK}") for at in range(fleet.count)]
    return pairs.start(members, Settings(better=Better.LOWER), seed)


def _run(fleet: Fleet, state: PairState, todo: Sequence[Pair]) -> PairState:
    took = fleet.run([(int(one), int(other)) for one, other in todo])
    return pairs.apply_results(state, [Measured(*one) for one in zip(todo, took, strict=True)])


def second_pass(margin: float) -> Rule:
    """Return a rule that fails a node if both of its tests take longer than 1 + `margin`.

    If a pair of the first round is slow, each of its nodes is tested again, with a node whose pair was
    fast.

    Source: GoogleCloudPlatform/cluster-health-scanner, src/health_runner/nccl_runner.py.
    """

    def rule(fleet: Fleet, _: int) -> Verdict:
        first = fleet.matching()
        suspects: list[int] = []
        passed: list[int] = []
        for one, took in zip(first, fleet.run(first), strict=True):
            (suspects if took > 1 + margin else passed).extend(one)
        if not passed or not suspects:
            return Verdict(frozenset(), rounds=1)
        again = fleet.run([(one, fleet.pick(passed)) for one in suspects])
        return Verdict(
            frozenset(one for one, value in zip(suspects, again, strict=True) if value > 1 + margin), rounds=2
        )

    return rule


def twice_median(fleet: Fleet, _: int) -> Verdict:
    """Apply a rule with two rounds of pair tests. It keeps each node's shorter test time. A node fails if
    this time is above twice the median of all nodes.

    The second round pairs the slowest nodes with the fastest. Source: intelligent-machine-learning/dlrover,
    master/elastic_training/rdzv_manager.py.
    """
    first = fleet.matching()
    best = np.full(fleet.count, np.inf)
    for one, took in zip(first, fleet.run(first), strict=True):
        best[list(one)] = took
    order = [int(one) for one in np.argsort(best)]
    second = [(order[at], order[-1 - at]) for at in range(fleet.count // 2)]
    for one, took in zip(second, fleet.run(second), strict=True):
        best[list(one)] = np.minimum(best[list(one)], took)
    return Verdict(frozenset(int(one) for one in np.flatnonzero(best > 2 * np.median(best))), rounds=2)


RULES: dict[str, Rule] = {
    "Convoy": convoy,
    "10 % margin and second pass": second_pass(0.10),
    "30 % margin and second pass": second_pass(0.30),
    "two rounds, 2 x median": twice_median,
    "not confirmed": unconfirmed,
}
