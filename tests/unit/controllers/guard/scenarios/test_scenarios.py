"""Tests of the whole guard under twenty-seven kinds of fault. A test fails if the guard misses the fault."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest
from tests.unit.controllers.guard.scenarios.cases import SCENARIOS
from tests.unit.controllers.guard.scenarios.expected import Scenario, deviations

from convoy_controllers.guard.synthetic import Job
from convoy_controllers.simulate.guard.guarded_fleet import GuardedFleet, Setup, run_setup
from convoy_controllers.simulate.guard.hardware_faults import HardwareFault

LIE = HardwareFault("lie", (2,), 0.5, begins=6)
ACCUSES = {"drain": {"swapCost": "20s"}}


@lru_cache(32)
def healthy(job: Job) -> GuardedFleet:
    """Return a fleet after it ran a job without a fault."""
    return run_setup(Setup((), job, minutes=20, hours=1))


@lru_cache(32)
def wrongly_accused(job: Job) -> GuardedFleet:
    """Return a fleet after it ran a job without a fault while the detector accused hw2."""
    return run_setup(Setup((LIE,), job, minutes=30, hours=1, policy=ACCUSES))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_the_guard_acts_as_expected_in_each_scenario(scenario: Scenario) -> None:
    assert deviations(scenario.play(), scenario.expected) == []


def test_scenarios_cover_all_kinds_of_fault() -> None:
    assert {int(scenario.number.rstrip("abcde")) for scenario in SCENARIOS} == set(range(1, 28))


@pytest.mark.parametrize(
    "scenario", [one for one in SCENARIOS if one.expected.cause or one.expected.drained], ids=str
)
def test_scenario_without_its_fault_deviates(scenario: Scenario) -> None:
    job = replace(_quick(scenario.setup.job), last_stage=1.0)
    assert deviations(healthy(job), scenario.expected)


@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if not one.expected.drained], ids=str)
def test_needless_action_on_a_node_is_a_deviation(scenario: Scenario) -> None:
    found = deviations(wrongly_accused(_quick(scenario.setup.job)), scenario.expected)
    assert any("hw2" in words for words in found), found


def _quick(job: Job) -> Job:
    """Return the job with windows of 20 s."""
    return replace(job, seconds=20.0)
