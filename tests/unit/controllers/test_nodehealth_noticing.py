"""Tests of hints: reasons to test a node that are no evidence against it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from convoy_controllers.nodehealth.machine import Request, RequestKind, granted, next_status, requests
from convoy_controllers.nodehealth.observed import HardwareFacts, Member, NodeFacts, Suspicion, SweepResult
from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.nodehealth import (
    Action,
    NodeHealth,
    NodeHealthInternal,
    NodeHealthStatus,
    Outcome,
    State,
    SweepCause,
    SweepRef,
    Verdict,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
POLICY = GuardPolicy.model_validate({"metadata": {"name": "p"}, "spec": {"mode": "Act", "sweeps": {}}})
NODE = NodeFacts("n", "u", NOW - 9 * HOUR, boot_id="b")
IDLE = HardwareFacts(NODE)
LATE = Suspicion("ns/j", NOW - HOUR, NOW, 1.3, 100.0, "Input")
BUSY = HardwareFacts(replace(NODE, pods=2, jobs=("ns/j",)), noticed=(LATE,))


def after(
    facts: HardwareFacts,
    status: NodeHealthStatus | None = None,
    policy: GuardPolicy = POLICY,
    now: datetime = NOW,
) -> NodeHealthStatus:
    stored = status or NodeHealthStatus(
        state=State.UNVERIFIED, since=NOW - HOUR, internal=NodeHealthInternal(clean_since=NOW - HOUR)
    )
    found = NodeHealth.model_validate({"metadata": {"name": "hw"}, "status": stored.to_dict()})
    return next_status(Member(found, facts), policy, now)


def wants(facts: HardwareFacts, status: NodeHealthStatus) -> list[RequestKind]:
    return [one.kind for one in requests(status, facts, POLICY, NOW)]


def test_lasting_hint_only_sweeps_the_node_when_idle() -> None:
    seen = after(BUSY)
    assert seen.noticed is not None and (seen.noticed.job, seen.noticed.cause) == ("ns/j", "Input")
    assert (seen.state, seen.evidence, wants(BUSY, seen)) == (State.UNVERIFIED, [], [])
    left = after(IDLE, seen)
    assert left.noticed == seen.noticed and wants(IDLE, left) == [RequestKind.ROUTINE]


def test_mode_observe_records_a_hint_and_wants_no_sweep() -> None:
    observes = GuardPolicy.model_validate({"metadata": {"name": "p"}, "spec": {"mode": "Observe"}})
    suspect = replace(BUSY, noticed=(replace(LATE, cause="Compute"),))
    seen = after(suspect, policy=observes)
    assert seen.noticed is not None and (seen.noticed.job, seen.noticed.cause) == ("ns/j", "Compute")
    assert (seen.state, seen.evidence, seen.sweep) == (State.UNVERIFIED, [], None)
    assert requests(seen, IDLE, observes, NOW) == ()


@pytest.mark.parametrize(
    ("facts", "status", "sweeps"),
    [
        (replace(BUSY, noticed=(replace(LATE, since=NOW - HOUR / 60),)), {}, True),
        (replace(BUSY, noticed=(replace(LATE, slowdown=1.01),)), {}, True),
        (replace(BUSY, node=replace(NODE, agent_connected=False)), {}, True),
        (BUSY, {"internal": {"looked_at": NOW - 23 * HOUR}}, True),
        (BUSY, {"state": State.SUSPECT}, True),
        (BUSY, {}, False),
    ],
    ids=["short", "little", "not heard", "looked into lately", "suspect anyway", "no sweeps"],
)
def test_hint_below_the_criteria_causes_no_sweep(
    facts: HardwareFacts, status: dict[str, Any], sweeps: bool
) -> None:
    stored = {
        "state": State.UNVERIFIED,
        "since": NOW - HOUR,
        "internal": {"clean_since": NOW - HOUR},
        **status,
    }
    spec = {"mode": "Act", **({"sweeps": {}} if sweeps else {})}
    policy = GuardPolicy.model_validate({"metadata": {"name": "p"}, "spec": spec})
    assert after(facts, NodeHealthStatus.model_validate(stored), policy).noticed is None


@pytest.mark.parametrize(("looked_at", "noticed"), [(NOW, False), (NOW - 24 * HOUR, True), (None, True)])
def test_nodes_of_a_job_with_a_slow_loader_are_tested_occasionally(
    looked_at: datetime | None, noticed: bool
) -> None:
    stored = NodeHealthStatus(
        state=State.QUALIFIED,
        since=NOW,
        swept=NOW,
        internal=NodeHealthInternal(clean_since=NOW, looked_at=looked_at),
    )
    late = replace(LATE, since=NOW + HOUR, seen=NOW + 3 * HOUR)
    found = after(replace(BUSY, noticed=(late,)), stored, now=NOW + 3 * HOUR)
    assert (found.noticed is not None) is noticed


def test_earlier_sweep_does_not_refute_a_hint() -> None:
    stored = NodeHealthStatus(
        state=State.QUALIFIED,
        since=NOW - 9 * HOUR,
        swept=NOW - 2 * HOUR,
        internal=NodeHealthInternal(clean_since=NOW - 9 * HOUR),
    )
    assert after(BUSY, stored).noticed is not None


@pytest.mark.parametrize("verdict", [Verdict.INCONCLUSIVE, None, Verdict.PASS])
def test_inconclusive_sweep_for_another_cause_keeps_the_hint(verdict: Verdict | None) -> None:
    """The node has a hint, and a routine sweep of the node ends. If the sweep is inconclusive or the node's
    agent never reports, the hint is kept. If the node passes, the hint is removed.
    """
    stored = after(BUSY)
    ref = SweepRef(name="routine", since=NOW - 2 * HOUR, cause=SweepCause.ROUTINE)
    result = SweepResult("routine", NOW, verdict) if verdict is not None else None
    found = after(replace(IDLE, sweep=result), stored.model_copy(update={"sweep": ref}))
    if verdict is Verdict.PASS:
        assert (found.noticed, found.internal.looked_at) == (None, NOW)
    else:
        assert found.noticed == stored.noticed and found.internal.looked_at is None
        assert wants(IDLE, found) == [RequestKind.ROUTINE]


def test_release_clears_the_last_hint_sweep() -> None:
    spec = {"release": {"at": NOW, "reason": "mended", "user": "ops"}}
    status = {"state": State.QUALIFIED, "since": NOW - HOUR, "internal": {"looked_at": NOW - HOUR}}
    found = NodeHealth.model_validate({"metadata": {"name": "hw"}, "spec": spec, "status": status})
    assert next_status(Member(found, IDLE), POLICY, NOW).internal.looked_at is None


@pytest.mark.parametrize(
    ("before", "verdict", "state"),
    [
        (State.UNVERIFIED, Verdict.PASS, State.QUALIFIED),
        (State.UNVERIFIED, Verdict.INCONCLUSIVE, State.UNVERIFIED),
        (State.UNVERIFIED, Verdict.FAIL, State.SUSPECT),
        (State.QUALIFIED, Verdict.INCONCLUSIVE, State.QUALIFIED),
    ],
)
def test_verdict_of_a_hint_sweep_decides(before: State, verdict: Verdict, state: State) -> None:
    until = NOW + 99 * HOUR if before is State.QUALIFIED else None
    stored = NodeHealthStatus(
        state=before,
        since=NOW - HOUR,
        qualified_until=until,
        internal=NodeHealthInternal(clean_since=NOW - HOUR, inconclusive=1),
    )
    seen = after(BUSY, stored)
    (request,) = requests(seen, IDLE, POLICY, NOW)
    started = granted(seen, IDLE, "hw", request, NOW)
    assert started.sweep is not None
    found = after(replace(IDLE, sweep=SweepResult(started.sweep.name, NOW, verdict)), started)
    assert (found.state, found.noticed, found.sweep, found.internal.looked_at) == (state, None, None, NOW)
    assert wants(IDLE, found) == []


def test_another_swap_ends_the_wait_for_the_outcome_of_a_test() -> None:
    """Otherwise the pending outcome would excuse the same ranks on other nodes forever."""
    tested = Action(at=NOW - HOUR, test=True, jobs=["ns/j"])
    stored = NodeHealthStatus(state=State.QUARANTINED, since=NOW - HOUR, actions=[tested])
    drained = granted(stored, IDLE, "hw", Request(RequestKind.DRAIN, "it is idle"), NOW)
    assert [one.outcome for one in drained.actions] == [Outcome.UNKNOWN, Outcome.PENDING]


def test_wrong_test_of_a_suspect_corrects_nothing() -> None:
    earlier = [NOW - 99 * HOUR]
    stored = NodeHealthStatus(
        state=State.UNVERIFIED,
        since=NOW - HOUR,
        quarantines=earlier,
        actions=[Action(at=NOW - HOUR, test=True, jobs=["ns/j"])],
        internal=NodeHealthInternal(clean_since=NOW - HOUR),
    )
    found = after(replace(IDLE, recovered=0.1), stored)
    assert (found.state, found.quarantines, found.actions[-1].outcome) == (
        State.UNVERIFIED, earlier, Outcome.WRONG
    )  # fmt: skip
