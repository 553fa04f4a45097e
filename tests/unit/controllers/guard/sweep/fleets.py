"""Helpers that run pair sweeps to their end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from convoy_controllers.guard.sweep import pairs
from convoy_controllers.guard.sweep.judging import verdicts
from convoy_controllers.guard.sweep.measuring import Measured, Member, Pair
from convoy_controllers.guard.sweep.state import PairState, Settings
from convoy_controllers.guard.sweep.verdict import Verdict

Measure = Callable[[Pair], float | None]


def members(count: int, rack: int = 4) -> list[Member]:
    return [Member(f"n{at:03d}", f"rack-{at // rack}") for at in range(count)]


def play(
    nodes: Sequence[Member], measure: Measure, settings: Settings | None = None, seed: int = 0
) -> tuple[PairState, list[tuple[Pair, ...]]]:
    """Run a sweep until no pair is left to test. Return the sweep's state and rounds."""
    state = pairs.start(nodes, settings, seed)
    rounds = []
    while todo := pairs.next_round(state):
        rounds.append(todo)
        assert len(rounds) < 500
        state = pairs.apply_results(state, [Measured(one, measure(one)) for one in todo])
    return state, rounds


def by_subject(state: PairState) -> dict[str, Verdict]:
    return {one.subject: one for one in verdicts(state)}
