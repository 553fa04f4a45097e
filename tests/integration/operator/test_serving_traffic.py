"""Tests of the requests of a ServingJob in the complete operator. Tests act as kubelet and agent."""

from __future__ import annotations

import asyncio

import pytest

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.servingjob import traffic

from .conftest import Installation, eventually
from .test_serving import JOBS, Job, Node, server, serving


async def report(node: Node, uid: str, requests: int, queue: int = 0) -> None:
    """Report the totals of a pod, as its agent does."""
    latency = wire.Latencies(bounds=[0.1, 0.2, 0.4], counts=[0, requests, 0, 0])
    totals = wire.PodTraffic(pod_uid=uid, incarnation=1, requests=requests, queue=queue, latency=latency)
    await node.agent.send(traffic=wire.Traffic(pods=[totals]))


async def test_requests_reach_the_status_and_the_objectives(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "FEWEST_SECONDS", 0.5)
    namespace = installation.plane.namespace()
    job = Job(installation, namespace, "llm")
    async with serving(installation, monkeypatch, namespace) as node:
        body = server("llm", replicas=1, slo={"p95Ms": 150})
        body["spec"]["roles"][0]["metrics"] = {"port": 9000}
        await installation.call("POST", JOBS.format(namespace), body)
        await eventually(lambda: job.complete("1/1"), what="the replica serves")
        (pod,) = await node.all()
        given = [one.assignment for one in node.agent.received if one.HasField("assignment")]
        scrape = given[-1].scrape
        assert (scrape.address, scrape.port, scrape.path) == ("10.1.0.1", 9000, "/metrics")
        found = {one["type"]: one["status"] for one in (await job.status())["conditions"]}
        assert found["SLOMet"] == "Unknown"

        async def missed() -> bool:
            status = await job.status()
            known = {one["type"]: one["reason"] for one in status["conditions"]}
            return known["SLOMet"] == "ObjectivesMissed" and "p95Ms" in status.get("traffic", {})

        sender = asyncio.create_task(_send(node, pod["metadata"]["uid"]))
        try:
            await eventually(missed, 60, what="the objective is missed")
        finally:
            sender.cancel()
        status = await job.status()
        assert 150 < status["traffic"]["p95Ms"] <= 200
        assert status["traffic"]["queue"] == 4
        assert status["reason"] == "ObjectivesMissed"


async def _send(node: Node, uid: str) -> None:
    requests = 0
    while True:
        await report(node, uid, requests, queue=4)
        requests += 10
        await asyncio.sleep(0.2)
