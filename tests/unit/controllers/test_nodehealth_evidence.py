"""Tests of the evidence against nodes, and of the events that end each state."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
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
    slow,
    swept,
    text,
)

from convoy_controllers.nodehealth import evidence, wanted
from convoy_controllers.nodehealth.observed import HardwareFacts, Suspicion
from convoy_crds.nodehealth import State


@pytest.mark.parametrize(
    ("suspicion", "counts"),
    [
        (slow(), True),
        (slow(minutes=5), True),
        (slow(minutes=4.9), False),
        (slow(slowdown=1.05), True),
        (slow(slowdown=1.04), False),
        (slow(seen=2), True),
        (slow(seen=2.1), False),
        (slow(minutes=6, seen=1.5), False),
    ],
)
def test_evidence_is_sufficient_lasting_and_current_slowness(suspicion: Suspicion, counts: bool) -> None:
    assert evidence.is_evidence(suspicion, policy().spec.detection, NOW) is counts
    facts = replace(BUSY, suspicions=(suspicion,))
    assert (after(health("Unverified"), facts).state is State.SUSPECT) is counts


def test_node_without_a_connected_agent_gets_no_evidence() -> None:
    unheard = replace(BUSY, node=replace(NODE, agent_connected=False), suspicions=(slow(),))
    found = after(health("Qualified", qualifiedUntil=text(NOW + HOUR)), unheard)
    assert (found.state, found.evidence, found.silent_since) == (State.QUALIFIED, [], NOW)


@pytest.mark.parametrize(
    ("known", "facts", "state"),
    [
        ([online()], BUSY, State.SUSPECT),
        ([swept()], BUSY, State.SUSPECT),
        ([online(), swept()], BUSY, State.QUARANTINED),
        ([online(forgiven=100.0), swept()], BUSY, State.SUSPECT),
        ([swept("a"), swept("b")], BUSY, State.QUARANTINED),
        ([online(), swept()], replace(BUSY, node=replace(NODE, agent_connected=False)), State.SUSPECT),
        ([], replace(BUSY, suspicions=(slow(loss=599.0),)), State.SUSPECT),
        ([], replace(BUSY, suspicions=(slow(loss=600.0),)), State.QUARANTINED),
        ([], replace(BUSY, suspicions=(slow(loss=599.0),), swap_cost=500.0), State.QUARANTINED),
        ([], replace(BUSY, suspicions=(slow(loss=9e9, minutes=4),)), State.SUSPECT),
    ],
)
def test_two_kinds_of_evidence_or_the_cost_of_a_swap_confirm(
    known: list[Any], facts: HardwareFacts, state: State
) -> None:
    assert after(health("Suspect", evidence=known), facts).state is state


LOSING = replace(BUSY, suspicions=(slow(minutes=60, loss=300.0),))
"""Facts of a node whose job has lost 300 GPU-seconds in 60 minutes: 5 GPU-seconds a minute."""
CLEAN = {"swept": text(NOW), "internal": {"cleanSince": text(NOW - 25 * HOUR)}}
WAITING = [
    ("Quarantined", {}, replace(LOSING, unsaved=25.0), timedelta(minutes=5), State.DRAINING),
    ("Quarantined", {}, replace(LOSING, unsaved=26.0), timedelta(minutes=5), State.QUARANTINED),
    ("Quarantined", {}, BUSY, timedelta(minutes=9), State.QUARANTINED),
    ("Quarantined", {}, BUSY, timedelta(minutes=10), State.DRAINING),
    ("Quarantined", {}, replace(BUSY, saved=NOW), timedelta(minutes=1), State.DRAINING),
    ("Quarantined", {}, replace(BUSY, saved=NOW - HOUR), timedelta(minutes=1), State.QUARANTINED),
    ("Quarantined", {}, IDLE, timedelta(minutes=1), State.DRAINING),
    ("Draining", {}, BUSY, HOUR, State.DRAINING),
    ("Draining", {}, IDLE, HOUR, State.REPAIRING),
    ("Draining", {}, replace(BUSY, recovered=0.49), HOUR, State.UNVERIFIED),
    ("Draining", {}, replace(BUSY, recovered=0.5), HOUR, State.DRAINING),
    ("Draining", {"evidence": [swept()]}, replace(BUSY, recovered=0.1), HOUR, State.DRAINING),
    ("Draining", {"quarantines": [text(NOW - HOUR)] * 3}, IDLE, HOUR, State.CONDEMNED),
    ("Draining", {"quarantines": [text(NOW - 721 * HOUR)] * 3}, IDLE, HOUR, State.REPAIRING),
    ("Repairing", {}, IDLE, timedelta(minutes=59), State.REPAIRING),
    ("Repairing", {}, replace(IDLE, repaired=NOW), HOUR / 2, State.REQUALIFYING),
    ("Repairing", {}, replace(IDLE, repaired=NOW - HOUR), HOUR / 2, State.REPAIRING),
    ("Repairing", {}, HardwareFacts(replace(NODE, boot_id="c")), HOUR / 2, State.REPAIRING),
    (
        "Repairing",
        {"step": 1, "action": "Reboot"},
        HardwareFacts(replace(NODE, boot_id="c")),
        HOUR,
        State.REQUALIFYING,
    ),
    ("Repairing", {"step": 1, "action": "Reboot"}, IDLE, 2 * HOUR, State.CONDEMNED),
    ("Probation", {}, IDLE, 23 * HOUR, State.PROBATION),
    ("Probation", {}, IDLE, 24 * HOUR, State.UNVERIFIED),
    ("Probation", {"qualifiedUntil": text(NOW + HOUR)}, IDLE, 24 * HOUR, State.QUALIFIED),
    ("Suspect", {"swept": text(NOW)}, IDLE, 24 * HOUR, State.UNVERIFIED),
    (
        "Suspect",
        {"swept": text(NOW)},
        HardwareFacts(replace(NODE, agent_connected=False)),
        24 * HOUR,
        State.SUSPECT,
    ),
    ("Suspect", {"swept": text(NOW), "evidence": [swept()]}, IDLE, 24 * HOUR, State.SUSPECT),
    (
        "Suspect",
        {"swept": text(NOW), "internal": {"cleanSince": text(NOW - HOUR)}},
        IDLE,
        48 * HOUR,
        State.SUSPECT,
    ),
    ("Suspect", {**CLEAN, "silentSince": text(NOW - 24 * HOUR)}, IDLE, 48 * HOUR, State.SUSPECT),
    ("Suspect", {**CLEAN, "silentSince": text(NOW - HOUR / 2)}, IDLE, 48 * HOUR, State.UNVERIFIED),
    ("Qualified", {"qualifiedUntil": text(NOW)}, IDLE, HOUR, State.UNVERIFIED),
    ("Qualified", {"qualifiedUntil": text(NOW + HOUR)}, IDLE, HOUR, State.QUALIFIED),
    ("Condemned", {}, IDLE, 999 * HOUR, State.CONDEMNED),
]


@pytest.mark.parametrize(("state", "more", "facts", "ago", "then"), WAITING)
def test_event_that_ends_each_state(
    state: str, more: dict[str, Any], facts: HardwareFacts, ago: timedelta, then: State
) -> None:
    if state == "Repairing":
        more = {"repair": {"step": 0, "action": "Reset", "since": text(NOW - ago), **more}}
        more["nodeRef"] = {"name": "n", "bootId": "b"}
    assert after(health(state, ago, **more), facts).state is then


def test_outcome_is_decided_once_and_expires_after_hours() -> None:
    two_hours = health("Draining", 2 * HOUR)
    late = after(two_hours, replace(BUSY, recovered=0.1))
    assert (late.state, late.actions[-1].outcome) == (State.DRAINING, "Unknown")
    again = two_hours.model_copy(update={"status": late})
    assert after(again, replace(BUSY, recovered=0.9)).actions[-1].outcome == "Unknown"


def test_wrongly_accused_node_in_repair_is_retested() -> None:
    repair = {"step": 0, "action": "Reset", "since": text(NOW - HOUR / 2)}
    stored = health("Repairing", HOUR / 2, repair=repair, quarantines=[text(NOW - HOUR)], evidence=[online()])
    found = after(stored, replace(IDLE, recovered=0.0))
    assert (found.state, found.quarantines, found.lemon_score) == (State.REQUALIFYING, [], 0.0)
    assert found.evidence == []


def test_new_node_name_does_not_restart_a_state() -> None:
    known = {
        "nodeRef": {"name": "old", "uid": "o", "bootId": "a"},
        "sweep": {"name": "hw-1", "cause": "Suspected", "since": text(NOW)},
    }
    found = after(health("Suspect", 3 * HOUR, evidence=[online()], **known), BUSY)
    assert (found.node_ref.name, found.since, found.sweep is not None) == ("n", NOW - 3 * HOUR, True)


def test_a_history_is_bounded() -> None:
    turns = [{"at": text(NOW), "before": "Gated", "after": "Gated", "reason": str(n)} for n in range(32)]
    facts = replace(BUSY, suspicions=(slow(),))
    found = after(health("Unverified", history=turns), facts)
    assert (len(found.history), found.history[0].reason, found.history[-1].after) == (32, "1", State.SUSPECT)


def test_node_under_test_gets_no_pods() -> None:
    status = health("Suspect", sweep={"name": "hw-1", "cause": "Suspected", "since": text(NOW)}).status
    assert wanted.marks(status, policy()).taints == {
        "convoy.dev/suspect": "PreferNoSchedule",
        "convoy.dev/unqualified": "NoSchedule",
    }
