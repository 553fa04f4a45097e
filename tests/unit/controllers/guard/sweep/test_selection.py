"""Tests of the selection of nodes for routine sweeps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convoy_controllers.guard.sweep import risk
from convoy_controllers.guard.sweep.risk import Event, History, Prior
from convoy_controllers.guard.sweep.selection import Candidate, SweepCosts, choose, worth

BAD = History(1000, ((Event.CONFIRMED, 2), (Event.SUSPECTED, 2)))
MONTH = 30 * 24.0


def test_past_faults_raise_the_risk_and_fault_free_hours_lower_it() -> None:
    prior = Prior(0.5, 5000)
    assert risk.hazard(History(), prior) == pytest.approx(1e-4)
    assert risk.hazard(History(5000), prior) == pytest.approx(0.5e-4)
    assert risk.hazard(BAD, prior) == pytest.approx(3.5 / 6000)
    assert risk.defective(1e-3, 0) == 0
    assert risk.defective(1e-3, 100) < risk.defective(1e-3, 200) < 1


def test_fleet_with_lemons_has_a_wider_prior_than_a_uniform_fleet() -> None:
    equals = [History(1000, ((Event.CONFIRMED, 1),))] * 16
    lemons = [History(1000, ((Event.CONFIRMED, 8),))] * 2 + [History(1000)] * 14
    for fleet in (equals, lemons):
        found = risk.prior(fleet)
        assert found.shape / found.hours == pytest.approx(16.5 / 21_000)
    assert risk.prior(lemons).shape < 1 < risk.prior(equals).shape
    assert risk.hazard(lemons[0], risk.prior(lemons)) > 4 * risk.hazard(lemons[0], risk.prior(equals))
    assert risk.prior([]) == risk.prior([History(10)] * 5) == Prior()


def test_unswept_nodes_come_first_then_nodes_by_fault_risk() -> None:
    nodes = [
        Candidate("calm", History(5000), MONTH),
        Candidate("lemon", BAD, MONTH),
        Candidate("never"),
        Candidate("usual", History(), MONTH),
    ]
    assert choose(nodes, 1000) == ["never", "lemon", "usual"], "a quiet past is not worth it yet"
    assert choose(nodes, 25) == ["never", "lemon"]
    assert choose(nodes, 9.9) == choose(nodes, -5) == []


def test_recently_swept_nodes_and_costly_sweeps_are_not_worth_a_sweep() -> None:
    prior, costs = Prior(), SweepCosts()
    assert worth(Candidate("n", BAD, 0.0), prior, costs) == 0
    ages = [worth(Candidate("n", BAD, hours), prior, costs) for hours in (10, 100, 1000)]
    assert ages[0] < 1 < ages[1] < ages[2]
    assert choose([Candidate("n", BAD, 100)], 1000) == ["n"]
    assert choose([Candidate("n", BAD, 100)], 1000, costs=SweepCosts(minutes=120)) == []


@settings(max_examples=60)
@given(st.data())
def test_selection_keeps_its_budget_and_prefers_higher_worth(data: st.DataObject) -> None:
    counts = st.lists(st.tuples(st.sampled_from(Event), st.integers(1, 4)), max_size=3)
    nodes = [
        Candidate(
            f"n{at}",
            History(data.draw(st.floats(0, 1e4)), tuple(data.draw(counts))),
            data.draw(st.none() | st.floats(0, 2000)),
        )
        for at in range(data.draw(st.integers(0, 8)))
    ]
    budget = data.draw(st.floats(0, 90))
    found = choose(nodes, budget)
    assert len(set(found)) == len(found) and len(found) * SweepCosts().minutes <= budget
    values = {one.node: worth(one, Prior(), SweepCosts()) for one in nodes}
    left = [values[one.node] for one in nodes if one.node not in found]
    assert all(values[node] > 1 for node in found)
    if len(found) < int(budget // SweepCosts().minutes):
        assert all(value <= 1 for value in left)
    assert all(values[node] >= value for node in found for value in left)
    assert choose(nodes[::-1], budget) == found
