"""Tests of a fleet under the guard: storms of suspicions, many slow nodes at once, and crashes of the
operator. Rules that are broken on purpose must be detected.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from tests.unit.controllers.nodelives import OTHERS, acting_fleet

from convoy_controllers.nodehealth import breaker, budget, fleet, record, repairing, wanted
from convoy_controllers.simulate.fleet import SimulatedFleet, foreign
from convoy_controllers.simulate.violation import InvariantViolation
from convoy_crds.guardpolicy import BreakerState
from convoy_crds.nodehealth import State

HOUR = 3600
NEVER = {"confirmedPercent": 100, "suspectPercent": 100, "sharedPercent": 100}
"""Rules of a breaker that never opens, so that only budgets limit actions."""
WIDE = {"poolPercent": 25, "fleetPercentPerHour": 40, "quarantinedPercent": 50, "perRack": 9}


def accuse(it: SimulatedFleet, *numbers: int, bad: bool = True, job: str = "") -> None:
    for number in numbers:
        one = it.hardware[f"hw{number}"]
        one.job, one.bad, one.accused_since = job or f"ns/j{number}", bad, it.kernel.time


def crowd(**budgets: Any) -> SimulatedFleet:
    """Run a fleet in which ten nodes are slow at once, each with its own job. Only budgets limit actions."""
    it = acting_fleet(budgets=budgets, breaker=NEVER)
    it.run(60)
    accuse(it, *range(10))
    it.run(3 * HOUR, every=120)
    assert it.drains, "nothing was drained: nothing was tried"
    return it


def two_of_one_job() -> SimulatedFleet:
    it = acting_fleet(budgets=WIDE, breaker=NEVER)
    accuse(it, 0, 1, job="ns/both")
    it.run(2 * HOUR, every=120)
    assert len(it.drains) == 2
    return it


def storm() -> SimulatedFleet:
    """Run a fleet in which half of the nodes are accused at once and would fail sweeps."""
    it = acting_fleet()
    it.run(60)
    accuse(it, *range(12))
    it.run(12 * HOUR, every=300)
    return it


def storm_amid_a_drain() -> SimulatedFleet:
    """Run a fleet in which a storm begins while hw0 is drained and a disruption budget refuses evictions."""
    it = acting_fleet()
    accuse(it, 0)
    it.hardware["hw0"].blocked = True
    while it.state("hw0") is not State.DRAINING:
        it.run(15)
    it.run(60)
    assert it.evicted >= 5
    accuse(it, *range(1, 13))
    for number in range(1, 13):
        it.hardware[f"hw{number}"].accused_since = it.hardware["hw0"].accused_since
    it.run(12 * HOUR, every=300)
    return it


def recovery_amid_a_storm() -> SimulatedFleet:
    """Run a fleet in which hw0 is in repair when the breaker opens and stays open."""
    it = acting_fleet()
    accuse(it, 0)
    while it.state("hw0") is not State.REPAIRING:
        it.run(60, every=60)
    accuse(it, *range(4, 20))
    it.run(2 * HOUR, every=120)
    assert it.guard_policy().status.breaker.state is BreakerState.OPEN
    assert it.state("hw0") is State.PROBATION, it.state("hw0")
    it.run(25 * HOUR, every=600)
    assert it.state("hw0") is State.QUALIFIED, it.state("hw0")
    return it


def repeated_crashes(writes: int) -> SimulatedFleet:
    """Run a node through all states while every second reconcile crashes after `writes` writes."""
    it = acting_fleet(3)
    for one in it.hardware.values():
        one.taints.append(dict(OTHERS))
    accuse(it, 0)
    seen = set()
    for number in range(60 * 30):
        it.kernel.run(it.kernel.now + 60)
        it.reconcile(crash_after=writes if number % 2 == 0 else None)
        seen.add(it.state("hw0"))
        if it.state("hw0") is State.PROBATION:
            it.hardware["hw0"].accused_since = None
    assert {State.QUARANTINED, State.DRAINING, State.REPAIRING, State.QUALIFIED} <= seen, seen
    assert all(one.taints == [OTHERS] for one in it.hardware.values())
    return it


def test_storm_of_suspicions_drains_no_node() -> None:
    it = storm()
    assert (it.drains, it.evicted) == ([], 0)
    assert set(it.states()) <= {State.UNVERIFIED, State.SUSPECT}
    assert it.guard_policy().status.breaker.state is BreakerState.OPEN


def test_storm_stops_a_drain_that_has_not_evicted() -> None:
    it = storm_amid_a_drain()
    assert it.guard_policy().status.breaker.state is BreakerState.OPEN
    assert (it.state("hw0"), it.hardware["hw0"].job) == (State.DRAINING, "ns/j0")
    conditions = {one.type: one.reason for one in it.health("hw0").status.conditions}
    assert conditions["Acting"] == "DrainBlocked"


def test_open_breaker_does_not_block_returning_nodes() -> None:
    recovery_amid_a_storm()


@pytest.mark.parametrize(
    "budgets",
    [{}, WIDE, {**WIDE, "perRack": 1}, {**WIDE, "fleetPercentPerHour": 9}, {**WIDE, "poolPercent": 5}],
    ids=["narrow", "wide", "rack", "hour", "pool"],
)
def test_budgets_hold_with_many_suspects(budgets: dict[str, Any]) -> None:
    it = crowd(**budgets)
    assert len(it.drains) >= (8 if budgets == WIDE else 2)


def test_a_job_loses_one_node_at_a_time() -> None:
    it = two_of_one_job()
    (first, *_), (second, *_) = it.drains
    assert (second - first).total_seconds() >= 1800


@pytest.mark.parametrize("writes", range(5))
def test_operator_crash_leaks_no_taint(writes: int) -> None:
    repeated_crashes(writes)


def test_history_follows_the_hardware_to_another_name() -> None:
    it = acting_fleet(4)
    accuse(it, 0)
    while it.state("hw0") is not State.QUARANTINED:
        it.run(60, every=60)
    it.rename("hw0", "r9")
    it.run(15)
    status = it.health("hw0").status
    assert (status.node_ref.name, status.node_ref.rack) == (it.hardware["hw0"].node, "r9")
    assert status.history[0].node == "n0"
    assert "HardwareMoved" in [change.reason for change in status.history]
    assert [taint["key"] for taint in it.hardware["hw0"].taints] == ["convoy.dev/quarantined"]


def test_fault_that_ends_before_the_sweep_causes_one_sweep() -> None:
    it = acting_fleet(4)
    accuse(it, 0, bad=False)
    it.run(600)
    one = it.hardware["hw0"]
    one.job, one.accused_since = "", None
    it.run(20 * HOUR, every=300)
    status = it.health("hw0").status
    assert (status.state, status.sweeps) == (State.SUSPECT, 1)
    it.run(6 * HOUR, every=300)
    assert (it.state("hw0"), it.health("hw0").status.sweeps) == (State.QUALIFIED, 1)


def test_silence_makes_no_node_suspect_and_clears_no_node() -> None:
    it = acting_fleet(4)
    it.run(60)
    it.hardware["hw1"].agent_connected = False
    accuse(it, 0, 1, bad=False)
    it.run(600)
    assert (it.state("hw0"), it.state("hw1")) == (State.SUSPECT, State.UNVERIFIED)
    for number in (0, 1):
        one = it.hardware[f"hw{number}"]
        one.job, one.accused_since, one.agent_connected = "", None, False
    it.run(48 * HOUR, every=900)
    assert it.state("hw0") is State.SUSPECT
    conditions = {one.type: one.status for one in it.health("hw0").status.conditions}
    assert conditions["Qualified"] == "Unknown"
    it.hardware["hw0"].agent_connected = True
    it.run(25 * HOUR, every=900)
    assert it.state("hw0") in (State.QUALIFIED, State.UNVERIFIED)


def test_false_detector_opens_the_breaker() -> None:
    it = acting_fleet(
        budgets=WIDE, breaker={"suspectPercent": 100, "confirmedPercent": 100, "sharedPercent": 100}
    )
    for one in it.hardware.values():
        one.recovered = 0.0
    for number in range(6):
        accuse(it, number, bad=False)
        it.run(90 * 60, every=60)
    found = it.guard_policy().status.breaker
    assert (found.state, found.reason) == (BreakerState.HALF_OPEN, "ActionsInVain")
    wrong = [action for name in it.stored for action in it.health(name).status.actions]
    assert len(wrong) == 4
    assert {it.state(f"hw{number}") for number in range(6)} <= {State.UNVERIFIED, State.SUSPECT}


def test_slow_rack_or_slow_driver_opens_the_breaker() -> None:
    for what in ("rack", "driver"):
        it = acting_fleet(budgets=WIDE, breaker={**NEVER, "sharedPercent": 60})
        for number in range(3):
            setattr(it.hardware[f"hw{number}"], what, "odd")
        accuse(it, 0, 1, 2)
        it.run(50 * 60, every=60)
        found = it.guard_policy().status.breaker
        assert (found.state, found.reason, it.drains) == (BreakerState.OPEN, "CommonMode", [])
        assert what in found.message


def test_property_of_all_nodes_does_not_open_the_breaker() -> None:
    it = acting_fleet(budgets=WIDE, breaker={**NEVER, "sharedPercent": 60})
    accuse(it, 0, 1, 2)
    it.run(HOUR, every=60)
    assert it.guard_policy().status.breaker.state is BreakerState.CLOSED
    assert len(it.drains) == 3


def test_many_confirmed_nodes_open_the_breaker() -> None:
    it = acting_fleet(budgets=WIDE, breaker={**NEVER, "confirmedPercent": 5})
    accuse(it, 0, 1, 2)
    it.run(HOUR, every=60)
    assert it.guard_policy().status.breaker.reason == "TooManyConfirmed"
    assert it.drains == []


def test_trial_on_a_node_with_a_failed_sweep_closes_the_breaker() -> None:
    it = acting_fleet()
    it.run(60)
    accuse(it, *range(12), bad=False)
    it.run(600)
    assert it.guard_policy().status.breaker.state is BreakerState.OPEN
    for number in range(12):
        one = it.hardware[f"hw{number}"]
        one.accused_since, one.bad = (one.accused_since, True) if number < 2 else (None, False)
        one.job = "" if number else one.job
    seen = set()
    for _ in range(26 * 4):
        it.run(900, every=300)
        found = it.guard_policy().status.breaker
        seen.add(found.state)
        if it.state("hw0") is not State.SUSPECT and it.drains:
            it.hardware["hw0"].recovered = 0.9
    assert seen == {BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED}
    assert it.drains and {it.state("hw1")} <= {State.PROBATION, State.QUALIFIED, State.SUSPECT}


def test_concurrent_sweeps_are_limited() -> None:
    it = acting_fleet(onJoin="Gate", sweeps={"atOncePercent": 9})
    for one in it.hardware.values():
        one.created = it.kernel.time
    most = 0
    for _ in range(300):
        it.run(60, every=60)
        most = max(most, sum(it.health(name).status.sweep is not None for name in it.stored))
    assert most == 2
    assert set(it.states()) == {State.QUALIFIED}


def test_observe_mode_adds_no_taint_and_drains_no_node() -> None:
    it = acting_fleet(mode="Observe")
    accuse(it, 0)
    it.run(3 * HOUR, every=60)
    status = it.health("hw0").status
    assert (status.state, it.drains, it.hardware["hw0"].taints) == (State.SUSPECT, [], [])
    assert status.confirmed_at is not None


def _usage(**changed: Any) -> Callable[[pytest.MonkeyPatch], None]:
    def apply(patch: pytest.MonkeyPatch) -> None:
        made = budget.BudgetUsage.__init__

        def init(self: budget.BudgetUsage, *args: Any) -> None:
            made(self, *args)
            for name, value in changed.items():
                setattr(self, name, type(getattr(self, name))(value))

        patch.setattr(budget.BudgetUsage, "__init__", init)

    return apply


def _leaks_taints(patch: pytest.MonkeyPatch) -> None:
    made = wanted.retainted

    def leaky(current: Any, marks: wanted.Marks, now: datetime) -> Any:
        return made(current, marks, now) if marks.taints else None

    patch.setattr(wanted, "retainted", leaky)


def _swaps_anyway(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fleet, "must_swap", lambda status, policy: status.state is State.DRAINING)


def _repairs_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(repairing, "_repairing", lambda status, *_: status)


CONTROLS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], object]]] = {
    "pool": (_usage(pool=-99), lambda: crowd(**{**WIDE, "poolPercent": 5})),
    "hour": (_usage(hour=-99), lambda: crowd(**{**WIDE, "fleetPercentPerHour": 9})),
    "rack": (_usage(racks={}), lambda: crowd(**{**WIDE, "perRack": 1})),
    "out of service": (_usage(accused=-99), crowd),
    "job": (_usage(jobs=()), two_of_one_job),
    "breaker": (lambda patch: patch.setattr(breaker, "admits", lambda *_: True), storm),
    "taints": (_leaks_taints, lambda: repeated_crashes(3)),
    "swaps": (_swaps_anyway, storm_amid_a_drain),
    "recovery": (_repairs_wait, recovery_amid_a_storm),
    "stored tokens": (
        lambda patch: patch.setattr(record, "TOKEN", frozenset()),
        lambda: crowd(**{**WIDE, "poolPercent": 5}),
    ),
}


@pytest.mark.parametrize("rule", CONTROLS)
def test_fleet_tests_detect_a_broken_rule(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks, scenario = CONTROLS[rule]
    breaks(monkeypatch)
    with pytest.raises(AssertionError if rule == "recovery" else InvariantViolation):
        scenario()


def test_foreign_taints_are_kept() -> None:
    it = repeated_crashes(2)
    assert all(foreign(one.taints) == [OTHERS["key"]] for one in it.hardware.values())
