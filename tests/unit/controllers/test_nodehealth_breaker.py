"""Tests of the breaker: once open, it closes again, even if part of the cause remains."""

from __future__ import annotations

import pytest
from tests.unit.controllers.nodelives import acting_fleet

from convoy_controllers.simulate.fleet import SimulatedFleet
from convoy_crds.guardpolicy import BreakerState
from convoy_crds.nodehealth import State

HOUR = 3600


def accuse(it: SimulatedFleet, *numbers: int) -> None:
    for number in numbers:
        one = it.hardware[f"hw{number}"]
        one.job, one.accused_since = f"ns/j{number}", it.kernel.time


def quarantined_amid_a_storm() -> SimulatedFleet:
    """Quarantine hw0 on the evidence of its job alone. Then accuse twelve more nodes, which opens the
    breaker, and end all accusations.

    The twelve nodes stay suspect for a day. During that day the breaker opens again instead of becoming
    half-open.
    """
    it = acting_fleet()
    accuse(it, 0)
    while it.state("hw0") is not State.QUARANTINED:
        it.run(60, every=60)
    accuse(it, *range(1, 13))
    for number in range(1, 13):
        # Backdate the accusation, so that these nodes have been accused for as long as hw0.
        it.hardware[f"hw{number}"].accused_since = it.hardware["hw0"].accused_since
    it.run(60, every=15)
    assert it.guard_policy().status.breaker.state is BreakerState.OPEN
    assert it.state("hw0") is State.QUARANTINED
    for one in it.hardware.values():
        one.accused_since = None
    return it


@pytest.mark.parametrize("bad", [False, True])
def test_quarantined_node_is_swept_while_the_breaker_is_open(bad: bool) -> None:
    it = quarantined_amid_a_storm()
    it.hardware["hw0"].job, it.hardware["hw0"].bad = "", bad
    it.run(HOUR, every=120)
    status = it.health("hw0").status
    assert status.sweeps == 1
    assert it.guard_policy().status.breaker.state is BreakerState.OPEN
    assert status.state is (State.QUARANTINED if bad else State.SUSPECT)
    it.run(27 * HOUR, every=600)
    status = it.health("hw0").status
    turns = {change.after for change in status.history}
    if bad:
        assert {State.DRAINING, State.REPAIRING} <= turns
    else:
        assert (it.drains, status.quarantines) == ([], [])
        assert status.state is State.QUALIFIED


def test_busy_quarantined_node_does_not_keep_the_breaker_half_open() -> None:
    it = quarantined_amid_a_storm()
    states = set()
    for _ in range(28):
        it.run(HOUR, every=600)
        states.add(it.guard_policy().status.breaker.state)
    assert states == {BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED}
    assert it.state("hw0") is not State.QUARANTINED


def test_a_breaker_opens_once_for_hardware_that_failed_two_sweeps_each() -> None:
    it = acting_fleet(sweeps={"atOncePercent": 30}, breaker={"window": "1s"})
    for number in range(6):
        it.hardware[f"hw{number}"].bad = True
    accuse(it, *range(6))
    it.run(400, every=60)
    for one in it.hardware.values():
        one.job, one.accused_since = "", None
    states = [it.guard_policy().status.breaker.state]
    for _ in range(48):
        it.run(900, every=300)
        if (now := it.guard_policy().status.breaker.state) is not states[-1]:
            states.append(now)
    # The breaker may open twice: first when these nodes are accused, and again if nodes fail their second
    # sweep later. It must not open a third time.
    assert states.count(BreakerState.OPEN) <= 2, states
    assert states[-1] is BreakerState.CLOSED
    assert len(it.drains) == 6
    assert {it.state(f"hw{number}") for number in range(6)} <= {State.PROBATION, State.QUALIFIED}
