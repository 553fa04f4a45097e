"""The pair sweep: chooses the pairs to test next, and derives suspects and slow links from the results. A
pure state machine without a clock.

Two matchings find suspects. Each suspect is then tested with good partners in different racks, next to
pairs of good nodes. If a pair stays slow although both nodes are fast with other partners, each of its
nodes is tested with one more partner.
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
"""Minimum number of nodes of a sweep. With fewer, a slow pair does not show which of its nodes is slow."""
_FEWEST_GOOD = 6
"""Minimum number of nodes in the set from which good partners are chosen. The set has the best nodes that
are not suspects: half as many as all tested nodes, if that is more than this minimum.
"""


def start(members: Iterable[Member], settings: Settings | None = None, seed: int = 0) -> PairState:
    """Return the state of a sweep of these nodes before the first round."""
    unique = tuple(sorted({one.node: one for one in members}.values(), key=lambda one: one.node))
    state = PairState(unique, settings or Settings(), seed, Stage.INSIDE)
    return _settled(replace(state, wanted=tuple(matching.inside(unique, _random(state)))))


def next_round(state: PairState) -> tuple[Pair, ...]:
    """Return the pairs to test at the same time; no node is in two pairs. The result is empty when the
    sweep is done.
    """
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
    """Return the state after some results, in any order. The nodes in `leaving` leave the sweep and never
    return.

    A pair without a result is tested again. Report a pair that cannot give a result with the value None.
    Results that were not requested are ignored.
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
    """Return the tests that need no node in `leaving`. During a matching, pair the nodes that have lost
    their partners with one another.
    """
    kept = [one for one in wanted if not set(one) & set(leaving)]
    if state.stage > Stage.ACROSS:
        return kept
    unpaired = sorted({node for one in wanted if one not in kept for node in one} - set(leaving))
    return kept + [pair(unpaired[at], unpaired[at + 1]) for at in range(0, len(unpaired) - 1, 2)]


def _settled(state: PairState) -> PairState:
    """Return the state in the next stage that has tests to run, or in stage DONE."""
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
            wanted, links = confirming.further_tests(state), linking.candidates(state)
            twice = tuple(one for one in links for _ in range(linking.REPEATS))
            return replace(state, wanted=wanted + twice, links=links)
        case Stage.LINKS:
            return replace(state, wanted=linking.partner_changes(state))
        case _:
            return state


def _confirm(state: PairState, here: Sequence[Member]) -> PairState:
    """Return the state with the suspects, the good nodes and the first tests of the suspects."""
    score = {node: value for node, value in scores(values(state)).items() if node not in state.left}
    if len(here) < FEWEST or not score:
        return replace(state, stage=Stage.DONE)
    limit = suspicion(score, state.settings)
    # Also suspect a node without any value. Its score counts as above the limit.
    suspects = tuple(one.node for one in here if score.get(one.node, limit + 1) > limit)
    ranked = sorted(set(score) - set(suspects), key=lambda node: (score[node], node))
    good = tuple(ranked[: max(len(score) // 2, _FEWEST_GOOD)])
    state = replace(state, suspects=suspects, good=good)
    return replace(state, wanted=confirming.first_tests(state, _random(state)))


def _random(state: PairState) -> random.Random:
    """Return a random generator that gives the same numbers for the same seed and stage."""
    return random.Random(f"{state.seed}/{state.stage.name}")  # noqa: S311
