"""Tests of pair sweeps: the pairs that are formed, and the verdicts on nodes, links and racks."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.controllers.guard.sweep.fleets import by_subject, members, play

from convoy_controllers.guard.sweep import matching, pairs
from convoy_controllers.guard.sweep.judging import verdicts
from convoy_controllers.guard.sweep.measuring import Better, Measured, Pair, cost, pair
from convoy_controllers.guard.sweep.state import Settings, Stage
from convoy_controllers.guard.sweep.verdict import Outcome, Reason


def bandwidth(
    slow: dict[str, float], links: dict[Pair, float] | None = None, seed: int = 1, noise: float = 0.01
):
    rng = random.Random(seed)

    def measure(one: Pair) -> float:
        held = max(slow.get(one[0], 1.0), slow.get(one[1], 1.0)) * (links or {}).get(one, 1.0)
        return 400.0 / held * rng.lognormvariate(0, noise)

    return measure


@given(st.integers(0, 41), st.integers(1, 9), st.integers(0, 99))
def test_matching_contains_each_node_once_and_omits_at_most_one(count: int, rack: int, seed: int) -> None:
    nodes, rng = members(count, rack), random.Random(seed)
    first = matching.inside(nodes, rng)
    second = matching.across(nodes, first, rng)
    for found in (first, second):
        there = [node for one in found for node in one]
        assert len(there) == len(set(there))
    assert len(first) == count // 2
    assert not set(first) & set(second)
    assert count < 4 or len(second) == count // 2
    # The second matching must include the node that stayed alone in the first one.
    assert count < 3 or {node for one in first + second for node in one} == {one.node for one in nodes}


@pytest.mark.parametrize(("count", "rack"), [(8, 4), (64, 8), (12, 4), (30, 6)])
def test_the_first_matching_is_inside_racks_and_the_second_across(count: int, rack: int) -> None:
    nodes, rng = members(count, rack), random.Random(3)
    where = {one.node: one.rack for one in nodes}
    first = matching.inside(nodes, rng)
    assert all(where[one] == where[other] for one, other in first)
    assert all(where[one] != where[other] for one, other in matching.across(nodes, first, rng))


@settings(max_examples=60)
@given(st.integers(0, 30), st.integers(1, 9), st.integers(0, 5), st.data())
def test_every_round_is_a_matching_and_every_node_gets_a_verdict(
    count: int, rack: int, at_once: int, data: st.DataObject
) -> None:
    nodes = members(count, rack)
    state = pairs.start(nodes, Settings(at_once=at_once), seed=7)
    departed: set[str] = set()
    rounds = 0
    while todo := pairs.next_round(state):
        rounds += 1
        assert rounds < 400
        there = [node for one in todo for node in one]
        assert len(there) == len(set(there)) and not departed & set(there)
        assert not at_once or len(todo) <= at_once
        values = st.sampled_from([100.0, 101.0, 99.0, 80.0, None, 0.0])
        results = [Measured(one, data.draw(values)) for one in todo]
        leaves = set(data.draw(st.lists(st.sampled_from([one.node for one in nodes]), max_size=1)))
        departed |= leaves
        state = pairs.apply_results(state, results, leaves)
    assert state.stage is Stage.DONE
    judged = verdicts(state)[:count]
    assert [one.subject for one in judged] == sorted(one.node for one in nodes)
    matched = {
        node
        for test in state.tests
        if cost(test.measured.value, Better.HIGHER) is not None
        for node in test.measured.pair
    }
    for one in judged:
        assert one.outcome is Outcome.INCONCLUSIVE or one.subject in matched
        assert one.words


@pytest.mark.parametrize("better", list(Better))
@pytest.mark.parametrize("count", [8, 9, 16, 33])
def test_only_slow_nodes_fail(count: int, better: Better) -> None:
    slow = {"n001": 1.2, "n006": 1.15}
    measure = bandwidth(slow)
    state, _ = play(
        members(count),
        measure if better is Better.HIGHER else lambda one: 1 / measure(one),
        Settings(better=better),
    )
    judged = verdicts(state)
    assert {one.subject for one in judged if one.outcome is Outcome.FAIL} == set(slow)
    assert {one.outcome for one in judged[:count] if one.subject not in slow} == {Outcome.PASS}
    failed = next(one for one in judged if one.subject == "n001")
    assert failed.reason is Reason.SLOW_WITH_ALL
    assert dict(failed.evidence)["median with good partners"] == pytest.approx(0.2, abs=0.04)


def test_a_suspect_meets_partners_of_different_racks() -> None:
    state, _ = play(members(32), bandwidth({"n001": 1.2}))
    rack = {one.node: one.rack for one in state.members}
    met = [
        rack[node]
        for test in state.tests
        if test.stage is Stage.CONFIRM and "n001" in test.measured.pair
        for node in test.measured.pair
        if node != "n001"
    ]
    assert len(met) == 3 == len(set(met)) and rack["n001"] not in met


@pytest.mark.parametrize("count", [1, 2, 3])
def test_too_few_nodes_are_inconclusive(count: int) -> None:
    state, _ = play(members(count), bandwidth({"n000": 2.0}))
    for one in verdicts(state):
        assert one.outcome is Outcome.INCONCLUSIVE
        assert one.reason is (Reason.TOO_FEW_NODES if count > 1 else Reason.NOT_MEASURED)


def test_no_node_passes_when_noise_could_hide_a_slowdown() -> None:
    judged = []
    for seed in range(6):
        state, _ = play(members(32), bandwidth({}, noise=0.12, seed=seed))
        judged += verdicts(state)[:32]
    assert Outcome.PASS not in {one.outcome for one in judged}
    assert Reason.TOO_NOISY in {one.reason for one in judged}
    assert sum(one.outcome is Outcome.FAIL for one in judged) <= 3, "of 192 that are well"


def test_slow_link_fails_and_its_ends_pass() -> None:
    nodes = members(16)
    one = pairs.next_round(pairs.start(nodes, seed=4))[2]
    state, _ = play(nodes, bandwidth({}, {one: 1.4}), seed=4)
    judged = by_subject(state)
    assert judged["|".join(one)].outcome is Outcome.FAIL
    assert judged["|".join(one)].reason is Reason.SLOW_LINK
    assert {judged[node].outcome for node in one} == {Outcome.PASS}


def test_pair_that_is_slow_only_once_is_not_a_slow_link() -> None:
    nodes = members(16)
    one = pairs.next_round(pairs.start(nodes, seed=4))[2]
    usual, seen = bandwidth({}), []

    def measure(tested: Pair) -> float:
        seen.append(tested)
        return usual(tested) / (1.4 if tested == one and seen.count(one) == 1 else 1.0)

    state, _ = play(nodes, measure, seed=4)
    assert by_subject(state)["|".join(one)].reason is Reason.NOT_REPRODUCED


def test_slow_rack_is_one_fault_and_none_of_its_nodes_fails() -> None:
    inside = {f"n{at:03d}": 1.2 for at in range(4, 8)}
    state, _ = play(members(32), bandwidth(inside))
    judged = by_subject(state)
    assert judged["rack/rack-1"].outcome is Outcome.FAIL
    assert {judged[node].reason for node in inside} == {Reason.SLOW_RACK}
    assert not [one for one in judged.values() if one.outcome is Outcome.FAIL and one.subject in inside]


def test_slower_links_between_racks_are_not_a_fault() -> None:
    nodes = members(32)
    rack = {one.node: one.rack for one in nodes}
    usual = bandwidth({"n009": 1.2})
    state, _ = play(nodes, lambda one: usual(one) * (1.0 if rack[one[0]] == rack[one[1]] else 0.5))
    assert {one.subject for one in verdicts(state) if one.outcome is Outcome.FAIL} == {"n009"}


def test_node_that_leaves_is_reported_and_its_partner_is_paired_again() -> None:
    nodes = members(16)
    state = pairs.start(nodes)
    first = pairs.next_round(state)
    leaves = {first[0][0], first[1][0]}
    measure = bandwidth({})
    state = pairs.apply_results(state, [Measured(one, measure(one)) for one in first[2:]], leaves)
    assert pairs.next_round(state) == (pair(first[0][1], first[1][1]),)
    while todo := pairs.next_round(state):
        state = pairs.apply_results(state, [Measured(one, measure(one)) for one in todo])
    judged = by_subject(state)
    assert {judged[node].reason for node in leaves} == {Reason.LEFT}
    assert {one.outcome for one in judged.values() if one.subject not in leaves} == {Outcome.PASS}


def test_node_without_results_is_retried_with_good_partners_and_not_blamed() -> None:
    usual = bandwidth({})
    state, _ = play(members(16), lambda one: None if "n005" in one else usual(one))
    assert by_subject(state)["n005"].reason is Reason.NOT_MEASURED
    assert sum("n005" in test.measured.pair for test in state.tests) >= 4


def test_unrequested_and_duplicate_results_are_ignored() -> None:
    state = pairs.start(members(8))
    one = pairs.next_round(state)[0]
    result = Measured(one, 1.0)
    once = pairs.apply_results(state, [result, result])
    assert len(once.tests) == 1 and one not in once.wanted
    assert pairs.apply_results(once, [result]) == once
    assert pairs.apply_results(once, [Measured(("n000", "else"), 1.0)]) == once


def test_the_order_of_nodes_does_not_matter() -> None:
    assert pairs.start(members(9)) == pairs.start(members(9)[::-1])


@pytest.mark.parametrize("count", [4, 8, 32, 64])
def test_healthy_fleets_have_few_failures(count: int) -> None:
    """Sweep fleets without a slow node, with the noise and spread of the bench. At most one node in 500 may
    fail.
    """
    failed = total = 0
    for seed in range(max(4, 600 // count)):
        rng = random.Random(seed)
        own = {one.node: rng.lognormvariate(0, 0.01) for one in members(count)}
        state, _ = play(members(count), bandwidth(own, seed=seed, noise=0.02), seed=seed)
        judged = verdicts(state)[:count]
        failed += sum(one.outcome is Outcome.FAIL for one in judged)
        total += count
    assert failed <= max(1, total / 500)
