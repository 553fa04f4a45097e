"""One node's health: evidence, what each state waits for, what people may say, what a Node shows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from convoy_controllers.nodehealth import binding, breaker, evidence, machine, people, sweeping, wanted
from convoy_controllers.nodehealth.fleet import look, unguarded
from convoy_controllers.nodehealth.machine import Want
from convoy_controllers.nodehealth.observed import Facts, Fleet, Member, NodeFacts, Suspicion, SweepResult
from convoy_crds.guardpolicy import BreakerStatus, GuardPolicy
from convoy_crds.nodehealth import NodeHealth, NodeHealthStatus, NodeRef, State, SweepCause, Verdict

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NODE = NodeFacts("n", "u", NOW - 9 * HOUR, rack="r", boot_id="b")
IDLE = Facts(NODE)
BUSY = Facts(replace(NODE, pods=2, jobs=("ns/j",)))
LADDER = [{"action": "Reset", "timeout": "1h"}, {"action": "Reboot", "owner": "machines", "timeout": "2h"}]
SAID = {"reason": "a drill", "user": "ops"}


def text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def policy(**spec: Any) -> GuardPolicy:
    body = {"mode": "Act", "sweeps": {"timePercent": 0}, "repair": {"ladder": LADDER}, **spec}
    return GuardPolicy.model_validate({"metadata": {"name": "p"}, "spec": body})


def health(state: str, ago: timedelta = HOUR, said: Any = None, **status: Any) -> NodeHealth:
    stored = {"state": state, "since": text(NOW - ago), "cleanSince": text(NOW - ago), **status}
    if state in ("Draining", "Repairing"):
        stored = {"holdsToken": True, "actions": [{"at": text(NOW - ago), "jobs": ["ns/j"]}], **stored}
    return NodeHealth.model_validate({"metadata": {"name": "hw"}, "spec": said or {}, "status": stored})


def after(found: NodeHealth, facts: Facts = IDLE, rules: GuardPolicy | None = None) -> NodeHealthStatus:
    """The status after one look at a fleet of this node and an idle one."""
    stored = {"state": "Unverified", "since": text(NOW - HOUR)}
    spare = NodeHealth.model_validate({"metadata": {"name": "spare"}, "status": stored})
    idle = Member(spare, Facts(replace(NODE, name="spare", uid="spare")))
    plan = look(Fleet(rules or policy(), (Member(found, facts), idle)), NOW)
    return plan.statuses.get("hw", found.status)


def slow(minutes: float = 10, slowdown: float = 1.3, loss: float = 100.0, seen: float = 0) -> Suspicion:
    return Suspicion(
        "ns/j", NOW - timedelta(minutes=minutes), NOW - timedelta(minutes=seen), slowdown, loss, "Compute"
    )


def online(loss: float = 100.0, forgiven: float = 0.0) -> dict[str, Any]:
    times = {"since": text(NOW - HOUR), "seen": text(NOW - HOUR)}
    return {"kind": "Online", "source": "ns/j", "loss": loss, "forgiven": forgiven, **times}


def swept(name: str = "hw-1") -> dict[str, Any]:
    return {"kind": "Sweep", "source": name, "since": text(NOW - HOUR), "seen": text(NOW - HOUR)}


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
def test_what_is_slow_enough_for_long_enough_and_still_so_is_evidence(
    suspicion: Suspicion, counts: bool
) -> None:
    assert evidence.counts(suspicion, policy().spec.detection, NOW) is counts
    facts = replace(BUSY, suspicions=(suspicion,))
    assert (after(health("Unverified"), facts).state is State.SUSPECT) is counts


def test_nothing_is_believed_of_a_node_that_is_not_heard() -> None:
    unheard = replace(BUSY, node=replace(NODE, telemetry=False), suspicions=(slow(),))
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
        ([online(), swept()], replace(BUSY, node=replace(NODE, telemetry=False)), State.SUSPECT),
        ([], replace(BUSY, suspicions=(slow(loss=599.0),)), State.SUSPECT),
        ([], replace(BUSY, suspicions=(slow(loss=600.0),)), State.QUARANTINED),
        ([], replace(BUSY, suspicions=(slow(loss=599.0),), move_cost=500.0), State.QUARANTINED),
        ([], replace(BUSY, suspicions=(slow(loss=9e9, minutes=4),)), State.SUSPECT),
    ],
)
def test_two_kinds_confirm_or_a_loss_that_moving_would_have_cost(
    known: list[Any], facts: Facts, state: State
) -> None:
    assert after(health("Suspect", evidence=known), facts).state is state


LOSING = replace(BUSY, suspicions=(slow(minutes=60, loss=300.0),))
"""5 GPU-seconds a minute."""
CLEAN = {"swept": text(NOW), "cleanSince": text(NOW - 25 * HOUR)}
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
    ("Repairing", {}, Facts(replace(NODE, boot_id="c")), HOUR / 2, State.REPAIRING),
    (
        "Repairing",
        {"step": 1, "action": "Reboot"},
        Facts(replace(NODE, boot_id="c")),
        HOUR,
        State.REQUALIFYING,
    ),
    ("Repairing", {"step": 1, "action": "Reboot"}, IDLE, 2 * HOUR, State.CONDEMNED),
    ("Probation", {}, IDLE, 23 * HOUR, State.PROBATION),
    ("Probation", {}, IDLE, 24 * HOUR, State.UNVERIFIED),
    ("Probation", {"qualifiedUntil": text(NOW + HOUR)}, IDLE, 24 * HOUR, State.QUALIFIED),
    ("Suspect", {"swept": text(NOW)}, IDLE, 24 * HOUR, State.UNVERIFIED),
    ("Suspect", {"swept": text(NOW)}, Facts(replace(NODE, telemetry=False)), 24 * HOUR, State.SUSPECT),
    ("Suspect", {"swept": text(NOW), "evidence": [swept()]}, IDLE, 24 * HOUR, State.SUSPECT),
    ("Suspect", {"swept": text(NOW), "cleanSince": text(NOW - HOUR)}, IDLE, 48 * HOUR, State.SUSPECT),
    ("Suspect", {**CLEAN, "silentSince": text(NOW - 24 * HOUR)}, IDLE, 48 * HOUR, State.SUSPECT),
    ("Suspect", {**CLEAN, "silentSince": text(NOW - HOUR / 2)}, IDLE, 48 * HOUR, State.UNVERIFIED),
    ("Qualified", {"qualifiedUntil": text(NOW)}, IDLE, HOUR, State.UNVERIFIED),
    ("Qualified", {"qualifiedUntil": text(NOW + HOUR)}, IDLE, HOUR, State.QUALIFIED),
    ("Condemned", {}, IDLE, 999 * HOUR, State.CONDEMNED),
]


@pytest.mark.parametrize(("state", "more", "facts", "ago", "then"), WAITING)
def test_what_a_state_waits_for(
    state: str, more: dict[str, Any], facts: Facts, ago: timedelta, then: State
) -> None:
    if state == "Repairing":
        more = {"repair": {"step": 0, "action": "Reset", "since": text(NOW - ago), **more}}
        more["nodeRef"] = {"name": "n", "bootId": "b"}
    assert after(health(state, ago, **more), facts).state is then


def test_an_outcome_is_decided_once_and_not_guessed_after_hours() -> None:
    two_hours = health("Draining", 2 * HOUR)
    late = after(two_hours, replace(BUSY, recovered=0.1))
    assert (late.state, late.actions[-1].outcome) == (State.DRAINING, "Unknown")
    again = two_hours.model_copy(update={"status": late})
    assert after(again, replace(BUSY, recovered=0.9)).actions[-1].outcome == "Unknown"


def test_who_is_wrongly_accused_amid_a_repair_is_retested() -> None:
    repair = {"step": 0, "action": "Reset", "since": text(NOW - HOUR / 2)}
    stored = health("Repairing", HOUR / 2, repair=repair, quarantines=[text(NOW - HOUR)], evidence=[online()])
    found = after(stored, replace(IDLE, recovered=0.0))
    assert (found.state, found.quarantines, found.lemon_score) == (State.REQUALIFYING, [], 0.0)
    assert found.evidence == []


def test_a_new_name_does_not_make_time_begin_again() -> None:
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


def test_a_node_under_test_takes_no_pods() -> None:
    status = health("Suspect", sweep={"name": "hw-1", "cause": "Suspected", "since": text(NOW)}).status
    assert wanted.marks(status, policy()).taints == {
        "convoy.dev/suspect": "PreferNoSchedule",
        "convoy.dev/unqualified": "NoSchedule",
    }


SWEPT = {"swept": text(NOW - HOUR), "evidence": [swept()]}


@pytest.mark.parametrize(
    ("state", "more", "facts", "begins"),
    [
        ("Gated", {}, IDLE, True),
        ("Gated", {}, BUSY, False),
        ("Gated", {}, Facts(replace(NODE, telemetry=False)), False),
        ("Gated", {}, Facts(), False),
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
        ("Suspect", {**SWEPT, "inconclusive": 2}, IDLE, False),
        ("Condemned", {}, IDLE, False),
        ("Unverified", {}, IDLE, False),
    ],
)
def test_when_a_sweep_begins(state: str, more: dict[str, Any], facts: Facts, begins: bool) -> None:
    found = after(health(state, **more), facts, policy(onJoin="Gate"))
    assert (found.sweep is not None) is begins
    assert found.sweeps == int(begins)


def test_a_step_that_is_not_done_in_time_gives_way_to_the_next() -> None:
    repair = {"step": 0, "action": "Reset", "owner": "x", "since": text(NOW - HOUR)}
    found = after(health("Repairing", repair=repair))
    assert (found.state, found.repair.step, found.repair.action, found.repair.owner) == (
        State.REPAIRING, 1, "Reboot", "machines",
    )  # fmt: skip
    assert (found.repair.since, found.holds_token) == (NOW, True)


SWEEP = {"sweep": {"name": "hw-1", "cause": "Suspected", "since": text(NOW - HOUR / 2)}}
VERDICTS = [
    ("Sweeping", {}, Verdict.PASS, State.QUALIFIED),
    ("Sweeping", {}, Verdict.FAIL, State.QUARANTINED),
    ("Sweeping", {"qualifiedUntil": text(NOW - HOUR)}, Verdict.FAIL, State.SUSPECT),
    ("Sweeping", {"inconclusive": 1}, Verdict.INCONCLUSIVE, State.SUSPECT),
    ("Sweeping", {}, None, State.SWEEPING),
    ("Suspect", {"evidence": [online()]}, Verdict.PASS, State.SUSPECT),
    ("Suspect", {"evidence": [online()]}, Verdict.FAIL, State.QUARANTINED),
    ("Suspect", {}, Verdict.FAIL, State.SUSPECT),
    ("Requalifying", {}, Verdict.PASS, State.PROBATION),
    ("Requalifying", {"failures": 1}, Verdict.FAIL, State.CONDEMNED),
    ("Requalifying", {"inconclusive": 1}, Verdict.INCONCLUSIVE, State.SUSPECT),
    (
        "Requalifying",
        {"inconclusive": 1, "evidence": [online(), swept()]},
        Verdict.INCONCLUSIVE,
        State.SUSPECT,
    ),
]


@pytest.mark.parametrize(("state", "more", "verdict", "then"), VERDICTS)
def test_what_a_verdict_does(state: str, more: dict[str, Any], verdict: Verdict | None, then: State) -> None:
    result = (
        SweepResult("hw-1", NOW, verdict) if verdict else SweepResult("hw-0", NOW - 2 * HOUR, Verdict.FAIL)
    )
    found = after(health(state, **SWEEP, **more), replace(IDLE, sweep=result), policy(onJoin="Gate"))
    assert found.state is then
    if verdict is Verdict.PASS:
        assert found.qualified_until == NOW + timedelta(hours=336)
        assert not evidence.standing(found.evidence)


@pytest.mark.parametrize(
    ("begun", "then"), [(NOW - 2 * HOUR, State.UNVERIFIED), (NOW - HOUR / 2, State.QUALIFIED)]
)
def test_what_people_have_swept_counts_as_of_when_it_was_begun(begun: datetime, then: State) -> None:
    said = SweepResult("all", NOW, Verdict.PASS, since=begun)
    assert after(health("Unverified"), replace(IDLE, sweep=said), policy()).state is then


@pytest.mark.parametrize("state", ["Unverified", "Qualified", "Suspect"])
def test_what_people_have_swept_counts_while_another_sweep_is_awaited(state: str) -> None:
    waiting = {"sweep": {"name": "hw-1", "cause": "Routine", "since": text(NOW - HOUR / 4)}}
    said = SweepResult("all", NOW, Verdict.FAIL, since=NOW - HOUR / 2)
    found = after(health(state, **waiting), replace(IDLE, sweep=said), policy())
    assert (found.state, evidence.failures(found.evidence)) == (State.SUSPECT, 1)


def test_a_routine_sweep_that_cannot_tell_changes_nothing() -> None:
    waiting = {"sweep": {"name": "hw-1", "cause": "Routine", "since": text(NOW - HOUR / 4)}}
    before = health("Unverified", inconclusive=1, **waiting)
    found = after(before, replace(IDLE, sweep=SweepResult("hw-1", NOW, Verdict.INCONCLUSIVE)))
    assert (found.state, found.since, found.inconclusive) == (State.UNVERIFIED, NOW - HOUR, 1)
    assert (found.sweep, found.swept, found.history) == (None, NOW, [])


def test_a_failed_retest_goes_one_step_up_the_ladder() -> None:
    found = health("Requalifying", **SWEEP)
    result = replace(IDLE, sweep=SweepResult("hw-1", NOW, Verdict.FAIL))
    noted = machine.noted(Member(found, result), policy(), NOW)
    assert (noted.state, noted.failures, noted.repair.step) == (State.QUARANTINED, 1, 1)
    assert noted.quarantines == []


def test_a_sweep_that_is_never_heard_of_again_is_inconclusive() -> None:
    late = {"sweep": {"name": "hw-1", "cause": "Suspected", "since": text(NOW - timedelta(minutes=51))}}
    found = machine.noted(Member(health("Sweeping", **late), IDLE), policy(onJoin="Gate"), NOW)
    assert (found.state, found.sweep, found.inconclusive) == (State.GATED, None, 1)


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
def test_only_hardware_that_joins_is_gated(
    created: datetime, facts: Facts, mode: str, join: str, state: State
) -> None:
    rules = policy(mode=mode, onJoin=join)
    rules.metadata.creation_timestamp = created
    fresh = NodeHealth.model_validate({"metadata": {"name": "hw"}})
    assert machine.noted(Member(fresh, facts), rules, NOW).state is state
    gated = bool(wanted.marks_of_unknown(rules, facts).taints)
    assert gated is (state is State.GATED)


@pytest.mark.parametrize("before", [state.value for state in State if state is not State.EXEMPT])
def test_exempt_nodes_are_left_alone_for_three_days_at_most(before: str) -> None:
    until = {"exempt": {**SAID, "until": text(NOW + 100 * HOUR)}}
    found = after(health(before, said=until), BUSY)
    assert (found.state, found.holds_token) == (State.EXEMPT, False)
    assert wanted.marks(found, policy()).taints == {}
    for hours, over in ((71, False), (72, True)):
        stored = health("Exempt", said=until).model_copy(update={"status": found})
        then = machine.noted(Member(stored, BUSY), policy(), NOW + hours * HOUR)
        assert (then.state is not State.EXEMPT) is over
        again = machine.noted(
            Member(stored.model_copy(update={"status": then}), BUSY), policy(), NOW + 80 * HOUR
        )
        assert again.state is not State.EXEMPT
        assert again.state not in (State.QUARANTINED, State.DRAINING, State.REPAIRING)


@pytest.mark.parametrize(
    ("asked", "since", "condemned", "end"),
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
def test_an_exemption_that_holds_has_an_end(
    asked: int, since: int | None, condemned: bool, end: int | None
) -> None:
    """Told is what is done: hours from now."""
    until = text(NOW + asked * HOUR)
    said = {"exempt": {**SAID, "until": until}, **({"condemned": SAID} if condemned else {})}
    stored = health("Qualified", said=said)
    if since is not None:
        noted = {"since": text(NOW + since * HOUR), "until": until, "before": "Qualified"}
        stored = health("Exempt", said=said, exemption=noted)
    found = people.left_alone_until(stored.status, stored.spec, NOW)
    assert found == (None if end is None else NOW + end * HOUR)
    assert (after(stored, BUSY).state is State.EXEMPT) is (found is not None)


def test_condemned_by_hand_until_it_is_taken_back_then_retested() -> None:
    found = after(health("Qualified", said={"condemned": SAID}), BUSY)
    assert (found.state, found.condemned_by_hand) == (State.CONDEMNED, True)
    back = machine.noted(Member(health("Condemned", condemnedByHand=True), IDLE), policy(), NOW)
    assert (back.state, back.condemned_by_hand) == (State.REQUALIFYING, False)


@pytest.mark.parametrize("before", ["Condemned", "Quarantined", "Repairing", "Suspect", "Gated", "Probation"])
def test_a_release_acts_once_and_forgets(before: str) -> None:
    said = {"release": {**SAID, "at": text(NOW)}}
    stored = health(before, said=said, evidence=[online(), swept()], quarantines=[text(NOW)] * 2, failures=1)
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
def test_taints_are_ours_alone(keys: list[str], state: str, then: list[str] | None) -> None:
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
def test_no_taint_without_a_policy_that_acts(state: State) -> None:
    status = health(state).status
    assert wanted.marks(status, None).taints == wanted.marks(status, policy(mode="Observe")).taints == {}


@pytest.mark.parametrize(
    "state", ["Quarantined", "Draining", "Repairing", "Requalifying", "Gated", "Sweeping"]
)
def test_a_policy_that_is_gone_lets_go(state: str) -> None:
    found = unguarded(Member(health(state, evidence=[online()]), BUSY), NOW)
    assert found is not None
    assert found.state in (State.SUSPECT, State.UNVERIFIED)
    assert not found.holds_token and found.sweep is None


def test_of_nodes_that_claim_the_same_hardware_one_that_is_heard_has_it() -> None:
    old, young = NODE, replace(NODE, name="m", uid="v", created=NOW)
    silent = replace(old, telemetry=False)
    ref = NodeRef(name="n", uid="u")
    assert binding.chosen(ref, [old, young]) == old
    assert binding.chosen(ref, [silent, young]) == young
    assert binding.chosen(NodeRef(), [old, young]) == young
    assert binding.chosen(ref, [silent]) == silent
    assert binding.chosen(ref, []) is None


@pytest.mark.parametrize(
    ("spares", "reserved", "drained"), [(2, 1, True), (1, 1, False), (1, 0, True), (0, 0, False)]
)
def test_reserved_spares_are_left_over(spares: int, reserved: int, drained: bool) -> None:
    idle = [NodeHealth.model_validate({"metadata": {"name": f"s{i}"}}) for i in range(spares)]
    late = health("Quarantined")
    members = (
        Member(late, BUSY),
        *(Member(one, Facts(replace(NODE, name=one.metadata.name))) for one in idle),
    )
    plan = look(Fleet(policy(budgets={"reservedSpares": reserved}), members), NOW)
    assert (plan.statuses["hw"].state is State.DRAINING) is drained
    assert plan.refused.get("hw") is None or plan.refused["hw"].reason.name == "SparesBudget"


def test_a_look_that_changes_nothing_writes_nothing() -> None:
    member = Member(health("Qualified", qualifiedUntil=text(NOW + HOUR)), BUSY)
    rules = policy()
    first = look(Fleet(rules, (member,)), NOW)
    stored = member.health.model_copy(update={"status": first.statuses["hw"]})
    again = rules.model_copy(update={"status": first.policy})
    second = look(Fleet(again, (Member(stored, BUSY),)), NOW + timedelta(seconds=15))
    assert (second.policy, second.statuses) == (None, {})


def test_what_is_wanted_in_vain_says_which_budget_is_in_the_way() -> None:
    members = (
        Member(health("Quarantined"), BUSY),
        Member(health("Draining").model_copy(update={"metadata": health("Draining").metadata.model_copy(
            update={"name": "other"})}), BUSY),
    )  # fmt: skip
    plan = look(Fleet(policy(), members), NOW)
    found = plan.statuses["hw"]
    (acting,) = (one for one in found.conditions if one.type == "Acting")
    assert (found.state, acting.status, acting.reason) == (State.QUARANTINED, "False", "PoolBudget")
    assert acting.message == f"{Want.DRAIN} waits: 1 of 1 nodes are drained or repaired"


def test_who_failed_before_it_joined_is_not_swept_again() -> None:
    found = health("Gated", evidence=[swept()]).status
    assert sweeping.wanted(found, IDLE, policy(onJoin="Gate"), NOW) is None
    assert sweeping.wanted(health("Gated").status, IDLE, policy(onJoin="Gate"), NOW) is SweepCause.JOINED


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
def test_a_half_open_breaker_tries_one(state: str, trial: str, known: list[Any], admitted: bool) -> None:
    stored = BreakerStatus.model_validate({"state": state, "trial": trial})
    assert breaker.admits(stored, "hw", health("Suspect", evidence=known).status) is admitted


def test_each_drain_takes_a_spare_of_those_that_are_left() -> None:
    def node(name: str, *jobs: str) -> Facts:
        return Facts(replace(NODE, name=name, rack=name, pods=len(jobs), jobs=jobs))

    late = health("Quarantined").to_dict()
    moved = [NodeHealth.model_validate({**late, "metadata": {"name": name}}) for name in ("a", "b")]
    idle = [NodeHealth.model_validate({"metadata": {"name": name}}) for name in ("s", "t")]
    members = (
        *(Member(one, node(one.metadata.name, one.metadata.name)) for one in moved),
        *(Member(one, node(one.metadata.name)) for one in idle),
    )
    budgets = {"reservedSpares": 1, "poolPercent": 100, "fleetPercentPerHour": 100}
    plan = look(Fleet(policy(budgets=budgets), members), NOW)
    assert [plan.statuses[name].state for name in ("a", "b")] == [State.DRAINING, State.QUARANTINED]
    assert plan.refused["b"].reason.name == "SparesBudget"
