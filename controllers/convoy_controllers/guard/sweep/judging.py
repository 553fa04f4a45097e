"""What a sweep of pairs says of its nodes, links and racks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from convoy_controllers.guard.sweep import confirming, linking
from convoy_controllers.guard.sweep.confirming import Confirmed
from convoy_controllers.guard.sweep.measuring import slower
from convoy_controllers.guard.sweep.scores import Normal, power, scores, suspicion, values
from convoy_controllers.guard.sweep.state import PairState, Stage
from convoy_controllers.guard.sweep.verdict import Outcome, Reason, Verdict

_FEWEST_TESTS = 2
"""Of a suspect with good partners, to judge it by."""
_FEWEST_REFERENCES = 3
_FEWEST_FAILED = 3
"""Nodes of a rack, to lay it to the rack."""


@dataclass(frozen=True, slots=True)
class _View:
    """What all nodes are judged by."""

    state: PairState
    score: dict[str, float]
    matchings: Mapping[str, int]
    confirmed: dict[str, Confirmed]
    normal: Normal
    limit: float
    """Suspects score above it."""


def verdicts(state: PairState) -> tuple[Verdict, ...]:
    """One for every node that the sweep began with, then of racks that are slow and links looked into.

    Before the sweep is done they say what is known so far.
    """
    found = values(state)
    matchings = Counter(node for one in found if one.stage <= Stage.ACROSS for node in one.pair)
    score = scores(found)
    limit = suspicion(score, state.settings) if score else 0.0
    view = _View(state, score, matchings, confirming.confirmed(state), confirming.reference(state), limit)
    nodes = [_node(view, one.node) for one in state.members]
    rack = {one.node: one.rack for one in state.members}
    slow = _slow_racks(state, {one.subject for one in nodes if one.outcome is Outcome.FAIL})
    nodes = [_spared(one, rack[one.subject]) if rack[one.subject] in slow else one for one in nodes]
    return (*nodes, *(_rack(name, count) for name, count in slow.items()), *map(_link, linking.links(state)))


def _node(view: _View, node: str) -> Verdict:
    state = view.state
    evidence = _evidence(view, node)

    def unknown(reason: Reason, words: str) -> Verdict:
        return Verdict(node, Outcome.INCONCLUSIVE, reason, words, evidence)

    one = view.confirmed.get(node)
    if node in state.left and (one is None or one.tests < state.settings.partners):
        return unknown(Reason.LEFT, "it left before enough was measured")
    if not view.score:
        return unknown(Reason.NOT_MEASURED, "no test of any pair gave a figure")
    if state.stage is Stage.DONE and not state.good:
        count = len(state.members) - len(state.left)
        words = f"{count} nodes only: a slow pair does not tell which of its ends is slow"
        return unknown(Reason.TOO_FEW_NODES, words)
    if state.stage <= Stage.CONFIRM:
        return unknown(Reason.NOT_MEASURED, "the sweep is not done")
    return _suspect(view, node, one, evidence) if node in state.suspects else _clear(view, node, evidence)


def _clear(view: _View, node: str, evidence: tuple[tuple[str, float], ...]) -> Verdict:
    """A node that was never suspected."""
    settings = view.state.settings
    chance = power(view.limit, view.normal.sigma, view.matchings.get(node, 1), settings)
    if chance < settings.power:
        words = (
            f"one test varies by {slower(view.normal.sigma):.1%}: a node that is {settings.detectable:.0%}"
            f" slower would be detected with a chance of only {chance:.0%}"
        )
        return Verdict(node, Outcome.INCONCLUSIVE, Reason.TOO_NOISY, words, evidence, again=True)
    words = f"at its best {slower(view.score[node]):+.1%} against all pairs"
    return Verdict(node, Outcome.PASS, Reason.MEETS_REFERENCE, words, evidence)


def _suspect(
    view: _View, node: str, one: Confirmed | None, evidence: tuple[tuple[str, float], ...]
) -> Verdict:
    settings = view.state.settings

    def verdict(outcome: Outcome, reason: Reason, words: str, again: bool = False) -> Verdict:
        return Verdict(node, outcome, reason, words, evidence, again)

    if view.normal.count < _FEWEST_REFERENCES:
        words = f"{view.normal.count} pairs of good nodes to compare with, {_FEWEST_REFERENCES} are needed"
        return verdict(Outcome.INCONCLUSIVE, Reason.TOO_FEW_REFERENCES, words, again=True)
    if one is None or one.tests < _FEWEST_TESTS:
        words = f"{one.tests if one else 0} tests with good partners gave a figure"
        return verdict(Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, words, again=True)
    words = (
        f"{slower(one.median):+.1%} with {one.tests} good partners against pairs of good nodes,"
        f" at most {slower(one.limit):.1%}"
    )
    if one.median > one.limit:
        return verdict(Outcome.FAIL, Reason.SLOW_WITH_ALL, words)
    if one.limit + one.error > math.log1p(settings.detectable):
        return verdict(Outcome.INCONCLUSIVE, Reason.TOO_NOISY, words, again=True)
    if one.median > one.limit - 0.5 * one.error:
        return verdict(Outcome.INCONCLUSIVE, Reason.UNCLEAR, words, again=True)
    return verdict(Outcome.PASS, Reason.MEETS_REFERENCE, words)


def _evidence(view: _View, node: str) -> tuple[tuple[str, float], ...]:
    found: list[tuple[str, float]] = [("tests in matchings", float(view.matchings.get(node, 0)))]
    if node in view.score:
        found.append(("best in matchings", slower(view.score[node])))
    if view.score:
        found.append(("suspected above", slower(view.limit)))
        found.append(("noise of one test", slower(view.normal.sigma)))
    if one := view.confirmed.get(node):
        found += [
            ("tests with good partners", float(one.tests)),
            ("with good partners", slower(one.median)),
            ("error of that", one.error),
            ("fails above", slower(one.limit)),
            ("pairs of good nodes", float(view.normal.count)),
        ]
    return tuple(found)


def _slow_racks(state: PairState, failed: Collection[str]) -> dict[str, tuple[int, int]]:
    """Racks that are slow as a whole: how many of their nodes failed, of how many."""
    nodes: dict[str, list[str]] = {}
    for one in state.members:
        nodes.setdefault(one.rack, []).append(one.node)
    found = {}
    for rack, inside in nodes.items():
        count = len(set(inside) & set(failed))
        if rack and count >= max(_FEWEST_FAILED, state.settings.rack_share * len(inside)):
            found[rack] = (count, len(inside))
    return found


def _rack(name: str, count: tuple[int, int]) -> Verdict:
    words = f"{count[0]} of its {count[1]} nodes are slow: look at what they share before any of them"
    evidence = (("slow nodes", float(count[0])), ("nodes", float(count[1])))
    return Verdict(f"rack/{name}", Outcome.FAIL, Reason.SLOW_RACK, words, evidence)


def _spared(one: Verdict, rack: str) -> Verdict:
    """A failure that the rack explains."""
    if one.outcome is not Outcome.FAIL:
        return one
    words = f"{one.words}; so is most of rack {rack}"
    return replace(one, outcome=Outcome.INCONCLUSIVE, reason=Reason.SLOW_RACK, words=words)


def _link(link: linking.Link) -> Verdict:
    """A link fails when it is slow every time, and neither end is with others in the other's place."""
    subject = "|".join(link.pair)
    again = [("run again", slower(value)) for value in link.repeats]
    other_partners = [("an end with another partner", slower(value)) for value in link.other_partners]
    evidence = (*again, *other_partners, ("slow above", slower(link.limit)))
    if len(link.repeats) < linking.REPEATS:
        words = "it could not be run again often enough"
        return Verdict(subject, Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, words, evidence, again=True)
    if min(link.repeats) <= link.limit:
        words = "slow once, not when it was run again"
        return Verdict(subject, Outcome.PASS, Reason.NOT_REPRODUCED, words, evidence)
    if len(link.other_partners) < 2:
        words = "slow every time; its ends could not be tried with others"
        return Verdict(subject, Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, words, evidence, again=True)
    if max(link.other_partners) > link.limit:
        words = "slow every time, but an end is slow with a neighbour of the other, too"
        return Verdict(subject, Outcome.INCONCLUSIVE, Reason.UNCLEAR, words, evidence, again=True)
    words = (
        f"{slower(min(link.repeats)):+.1%} at its best of {len(link.repeats)}, each end is fast with others"
    )
    return Verdict(subject, Outcome.FAIL, Reason.SLOW_LINK, words, evidence)
