"""Tests of suspicions, stored states, marked nodes and swapped pods, with an API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.unit.operator.guarded_cluster import FOREIGN, MINUTE, START, Cluster

from convoy_controllers.keys import Key
from convoy_controllers.nodehealth import fleet as fleets
from convoy_controllers.nodehealth.fleet import FleetPlan
from convoy_controllers.nodehealth.observed import Suspicion
from convoy_controllers.nodehealth.pacing import Slow
from convoy_controllers.nodehealth.patches import patches
from convoy_controllers.nodehealth.wanted import Marks
from convoy_controllers.resources import GUARD_POLICIES, NODE_HEALTHS, NODES, PODS
from convoy_crds import guardpolicy
from convoy_crds.guardpolicy import BreakerState, BreakerStatus, GuardPolicyStatus
from convoy_crds.meta import Condition
from convoy_crds.nodehealth import NodeHealthStatus
from convoy_operator import errors, views

from .conftest import FakeApi
from .reconciling import Operator


def test_hardware_is_recorded_and_not_changed_without_evidence(api: FakeApi) -> None:
    it = Cluster(api)
    it.reconcile()
    it.reconcile()
    assert [it.state(number) for number in range(6)] == ["Unverified"] * 6
    assert all(it.ours(number) == {} for number in range(6))
    shown = {one["type"]: one for one in it.node()["status"]["conditions"]}["convoy.dev/Qualified"]
    assert (shown["status"], shown["reason"]) == ("Unknown", "NotSwept")
    assert it.node()["metadata"]["labels"]["convoy.dev/node-health"] == "Unverified"
    calls = len(api.calls)
    it.reconcile(MINUTE)
    assert len(api.calls) == calls, "nothing has changed, nothing is written"


def test_without_a_policy_nothing_is_written(api: FakeApi) -> None:
    it = Cluster(api, selector={"matchLabels": {"pool": "none"}})
    it.reconcile()
    assert api.calls == []


def test_a_slow_node_is_suspected_quarantined_and_drained(api: FakeApi) -> None:
    it = Cluster(api)
    it.reconcile()
    it.accuse("n0", loss=100.0)
    it.reconcile()
    it.reconcile()
    assert it.state() == "Suspect" and it.ours() == {"convoy.dev/suspect": "PreferNoSchedule"}
    # The loss is above the cost of a swap, which is two minutes of two ranks.
    it.accuse("n0", loss=130.0)
    it.reconcile(timedelta(seconds=5))
    assert it.state() == "Quarantined" and it.evicted() == []
    assert it.ours() == {"convoy.dev/quarantined": "NoSchedule"}
    assert FOREIGN in it.node()["spec"]["taints"], "taints of others stay"
    it.job(saved=timedelta(0))
    it.reconcile(timedelta(seconds=5))
    it.reconcile()
    assert it.state() == "Draining" and it.evicted() == ["job-worker-0"]
    assert it.node()["metadata"]["labels"]["convoy.dev/node-health"] == "Draining"
    api.objects.pop((PODS.plural, "default", "job-worker-0"))
    it.cache.pods.remove(next(pod for pod in it.cache.pods if pod.name == "job-worker-0"))
    it.hub.held.clear()
    it.reconcile(MINUTE)
    assert it.state() == "Requalifying" and it.evicted() == ["job-worker-0"]
    assert it.acting()["reason"] == "AwaitsRelease"


def leaves(body: Mapping[str, Any], *path: str) -> set[tuple[str, ...]]:
    """Return the path of every value that a patch sets."""
    found = set()
    for name, value in body.items():
        found |= leaves(value, *path, name) if isinstance(value, Mapping) else {(*path, name)}
    return found


def test_only_own_labels_conditions_and_taints_of_nodes_are_changed(api: FakeApi) -> None:
    it = Cluster(api)
    it.reconcile()
    it.accuse("n0", loss=100.0)
    for _ in range(2):
        it.reconcile()
    it.accuse("n0")
    it.reconcile(timedelta(seconds=5))
    it.job(saved=timedelta(0))
    for _ in range(2):
        it.reconcile(timedelta(seconds=5))
    assert it.state() == "Draining"
    policy = it.cache.objects(guardpolicy.KIND).get("", "p")
    assert policy is not None
    it.cache.objects(guardpolicy.KIND).remove(policy)
    api.objects.pop((GUARD_POLICIES.plural, "", "p"))
    for _ in range(2):
        it.reconcile(MINUTE)
    requests = [
        (verb, body)
        for (verb, plural, _), body in zip(api.calls, api.bodies, strict=True)
        if plural == NODES.plural
    ]
    assert {verb for verb, _ in requests} == {"patch", "apply"}
    assert set().union(*(leaves(body) for _, body in requests)) == {
        ("metadata", "labels", "convoy.dev/node-health"),
        ("metadata", "resourceVersion"),
        ("spec", "taints"),
        ("status", "conditions"),
    }
    lists = [body["spec"]["taints"] for _, body in requests if "spec" in body]
    shown = [one["type"] for _, body in requests if "status" in body for one in body["status"]["conditions"]]
    assert {taint["key"] for taints in lists for taint in taints} == {
        FOREIGN["key"],
        "convoy.dev/suspect",
        "convoy.dev/quarantined",
    }
    assert all(FOREIGN in taints for taints in lists) and set(shown) == {"convoy.dev/Qualified"}


def test_a_released_node_is_judged_only_by_later_evidence(api: FakeApi) -> None:
    it = Cluster(api, {"action": "Observe"})
    it.reconcile()
    since = it.now - 5 * MINUTE

    def accused(loss: float, later: timedelta = timedelta(seconds=1)) -> None:
        it.now += later
        it.hub.held["n0"] = (Suspicion("default/job", since, it.now, 1.5, loss, "Compute"),)
        it.reconcile()

    for _ in range(3):
        accused(130.0, MINUTE)
    assert it.state() == "Quarantined"
    health = api.objects[NODE_HEALTHS.plural, "", "hw0"]
    decision = {"at": "2026-01-01T00:00:00Z", "reason": "well again", "user": "ops"}
    api.put(NODE_HEALTHS, {**health, "spec": {"release": decision}})
    for _ in range(3):
        accused(140.0)
    assert it.state() == "Probation" and it.ours() == {}
    # The loss is above the cost of another swap, which is two minutes of two ranks.
    for _ in range(3):
        accused(140.0 + 125.0)
    assert it.state() == "Quarantined"


def moved(api: FakeApi) -> Cluster:
    """Return a cluster after a swap of the job's pod from n0 to n2."""
    it = Cluster(api)
    it.reconcile()
    it.pace_of(1, 1.5, "n0", "n1")
    for _ in range(3):
        it.accuse("n0")
        it.reconcile(MINUTE)
    it.job(saved=timedelta(0))
    it.reconcile()
    it.reconcile()
    assert it.state() == "Draining" and it.evicted() == ["job-worker-0"]
    api.objects.pop((PODS.plural, "default", "job-worker-0"))
    it.cache.pods.remove(next(pod for pod in it.cache.pods if pod.name == "job-worker-0"))
    it.hub.held.clear()
    it.reconcile(MINUTE)
    assert it.state() == "Requalifying"
    return it


@pytest.mark.parametrize(("seconds", "state"), [(1.01, "Requalifying"), (1.48, "Unverified")])
def test_a_node_is_released_if_its_swap_did_not_help(api: FakeApi, seconds: float, state: str) -> None:
    it = moved(api)
    it.pace_of(2, seconds, "n2", "n1")
    it.reconcile(MINUTE)
    it.reconcile()
    assert it.state() == state and bool(it.ours()) is (state == "Requalifying")
    health = api.objects[NODE_HEALTHS.plural, "", "hw0"]["status"]
    assert health["actions"][-1]["outcome"] == ("Right" if state == "Requalifying" else "Wrong")


def test_a_rank_slow_on_every_node_costs_one_swap_and_the_node_is_released(api: FakeApi) -> None:
    it = moved(api)
    it.pace_of(2, 1.5, "n2", "n1", slow=(Slow(frozenset({0}), "Compute", 0.5),))
    for _ in range(20):
        it.accuse("n2", 30 * MINUTE, 1e6)
        it.reconcile(MINUTE)
    assert it.state() == "Unverified" and it.ours() == {}
    assert it.state(2) == "Unverified" and it.ours(2) == {}
    assert it.evicted() == ["job-worker-0"]


@pytest.mark.parametrize(
    "why", [{"action": "Observe"}, {"saved": None}], ids=["its policy only observes", "it has no checkpoint"]
)
def test_a_job_that_cannot_be_swapped_keeps_its_node(api: FakeApi, why: dict[str, Any]) -> None:
    it = Cluster(api, why)
    it.reconcile()
    for _ in range(30):
        it.accuse("n0")
        it.reconcile(MINUTE)
    assert it.state() == "Quarantined" and it.evicted() == []
    assert it.acting()["reason"] == "JobStays" and "default/job" in it.acting()["message"]


def test_pods_are_not_evicted_before_the_node_is_tainted(api: FakeApi) -> None:
    it = Cluster(api)
    it.reconcile()
    api.fail = lambda verb, plural, name: errors.Conflict(409, "changed") if verb == "patch" else None
    for _ in range(15):
        it.accuse("n0")
        it.reconcile(MINUTE)
        it.job(saved=timedelta(0))
    assert it.state() == "Draining" and it.ours() == {} and it.evicted() == []
    api.fail = lambda verb, plural, name: None
    it.reconcile()
    assert it.ours() == {"convoy.dev/quarantined": "NoSchedule"} and it.evicted() == []
    it.reconcile()
    assert it.evicted() == ["job-worker-0"]


def kept_by_a_budget(api: FakeApi) -> Cluster:
    """Return a cluster with a draining node. A PodDisruptionBudget forbids the eviction of the node's pod."""
    it = Cluster(api)
    it.reconcile()
    api.fail = lambda verb, plural, name: errors.TooManyRequests(429, "budget") if verb == "evict" else None
    for _ in range(15):
        it.accuse("n0")
        it.reconcile(MINUTE)
        it.job(saved=timedelta(0))
    return it


def test_a_job_switched_to_observe_during_a_drain_is_not_evicted(api: FakeApi) -> None:
    it = kept_by_a_budget(api)
    assert it.state() == "Draining" and it.evicted()
    tries = len(it.evicted())
    it.job(saved=timedelta(0), action="Observe")
    it.reconcile(MINUTE)
    assert len(it.evicted()) == tries


def test_a_draining_node_with_a_remaining_job_is_requeued(api: FakeApi) -> None:
    it = kept_by_a_budget(api)
    it.job(saved=timedelta(0), action="Observe")
    jobs = list(it.cache.jobs)
    it.restart()
    it.cache.jobs.upsert(*jobs)
    it.sync()
    asyncio.run(it.reconcile_all("Node"))
    assert it.state() == "Draining"
    assert [name for name in ("n0", "n1") if Key("Node", "", name) in it.queue] == ["n0"]


def test_eviction_of_a_pod_blocked_by_a_budget_is_retried_rarely(api: FakeApi) -> None:
    it = kept_by_a_budget(api)
    tries = len(it.evicted())
    assert it.state() == "Draining" and tries
    for _ in range(30):
        it.reconcile(timedelta(seconds=1))
    assert len(it.evicted()) == tries + 2


def test_mode_observe_changes_no_node(api: FakeApi) -> None:
    it = Cluster(api, mode="Observe")
    for _ in range(20):
        it.accuse("n0")
        it.reconcile(MINUTE)
    assert it.state() == "Suspect" and it.ours() == {} and it.evicted() == []
    assert {plural for _, plural, _ in api.calls} == {GUARD_POLICIES.plural, NODE_HEALTHS.plural}


def test_a_deleted_policy_removes_its_marks(api: FakeApi) -> None:
    it = Cluster(api)
    it.reconcile()
    for _ in range(4):
        it.accuse("n0")
        it.reconcile(MINUTE)
    assert it.ours()
    policy = it.cache.objects(guardpolicy.KIND).get("", "p")
    assert policy is not None
    api.objects.pop((GUARD_POLICIES.plural, "", "p"))
    it.cache.objects(guardpolicy.KIND).remove(policy)
    it.reconcile(MINUTE)
    it.reconcile()
    assert it.ours() == {} and FOREIGN in it.node()["spec"]["taints"]
    assert "convoy.dev/node-health" not in it.node()["metadata"]["labels"]
    assert not it.node()["status"]["conditions"][1:], "the real server drops what is no longer applied"


@pytest.mark.parametrize("verb", ["patch_status", "patch", "apply", "create"])
def test_a_failed_write_is_repeated_at_the_next_reconcile(api: FakeApi, verb: str) -> None:
    it = Cluster(api)
    api.fail = lambda called, plural, name: errors.Unavailable(503, "away") if called == verb else None
    it.reconcile()
    it.accuse("n0")
    it.reconcile(MINUTE)
    api.fail = lambda called, plural, name: None
    for _ in range(6):
        it.accuse("n0")
        it.reconcile(MINUTE)
    assert it.state() in ("Quarantined", "Draining")
    assert it.ours() == {"convoy.dev/quarantined": "NoSchedule"}


def test_nodes_are_not_changed_before_the_state_is_stored(api: FakeApi) -> None:
    it = Cluster(api)
    it.reconcile()
    it.reconcile()
    api.fail = lambda called, plural, name: (
        errors.Unavailable(503, "away") if (called, plural) == ("patch_status", NODE_HEALTHS.plural) else None
    )
    for _ in range(5):
        it.accuse("n0")
        it.reconcile(MINUTE)
    assert it.ours() == {} and it.evicted() == []


async def test_nodes_are_marked_through_a_separate_client(api: FakeApi) -> None:
    nodes = FakeApi()
    it = Operator(api, node_api=nodes)
    body = {"metadata": {"name": "n", "labels": {"convoy.dev/node-health": "Suspect"}}, "spec": {}}
    it.cache.upsert(NODES, nodes.put(NODES, body))
    await it.reconcile_all("Node")
    assert [verb for verb, _, _ in nodes.calls] == ["patch"] and not api.calls


async def test_a_breaker_event_is_recorded_despite_a_failed_node_status_write(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = Cluster(api)
    recorded: list[str] = []
    monkeypatch.setattr(it.recorder, "record", lambda resource, parent, event: recorded.append(event.message))
    await it.reconcile_all("GuardPolicy")
    after = GuardPolicyStatus(breaker=BreakerStatus(state=BreakerState.OPEN, message="too many"))

    def opened(fleet: Any, now: datetime) -> FleetPlan:
        same = fleet.policy.status.breaker.state is BreakerState.OPEN
        return FleetPlan(None if same else after, {"hw0": NodeHealthStatus()})

    monkeypatch.setattr(fleets, "decide", opened)
    api.fail = lambda verb, plural, name: (
        errors.Conflict(409, "changed") if (verb, plural) == ("patch_status", NODE_HEALTHS.plural) else None
    )
    it.sync()
    await it.reconcile_all("GuardPolicy")
    await it.reconcile_all("GuardPolicy")
    assert recorded == ["breaker Closed -> Open: too many"]


def test_a_policy_that_cannot_be_stored_permits_no_state_change(api: FakeApi) -> None:
    it = Cluster(api)
    it.reconcile()
    it.reconcile()
    states = [it.state(number) for number in range(6)]
    api.fail = lambda called, plural, name: (
        errors.Conflict(409, "changed") if (called, plural) == ("patch_status", "guardpolicies") else None
    )
    for _ in range(5):
        it.accuse("n0")
        it.reconcile(MINUTE)
    assert [it.state(number) for number in range(6)] == states


def test_a_new_operator_continues_from_the_stored_state(api: FakeApi) -> None:
    it = Cluster(api)
    it.reconcile()
    for _ in range(3):
        it.accuse("n0")
        it.reconcile(MINUTE)
    assert it.state() == "Quarantined"
    # The new operator has no reports yet, so it must continue from the stored state.
    it.restart()
    it.job(saved=timedelta(0))
    it.reconcile(timedelta(seconds=1))
    it.reconcile()
    assert it.state() == "Draining" and it.evicted() == ["job-worker-0"]


def node(**more: Any) -> views.Node:
    raw = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "7"}, **more}
    return views.node(raw)


def test_a_node_with_the_desired_marks_is_not_patched() -> None:
    condition = Condition(type="Qualified", status="True", reason="SweepPassed", last_transition_time=START)
    first = patches(node(), Marks({}, "Qualified"), condition, START)
    assert first.merge == {"metadata": {"labels": {"convoy.dev/node-health": "Qualified"}}}
    (shown,) = (first.status or {})["status"]["conditions"]
    assert shown["type"] == "convoy.dev/Qualified"
    after = node(
        metadata={"name": "n", "uid": "u", "labels": {"convoy.dev/node-health": "Qualified"}},
        status={"conditions": [shown]},
    )
    assert not patches(after, Marks({}, "Qualified"), condition, START).any


def test_taints_are_written_with_the_observed_resource_version() -> None:
    found = patches(node(spec={"taints": [FOREIGN]}), Marks({"convoy.dev/suspect": "X"}), None, START)
    assert found.merge is not None and found.merge["metadata"] == {"resourceVersion": "7"}
    assert found.merge["spec"]["taints"][0] == FOREIGN and len(found.merge["spec"]["taints"]) == 2
    assert found.status is None
