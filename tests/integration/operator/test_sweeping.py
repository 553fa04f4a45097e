"""Tests of health sweeps on a real API server with the permissions from the chart: verdicts, hardware
classes and requests for sweeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.error import HTTPError

import pytest

from convoy_agents.wire import hub_pb2 as wire
from convoy_operator.app import Operator

from .conftest import FakeAgent, Installation, eventually, running
from .test_guarding import API, resource

pytestmark = pytest.mark.timeout(180)
COUNT = 10
SPREAD = [100.0 + 0.1 * number for number in range(20)]


class Fleet:
    """Nodes whose agents report measurements that the test sets."""

    def __init__(self, installation: Installation, operator: Operator) -> None:
        self.installation, self.operator = installation, operator
        self.agents: list[FakeAgent] = []
        self.slow: dict[int, float] = {}
        self.ordered: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def names(self) -> list[str]:
        return [agent.node for agent in self.agents]

    async def join(self, count: int) -> None:
        for number in range(len(self.agents), len(self.agents) + count):
            name = f"{self.installation.namespace}-{number}"
            await self.installation.node(name)
            agent = FakeAgent(self.installation, self.operator.server, name)
            await agent.enrol()
            await agent.dial()
            self.agents.append(agent)
            self._tasks.append(asyncio.create_task(self._measure(number, agent)))

    async def _measure(self, number: int, agent: FakeAgent) -> None:
        done = 0
        while True:
            for message in agent.received[done:]:
                done += 1
                if message.WhichOneof("body") == "sweep_order":
                    self.ordered.append(agent.node)
                    await agent.send(sweep=self._report(number, agent.node, message.sweep_order))
            await asyncio.sleep(0.05)

    def _report(self, number: int, node: str, order: wire.SweepOrder) -> wire.SweepReport:
        report = wire.SweepReport(
            name=order.name,
            node=node,
            state=wire.SweepReport.DONE,
            inventory={"cpu.model": "six", "own.boot.id": node},
            inventory_digest=f"class-of-{self.installation.namespace}",
        )
        report.metrics.add(metric="inventory", digests=["x"])
        rate = self.slow.get(number, 1.0)
        samples = [rate * (one + 0.05 * number) for one in SPREAD]
        report.metrics.add(metric="cpu-gemm", unit="GFLOP/s", higher_is_better=True, samples=samples)
        return report

    async def leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for agent in self.agents:
            await agent.hang_up()

    async def get(self, kind: str, name: str) -> dict[str, Any]:
        return await self.installation.call("GET", f"{API}/{kind}/{name}")


@pytest.fixture
async def fleet(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    async with running(installation, monkeypatch) as operator:
        it = Fleet(installation, operator)
        try:
            yield it
        finally:
            await it.leave()


async def test_nodes_are_swept_on_request(fleet: Fleet) -> None:
    await fleet.join(COUNT)
    fleet.slow[3] = 0.8
    name = fleet.installation.namespace
    body = resource("HealthSweep", name, {"nodes": fleet.names})
    await fleet.installation.call("POST", f"{API}/healthsweeps", body)

    async def over() -> bool:
        return (await fleet.get("healthsweeps", name)).get("status", {}).get("phase") == "Complete"

    await eventually(over, seconds=40, what="all nodes have a verdict")
    sweep = await fleet.get("healthsweeps", name)
    status = sweep["status"]
    assert (status["progress"], status["failed"], status["message"]) == ("10/10", 1, "9 pass, 1 fail")
    by_node = {one["node"]: one for one in status["nodes"]}
    slow = by_node[fleet.names[3]]
    assert (slow["verdict"], slow["tier"], slow["hardware"]) == ("Fail", "L1", f"machine-of-{slow['node']}")
    assert slow["evidence"][0]["name"] == "cpu-gemm" and slow["evidence"][0]["unit"] == "GFLOP/s"
    assert "evidence" not in by_node[fleet.names[0]] or by_node[fleet.names[0]]["evidence"] == []
    known = (await fleet.get("hardwareclasses", f"class-of-{name}"))["status"]
    assert (known["nodes"], known["referenced"]) == (10, 1)
    assert known["facts"] == {"cpu.model": "six"}

    async def event_posted() -> bool:
        events = await fleet.installation.call("GET", "/api/v1/namespaces/default/events?limit=500")
        ours = [
            one for one in events["items"] if one["involvedObject"].get("uid") == sweep["metadata"]["uid"]
        ]
        return {one["reason"] for one in ours} == {"NodeFailed", "Swept"}

    await eventually(event_posted, what="events say so")
    with pytest.raises(HTTPError) as caught:
        changed = {"spec": {"nodes": ["another"]}}
        path, merge = f"{API}/healthsweeps/{name}", "application/merge-patch+json"
        await fleet.installation.call("PATCH", path, changed, content_type=merge)
    assert "is one run" in caught.value.read().decode()


async def test_nodes_that_join_are_gated_swept_and_admitted(fleet: Fleet) -> None:
    await fleet.join(COUNT)
    name = fleet.installation.namespace
    body = resource("HealthSweep", name, {"nodes": fleet.names})
    await fleet.installation.call("POST", f"{API}/healthsweeps", body)
    spec = {"mode": "Act", "onJoin": "Gate", "sweeps": {"atOncePercent": 100}}
    await fleet.installation.call("POST", f"{API}/guardpolicies", resource("GuardPolicy", name, spec))

    async def referenced() -> bool:
        return (await fleet.get("healthsweeps", name)).get("status", {}).get("phase") == "Complete"

    await eventually(referenced, seconds=40, what="the class is known")
    # Only nodes that are younger than the policy are gated. Wait more than a second, because creation times
    # are in whole seconds.
    await asyncio.sleep(1.1)
    await fleet.join(1)
    joined = fleet.names[-1]
    states: list[str] = []

    async def qualified() -> bool:
        try:
            health = await fleet.get("nodehealths", f"machine-of-{joined}")
        except HTTPError:
            return False
        states.extend(turn["after"] for turn in health.get("status", {}).get("history", [])[len(states) :])
        return bool(health.get("status", {}).get("state") == "Qualified")

    await eventually(qualified, seconds=40, what="the node is let in")
    assert states == ["Gated", "Sweeping", "Qualified"]
    made = (await fleet.installation.call("GET", f"{API}/healthsweeps"))["items"]
    (sweep,) = [one for one in made if one["metadata"]["name"].startswith(f"machine-of-{joined}-")]
    assert sweep["status"]["nodes"][0]["verdict"] == "Pass"

    async def free() -> bool:
        node = await fleet.installation.call("GET", f"/api/v1/nodes/{joined}")
        conditions = {one["type"]: one["status"] for one in node["status"]["conditions"]}
        ours = [one for one in node["spec"].get("taints", []) if one["key"].startswith("convoy.dev/")]
        return not ours and conditions.get("convoy.dev/Qualified") == "True"

    await eventually(free, what="it takes pods")
    await fleet.installation.call("DELETE", f"{API}/guardpolicies/{name}")
