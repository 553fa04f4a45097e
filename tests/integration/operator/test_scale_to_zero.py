"""Tests of a ServingJob at zero in the complete operator. Tests act as kubelet and agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from convoy_controllers.servingjob.scaling import step
from convoy_crds.terms import LABEL_ENDPOINT, LABEL_ROLE

from .conftest import Installation, eventually
from .test_rights import requested
from .test_serving import JOBS, Job, Node, server, serving
from .test_serving_scaling import WAITING
from .test_serving_traffic import report

ENGINE = {
    "apiVersion": "convoy.dev/v1alpha1",
    "kind": "Engine",
    "metadata": {"name": "activator"},
    "spec": {"image": "activator:1", "command": ["hold"], "roleKind": "Serving"},
}


def to_zero() -> dict[str, Any]:
    """Return a ServingJob that scales between 0 and 2 replicas."""
    body = server("llm")
    del body["spec"]["replicas"]
    body["spec"]["roles"][0]["scaling"] = {
        "minReplicas": 0,
        "maxReplicas": 2,
        "cooldownSeconds": 1,
        "metrics": [WAITING],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    }
    return body


class Loads:
    """Agents that report the requests that activators hold, until they are stopped."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.held = 0

    async def run(self) -> None:
        while True:
            for pod in await self.node.all():
                held = self.held if pod["metadata"]["labels"][LABEL_ROLE] == "activator" else 0
                await report(self.node, pod["metadata"]["uid"], 0, queue=held)
            await asyncio.sleep(0.3)


async def test_a_job_goes_to_zero_and_a_held_request_brings_it_back(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "SYNC_SECONDS", 0.5)
    namespace = installation.plane.namespace()
    job = Job(installation, namespace, "llm")
    await installation.call("POST", "/apis/convoy.dev/v1alpha1/engines", ENGINE)

    async with serving(installation, monkeypatch, namespace) as node:

        async def state() -> tuple[str, set[str]]:
            """Return the pods to which the Service leads, and the roles that have pods."""
            services = await job.objects("/api/v1", "services")
            front = services[0]["spec"]["selector"][LABEL_ENDPOINT] if services else ""
            return front, {pod["metadata"]["labels"][LABEL_ROLE] for pod in await node.all()}

        async def at_zero() -> bool:
            return await state() == ("activator", {"activator"})

        async def serves() -> bool:
            return await state() == ("true", {"worker"})

        loads = Loads(node)
        agents = asyncio.create_task(loads.run())
        try:
            await installation.call("POST", JOBS.format(namespace), to_zero())
            await eventually(at_zero, 60, what="the job is at zero")
            assert len(await node.all()) == 2
            assert (await job.status())["roles"][0].get("desired", 0) == 0
            loads.held = 1
            await eventually(serves, 60, what="the job serves")
            sent = [one.endpoints for one in node.agent.received if one.HasField("endpoints")]
            assert {tuple(one.addresses) for one in sent} >= {("10.1.0.1:8080",)}
            loads.held = 0
            await eventually(at_zero, 60, what="the job is at zero again")
        finally:
            agents.cancel()
    found = requested(installation)
    written = {one.resource for one in found if one.verb not in ("list", "watch")}
    assert "services" in written and not written & {"endpointslices", "endpoints", "deployments"}
