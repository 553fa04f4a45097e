"""Tests of the sweeps of nodes: the time at which a sweep starts, and the effect of its verdict."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.unit.controllers.node_states import (
    BUSY,
    HOUR,
    IDLE,
    NODE,
    NOW,
    after,
    health,
    online,
    policy,
    swept,
    text,
)

from convoy_controllers.nodehealth import evidence, machine
from convoy_controllers.nodehealth.observed import HardwareFacts, Member, SweepResult
from convoy_crds.nodehealth import State, Verdict

SWEPT = {"swept": text(NOW - HOUR), "evidence": [swept()]}


@pytest.mark.parametrize(
    ("state", "more", "facts", "begins"),
    [
        ("Gated", {}, IDLE, True),
        ("Gated", {}, BUSY, False),
        ("Gated", {}, HardwareFacts(replace(NODE, agent_connected=False)), False),
        ("Gated", {}, HardwareFacts(), False),
        ("Requalifying", {}, IDLE, True),
        ("Qualified", {"qualifiedUntil": text(NOW)}, IDLE, True),
        ("Qualified", {"qualifiedUntil": text(NOW + HOUR)}, IDLE, False),
        ("Suspect", {"evidence": [online()]}, IDLE, True),
        ("Suspect", {"evidence": [online()], "swept": text(NOW - HOUR)}, IDLE, False),
        ("Suspect", {"evidence": [online()], "swept": text(NOW - 2 * HOUR)}, IDLE, True),
        (
            "Suspect",
            {"evidence": [{**online(), "seen": text(NOW)}], "swept": text(NOW - HOUR / 2)},
            IDLE,
            False,
        ),
        ("Suspect", SWEPT, IDLE, True),
        ("Suspect", {**SWEPT, "internal": {"inconclusive": 2}}, IDLE, False),
        ("Condemned", {}, IDLE, False),
        ("Unverified", {}, IDLE, False),
    ],
)
def test_state_decides_whether_a_sweep_starts(
    state: str, more: dict[str, Any], facts: HardwareFacts, begins: bool
) -> None:
    found = after(health(state, **more), facts, policy(onJoin="Gate"))
    assert (found.sweep is not None) is begins
    assert found.sweeps == int(begins)


def test_overdue_repair_step_is_followed_by_the_next() -> None:
    repair = {"step": 0, "action": "Reset", "owner": "x", "since": text(NOW - HOUR)}
    found = after(health("Repairing", repair=repair))
    assert (found.state, found.repair.step, found.repair.action, found.repair.owner) == (
        State.REPAIRING, 1, "Reboot", "machines",
    )  # fmt: skip
    assert (found.repair.since, found.internal.holds_token) == (NOW, True)


SWEEP = {"sweep": {"name": "hw-1", "cause": "Suspected", "since": text(NOW - HOUR / 2)}}
VERDICTS = [
    ("Sweeping", {}, Verdict.PASS, State.QUALIFIED),
    ("Sweeping", {}, Verdict.FAIL, State.QUARANTINED),
    ("Sweeping", {"qualifiedUntil": text(NOW - HOUR)}, Verdict.FAIL, State.SUSPECT),
    ("Sweeping", {"internal": {"inconclusive": 1}}, Verdict.INCONCLUSIVE, State.SUSPECT),
    ("Sweeping", {}, None, State.SWEEPING),
    ("Suspect", {"evidence": [online()]}, Verdict.PASS, State.SUSPECT),
    ("Suspect", {"evidence": [online()]}, Verdict.FAIL, State.QUARANTINED),
    ("Suspect", {}, Verdict.FAIL, State.SUSPECT),
    ("Requalifying", {}, Verdict.PASS, State.PROBATION),
    ("Requalifying", {"failures": 1}, Verdict.FAIL, State.CONDEMNED),
    ("Requalifying", {"internal": {"inconclusive": 1}}, Verdict.INCONCLUSIVE, State.SUSPECT),
    (
        "Requalifying",
        {"internal": {"inconclusive": 1}, "evidence": [online(), swept()]},
        Verdict.INCONCLUSIVE,
        State.SUSPECT,
    ),
]


@pytest.mark.parametrize(("state", "more", "verdict", "then"), VERDICTS)
def test_verdict_of_a_sweep_changes_the_state(
    state: str, more: dict[str, Any], verdict: Verdict | None, then: State
) -> None:
    result = (
        SweepResult("hw-1", NOW, verdict) if verdict else SweepResult("hw-0", NOW - 2 * HOUR, Verdict.FAIL)
    )
    found = after(health(state, **SWEEP, **more), replace(IDLE, sweep=result), policy(onJoin="Gate"))
    assert found.state is then
    if verdict is Verdict.PASS:
        assert found.qualified_until == NOW + timedelta(hours=336)
        assert not evidence.unrefuted(found.evidence)


@pytest.mark.parametrize(
    ("begun", "then"), [(NOW - 2 * HOUR, State.UNVERIFIED), (NOW - HOUR / 2, State.QUALIFIED)]
)
def test_manual_sweep_counts_from_its_start(begun: datetime, then: State) -> None:
    manual = SweepResult("all", NOW, Verdict.PASS, since=begun)
    assert after(health("Unverified"), replace(IDLE, sweep=manual), policy()).state is then


@pytest.mark.parametrize("state", ["Unverified", "Qualified", "Suspect"])
def test_manual_sweep_counts_while_another_sweep_is_pending(state: str) -> None:
    waiting = {"sweep": {"name": "hw-1", "cause": "Routine", "since": text(NOW - HOUR / 4)}}
    manual = SweepResult("all", NOW, Verdict.FAIL, since=NOW - HOUR / 2)
    found = after(health(state, **waiting), replace(IDLE, sweep=manual), policy())
    assert (found.state, evidence.failures(found.evidence)) == (State.SUSPECT, 1)


def test_inconclusive_routine_sweep_changes_no_state() -> None:
    waiting = {"sweep": {"name": "hw-1", "cause": "Routine", "since": text(NOW - HOUR / 4)}}
    before = health("Unverified", internal={"inconclusive": 1}, **waiting)
    found = after(before, replace(IDLE, sweep=SweepResult("hw-1", NOW, Verdict.INCONCLUSIVE)))
    assert (found.state, found.since, found.internal.inconclusive) == (State.UNVERIFIED, NOW - HOUR, 1)
    assert (found.sweep, found.swept, found.history) == (None, NOW, [])


def test_failed_retest_starts_the_next_repair_step() -> None:
    found = health("Requalifying", **SWEEP)
    result = replace(IDLE, sweep=SweepResult("hw-1", NOW, Verdict.FAIL))
    noted = machine.next_status(Member(found, result), policy(), NOW)
    assert (noted.state, noted.failures, noted.repair.step) == (State.QUARANTINED, 1, 1)
    assert noted.quarantines == []


def test_overdue_sweep_without_a_result_is_inconclusive() -> None:
    late = {"sweep": {"name": "hw-1", "cause": "Suspected", "since": text(NOW - timedelta(minutes=51))}}
    found = machine.next_status(Member(health("Sweeping", **late), IDLE), policy(onJoin="Gate"), NOW)
    assert (found.state, found.sweep, found.internal.inconclusive) == (State.GATED, None, 1)
