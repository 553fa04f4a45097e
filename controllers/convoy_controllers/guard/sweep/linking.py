"""The search for slow links. A slow pair is tested again if both nodes are fast with other partners. If the
pair stays slow, each node is tested with another partner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from convoy_controllers.guard.sweep import confirming
from convoy_controllers.guard.sweep.measuring import Pair, pair
from convoy_controllers.guard.sweep.scores import Normal, values
from convoy_controllers.guard.sweep.state import PairState, Stage

REPEATS = 2
"""Number of further tests of a pair that was slow once. The link fails only if all are slow."""
_LINKS_PER_NODE = 1 / 16
"""Maximum number of links to examine, divided by the number of nodes in the sweep. The slowest links are
chosen. Four links are allowed in a sweep of any size.
"""


@dataclass(frozen=True, slots=True)
class Link:
    """Test results of a pair of nodes that was slow."""

    pair: Pair
    repeats: tuple[float, ...]
    """Costs of the repeated tests, minus the cost of good pairs."""
    other_partners: tuple[float, ...]
    """Costs of the tests of each node with another partner, minus the cost of good pairs."""
    limit: float
    """Cost above which one test is slow."""


def candidates(state: PairState) -> tuple[Pair, ...]:
    """Return the pairs that were slow once although both nodes were fast in other tests, the slowest pair
    first.
    """
    normal = confirming.reference(state)
    least = _limit(state, normal)
    slow: dict[Pair, float] = {}
    quick: set[str] = set()
    for one in values(state):
        excess = one.excess - (normal.centre if one.stage is Stage.CONFIRM else normal.matched)
        if excess > least:
            slow[one.pair] = max(excess, slow.get(one.pair, 0.0))
        else:
            quick |= set(one.pair)
    blamed = {node for node, one in confirming.confirmed(state).items() if one.median > one.limit}
    found = [one for one in slow if set(one) <= quick and not set(one) & blamed and not set(one) & state.left]
    most = max(4, int(_LINKS_PER_NODE * len(state.members)))
    return tuple(sorted(found, key=lambda one: (-slow[one], one))[:most])


def partner_changes(state: PairState) -> tuple[Pair, ...]:
    """Return two tests for every link that stayed slow: each node with a new partner, from its old
    partner's rack if possible.
    """
    rack = {one.node: one.rack for one in state.members}
    found = []
    for link in links(state):
        if not link.repeats or min(link.repeats) <= link.limit or set(link.pair) & state.left:
            continue
        for end, other in (link.pair, link.pair[::-1]):
            choice = [node for node in state.good or rack if node not in (*link.pair, *state.left)]
            choice.sort(key=lambda node: (rack[node] != rack[other], pair(end, node) in state.links))
            if choice:
                found.append(pair(end, choice[0]))
    return tuple(dict.fromkeys(found))


def links(state: PairState) -> tuple[Link, ...]:
    """Return the test results of all examined links."""
    normal = confirming.reference(state)
    limit = _limit(state, normal)
    found = values(state)
    result = []
    for one in state.links:
        again = [value.excess - normal.centre for value in found if _is(value.pair, one, value.stage)]
        other_partners = [
            value.excess - normal.centre
            for value in found
            if value.stage is Stage.LINKS and len(set(value.pair) & set(one)) == 1
        ]
        result.append(Link(one, tuple(again), tuple(other_partners), limit))
    return tuple(result)


def _is(measured: Pair, link: Pair, stage: Stage) -> bool:
    return measured == link and stage is Stage.MORE


def _limit(state: PairState, normal: Normal) -> float:
    """Return the cost above which one test is slow."""
    return max(math.log1p(state.settings.deficit), state.settings.link_sigmas * normal.sigma)
