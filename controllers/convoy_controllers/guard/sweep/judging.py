"""Verdicts of a pair sweep on its nodes, links and racks."""

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
"""Minimum number of a suspect's tests with good partners for a verdict."""
_FEWEST_REFERENCES = 3
_FEWEST_FAILED = 3
"""Minimum number of failed nodes in a rack for a verdict on the rack."""


@dataclass(frozen=True, slots=True)
class _View:
    """Figures of the whole sweep, on which each node's verdict is based."""

    state: PairState
    score: dict[str, float]
    matchings: Mapping[str, int]
    confirmed: dict[str, Confirmed]
    normal: Normal
    limit: float
    """Score above which a node is a suspect."""


def verdicts(state: PairState) -> tuple[Verdict, ...]:
    """Return a verdict on each node, then on each slow rack, then on each link that was examined.

    While the sweep is running, the verdicts follow from the results so far.
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
        return unknown(Reason.LEFT, "it left the sweep before it was tested with enough partners")
    if not view.score:
        return unknown(Reason.NOT_MEASURED, "no test of any pair gave a value")
    if state.stage is Stage.DONE and not state.good:
        count = len(state.members) - len(state.left)
        words = f"with only {count} nodes a slow pair does not show which of the two is slow"
        return unknown(Reason.TOO_FEW_NODES, words)
    if state.stage <= Stage.CONFIRM:
        return unknown(Reason.NOT_MEASURED, "the sweep is still running")
    return _suspect(view, node, one, evidence) if node in state.suspects else _clear(view, node, evidence)


def _clear(view: _View, node: str, evidence: tuple[tuple[str, float], ...]) -> Verdict:
    """Return the verdict on a node that is not a suspect: pass, or inconclusive if the noise of the tests
    could hide a slow node.
    """
    settings = view.state.settings
    chance = power(view.limit, view.normal.sigma, view.matchings.get(node, 1), settings)
    if chance < settings.power:
        words = (
            f"one test varies by {slower(view.normal.sigma):.1%}: a node that is {settings.detectable:.0%}"
            f" slower would be detected with a chance of only {chance:.0%}"
        )
        return Verdict(node, Outcome.INCONCLUSIVE, Reason.TOO_NOISY, words, evidence, again=True)
    words = f"{slower(view.score[node]):+.1%} time in its best pair, compared with all pairs"
    return Verdict(node, Outcome.PASS, Reason.MEETS_REFERENCE, words, evidence)


def _suspect(
    view: _View, node: str, one: Confirmed | None, evidence: tuple[tuple[str, float], ...]
) -> Verdict:
    settings = view.state.settings

    def verdict(outcome: Outcome, reason: Reason, words: str, again: bool = False) -> Verdict:
        return Verdict(node, outcome, reason, words, evidence, again)

    if view.normal.count < _FEWEST_REFERENCES:
        words = f"only {view.normal.count} of {_FEWEST_REFERENCES} needed pairs of good nodes gave a value"
        return verdict(Outcome.INCONCLUSIVE, Reason.TOO_FEW_REFERENCES, words, again=True)
    if one is None or one.tests < _FEWEST_TESTS:
        words = f"{one.tests if one else 0} of {_FEWEST_TESTS} needed tests with good partners gave a value"
        return verdict(Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, words, again=True)
    words = (
        f"{slower(one.median):+.1%} time with {one.tests} good partners, compared with pairs of good nodes;"
        f" at most {slower(one.limit):.1%} is allowed"
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
            ("median with good partners", slower(one.median)),
            ("error of the median", one.error),
            ("fails above", slower(one.limit)),
            ("pairs of good nodes", float(view.normal.count)),
        ]
    return tuple(found)


def _slow_racks(state: PairState, failed: Collection[str]) -> dict[str, tuple[int, int]]:
    """Return the slow racks by name, each with its number of failed nodes and its number of nodes."""
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
    words = f"{count[0]} of its {count[1]} nodes are slow: check the rack's switch, power and cooling first"
    evidence = (("slow nodes", float(count[0])), ("nodes", float(count[1])))
    return Verdict(f"rack/{name}", Outcome.FAIL, Reason.SLOW_RACK, words, evidence)


def _spared(one: Verdict, rack: str) -> Verdict:
    """Return the verdict on a node of a slow rack. A failure becomes inconclusive, because the rack may be
    the cause of the node's slowness.
    """
    if one.outcome is not Outcome.FAIL:
        return one
    words = f"{one.words}; most of rack {rack} is slow, too"
    return replace(one, outcome=Outcome.INCONCLUSIVE, reason=Reason.SLOW_RACK, words=words)


def _link(link: linking.Link) -> Verdict:
    """Return the verdict on a link. The link fails if every test of it is slow and both nodes are fast with
    other partners.
    """
    subject = "|".join(link.pair)
    again = [("run again", slower(value)) for value in link.repeats]
    other_partners = [("an end with another partner", slower(value)) for value in link.other_partners]
    evidence = (*again, *other_partners, ("slow above", slower(link.limit)))
    if len(link.repeats) < linking.REPEATS:
        words = "the test of this link could not be repeated often enough"
        return Verdict(subject, Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, words, evidence, again=True)
    if min(link.repeats) <= link.limit:
        words = "slow once, but not when the test was repeated"
        return Verdict(subject, Outcome.PASS, Reason.NOT_REPRODUCED, words, evidence)
    if len(link.other_partners) < 2:
        words = "slow every time, but its two nodes could not be tested with other partners"
        return Verdict(subject, Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, words, evidence, again=True)
    if max(link.other_partners) > link.limit:
        words = "slow every time, but one of its nodes is also slow with another partner in the same rack"
        return Verdict(subject, Outcome.INCONCLUSIVE, Reason.UNCLEAR, words, evidence, again=True)
    words = (
        f"{slower(min(link.repeats)):+.1%} time in the best of {len(link.repeats)} tests;"
        " both nodes are fast with others"
    )
    return Verdict(subject, Outcome.FAIL, Reason.SLOW_LINK, words, evidence)
