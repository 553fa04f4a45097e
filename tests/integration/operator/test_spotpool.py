"""Tests of SpotPools on a real API server with the permissions from the chart: notice, taint, eviction, cost
and the end of the pool.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from convoy_controllers.spotpool.notice import Notice
from convoy_crds.spotpool_status import NoticeSource
from convoy_operator.app import Operator

from .conftest import Installation, eventually, running

API = "/apis/convoy.dev/v1alpha1"
MERGE = "application/merge-patch+json"
OWN = {"key": "example.com/own", "effect": "NoSchedule"}
ITN = {"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}
OURS = "convoy.dev/spot-notice"


def resource(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "convoy.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


class SpotCluster:
    """Two spot nodes, a pool, and a job of another controller with one pod on each node."""

    def __init__(self, installation: Installation, operator: Operator) -> None:
        self.installation, self.operator = installation, operator
        self.name = installation.namespace
        self.nodes = [f"{self.name}-{name}" for name in "ab"]
        self.notices: dict[str, tuple[Notice, ...]] = {}
        operator.hub.reader.notices = lambda: self.notices  # type: ignore[method-assign]

    async def start(self) -> None:
        call = self.installation.call
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        prices = {
            "metadata": {"name": "prices", "annotations": {"convoy.dev/price-as-of": now}},
            "data": {"prices.csv": "time,perHour\n2026-01-01T00:00:00Z,0.3\n"},
        }
        await call("POST", f"/api/v1/namespaces/{self.name}/configmaps", prices)
        for name in self.nodes:
            await self.installation.node(name)
            body = {"spec": {"taints": [OWN]}, "metadata": {"labels": {"pool": self.name}}}
            await call("PATCH", f"/api/v1/nodes/{name}", body, content_type=MERGE)
        spec = {
            "selector": {"matchLabels": {"pool": self.name}},
            "maxNodes": 4,
            "allowedNamespaces": [self.name],
            "price": {"onDemandPerHour": 1, "spot": {"trace": {"configMap": "prices"}}},
            "notice": {"minSeconds": 1},
        }
        await call("POST", f"{API}/spotpools", resource("SpotPool", self.name, spec))

    async def work(self) -> None:
        """Create a job that another controller manages, so that this operator does not change its pods."""
        call = self.installation.call
        role = {"name": "r", "replicas": 2, "membership": "Independent", "spotPool": self.name}
        spec = {
            "managedBy": "example.com/other",
            "engine": {"name": "gpt"},
            "roles": [{"name": "w", "replicas": 1}, role],
        }
        jobs = f"{API}/namespaces/{self.name}/trainingjobs"
        job = await call("POST", jobs, resource("TrainingJob", "job", spec))
        owner = {"apiVersion": "convoy.dev/v1alpha1", "kind": "TrainingJob", "name": "job"}
        for number, node in enumerate(self.nodes):
            labels = {
                "convoy.dev/job": "job",
                "convoy.dev/role": "r",
                "convoy.dev/spot-pool": self.name,
            }
            pod = {
                "metadata": {
                    "name": f"job-r-{number}",
                    "labels": labels,
                    "ownerReferences": [{**owner, "uid": job["metadata"]["uid"], "controller": True}],
                },
                "spec": {
                    "nodeName": node,
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "w", "image": "x"}],
                },
            }
            await call("POST", f"/api/v1/namespaces/{self.name}/pods", pod)

    async def status(self) -> dict[str, Any]:
        found = await self.installation.call("GET", f"{API}/spotpools/{self.name}")
        return dict(found.get("status") or {})

    async def condition(self, kind: str) -> str:
        found = (await self.status()).get("conditions", [])
        return next((one["reason"] for one in found if one["type"] == kind), "")

    async def taints(self, number: int) -> set[str]:
        found = await self.installation.call("GET", f"/api/v1/nodes/{self.nodes[number]}")
        return {one["key"] for one in found["spec"].get("taints") or []}

    async def pods(self) -> set[str]:
        found = await self.installation.call(
            "GET", f"/api/v1/namespaces/{self.name}/pods?labelSelector=convoy.dev/job=job"
        )
        return {
            one["metadata"]["name"] for one in found["items"] if not one["metadata"].get("deletionTimestamp")
        }


@pytest.fixture
async def cluster(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SpotCluster]:
    async with running(installation, monkeypatch) as operator:
        found = SpotCluster(installation, operator)
        await found.start()
        yield found


async def test_a_noticed_node_is_tainted_and_drained_and_its_loss_is_counted(cluster: SpotCluster) -> None:
    await cluster.work()

    async def ready() -> bool:
        status = await cluster.status()
        grants = status.get("grants") or [{}]
        return bool(status.get("nodes", {}).get("ready") == 2 and grants[0].get("pods") == 2)

    await eventually(ready, what="two ready nodes and a grant")
    assert await cluster.condition("PriceKnown") == "PriceKnown"
    assert (await cluster.status())["price"]["perHour"] == 0.3
    call = cluster.installation.call
    body = {"spec": {"taints": [OWN, ITN]}}
    await call("PATCH", f"/api/v1/nodes/{cluster.nodes[0]}", body, content_type=MERGE)

    async def drained() -> bool:
        return OURS in await cluster.taints(0) and await cluster.pods() == {"job-r-1"}

    await eventually(drained, what="taint and eviction")
    assert await cluster.taints(0) == {OWN["key"], ITN["key"], OURS}
    assert await cluster.taints(1) == {OWN["key"]}
    await call("DELETE", f"/api/v1/nodes/{cluster.nodes[0]}")

    async def counted() -> bool:
        counts = (await cluster.status()).get("preemptions", {})
        return (counts.get("total"), counts.get("withNotice")) == (1, 1)

    await eventually(counted, what="the preemption")
    events = await call(
        "GET", f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={cluster.name}"
    )
    assert {one["reason"] for one in events["items"]} >= {"SpotNotice", "SpotPreempted"}


async def test_the_taint_goes_with_the_pool(cluster: SpotCluster) -> None:
    uid = (await cluster.installation.call("GET", f"/api/v1/nodes/{cluster.nodes[1]}"))["metadata"]["uid"]
    deadline = datetime.now(UTC).timestamp() + 600
    notice = Notice(NoticeSource.AWS, cluster.nodes[1], uid, deadline=deadline)
    cluster.notices[cluster.nodes[1]] = (notice,)

    async def tainted() -> bool:
        return OURS in await cluster.taints(1)

    await eventually(tainted, what="the taint")
    (found,) = (await cluster.status())["notices"]
    assert (found["state"], found["sources"]) == ("Noticed", ["AWS"])
    await cluster.installation.call("DELETE", f"{API}/spotpools/{cluster.name}")

    async def free() -> bool:
        return await cluster.taints(1) == {OWN["key"]}

    await eventually(free, what="the end of the taint")


async def test_a_missing_trace_and_a_namespace_that_is_not_allowed_are_shown(cluster: SpotCluster) -> None:
    call, pool = cluster.installation.call, f"{API}/spotpools/{cluster.name}"
    await cluster.work()
    body = {
        "spec": {
            "allowedNamespaces": ["other"],
            "price": {"spot": {"trace": {"configMap": "absent"}}},
        }
    }
    await call("PATCH", pool, body, content_type=MERGE)

    async def shown() -> bool:
        status = await cluster.status()
        grants = status.get("grants") or [{}]
        missing = await cluster.condition("PriceKnown") == "PriceTraceMissing"
        return bool(missing and grants[0].get("reason") == "PoolNotAllowed")

    await eventually(shown, what="both reasons")
    assert (await cluster.status())["price"]["perHour"] == 1
