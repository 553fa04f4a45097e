"""Faults that show in groups only: the group is halved, others filling it up, until one node is left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from convoy_controllers.guard.sweep.measuring import Better, cost, slower
from convoy_controllers.guard.sweep.verdict import Outcome, Reason, Verdict

Group = tuple[str, ...]
"""Nodes that are tested together, in the order of their names."""


@dataclass(frozen=True, slots=True)
class Halving:
    """Of one group that is slow together. `open` are the parts of it that are slow and still to be halved."""

    nodes: Group
    fillers: Group
    """Good nodes that keep every test as large as the group was."""
    normal: float
    """What good groups of this size reach."""
    better: Better = Better.HIGHER
    deficit: float = 0.05
    wanted: tuple[tuple[Group, Group], ...] = ()
    """Halves of a part that was slow, not yet both heard."""
    found: tuple[Group, ...] = ()
    """The smallest parts that are slow; one node where that is as far as it went."""
    tested: tuple[tuple[Group, float | None], ...] = ()
    """By how much each part was slower; None where its test gave no figure."""


def start(
    nodes: Iterable[str],
    fillers: Iterable[str],
    normal: float,
    better: Better = Better.HIGHER,
    deficit: float = 0.05,
) -> Halving:
    """`nodes` were slow together: at least two, and none of the fillers is among them."""
    group = tuple(sorted(set(nodes)))
    spare = tuple(sorted(set(fillers) - set(group)))
    state = Halving(group, spare, normal, better, deficit)
    return replace(state, wanted=(_halves(group),)) if len(group) > 1 else replace(state, found=(group,))


def next_round(state: Halving) -> tuple[Group, ...]:
    """Halves to test at the same time, filled up by good nodes; no node is in two. Empty when done."""
    planned = _planned(state)
    return tuple(tuple(sorted((*half, *filled))) for half, filled in planned.items())


def apply_results(state: Halving, results: Iterable[tuple[Group, float | None]]) -> Halving:
    """After the whole round; what has no result gave none."""
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
            # Neither half alone: it takes nodes of both, or as many as there were.
            found.append(tuple(sorted((*one[0], *one[1]))))
        found += [half for half in bad if len(half) == 1]
        wanted += [_halves(half) for half in bad if len(half) > 1]
    return replace(state, wanted=tuple(wanted), found=tuple(found), tested=tuple(tested.items()))


def _slower(state: Halving, value: float | None) -> float | None:
    own, normal = cost(value, state.better), cost(state.normal, state.better)
    return None if own is None or normal is None else slower(own - normal)


def verdicts(state: Halving) -> tuple[Verdict, ...]:
    """One per node of the group, once there is nothing left to run."""
    by_node = {node: part for part in state.found for node in part}
    result = []
    for node in state.nodes:
        part = by_node.get(node)
        own = sorted((one for one in state.tested if node in one[0]), key=lambda one: -len(one[0]))
        evidence = tuple(
            (f"slower in a part of {len(one)}", value) for one, value in own if value is not None
        )
        if part == (node,):
            words = f"groups of {len(state.nodes)} are slow with it and not without it"
            result.append(Verdict(node, Outcome.FAIL, Reason.SLOW_TOGETHER, words, evidence))
        elif part is not None:
            words = f"slow only together: {', '.join(part)}"
            result.append(Verdict(node, Outcome.INCONCLUSIVE, Reason.SLOW_TOGETHER, words, evidence))
        elif own and own[-1][1] is not None and own[-1][1] <= state.deficit:
            words = "its part of the group is as fast as other groups"
            result.append(Verdict(node, Outcome.PASS, Reason.MEETS_REFERENCE, words, evidence))
        else:
            words = (
                "no test of its part gave a figure" if own and own[-1][1] is None else "the sweep is not done"
            )
            result.append(
                Verdict(node, Outcome.INCONCLUSIVE, Reason.NOT_MEASURED, words, evidence, again=True)
            )
    return tuple(result)


def _planned(state: Halving) -> dict[Group, Group]:
    """The halves of this round and what fills each up; the first goes even with too few fillers."""
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
