"""Pair tests of a sweep. Their state is never stored: it is computed from the nodes' reports in each
reconcile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from convoy_controllers.guard.sweep import judging, pairs
from convoy_controllers.guard.sweep.measuring import Better, Measured, Member, Pair
from convoy_controllers.guard.sweep.state import PairState, Settings
from convoy_controllers.guard.sweep.verdict import Verdict
from convoy_controllers.healthsweep.observed import BANDWIDTH, End, NodeReport, Order, ReportLookup, SweepNode
from convoy_crds.healthsweep import MOST_PAIRS, PairBandwidth

ROUND_SECONDS = 180
"""Time limit of a pair test in seconds, including the wait for the partner."""
_MOST_ROUNDS = 64
"""Maximum number of rounds, so that the replay ends for any set of reports. Two matchings and the later
stages need fewer rounds.
"""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Progress of the pair tests of one sweep."""

    orders: tuple[Order, ...] = ()
    """Orders of the current round; empty when all rounds are over."""
    verdicts: Mapping[str, Verdict] | None = None
    """Verdicts on hardware, links and racks, by subject. None until all rounds are over."""
    bandwidths: tuple[PairBandwidth, ...] = ()
    """Bandwidth of each measured pair so far, in the order of the nodes' names."""


def replay_rounds(
    name: str, nodes: Sequence[SweepNode], absent: Collection[str], lookup: ReportLookup
) -> Pairs:
    """Return the progress of the pair tests, computed by a replay of all rounds from the nodes' reports.

    `absent`: hardware of nodes that cannot take part now. Their earlier measurements count. Such a node
    leaves the sweep in the first round for which its report is missing.
    """
    by_hardware = {one.hardware: one for one in nodes}
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    members = [Member(one.hardware, one.rack) for one in nodes]
    state = pairs.start(members, Settings(better=Better.HIGHER), seed)
    for number in range(_MOST_ROUNDS):
        wanted = pairs.next_round(state)
        orders = {one: _orders(f"{name}.p{number}", one, by_hardware) for one in wanted}
        reports = {
            one: [lookup(order.node, order.name) for order in several] for one, several in orders.items()
        }
        over = {
            one for one, both in reports.items() if all(report is not None and report.over for report in both)
        }
        left = {node for one in wanted if one not in over for node in one} & set(absent)
        todo = [one for one in wanted if not set(one) & left]
        if waiting := [order for one in todo if one not in over for order in orders[one]]:
            return Pairs(tuple(waiting), bandwidths=_bandwidths(state, by_hardware))
        before = state
        state = pairs.apply_results(state, [Measured(one, _value(reports[one][0])) for one in todo], left)
        if state == before:
            break
    return Pairs(
        verdicts={one.subject: one for one in judging.verdicts(state)},
        bandwidths=_bandwidths(state, by_hardware),
    )


def _bandwidths(state: PairState, nodes: Mapping[str, SweepNode]) -> tuple[PairBandwidth, ...]:
    best: dict[tuple[str, str], float] = {}
    for test in state.tests:
        first, second = sorted(nodes[hardware].name for hardware in test.measured.pair)
        if (value := test.measured.value) is not None:
            best[first, second] = max(value, best.get((first, second), 0.0))
    listed = sorted(best.items())[:MOST_PAIRS]
    return tuple(PairBandwidth(node=pair[0], partner=pair[1], bandwidth=value) for pair, value in listed)


def _orders(name: str, pair: Pair, nodes: Mapping[str, SweepNode]) -> tuple[Order, Order]:
    """Return the orders for both nodes of a pair.

    The order name depends on the pair as well as on the round, because the pairs of a round change if a
    node leaves.
    """
    left, right = (nodes[hardware].name for hardware in pair)
    mark = hashlib.sha256(f"{left} {right}".encode()).hexdigest()[:6]
    common = Order(left, f"{name}.{mark}", ("L2",), (BANDWIDTH,), ROUND_SECONDS, right)
    return common, replace(common, node=right, partner=left, measures=False)


def _value(report: NodeReport | None) -> float | None:
    """Return the value that the measuring node reports; None if there is none."""
    for one in report.metrics if report is not None else ():
        if one.metric == BANDWIDTH and one.end is End.MEASURED and one.samples:
            return float(median(one.samples))
    return None
