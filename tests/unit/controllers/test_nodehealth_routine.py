"""Tests of routine sweeps."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from convoy_controllers.nodehealth.fleet import FleetPlan, decide
from convoy_controllers.nodehealth.observed import Fleet, HardwareFacts, Member, NodeFacts
from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.nodehealth import NodeHealth, NodeHealthStatus, SweepCause

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
SPEC = {"mode": "Act", "sweeps": {"atOncePercent": 100, "timePercent": 100}}


def text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def node(name: str, **facts: Any) -> HardwareFacts:
    return HardwareFacts(replace(NodeFacts(name, name, NOW - 9 * DAY, boot_id="b"), **facts))


def member(name: str, facts: HardwareFacts | None = None, **status: Any) -> Member:
    stored = {
        "state": "Unverified",
        "since": text(NOW - DAY),
        "internal": {"cleanSince": text(NOW - DAY)},
        **status,
    }
    health = NodeHealth.model_validate({"metadata": {"name": name}, "status": stored})
    return Member(health, facts or node(name))


def decided(*members: Member, spec: dict[str, Any] | None = None) -> FleetPlan:
    policy = GuardPolicy.model_validate({"metadata": {"name": "p"}, "spec": spec or SPEC})
    return decide(Fleet(policy, members), NOW)


def swept(plan: FleetPlan) -> set[str]:
    begun = {name: one.sweep for name, one in plan.statuses.items() if one.sweep is not None}
    assert all(one.cause is SweepCause.ROUTINE for one in begun.values())
    return set(begun)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (member("a"), True),
        (member("a", node("a", pods=1, jobs=("ns/j",))), False),
        (member("a", node("a", agent_connected=False)), False),
        (member("a", node("a", schedulable=False)), False),
        (member("a", swept=text(NOW - 6 * DAY)), False),
        (member("a", swept=text(NOW - 7 * DAY)), True),
        (member("a", state="Qualified", qualifiedUntil=text(NOW + DAY)), True),
        (member("a", state="Qualified", qualifiedUntil=text(NOW + DAY), swept=text(NOW - 7 * DAY)), False),
        (member("a", state="Qualified", qualifiedUntil=text(NOW + DAY), swept=text(NOW - 40 * DAY)), True),
        (member("a", state="Probation"), False),
        (member("a", state="Condemned"), False),
    ],
)
def test_idle_nodes_in_service_are_swept_if_worth_the_time(one: Member, expected: bool) -> None:
    assert swept(decided(one, member("spare", swept=text(NOW)))) == ({"a"} if expected else set())


def test_policy_decides_on_routine_sweeps() -> None:
    none = {"mode": "Act", "sweeps": {"timePercent": 0}}
    for spec in ({"mode": "Act"}, none, {**SPEC, "mode": "Observe"}):
        assert swept(decided(member("a"), member("b"), spec=spec)) == set()


def test_all_sweeps_of_a_day_count_against_the_time_budget() -> None:
    """The budget is 1 % of the nodes' time. It permits five sweeps of ten minutes a day on four nodes, two
    on two nodes.
    """
    spec = {"mode": "Act", "sweeps": {"atOncePercent": 100, "timePercent": 1}}
    busy = member("busy", node("busy", pods=1, jobs=("ns/j",)), swept=text(NOW - 2 * DAY))
    fresh, done = member("n"), [member(f"d{at}", swept=text(NOW - DAY / 2)) for at in range(3)]
    assert swept(decided(fresh, *done, spec=spec)) == {"n"}
    few = {"mode": "Act", "sweeps": {"atOncePercent": 100, "timePercent": 1}}
    # Hardware without a node adds no time. So two nodes permit two sweeps, and both were done today.
    away = [Member(member(f"a{at}").health, HardwareFacts()) for at in range(6)]
    lemon = member("n", swept=text(NOW - 0.95 * DAY), quarantines=[text(NOW - DAY)] * 16)
    assert swept(decided(lemon, done[0], *away, spec=few)) == set()
    assert swept(decided(lemon, done[0], busy, spec=few)) == {"n"}


def test_reserved_spares_are_not_swept_and_not_refused() -> None:
    plan = decided(member("a"), member("b"))
    assert swept(plan) == {"a"} and not plan.refused, "the last one is left alone"
    # The limit also holds in the next reconcile, while the first sweep is running.
    under = {"sweep": {"name": "a-1", "cause": "Routine", "since": text(NOW)}}
    assert not decided(member("a", **under), member("b")).statuses.get("b", NodeHealthStatus()).sweep
    spec = {**SPEC, "budgets": {"reservedSpares": 2}}
    assert len(swept(decided(*(member(f"n{at}") for at in range(5)), spec=spec))) == 3
    few = {"mode": "Act", "sweeps": {"timePercent": 100}}
    plan = decided(*(member(f"n{at}") for at in range(20)), spec=few)
    assert len(swept(plan)) == 1 and not plan.refused, "5 % at once"


def test_routine_sweeps_do_not_delay_other_sweeps() -> None:
    spec = {"mode": "Act", "sweeps": {"timePercent": 100}}
    back = member("back", state="Requalifying")

    def causes(*others: Member) -> dict[str, SweepCause]:
        plan = decided(*others, back, spec=spec)
        return {name: one.sweep.cause for name, one in plan.statuses.items() if one.sweep is not None}

    assert causes(member("a"), member("b")) == {"back": SweepCause.RETURNING}
    under = member("a", sweep={"name": "a-1", "cause": "Routine", "since": text(NOW)})
    assert causes(under, member("b"))["back"] is SweepCause.RETURNING


def test_node_with_the_highest_risk_is_swept_first() -> None:
    nodes = [member("a"), member("lemon", quarantines=[text(NOW - DAY)] * 3), member("z")]
    assert swept(decided(*nodes, spec={"mode": "Act", "sweeps": {"timePercent": 100}})) == {"lemon"}


def test_wrong_accusation_does_not_raise_the_risk() -> None:
    change = {
        "at": text(NOW - 2 * DAY),
        "before": "Unverified",
        "after": "Suspect",
        "reason": "SlowerThanPeers",
    }
    again = [{**change, "before": "Suspect", "reason": "SweepPassed"}] * 3
    wrong = {"at": text(NOW - DAY), "outcome": "Wrong", "decided": text(NOW - DAY)}
    first = member("a", history=[change, *again])
    cleared = member("b", history=[change, *again], actions=[wrong])
    spec = {"mode": "Act", "sweeps": {"timePercent": 100}}
    assert swept(decided(cleared, first, member("z"), spec=spec)) == {"a"}
    assert swept(decided(cleared, member("z"), spec=spec)) == {"z"}, "two quiet days are a good sign"
