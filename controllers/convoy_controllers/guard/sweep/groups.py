"""Search for faults that only a group of nodes shows. The search halves the slow group until one node
remains. Good nodes fill up each half to the size of the group.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from convoy_controllers.guard.sweep.measuring import Better, cost, slower
from convoy_controllers.guard.sweep.verdict import Outcome, Reason, Verdict

Group = tuple[str, ...]
"""Nodes that are tested together, sorted by name."""


@dataclass(frozen=True, slots=True)
class Halving:
    """State of the search in one slow group."""

    nodes: Group
    fillers: Group
    """Good nodes that fill up each half to the size of the group."""
    normal: float
    """Value of the metric that a group of good nodes reaches if it has as many nodes as the slow group."""
    better: Better = Better.HIGHER
    deficit: float = 0.05
    wanted: tuple[tuple[Group, Group], ...] = ()
    """Pairs of halves in which at least one half is not tested yet."""
    found: tuple[Group, ...] = ()
    """The smallest slow parts found so far: single nodes, or several nodes that are slow only together."""
    tested: tuple[tuple[Group, float | None], ...] = ()
    """Slowdown of each tested part; None if its test gave no value."""


def start(
    nodes: Iterable[str],
    fillers: Iterable[str],
    normal: float,
    better: Better = Better.HIGHER,
    deficit: float = 0.05,
) -> Halving:
    """Start the search in a slow group. A filler that belongs to the group is ignored."""
    group = tuple(sorted(set(nodes)))
    spare = tuple(sorted(set(fillers) - set(group)))
    state = Halving(group, spare, normal, better, deficit)
    return replace(state, wanted=(_halves(group),)) if len(group) > 1 else replace(state, found=(group,))


def next_round(state: Halving) -> tuple[Group, ...]:
    """Return the groups to test at the same time: halves filled up with good nodes. No node is in two
    groups. The result is empty when the search is done.
    """
    planned = _planned(state)
    return tuple(tuple(sorted((*half, *filled))) for half, filled in planned.items())


def apply_results(state: Halving, results: Iterable[tuple[Group, float | None]]) -> Halving:
    """Return the state after all tests of a round. A missing result counts as a test that gave no value."""
    values = {tuple(sorted(group)): value for group, value in results}
    tested = dict(state.tested)
    for half, filled in _planned(state).items():
        tested[half] = _slower(state, values.get(tuple(sorted((*half, *filled)))))
    wanted: list[tuple[Group, Group]] = []
    found = list(state.found)
    for one in state.wanted:
        if not all(half in tested for half in one):
            wanted.append(one)
            continue
        amounts = [tested[half] for half in one]
        bad = [half for half in one if (tested[half] or 0.0) > state.deficit]
        if not bad and None not in amounts:
            # Neither half alone is slow, so the slowness needs nodes of both halves. Do not divide this part
            # further.
            found.append(tuple(sorted((*one[0], *one[1]))))
        found += [half for half in bad if len(half) == 1]
        wanted += [_halves(half) for half in bad if len(half) > 1]
    return replace(state, wanted=tuple(wanted), found=tuple(found), tested=tuple(tested.items()))


def _slower(state: Halving, value: float | None) -> float | None:
    own, normal = cost(value, state.better), cost(state.normal, state.better)
    return None if own is None or normal is None else slower(own - normal)


def verdicts(state: Halving) -> tuple[Verdict, ...]:
    """Return one verdict on each node of the group. A node with outstanding tests is inconclusive."""
    by_node = {node: part for part in state.found for node in part}
    result = []
    for node in state.nodes:
        part = by_node.get(node)
        own = sorted((one for one in state.tested if node in one[0]), key=lambda one: -len(one[0]))
        evidence = tuple(
            (f"slowdown in a part of {len(one)}", value) for one, value in own if value is not None
        )
        if part == (node,):
            words = f"groups of {len(state.nodes)} nodes are slow with this node and fast without it"
            result.append(Verdict(node, Outcome.FAIL, Reason.SLOW_TOGETHER, words, evidence))
        elif part is not None:
            words = f"slow only together: {', '.join(part)}"
            result.append(Verdict(node, Outcome.INCONCLUSIVE, Reason.SLOW_TOGETHER, words, evidence))
        elif own and own[-1][1] is not None and own[-1][1] <= state.deficit:
            words = "the part of the group with this node is as fast as other groups"
            result.append(Verdict(node, Outcome.PASS, Reason.MEETS_REFERENCE, words, evidence))
        else:
            words = (
                "no test with this node gave a value"
                if own and own[-1][1] is None
                else "the sweep is still running"
            )
            result.append(
                Verdict(node, Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, words, evidence, again=True)
            )
    return tuple(result)


def _planned(state: Halving) -> dict[Group, Group]:
    """Return the halves to test in this round, each with its fillers. The first half is tested even if
    there are too few fillers.
    """
    spare = list(state.fillers)
    found: dict[Group, Group] = {}
    known = {group for group, _ in state.tested}
    for half in (half for one in state.wanted for half in one):
        need = len(state.nodes) - len(half)
        if half in known or (found and need > len(spare)):
            continue
        found[half] = tuple(spare[:need])
        del spare[:need]
    return found


def _halves(group: Group) -> tuple[Group, Group]:
    return group[: len(group) // 2], group[len(group) // 2 :]
