"""Which nodes are swept, and with what."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy_controllers.guard.sweep import risk
from convoy_controllers.guard.sweep.risk import Component, Event, History, Prior
from convoy_controllers.guard.sweep.selection import EXPIRY_HOURS, Candidate, Cause, Probe, Stakes, choose

GEMM = Probe("gemm", 2, {Component.COMPUTE: 0.9})
HBM = Probe("hbm", 1, {Component.MEMORY: 0.9, Component.COMPUTE: 0.2})
PAIRS = Probe("pairs", 6, {Component.NETWORK: 0.8})
TESTS = (GEMM, HBM, PAIRS)
BAD = History(1000, ((Event.FAILED, Component.NETWORK, 2), (Event.SUSPECTED, Component.NETWORK, 2)))


def test_a_past_of_faults_is_a_risk_and_quiet_hours_are_the_opposite() -> None:
    prior = Prior(0.5, 5000)
    assert risk.hazard(History(), prior) == pytest.approx(1e-4)
    assert risk.hazard(History(5000), prior) == pytest.approx(0.5e-4)
    assert risk.hazard(BAD, prior) == pytest.approx(3.5 / 6000)
    assert risk.defective(1e-3, 0) == 0
    assert risk.defective(1e-3, 100) < risk.defective(1e-3, 200) < 1


def test_a_fleet_of_lemons_has_a_wider_prior_than_one_of_equals() -> None:
    failed = ((Event.FAILED, None, 8),)
    equals = [History(1000, ((Event.FAILED, None, 1),))] * 16
    lemons = [History(1000, failed)] * 2 + [History(1000)] * 14
    for fleet in (equals, lemons):
        found = risk.prior(fleet)
        assert found.shape / found.hours == pytest.approx(1e-3)
    assert risk.prior(lemons).shape < 1 < risk.prior(equals).shape
    assert risk.hazard(lemons[0], risk.prior(lemons)) > 4 * risk.hazard(lemons[0], risk.prior(equals))
    assert risk.prior([]) == risk.prior([History(10)] * 5) == Prior()


def test_where_faults_were_they_are_looked_for() -> None:
    assert sum(risk.shares(BAD).values()) == pytest.approx(1)
    assert risk.shares(BAD)[Component.NETWORK] > 0.7
    assert risk.shares(History())[Component.NETWORK] == pytest.approx(1 / len(Component))


@pytest.mark.parametrize(
    ("candidate", "cause", "names"),
    [
        (Candidate("n"), Cause.FIRST_USE, {"gemm", "hbm", "pairs"}),
        (Candidate("n", age_hours=1, repaired=True), Cause.REPAIRED, {"gemm", "hbm", "pairs"}),
        (Candidate("n", age_hours=1, changed=True), Cause.CHANGED, {"gemm", "hbm", "pairs"}),
        (Candidate("n", age_hours=1, suspected=Component.NETWORK), Cause.SUSPECTED, {"pairs"}),
        (Candidate("n", age_hours=1, suspected=Component.COMPUTE), Cause.SUSPECTED, {"gemm", "hbm"}),
        (Candidate("n", age_hours=1, suspected=Component.STORAGE), Cause.SUSPECTED, {"gemm", "hbm", "pairs"}),
        (
            Candidate("n", age_hours=1, repaired=True, suspected=Component.NETWORK),
            Cause.REPAIRED,
            {"gemm", "hbm", "pairs"},
        ),
    ],
)
def test_what_must_be_swept_is_whatever_the_budget(
    candidate: Candidate, cause: Cause, names: set[str]
) -> None:
    found = choose([candidate], TESTS, 0).chosen
    assert [(one.cause, set(one.tests)) for one in found] == [(cause, names)]


def test_expiry_is_within_the_budget_the_oldest_first() -> None:
    nodes = [Candidate(f"n{at}", age_hours=EXPIRY_HOURS + at) for at in range(3)]
    found = choose(nodes, TESTS, 2 * 9)
    assert [(one.node, one.cause) for one in found.chosen] == [("n2", Cause.EXPIRED), ("n1", Cause.EXPIRED)]
    assert found.over == ("n0",)
    young = Candidate("n", age_hours=EXPIRY_HOURS - 1)
    assert choose([young], TESTS, 100).chosen[0].cause is Cause.RISK


def test_the_budget_goes_where_it_finds_most() -> None:
    nodes = [
        Candidate("lemon", BAD, 100),
        Candidate("calm", History(5000), 100),
        Candidate("new", History(), 100),
    ]
    found = choose(nodes, TESTS, 6).chosen
    assert [(one.node, one.tests) for one in found] == [("lemon", ("pairs",))]
    # The same past on a node that nobody waits for is worth less.
    idle = [Candidate("idle", BAD, 100, devices=8), Candidate("busy", BAD, 100, devices=512)]
    assert choose(idle, TESTS, 6).chosen[0].node == "busy"
    # Just swept: nothing to find.
    assert choose([Candidate("n", BAD, 0.0)], TESTS, 100).chosen == ()
    assert choose(nodes, TESTS, 100, stakes=Stakes(least_gain_per_minute=1e9)).chosen == ()


def test_what_one_test_has_seen_the_next_does_not_find_again() -> None:
    twice = (Probe("one", 1, {Component.COMPUTE: 0.9}), Probe("two", 1, {Component.COMPUTE: 0.9}))
    node = Candidate("n", History(), 100)
    single = choose([node], twice[:1], 10).chosen[0].gain
    assert choose([node], twice, 10).chosen[0].gain == pytest.approx(1.1 * single)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_no_plan_is_over_its_budget_or_names_a_node_twice(data: st.DataObject) -> None:
    counts = st.lists(
        st.tuples(st.sampled_from(Event), st.sampled_from([None, *Component]), st.integers(1, 4)), max_size=3
    )
    nodes = [
        Candidate(
            f"n{at}",
            History(data.draw(st.floats(0, 1e4)), tuple(data.draw(counts))),
            data.draw(st.none() | st.floats(0, 500)),
            repaired=data.draw(st.booleans()),
            suspected=data.draw(st.none() | st.sampled_from(Component)),
        )
        for at in range(data.draw(st.integers(0, 8)))
    ]
    budget = data.draw(st.floats(0, 60))
    found = choose(nodes, TESTS, budget)
    names = [one.node for one in found.chosen]
    assert len(set(names)) == len(names) and not set(names) & set(found.over)
    bounded = [one for one in found.chosen if one.cause in (Cause.EXPIRED, Cause.RISK)]
    assert sum(one.minutes for one in bounded) <= budget + 1e-9
    must = {one.node for one in nodes if one.age_hours is None or one.repaired or one.suspected is not None}
    assert must == {one.node for one in found.chosen} - {one.node for one in bounded}
    old = {one.node for one in nodes if one.age_hours is not None and one.age_hours >= EXPIRY_HOURS}
    assert old - must <= set(names) | set(found.over)
    assert choose(nodes[::-1], TESTS, budget) == found
