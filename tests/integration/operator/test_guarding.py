"""Tests of NodeHealth on a real API server with the permissions from the chart: the fields that each client
writes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.error import HTTPError

import pytest

from convoy_controllers.nodehealth import fleet
from convoy_controllers.nodehealth.observed import Suspicion
from convoy_operator.app import Operator

from .conftest import FakeAgent, Installation, eventually, running

API = "/apis/convoy.dev/v1alpha1"
MERGE = "application/merge-patch+json"
OWN = {"key": "example.com/own", "effect": "NoSchedule"}
ACT = {
    "mode": "Act",
    "detection": {"lasting": "1s"},
    "drain": {"swapCost": "1s"},
    "budgets": {"poolPercent": 50},
}


def resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "convoy.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


class GuardedCluster:
    """Three nodes with agents, and a pod of a job on the first node."""

    def __init__(self, installation: Installation, operator: Operator) -> None:
        self.installation, self.operator = installation, operator
        self.nodes = [f"{installation.namespace}-{name}" for name in "abc"]
        self.agents: list[FakeAgent] = []
        self.job = f"{installation.namespace}/job"
        self.accused = ""
        suspicions: Any = self._suspicions
        operator.hub.reader.suspicions = suspicions  # type: ignore[method-assign]

    def _suspicions(self) -> dict[str, tuple[Suspicion, ...]]:
        """Return the suspicions that the test sets. This replaces the detectors' results."""
        now = datetime.now(UTC)
        one = Suspicion(self.job, now - timedelta(minutes=10), now, 1.5, 1e6, "Compute")
        return {self.accused: (one,)} if self.accused else {}

    async def start(self, **policy: Any) -> None:
        call = self.installation.call
        for name in self.nodes:
            await self.installation.node(name)
            body = {"spec": {"taints": [OWN]}, "metadata": {"labels": {"team": self.installation.namespace}}}
            await call("PATCH", f"/api/v1/nodes/{name}", body, content_type=MERGE)
            agent = FakeAgent(self.installation, self.operator.server, name)
            await agent.enrol()
            await agent.dial()
            self.agents.append(agent)
        selector = {"matchLabels": {"team": self.installation.namespace}}
        spec = {**ACT, "selector": selector, **policy}
        body = resource("GuardPolicy", self.installation.namespace, spec)
        await call("POST", f"{API}/guardpolicies", body)

    async def work(self) -> None:
        """Create a job that another controller manages, so that this operator does not change its pods."""
        call, namespace = self.installation.call, self.installation.namespace
        spec = {
            "managedBy": "example.com/other",
            "engine": {"name": "gpt"},
            "roles": [{"name": "w", "replicas": 1}],
        }
        jobs = f"{API}/namespaces/{namespace}/trainingjobs"
        job = await call("POST", jobs, resource("TrainingJob", "job", spec))
        at = f"{datetime.now(UTC) + timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}"
        point = {"incarnation": 1, "step": 9, "tier": "peer", "time": at}
        status = {"incarnation": 1, "phase": "Running", "checkpoint": point}
        await call("PATCH", f"{jobs}/job/status", {"status": status}, content_type=MERGE)
        owner = {
            "apiVersion": "convoy.dev/v1alpha1",
            "kind": "TrainingJob",
            "name": "job",
            "controller": True,
        }
        pod = {
            "metadata": {
                "name": "job-w-0",
                "labels": {"convoy.dev/job": "job"},
                "ownerReferences": [{**owner, "uid": job["metadata"]["uid"]}],
            },
            "spec": {"nodeName": self.nodes[0], "containers": [{"name": "w", "image": "x"}]},
        }
        await call("POST", f"/api/v1/namespaces/{namespace}/pods", pod)

    async def node(self, number: int = 0) -> dict[str, Any]:
        return await self.installation.call("GET", f"/api/v1/nodes/{self.nodes[number]}")

    async def taints(self, number: int = 0) -> dict[str, str]:
        found = (await self.node(number))["spec"].get("taints") or []
        return {one["key"]: one["effect"] for one in found}

    async def qualified(self, number: int = 0) -> dict[str, Any] | None:
        found = (await self.node(number))["status"]["conditions"]
        return next((one for one in found if one["type"] == "convoy.dev/Qualified"), None)

    async def health(self, number: int = 0) -> dict[str, Any]:
        return await self.installation.call("GET", f"{API}/nodehealths/machine-of-{self.nodes[number]}")

    async def state(self, number: int = 0) -> str:
        return str((await self.health(number)).get("status", {}).get("state", ""))

    async def known(self) -> bool:
        for number in range(3):
            try:
                if await self.state(number) != "Unverified" or await self.qualified(number) is None:
                    return False
            except HTTPError:
                return False
        return True


@pytest.fixture
async def cluster(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[GuardedCluster]:
    async with running(installation, monkeypatch) as operator:
        it = GuardedCluster(installation, operator)
        try:
            yield it
        finally:
            for agent in it.agents:
                await agent.hang_up()


async def test_a_slow_node_is_cordoned_and_its_pod_is_evicted(cluster: GuardedCluster) -> None:
    await cluster.start()
    await eventually(cluster.known, what="all hardware is known and the nodes are labelled")
    assert await cluster.taints() == {OWN["key"]: "NoSchedule"}
    await cluster.work()
    cluster.accused = cluster.nodes[0]
    cluster.operator.hub.detectors.on_suspicion()

    async def leaving() -> bool:
        path = f"/api/v1/namespaces/{cluster.installation.namespace}/pods/job-w-0"
        pod = await cluster.installation.call("GET", path)
        return "deletionTimestamp" in pod["metadata"]

    await eventually(leaving, seconds=30, what="the pod is evicted")
    assert await cluster.state() == "Draining"
    assert await cluster.taints() == {OWN["key"]: "NoSchedule", "convoy.dev/quarantined": "NoSchedule"}
    node = await cluster.node()
    assert node["metadata"]["labels"]["convoy.dev/node-health"] == "Draining"
    assert "unschedulable" not in node["spec"], "nobody is cordoned"
    shown = await cluster.qualified()
    assert shown is not None and (shown["status"], shown["reason"]) == ("False", "ConfirmedSlow")
    assert {one["type"] for one in node["status"]["conditions"]} >= {"Ready", "convoy.dev/Qualified"}
    health = await cluster.health()

    async def event_posted() -> bool:
        events = await cluster.installation.call("GET", "/api/v1/namespaces/default/events?limit=500")
        reasons = {
            one["reason"]
            for one in events["items"]
            if one["involvedObject"].get("uid") == health["metadata"]["uid"]
        }
        return {"SlowerThanPeers", "ConfirmedSlow", "DrainingNode"} <= reasons

    await eventually(event_posted, what="events of all three")
    assert await cluster.taints(1) == {OWN["key"]: "NoSchedule"}


async def test_deleting_the_policy_removes_only_taints_of_convoy(
    cluster: GuardedCluster,
) -> None:
    await cluster.start()
    await eventually(cluster.known, what="all hardware is known and the nodes are labelled")
    cluster.accused = cluster.nodes[1]
    cluster.operator.hub.detectors.on_suspicion()

    async def tainted() -> bool:
        return "convoy.dev/quarantined" in await cluster.taints(1)

    await eventually(tainted, what="the node is quarantined")
    name = cluster.nodes[1]
    taints = (await cluster.node(1))["spec"]["taints"]
    more = {"spec": {"taints": [*taints, {"key": "example.com/late", "effect": "NoSchedule"}]}}
    await cluster.installation.call("PATCH", f"/api/v1/nodes/{name}", more, content_type=MERGE)
    policy = f"{API}/guardpolicies/{cluster.installation.namespace}"
    await cluster.installation.call("DELETE", policy)

    async def clean() -> bool:
        node = await cluster.node(1)
        label = "convoy.dev/node-health" in node["metadata"]["labels"]
        return not label and await cluster.qualified(1) is None and not await tainted()

    await eventually(clean, what="no mark of Convoy is left on the node")
    assert set(await cluster.taints(1)) == {OWN["key"], "example.com/late"}


async def test_an_operator_decision_about_a_node_is_applied(
    cluster: GuardedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "RECONCILE_SECONDS", 600.0)
    await cluster.start()
    await eventually(cluster.known, what="all hardware is known and the nodes are labelled")
    path = f"{API}/nodehealths/machine-of-{cluster.nodes[2]}"
    decision = {"spec": {"condemned": {"reason": "smoke", "user": "ops"}}}
    await cluster.installation.call("PATCH", path, decision, content_type=MERGE)

    async def condemned() -> bool:
        return await cluster.state(2) == "Condemned" and "convoy.dev/quarantined" in await cluster.taints(2)

    await eventually(condemned, what="it is condemned")


async def test_gating_without_sweeps_is_rejected_at_admission(installation: Installation) -> None:
    with pytest.raises(HTTPError) as caught:
        body = resource("GuardPolicy", "bad", {"onJoin": "Gate"})
        await installation.call("POST", f"{API}/guardpolicies", body)
    assert "onJoin: Accept" in caught.value.read().decode()
