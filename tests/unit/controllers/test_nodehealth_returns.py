"""Tests of budgets when one node frees a budget and another node requests it. The request is granted only
after the first node's status is stored.

The statuses of a reconcile are written one by one, in any order, and the operator may die after any write.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from tests.unit.controllers.nodelives import LADDER, FleetLife, acting_fleet

from convoy_controllers.nodehealth.fleet import decide
from convoy_controllers.nodehealth.observed import Fleet, HardwareFacts, Member, NodeFacts, SweepResult
from convoy_crds.guardpolicy import GuardPolicy
from convoy_crds.nodehealth import NodeHealth, State, Verdict

NOW = datetime(2026, 3, 1, tzinfo=UTC)
AGO = NOW - timedelta(hours=3)
NODE = NodeFacts("n", "u", AGO, "r", boot_id="b", gpus=8)
IDLE = HardwareFacts(NODE)
BUSY = HardwareFacts(replace(NODE, pods=1, jobs=("ns/j",)))
REPAIRED = replace(IDLE, repaired=NOW)
PASSED = replace(IDLE, sweep=SweepResult("hw-1", NOW, Verdict.PASS))
WIDE = {"poolPercent": 100, "fleetPercentPerHour": 100, "perRack": 9, "quarantinedPercent": 100}


class Case(NamedTuple):
    """One node that requests something, and another node that frees the same budget in the same reconcile."""

    wanting: str
    facts: HardwareFacts
    giving: str
    given: HardwareFacts
    budgets: dict[str, int]
    reason: str
    others: tuple[tuple[str, HardwareFacts], ...] = ()
    spec: dict[str, Any] | None = None


CASES = {
    "pool": Case("Quarantined", IDLE, "Repairing", REPAIRED, {"poolPercent": 50}, "PoolBudget"),
    "rack": Case("Quarantined", IDLE, "Repairing", REPAIRED, {"perRack": 1}, "RackBudget"),
    "by hand": Case(
        "Quarantined", IDLE, "Draining", BUSY, {"poolPercent": 50}, "PoolBudget",
        spec={"release": {"reason": "r", "user": "u", "at": f"{NOW:%Y-%m-%dT%H:%M:%SZ}"}},
    ),
    "out of service": Case(
        "Suspect", IDLE, "Requalifying", PASSED, {"quarantinedPercent": 1}, "QuarantineBudget",
        (("Requalifying", BUSY),),
    ),
    "spares": Case("Quarantined", BUSY, "Requalifying", PASSED, {"reservedSpares": 1}, "SparesBudget",
        (("Unverified", IDLE),),
    ),
    # The limit is half of the nodes: one of three, or two of four. The released hardware has no node in a
    # pool. It counts as the fourth node only once its new state is stored.
    "size": Case(
        "Quarantined", IDLE, "Condemned", HardwareFacts(), {"poolPercent": 50}, "PoolBudget",
        (("Draining", BUSY), ("Unverified", IDLE)),
    ),
}  # fmt: skip


def stored(name: str, state: str, spec: dict[str, Any] | None = None) -> NodeHealth:
    at = f"{AGO:%Y-%m-%dT%H:%M:%SZ}"
    status: dict[str, Any] = {
        "state": state,
        "since": at,
        "internal": {"cleanSince": at},
        "nodeRef": {"rack": "r"},
    }
    if state in ("Draining", "Repairing"):
        status["internal"]["holdsToken"] = True
        status |= {"actions": [{"at": at, "rack": "r", "outcome": "Unknown"}]}
    if state == "Repairing":
        status["repair"] = {"action": "Reset", "owner": "agent", "since": at}
    if state == "Requalifying":
        status |= {"sweep": {"name": "hw-1", "cause": "Returning", "since": f"{NOW:%Y-%m-%dT%H:%M:%SZ}"}}
    if state == "Suspect":
        times = {"since": at, "seen": at}
        status["evidence"] = [{"kind": "Sweep", "source": f"hw-{number}", **times} for number in (1, 2)]
    if state == "Condemned":
        status["internal"]["condemnedByHand"] = True
    return NodeHealth.model_validate({"metadata": {"name": name}, "spec": spec or {}, "status": status})


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("names", ["az", "za"])
def test_returned_budget_is_granted_after_it_is_stored(name: str, names: str) -> None:
    case, (wanting, giving) = CASES[name], names
    body = {"mode": "Act", "repair": {"ladder": LADDER}, "budgets": {**WIDE, **case.budgets}}
    policy = GuardPolicy.model_validate({"metadata": {"name": "p"}, "spec": body})
    members = (
        Member(stored(wanting, case.wanting), case.facts),
        Member(stored(giving, case.giving, case.spec), case.given),
        *(Member(stored(f"o{n}", state), facts) for n, (state, facts) in enumerate(case.others)),
    )
    first = decide(Fleet(policy, members), NOW)
    assert first.statuses[giving].state.value != case.giving, "it gives nothing back: nothing was tried"
    assert first.statuses[wanting].state.value == case.wanting
    assert first.refused[wanting].reason.name == case.reason
    later = tuple(
        replace(one, health=one.health.model_copy(update={"status": first.statuses[one.name]}))
        for one in members
    )
    second = decide(Fleet(policy, later), NOW + timedelta(seconds=15))
    assert second.refused.get(wanting) is None
    assert second.statuses[wanting].state in (State.QUARANTINED, State.DRAINING)


def test_node_is_drained_only_after_another_is_repaired() -> None:
    it = acting_fleet(budgets={"fleetPercentPerHour": 100})
    for name, wait in (("hw8", 300), ("hw19", 0)):
        one = it.hardware[name]
        one.job, one.bad, one.accused_since = f"ns/{name}", True, it.kernel.time
        it.run(wait)
    # The fleet checks its rules after every write. hw19 is written before hw8.
    waited = False
    for _ in range(120):
        it.run(60, every=60)
        waited |= (it.state("hw8"), it.state("hw19")) == (State.REPAIRING, State.QUARANTINED)
    assert waited, "nobody waited for a token: nothing was tried"
    assert len(it.drains) == 2


def test_token_is_granted_after_the_end_of_a_repair_is_stored() -> None:
    """Replay the events of a random test that failed: hw19 was drained in the same reconcile in which hw8
    was found repaired.
    """
    life = FleetLife()
    life.start(spares=0, wide=False, gate=False)
    life.idle_and_bad(names={"hw18", "hw8", "hw2"})
    life.accused(bad=True, names={"hw3", "hw5"}, share=0.1)
    life.seen_or_not(connected=False, names={"hw18", "hw3", "hw20"}, present=True)
    life.days_pass(days=15)
    life.accused(bad=False, names={"hw6", "hw8", "hw19"}, share=0.1)
    life.accused(bad=False, names={"hw18", "hw14"}, share=0.1)
    life.idle_and_bad(names={"hw6"})
    life.jobs_come_and_go(job="ns/j0", names={"hw8", "hw15", "hw17"})
    life.idle_and_bad(names={"hw4", "hw15", "hw16"})
    drains = len(life.fleet.drains)
    life.teardown()
    assert len(life.fleet.drains) > drains, "nobody waited: nothing was tried"
