"""Tests of the autoscaler of ServingJobs in the complete operator. Tests act as kubelet and agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from convoy_controllers.servingjob.scaling import step

from .conftest import Installation, eventually
from .test_rights import requested
from .test_serving import JOBS, Job, Node, server, serving
from .test_serving_traffic import report

HPAS = "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers"
WAITING = {
    "type": "Pods",
    "pods": {
        "metric": {"name": "convoy_num_requests_waiting"},
        "target": {"type": "AverageValue", "averageValue": "2"},
    },
}


def scaled(**scaling: Any) -> dict[str, Any]:
    """Return a ServingJob whose role scales between 1 and 3 replicas."""
    body = server("llm", replicas=1)
    if "mode" not in scaling:
        del body["spec"]["replicas"]
    body["spec"]["roles"][0]["scaling"] = {"maxReplicas": 3, "metrics": [WAITING], **scaling}
    return body


class Load:
    """Agents that report waiting requests of every pod, until they are stopped."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.waiting = 0

    async def run(self) -> None:
        while True:
            for pod in await self.node.all():
                await report(self.node, pod["metadata"]["uid"], 0, queue=self.waiting)
            await asyncio.sleep(0.3)


async def test_waiting_requests_add_replicas_and_quiet_removes_them(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "SYNC_SECONDS", 0.5)
    namespace = installation.plane.namespace()
    job = Job(installation, namespace, "llm")
    async with serving(installation, monkeypatch, namespace) as node:
        load = Load(node)
        agents = asyncio.create_task(load.run())
        try:
            behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
            await installation.call("POST", JOBS.format(namespace), scaled(behavior=behavior))
            await eventually(lambda: job.complete("1/1"), what="the replica serves")
            load.waiting = 6
            await eventually(lambda: job.complete("3/3"), what="there are three replicas")
            status = await job.status()
            newest = status["scaling"][0]["decisions"][0]
            assert (newest["toReplicas"], newest["reason"]) == (3, "AboveTarget")
            load.waiting = 0
            await eventually(lambda: job.complete("1/1"), what="there is one replica")
            newest = (await job.status())["scaling"][0]["decisions"][0]
            assert (newest["fromReplicas"], newest["toReplicas"], newest["reason"]) == (3, 1, "BelowTarget")
        finally:
            agents.cancel()
        events = await installation.call("GET", f"/api/v1/namespaces/{namespace}/events")
        made = [one["message"] for one in events["items"] if one["reason"] == "SuccessfulRescale"]
        assert len(made) >= 2 and any("convoy_num_requests_waiting" in one for one in made)


async def test_a_horizontal_pod_autoscaler_is_made_kept_and_removed(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = installation.plane.namespace()
    job = Job(installation, namespace, "llm")

    async def autoscalers() -> list[dict[str, Any]]:
        found = await installation.call("GET", HPAS.format(namespace))
        return list(found["items"])

    async def limit(most: int) -> bool:
        return [one["spec"]["maxReplicas"] for one in await autoscalers()] == [most]

    async def refused() -> bool:
        conditions = (await job.status()).get("conditions", ())
        return any("llm-worker exists and has another owner" in one["message"] for one in conditions)

    foreign = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "llm-worker"},
        "spec": {
            "maxReplicas": 9,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"},
        },
    }
    await installation.call("POST", HPAS.format(namespace), foreign)
    async with serving(installation, monkeypatch, namespace):
        await installation.call("POST", JOBS.format(namespace), scaled(mode="HorizontalPodAutoscaler"))
        await eventually(refused, what="the name is in use")
        await installation.call("DELETE", f"{HPAS.format(namespace)}/llm-worker")
        await eventually(lambda: job.complete("1/1"), what="the replica serves")
        await eventually(lambda: limit(3), what="there is an autoscaler")
        (found,) = await autoscalers()
        assert found["metadata"]["name"] == "llm-worker"
        assert found["spec"]["scaleTargetRef"]["kind"] == "ServingJob"
        (role,) = scaled(mode="HorizontalPodAutoscaler")["spec"]["roles"]
        await job.patch(roles=[{**role, "scaling": {**role["scaling"], "maxReplicas": 5}}])
        await eventually(lambda: limit(5), what="the autoscaler follows the spec")
        del role["scaling"]
        await job.patch(roles=[role])

        async def removed() -> bool:
            return not await autoscalers()

        await eventually(removed, what="the autoscaler is removed")
        assert (await installation.call("GET", job.path))["spec"]["replicas"] == 1
    used = {one.verb for one in requested(installation) if one.resource == "horizontalpodautoscalers"}
    assert used >= {"get", "patch", "delete"}, "an apply that creates an object needs create too"
