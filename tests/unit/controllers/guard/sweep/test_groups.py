"""Tests of the search for faults that only a group of nodes shows."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from convoy_controllers.guard.sweep import groups
from convoy_controllers.guard.sweep.groups import Group, Halving
from convoy_controllers.guard.sweep.verdict import Outcome, Reason

GOOD = [f"g{at:02d}" for at in range(64)]


def play(
    state: Halving, bad: Collection[str], least: int = 1, lost: Collection[str] = ()
) -> tuple[Halving, int]:
    """Run the search to its end. Return its state and its number of rounds.

    A group is slow if it has at least `least` nodes and one of them is in `bad`. A group with a node in
    `lost` gives no value.
    """

    def measure(group: Group) -> float | None:
        if set(group) & set(lost):
            return None
        return 80.0 if len(group) >= least and set(group) & set(bad) else 100.0

    rounds = 0
    while todo := groups.next_round(state):
        rounds += 1
        assert rounds < 200
        assert len({node for group in todo for node in group}) == sum(map(len, todo))
        state = groups.apply_results(state, [(group, measure(group)) for group in todo])
    return state, rounds


@given(st.integers(2, 40), st.data())
def test_group_search_finds_every_bad_node(count: int, data: st.DataObject) -> None:
    nodes = [f"n{at:02d}" for at in range(count)]
    bad = data.draw(st.sets(st.sampled_from(nodes), min_size=1, max_size=4))
    # Only groups of the original size show the fault, so the search must fill groups up to that size.
    state, _ = play(groups.start(nodes, GOOD, 100.0), bad, least=count)
    judged = {one.subject: one for one in groups.verdicts(state)}
    assert {node for node, one in judged.items() if one.outcome is Outcome.FAIL} == bad
    assert {one.outcome for node, one in judged.items() if node not in bad} <= {Outcome.PASS}


def test_group_search_finds_one_bad_node_of_32_in_five_rounds() -> None:
    nodes = [f"n{at:02d}" for at in range(32)]
    _, rounds = play(groups.start(nodes, GOOD, 100.0), {"n11"}, least=32)
    assert rounds == 5


def test_group_fault_without_filler_nodes_is_inconclusive() -> None:
    state, _ = play(groups.start("abcdefgh", [], 100.0), {"c"}, least=8)
    assert {one.reason for one in groups.verdicts(state)} == {Reason.SLOW_TOGETHER}
    assert {one.outcome for one in groups.verdicts(state)} == {Outcome.INCONCLUSIVE}


def test_halves_without_results_are_not_judged() -> None:
    state, _ = play(groups.start("abcd", GOOD, 100.0), {"a"}, lost={"d"})
    judged = {one.subject: one for one in groups.verdicts(state)}
    assert judged["a"].outcome is Outcome.FAIL and judged["b"].outcome is Outcome.PASS
    assert {judged[node].reason for node in "cd"} == {Reason.NOT_MEASURED}
