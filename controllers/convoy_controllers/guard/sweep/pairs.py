"""The sweep of pairs: which pairs run next, and what follows from what they gave. A fold without a clock.

Two matchings find suspects; each suspect then meets good partners in different racks, beside pairs of good
nodes; slow pairs between nodes that are fast elsewhere are looked into from both ends.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from convoy_controllers.guard.sweep import confirming, linking, matching
from convoy_controllers.guard.sweep.measuring import Measured, Member, Pair, pair
from convoy_controllers.guard.sweep.scores import scores, suspicion, values
from convoy_controllers.guard.sweep.state import PairState, Settings, Stage, Test

FEWEST = 4
"""Nodes below which nobody can be told apart from a partner."""
_FEWEST_GOOD = 6
"""Good nodes to choose partners from, where there are so many; else the better half of all."""


def start(members: Iterable[Member], settings: Settings | None = None, seed: int = 0) -> PairState:
    """A sweep of these nodes before its first round."""
    unique = tuple(sorted({one.node: one for one in members}.values(), key=lambda one: one.node))
    state = PairState(unique, settings or Settings(), seed, Stage.INSIDE)
    return _settled(replace(state, wanted=tuple(matching.inside(unique, _random(state)))))


def next_round(state: PairState) -> tuple[Pair, ...]:
    """Pairs to run at the same time, no node twice; empty when the sweep is done."""
    found: list[Pair] = []
    busy: set[str] = set()
    for one in state.wanted:
        if not busy & set(one):
            found.append(one)
            busy |= set(one)
        if len(found) == state.settings.at_once:
            break
    return tuple(found)


def apply_results(state: PairState, results: Iterable[Measured], leaving: Collection[str] = ()) -> PairState:
    """After some results, in any order, and after the nodes in `leaving` have left the sweep for good.

    A pair without a result is run again; one that cannot give any is heard with the value None. What was
    not asked for does not count.
    """
    wanted = list(state.wanted)
    tests = list(state.tests)
    for requested, one in {pair(*one.pair): one for one in results}.items():
        if requested in wanted:
            wanted.remove(requested)
            tests.append(Test(state.stage, Measured(requested, one.value)))
    left = state.left | (set(leaving) & {one.node for one in state.members})
    wanted = _without(wanted, left, state)
    return _settled(replace(state, wanted=tuple(wanted), tests=tuple(tests), left=left))


def _without(wanted: Sequence[Pair], leaving: Collection[str], state: PairState) -> list[Pair]:
    """The tests that still can be run; in a matching, those who lost their partners meet each other."""
    kept = [one for one in wanted if not set(one) & set(leaving)]
    if state.stage > Stage.ACROSS:
        return kept
    unpaired = sorted({node for one in wanted if one not in kept for node in one} - set(leaving))
    return kept + [pair(unpaired[at], unpaired[at + 1]) for at in range(0, len(unpaired) - 1, 2)]


def _settled(state: PairState) -> PairState:
    """Moves on through the stages until there is something to run."""
    while not state.wanted and state.stage is not Stage.DONE:
        state = _next(replace(state, stage=Stage(state.stage + 1)))
    return state


def _next(state: PairState) -> PairState:
    here = [one for one in state.members if one.node not in state.left]
    match state.stage:
        case Stage.ACROSS:
            before = {test.measured.pair for test in state.tests}
            return replace(state, wanted=tuple(matching.across(here, before, _random(state))))
        case Stage.CONFIRM:
            return _confirm(state, here)
        case Stage.MORE:
            wanted, links = confirming.doubts(state), linking.candidates(state)
            twice = tuple(one for one in links for _ in range(linking.REPEATS))
            return replace(state, wanted=wanted + twice, links=links)
        case Stage.LINKS:
            return replace(state, wanted=linking.partner_changes(state))
        case _:
            return state


def _confirm(state: PairState, here: Sequence[Member]) -> PairState:
    """Tells suspects from good nodes, and plans their tests."""
    score = {node: value for node, value in scores(values(state)).items() if node not in state.left}
    if len(here) < FEWEST or not score:
        return replace(state, stage=Stage.DONE)
    limit = suspicion(score, state.settings)
    # A node without any figure is one to look into, too.
    suspects = tuple(one.node for one in here if score.get(one.node, limit + 1) > limit)
    ranked = sorted(set(score) - set(suspects), key=lambda node: (score[node], node))
    good = tuple(ranked[: max(len(score) // 2, _FEWEST_GOOD)])
    state = replace(state, suspects=suspects, good=good)
    return replace(state, wanted=confirming.first(state, _random(state)))


def _random(state: PairState) -> random.Random:
    """The same at the same stage of the same sweep."""
    return random.Random(f"{state.seed}/{state.stage.name}")  # noqa: S311
