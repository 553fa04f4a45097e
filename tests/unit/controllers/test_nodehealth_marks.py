"""Tests of gates, exemptions, decisions of people, taints, and spare nodes."""

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
    SAID,
    after,
    health,
    online,
    policy,
    swept,
    text,
)

from convoy_controllers.nodehealth import binding, breaker, machine, manual, sweeping, wanted
from convoy_controllers.nodehealth.fleet import decide, unguarded
from convoy_controllers.nodehealth.machine import RequestKind
from convoy_controllers.nodehealth.observed import Fleet, HardwareFacts, Member
from convoy_crds.guardpolicy import BreakerStatus
from convoy_crds.nodehealth import NodeHealth, NodeRef, State, SweepCause


@pytest.mark.parametrize(
    ("created", "facts", "mode", "join", "state"),
    [
        (NOW - 10 * HOUR, IDLE, "Act", "Gate", State.GATED),
        (NOW, IDLE, "Act", "Gate", State.UNVERIFIED),
        (NOW - 10 * HOUR, BUSY, "Act", "Gate", State.UNVERIFIED),
        (NOW - 10 * HOUR, IDLE, "Act", "Accept", State.UNVERIFIED),
        (NOW - 10 * HOUR, IDLE, "Observe", "Gate", State.UNVERIFIED),
    ],
)
def test_only_joining_hardware_is_gated(
    created: datetime, facts: HardwareFacts, mode: str, join: str, state: State
) -> None:
    rules = policy(mode=mode, onJoin=join)
    rules.metadata.creation_timestamp = created
    fresh = NodeHealth.model_validate({"metadata": {"name": "hw"}})
    assert machine.next_status(Member(fresh, facts), rules, NOW).state is state
    gated = bool(wanted.marks_of_unknown(rules, facts).taints)
    assert gated is (state is State.GATED)


@pytest.mark.parametrize("before", [state.value for state in State if state is not State.EXEMPT])
def test_exemption_lasts_at_most_three_days(before: str) -> None:
    until = {"exempt": {**SAID, "until": text(NOW + 100 * HOUR)}}
    found = after(health(before, spec=until), BUSY)
    assert (found.state, found.internal.holds_token) == (State.EXEMPT, False)
    assert wanted.marks(found, policy()).taints == {}
    for hours, over in ((71, False), (72, True)):
        stored = health("Exempt", spec=until).model_copy(update={"status": found})
        then = machine.next_status(Member(stored, BUSY), policy(), NOW + hours * HOUR)
        assert (then.state is not State.EXEMPT) is over
        again = machine.next_status(
            Member(stored.model_copy(update={"status": then}), BUSY), policy(), NOW + 80 * HOUR
        )
        assert again.state is not State.EXEMPT
        assert again.state not in (State.QUARANTINED, State.DRAINING, State.REPAIRING)


@pytest.mark.parametrize(
    ("requested", "since", "condemned", "end"),
    [
        (24, -1, False, 24),
        (24, None, False, 24),
        (100, -10, False, 62),
        (100, None, False, 72),
        (100, -72, False, None),
        (0, -24, False, None),
        (0, None, False, None),
        (24, -1, True, None),
    ],
    ids=["noted", "not yet", "cut", "cut at once", "cut and over", "over", "over unseen", "condemned"],
)
def test_shown_end_of_an_exemption_is_the_applied_end(
    requested: int, since: int | None, condemned: bool, end: int | None
) -> None:
    """`exempted_until` returns the end of an exemption that people see. The node must be exempt only until
    this end. Parameters are hours relative to the present.
    """
    until = text(NOW + requested * HOUR)
    spec = {"exempt": {**SAID, "until": until}, **({"condemned": SAID} if condemned else {})}
    stored = health("Qualified", spec=spec)
    if since is not None:
        noted = {"since": text(NOW + since * HOUR), "until": until, "before": "Qualified"}
        stored = health("Exempt", spec=spec, exemption=noted)
    found = manual.exempted_until(stored.status, stored.spec, NOW)
    assert found == (None if end is None else NOW + end * HOUR)
    assert (after(stored, BUSY).state is State.EXEMPT) is (found is not None)


def test_manual_condemnation_lasts_until_revoked_then_node_is_retested() -> None:
    found = after(health("Qualified", spec={"condemned": SAID}), BUSY)
    assert (found.state, found.internal.condemned_by_hand) == (State.CONDEMNED, True)
    back = machine.next_status(
        Member(health("Condemned", internal={"condemnedByHand": True}), IDLE), policy(), NOW
    )
    assert (back.state, back.internal.condemned_by_hand) == (State.REQUALIFYING, False)


@pytest.mark.parametrize("before", ["Condemned", "Quarantined", "Repairing", "Suspect", "Gated", "Probation"])
def test_release_acts_once_and_clears_evidence(before: str) -> None:
    spec = {"release": {**SAID, "at": text(NOW)}}
    stored = health(before, spec=spec, evidence=[online(), swept()], quarantines=[text(NOW)] * 2, failures=1)
    found = after(stored, BUSY)
    assert (found.state, found.evidence, found.quarantines, found.failures) == (State.PROBATION, [], [], 0)
    again = stored.model_copy(update={"status": found.model_copy(update={"state": State.CONDEMNED})})
    assert after(again, BUSY).state is State.CONDEMNED


OTHERS = {"key": "x/y", "effect": "NoExecute", "value": "z"}


@pytest.mark.parametrize(
    ("keys", "state", "then"),
    [
        ([], "Qualified", None),
        (["suspect"], "Suspect", None),
        ([], "Suspect", ["suspect:PreferNoSchedule"]),
        (["quarantined"], "Qualified", []),
        (["suspect", "unqualified"], "Draining", ["quarantined:NoSchedule"]),
        (["quarantined", "quarantined"], "Condemned", ["quarantined:NoSchedule"]),
    ],
)
def test_only_convoys_own_taints_are_changed(keys: list[str], state: str, then: list[str] | None) -> None:
    effect = {"suspect": "PreferNoSchedule"}
    current = [
        OTHERS,
        *({"key": f"convoy.dev/{key}", "effect": effect.get(key, "NoSchedule")} for key in keys),
    ]
    found = wanted.retainted(current, wanted.marks(health(state).status, policy()), NOW)
    if then is None or found is None:
        assert found is then
        return
    assert found[0] == OTHERS
    assert [f"{one['key'].partition('/')[2]}:{one['effect']}" for one in found[1:]] == then


@pytest.mark.parametrize("state", list(State))
def test_no_taint_without_a_policy_in_act_mode(state: State) -> None:
    status = health(state).status
    assert wanted.marks(status, None).taints == wanted.marks(status, policy(mode="Observe")).taints == {}


@pytest.mark.parametrize(
    "state", ["Quarantined", "Draining", "Repairing", "Requalifying", "Gated", "Sweeping"]
)
def test_deleted_policy_releases_its_nodes(state: str) -> None:
    found = unguarded(Member(health(state, evidence=[online()]), BUSY), NOW)
    assert found is not None
    assert found.state in (State.SUSPECT, State.UNVERIFIED)
    assert not found.internal.holds_token and found.sweep is None


def test_shared_hardware_belongs_to_the_node_with_a_connected_agent() -> None:
    old = binding.ReportedNode(NODE.name, NODE.uid, NODE.created, agent_connected=True)
    young = replace(old, name="m", uid="v", created=NOW)
    silent = replace(old, agent_connected=False)
    ref = NodeRef(name="n", uid="u")
    assert binding.chosen(ref, [old, young]) == old
    assert binding.chosen(ref, [silent, young]) == young
    assert binding.chosen(NodeRef(), [old, young]) == young
    assert binding.chosen(ref, [silent]) == silent
    assert binding.chosen(ref, []) is None


@pytest.mark.parametrize(
    ("spares", "reserved", "drained"), [(2, 1, True), (1, 1, False), (1, 0, True), (0, 0, False)]
)
def test_reserved_spares_remain(spares: int, reserved: int, drained: bool) -> None:
    idle = [NodeHealth.model_validate({"metadata": {"name": f"s{i}"}}) for i in range(spares)]
    late = health("Quarantined")
    members = (
        Member(late, BUSY),
        *(Member(one, HardwareFacts(replace(NODE, name=one.metadata.name))) for one in idle),
    )
    plan = decide(Fleet(policy(budgets={"reservedSpares": reserved}), members), NOW)
    assert (plan.statuses["hw"].state is State.DRAINING) is drained
    assert plan.refused.get("hw") is None or plan.refused["hw"].reason.name == "SparesBudget"


def test_reconcile_without_a_change_writes_nothing() -> None:
    member = Member(health("Qualified", qualifiedUntil=text(NOW + HOUR)), BUSY)
    rules = policy()
    first = decide(Fleet(rules, (member,)), NOW)
    stored = member.health.model_copy(update={"status": first.statuses["hw"]})
    again = rules.model_copy(update={"status": first.policy})
    second = decide(Fleet(again, (Member(stored, BUSY),)), NOW + timedelta(seconds=15))
    assert (second.policy, second.statuses) == (None, {})


def test_blocked_action_names_the_limiting_budget() -> None:
    members = (
        Member(health("Quarantined"), BUSY),
        Member(health("Draining").model_copy(update={"metadata": health("Draining").metadata.model_copy(
            update={"name": "other"})}), BUSY),
    )  # fmt: skip
    plan = decide(Fleet(policy(), members), NOW)
    found = plan.statuses["hw"]
    (acting,) = (one for one in found.conditions if one.type == "Acting")
    assert (found.state, acting.status, acting.reason) == (State.QUARANTINED, "False", "PoolBudget")
    assert acting.message == (
        f"{RequestKind.DRAIN} is waiting: 1 nodes are being drained or repaired, the limit is 1"
        " (spec.budgets.poolPercent)"
    )


def test_node_that_failed_before_joining_is_not_swept_again() -> None:
    found = health("Gated", evidence=[swept()]).status
    assert sweeping.needed_sweep(found, IDLE, policy(onJoin="Gate"), NOW) is None
    assert (
        sweeping.needed_sweep(health("Gated").status, IDLE, policy(onJoin="Gate"), NOW) is SweepCause.JOINED
    )


@pytest.mark.parametrize(
    ("state", "trial", "known", "admitted"),
    [
        ("Closed", "", [], True),
        ("Open", "", [swept()], False),
        ("HalfOpen", "", [swept()], True),
        ("HalfOpen", "", [online()], False),
        ("HalfOpen", "hw", [swept()], True),
        ("HalfOpen", "other", [swept()], False),
    ],
)
def test_half_open_breaker_admits_one_trial(state: str, trial: str, known: list[Any], admitted: bool) -> None:
    stored = BreakerStatus.model_validate({"state": state, "trial": trial})
    assert breaker.admits(stored, "hw", health("Suspect", evidence=known).status) is admitted


def test_each_drain_uses_one_of_the_remaining_spares() -> None:
    def node(name: str, *jobs: str) -> HardwareFacts:
        return HardwareFacts(replace(NODE, name=name, rack=name, pods=len(jobs), jobs=jobs))

    late = health("Quarantined").to_dict()
    moved = [NodeHealth.model_validate({**late, "metadata": {"name": name}}) for name in ("a", "b")]
    idle = [NodeHealth.model_validate({"metadata": {"name": name}}) for name in ("s", "t")]
    members = (
        *(Member(one, node(one.metadata.name, one.metadata.name)) for one in moved),
        *(Member(one, node(one.metadata.name)) for one in idle),
    )
    budgets = {"reservedSpares": 1, "poolPercent": 100, "fleetPercentPerHour": 100}
    plan = decide(Fleet(policy(budgets=budgets), members), NOW)
    assert [plan.statuses[name].state for name in ("a", "b")] == [State.DRAINING, State.QUARANTINED]
    assert plan.refused["b"].reason.name == "SparesBudget"
