"""Tests of the changes that queue keys of the guard's controllers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from convoy_controllers.keys import Key
from convoy_controllers.resources import GUARD_POLICIES, HEALTH_SWEEPS, NODE_HEALTHS, NODES, PODS, Resource
from convoy_operator import errors

from .conftest import FakeApi
from .reconciling import Operator

NODE: dict[str, Any] = {
    "metadata": {"name": "n", "uid": "n", "labels": {"convoy.dev/agent-ready": "true"}},
    "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"machineID": "hw"}},
}
POLICY: dict[str, Any] = {"metadata": {"name": "p", "uid": "p", "generation": 1}, "spec": {"mode": "Act"}}
STATUS = {"state": "Suspect", "policy": "p", "nodeRef": {"name": "n"}, "sweep": {"name": "s"}}
HEALTH: dict[str, Any] = {
    "metadata": {"name": "hw", "uid": "hw", "generation": 1},
    "spec": {},
    "status": STATUS,
}
SWEEP: dict[str, Any] = {"metadata": {"name": "s", "uid": "s", "generation": 1}, "spec": {"nodes": ["n"]}}
KEYS = (
    Key("GuardPolicy", "", "p"),
    Key("NodeHealth", "", "hw"),
    Key("Node", "", "n"),
    Key("HealthSweep", "", "s"),
)


class Guard(Operator):
    """A policy, a node, its NodeHealth and a sweep. They are in the cache before changes start to queue
    keys.
    """

    def __init__(self, api: FakeApi) -> None:
        super().__init__(api)
        known = (GUARD_POLICIES, POLICY), (NODES, NODE), (NODE_HEALTHS, HEALTH), (HEALTH_SWEEPS, SWEEP)
        for resource, body in known:
            self.cache.upsert(resource, api.put(resource, body))
        self.trigger()

    def woken(self, resource: Resource, body: dict[str, Any], *, own: bool = False) -> set[str]:
        """Store a change. Return the kinds of the keys that it queues."""
        self.queue._entries.clear()
        self.cache.upsert(resource, self.api.put(resource, body), own=own)
        return {key.kind for key in KEYS if key in self.queue}

    def woken_by_removal(self, resource: Resource, name: str) -> set[str]:
        self.queue._entries.clear()
        self.cache.drop(resource, self.api.objects[resource.plural, "", name]["metadata"]["uid"])
        return {key.kind for key in KEYS if key in self.queue}


async def test_a_node_wakes_its_own_key_its_hardware_policies_and_sweeps(api: FakeApi) -> None:
    it = Guard(api)
    cordoned = NODE | {"spec": {"unschedulable": True}}
    assert it.woken(NODES, cordoned) == {"GuardPolicy", "NodeHealth", "Node", "HealthSweep"}
    assert it.woken(NODES, cordoned) == set(), "a heartbeat of its kubelet changes nothing"
    assert it.woken(NODES, NODE, own=True) == {"NodeHealth", "Node"}
    assert it.woken_by_removal(NODES, "n") == {"GuardPolicy", "NodeHealth", "HealthSweep"}


async def test_hardware_wakes_its_node_and_the_policies(api: FakeApi) -> None:
    it = Guard(api)
    turned = HEALTH | {"status": STATUS | {"state": "Quarantined"}}
    assert it.woken(NODE_HEALTHS, turned) == {"GuardPolicy", "NodeHealth", "Node"}
    assert it.woken(NODE_HEALTHS, HEALTH, own=True) == {"Node"}
    swept = HEALTH | {"status": STATUS | {"sweep": {"name": "t"}}}
    assert it.woken(NODE_HEALTHS, swept, own=True) == {"NodeHealth"}, "its spec asks for another sweep"
    assert it.woken_by_removal(NODE_HEALTHS, "hw") == {"GuardPolicy", "NodeHealth", "Node"}


async def test_a_state_change_wakes_its_node_without_debounce(api: FakeApi) -> None:
    it = Guard(api)
    it.woken(NODE_HEALTHS, HEALTH | {"status": STATUS | {"state": "Quarantined"}}, own=True)
    assert await it.queue.get() == Key("Node", "", "n") and it.queue.depth == 0


async def test_a_sweep_wakes_its_hardware_and_with_verdicts_the_policies(api: FakeApi) -> None:
    it = Guard(api)
    assert it.woken(HEALTH_SWEEPS, SWEEP | {"status": {"done": 1}}, own=True) == {"GuardPolicy"}
    assert it.woken(HEALTH_SWEEPS, SWEEP | {"status": {"done": 1, "message": "m"}}) == {"HealthSweep"}
    assert it.woken_by_removal(HEALTH_SWEEPS, "s") == {"GuardPolicy", "NodeHealth", "HealthSweep"}


@pytest.mark.parametrize("change", ["made", "changed", "deleted"])
async def test_a_policy_wakes_the_other_policies_all_hardware_and_all_nodes(
    api: FakeApi, change: str
) -> None:
    it = Guard(api)
    other = {"metadata": {"name": "q", "uid": "q", "generation": 1}, "spec": {"priority": 5}}
    if change == "made":
        woken = it.woken(GUARD_POLICIES, other)
    else:
        it.woken(GUARD_POLICIES, other)
        changed = other | {"metadata": {"name": "q", "uid": "q", "generation": 2}}
        removed = change == "deleted"
        woken = it.woken_by_removal(GUARD_POLICIES, "q") if removed else it.woken(GUARD_POLICIES, changed)
    assert woken == {"GuardPolicy", "NodeHealth", "Node"}


async def test_a_change_of_the_breaker_wakes_nodes(api: FakeApi) -> None:
    it = Guard(api)
    assert it.woken(GUARD_POLICIES, POLICY | {"status": {"nodes": 3}}, own=True) == set()
    opened = POLICY | {"status": {"nodes": 3, "breaker": {"state": "Open"}}}
    assert it.woken(GUARD_POLICIES, opened, own=True) == {"Node"}


async def test_a_pod_wakes_its_node_during_a_drain(api: FakeApi) -> None:
    it = Guard(api)
    pod = {
        "metadata": {"name": "w", "uid": "w", "labels": {"convoy.dev/job": "j"}},
        "spec": {"nodeName": "n"},
    }
    assert it.woken(PODS, pod | {"status": {"phase": "Running"}}) == set()
    it.woken(NODE_HEALTHS, HEALTH | {"status": STATUS | {"state": "Draining"}})
    assert it.woken_by_removal(PODS, "w") == {"Node"}


async def test_hardware_moved_to_another_node_is_woken(api: FakeApi) -> None:
    it = Guard(api)
    other = NODE | {"metadata": {"name": "m", "uid": "m"}}
    assert it.woken(NODES, other) >= {"NodeHealth"}


async def test_changes_of_nodes_and_hardware_do_not_compute_bindings(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = Guard(api)
    bound: list[str] = []
    monkeypatch.setattr(it.reader, "bindings", lambda: bound.append("bound"))
    it.woken(NODES, NODE | {"spec": {"unschedulable": True}})
    it.woken(NODE_HEALTHS, HEALTH | {"status": STATUS | {"state": "Draining"}})
    it.woken(PODS, {"metadata": {"name": "w", "labels": {"convoy.dev/job": "j"}}, "spec": {"nodeName": "n"}})
    assert not bound


async def test_a_job_has_priority_over_nodes_woken_by_a_policy(api: FakeApi) -> None:
    it = Guard(api)
    for number in range(50):
        it.cache.upsert(NODES, api.put(NODES, NODE | {"metadata": {"name": f"n{number}"}}))
    it.woken_by_removal(GUARD_POLICIES, "p")
    await asyncio.sleep(0.2)
    assert it.queue.depth > 50
    job = Key("TrainingJob", "ns", "j")
    it.queue.add(job)
    first = [await it.queue.get(), await it.queue.get()]
    assert first == [Key("GuardPolicy", "", "p"), job], "the policy itself has changed"


async def test_hardware_that_cannot_be_stored_is_retried_slowly(api: FakeApi) -> None:
    it = Operator(api, backoff_min_seconds=10.0)
    for resource, body in ((GUARD_POLICIES, POLICY), (NODES, NODE)):
        it.cache.upsert(resource, api.put(resource, body))
    api.fail = lambda verb, plural, name: errors.Forbidden(403, "a webhook") if verb == "create" else None
    await it.reconcile_all("GuardPolicy")
    due = it.queue._entries[KEYS[0]].due
    assert due is not None and due - asyncio.get_running_loop().time() > 0.8
    assert api.count("create", "nodehealths") == 1
