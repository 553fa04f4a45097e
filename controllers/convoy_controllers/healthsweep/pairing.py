"""The tests of pairs of a sweep, worked out anew from what nodes have report: nothing of them is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from convoy_controllers.guard.sweep import judging, pairs
from convoy_controllers.guard.sweep.measuring import Better, Measured, Member, Pair
from convoy_controllers.guard.sweep.state import Settings
from convoy_controllers.guard.sweep.verdict import Verdict
from convoy_controllers.healthsweep.observed import BANDWIDTH, End, NodeReport, Order, ReportLookup, SweepNode

ROUND_SECONDS = 180
"""For a test of two nodes, the wait for the partner included."""
_MOST_ROUNDS = 64
"""Two matchings and what follows take fewer; a bound, so that no state of affairs is folded for ever."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """How far the tests of pairs are."""

    orders: tuple[Order, ...] = ()
    """Of the round that runs; none when it is over."""
    verdicts: Mapping[str, Verdict] | None = None
    """By hardware, links and racks among them; None before the end."""


def replay_rounds(
    name: str, nodes: Sequence[SweepNode], absent: Collection[str], lookup: ReportLookup
) -> Pairs:
    """`gone`: hardware of the nodes that cannot take part now. What they have measured stands; they are out
    from the first round on that lacks theirs.
    """
    by_hardware = {one.hardware: one for one in nodes}
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    members = [Member(one.hardware, one.rack) for one in nodes]
    state = pairs.start(members, Settings(better=Better.HIGHER), seed)
    for number in range(_MOST_ROUNDS):
        wanted = pairs.next_round(state)
        orders = {one: _orders(f"{name}.p{number}", one, by_hardware) for one in wanted}
        report = {
            one: [lookup(order.node, order.name) for order in several] for one, several in orders.items()
        }
        over = {one for one, both in report.items() if all(said is not None and said.over for said in both)}
        left = {node for one in wanted if one not in over for node in one} & set(absent)
        todo = [one for one in wanted if not set(one) & left]
        if waiting := [order for one in todo if one not in over for order in orders[one]]:
            return Pairs(tuple(waiting))
        before = state
        state = pairs.apply_results(state, [Measured(one, _value(report[one][0])) for one in todo], left)
        if state == before:
            break
    return Pairs(verdicts={one.subject: one for one in judging.verdicts(state)})


def _orders(name: str, pair: Pair, nodes: Mapping[str, SweepNode]) -> tuple[Order, Order]:
    """Another pair in the same round has another name: who leaves changes who meets whom."""
    left, right = (nodes[hardware].name for hardware in pair)
    mark = hashlib.sha256(f"{left} {right}".encode()).hexdigest()[:6]
    common = Order(left, f"{name}.{mark}", ("L2",), (BANDWIDTH,), ROUND_SECONDS, right)
    return common, replace(common, node=right, partner=left, measures=False)


def _value(report: NodeReport | None) -> float | None:
    """Of the measuring side; None for no figure."""
    for one in report.metrics if report is not None else ():
        if one.metric == BANDWIDTH and one.end is End.MEASURED and one.samples:
            return float(median(one.samples))
    return None
