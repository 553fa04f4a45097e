"""Tests of mode Observe: Convoy changes nothing on nodes, and says what mode Act would do."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test
from tests.cases import cases
from tests.unit.controllers.node_states import (
    BUSY,
    HOUR,
    IDLE,
    NOW,
    after,
    health,
    online,
    policy,
    slow,
    swept,
    text,
)
from tests.unit.controllers.nodelives import OTHERS, FleetLife, acting_fleet

from convoy_controllers.cached import Node
from convoy_controllers.nodehealth import controller as healths
from convoy_controllers.nodehealth.observed import HardwareFacts, Member, SweepResult
from convoy_controllers.nodemarks import controller as marks
from convoy_crds.meta import Condition
from convoy_crds.nodehealth import State, Verdict

OBSERVE = policy(mode="Observe", onJoin="Gate")
BARE = Node("n", "u", 1, agent_ready=True, ready=True)
SLOW = replace(BUSY, suspicions=(slow(minutes=60, loss=10_000.0),))
FAILED = replace(IDLE, sweep=SweepResult("hw-2", NOW, Verdict.FAIL, "copies at half speed"))
STORED: dict[str, dict[str, Any]] = {
    "bare": {},
    "swept": {"sweep": {"name": "hw-1", "since": text(NOW - HOUR)}, "evidence": [swept()]},
    "slow": {"evidence": [online(loss=10_000.0)], "confirmedAt": text(NOW - HOUR)},
    "hinted": {"noticed": {"job": "ns/j", "cause": "Input", "at": text(NOW - HOUR), "slowdown": 1.2}},
    "condemned": {
        "internal": {"condemnedByHand": True},
        "failures": 2,
        "quarantines": [text(NOW - HOUR)] * 3,
    },
}
FACTS = {"idle": IDLE, "busy": BUSY, "slow": SLOW, "failed": FAILED, "absent": HardwareFacts()}


def acting(found: Any) -> Condition:
    return next(one for one in found.conditions if one.type == "Acting")


@pytest.mark.parametrize(
    ("state", "stored", "facts"), [*product([state.value for state in State], STORED, FACTS)]
)
def test_nothing_but_the_status_is_written(state: str, stored: str, facts: str) -> None:
    """Whatever mode Act left behind, no request concerns a node, a pod or a sweep."""
    before = health(state, **STORED[stored])
    for one in (before, before.model_copy(update={"status": after(before, FACTS[facts], OBSERVE)})):
        seen = healths.Observed(Member(one, FACTS[facts]), OBSERVE, OBSERVE, sweep_exists=False)
        assert healths.plan(seen, NOW).children == ()
        node = marks.Observed(BARE, FACTS[facts], OBSERVE, one, members=())
        assert marks.plan(node, NOW).children == ()


def test_a_node_without_a_health_gets_no_marks() -> None:
    assert marks.plan(marks.Observed(BARE, IDLE, OBSERVE, None), NOW).children == ()


@pytest.mark.parametrize(
    ("stored", "facts", "words"),
    [
        ({}, SLOW, "would quarantine the node: the node takes 1.30 times as long"),
        (
            {"evidence": [online(loss=10_000.0)], "confirmedAt": text(NOW - HOUR)},
            BUSY,
            "would quarantine the node: the node takes",
        ),
        ({"evidence": [swept()]}, IDLE, "would taint the node with convoy.dev/suspect:PreferNoSchedule"),
        ({}, FAILED, "copies at half speed"),
    ],
)
def test_the_condition_says_what_mode_act_would_do(
    stored: dict[str, Any], facts: HardwareFacts, words: str
) -> None:
    found = after(health("Suspect", **stored), facts, OBSERVE)
    shown = acting(found)
    assert (found.state, shown.status, shown.reason) == (State.SUSPECT, "False", "WouldAct")
    assert words in shown.message
    assert "GuardPolicy p only observes: select the node with a GuardPolicy of mode Act" in shown.message


def test_the_condition_says_what_would_block_mode_act() -> None:
    it = acting_fleet(mode="Observe", breaker={"suspectPercent": 1})
    for number in range(4):
        it.hardware[f"hw{number}"].job = f"ns/j{number}"
        it.hardware[f"hw{number}"].accused_since = it.kernel.time
    it.run(3 * 3600, every=60)
    status = it.health("hw0").status
    assert "In mode Act, a quarantine is waiting: the circuit breaker" in acting(status).message
    assert it.guard_policy().status.breaker.state == "Closed", "the breaker only counts in mode Act"


def test_a_healthy_node_needs_no_action() -> None:
    found = after(health("Qualified", qualifiedUntil=text(NOW + HOUR)), BUSY, OBSERVE)
    assert (acting(found).status, acting(found).reason) == ("True", "NothingWanted")


def test_the_message_stays_while_the_loss_grows() -> None:
    """A message that changes with each report would write the status once per second."""
    rules, found = OBSERVE, health("Unverified")
    messages = set()
    for seconds in range(30):
        facts = replace(BUSY, suspicions=(slow(minutes=60, loss=10_000.0 + seconds),))
        found = found.model_copy(update={"status": after(found, facts, rules)})
        messages.add(acting(found.status).message)
    assert len(messages) == 1


class ObservedLife(FleetLife):
    """Random lives of a fleet whose policy only observes."""

    @initialize(gate=st.booleans())
    def start(self, gate: bool) -> None:
        self.fleet = acting_fleet(
            mode="Observe", onJoin="Gate" if gate else "Accept", sweeps={"timePercent": 1}
        )
        for number, one in enumerate(self.fleet.hardware.values()):
            one.taints.append(dict(OTHERS))
            one.job = f"ns/j{number % 6}" if number % 2 else ""

    @rule()
    def mode(self) -> None:
        """Stay in mode Observe."""

    @invariant()
    def nothing_is_done(self) -> None:
        if hasattr(self, "fleet"):
            assert not (self.fleet.drains or self.fleet.evicted or self.fleet.sweeps)
            for one in self.fleet.hardware.values():
                assert one.taints in ([], [OTHERS]) and not one.cordoned

    def teardown(self) -> None:
        """Do not return to mode Act."""


@pytest.mark.timeout(cases(600))
def test_random_lives_under_observation_change_no_node() -> None:
    run_state_machine_as_test(
        ObservedLife,
        settings=settings(
            max_examples=cases(6),
            stateful_step_count=20,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
