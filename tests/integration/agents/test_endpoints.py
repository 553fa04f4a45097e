"""The way of the ready replicas from the hub to an activator, through its agent."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, assignment

from convoy_agents.wire import hub_pb2
from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.serving.traffic import Reporter

UID = "aaaa-1111"


async def test_an_activator_learns_of_replicas_also_when_it_connects_later(
    make_host: HostMaker, hub: FakeHub
) -> None:
    host = await make_host("one")
    await host.publish(UID)
    launcher = await host.launcher(UID)
    host.pods.append(launcher)
    await hub.report(UID, lambda report: report.launcher_connected)
    hub.send("one", assignment=assignment("job", 2, 0, [(UID, host, 1)]))
    await launcher.receive()
    folder = os.open(host.target(UID), os.O_PATH)
    context = RankContext(rank=0, incarnation=2, socket=f"/proc/self/fd/{folder}/agent.sock")
    loop, received = asyncio.get_running_loop(), asyncio.Queue[Any]()

    def on_message(message: dict[str, Any]) -> None:
        loop.call_soon_threadsafe(received.put_nowait, message)

    def send(*addresses: str) -> None:
        hub.send("one", endpoints=hub_pb2.Endpoints(pod_uid=UID, incarnation=2, addresses=addresses))

    send("10.0.0.1:8080")
    await hub.report(UID, lambda report: list(report.endpoints) == ["10.0.0.1:8080"])
    Reporter(context, HeartbeatWriter(""), on_message)
    first = await asyncio.wait_for(received.get(), 30)
    assert first == {"type": "endpoints", "incarnation": 2, "addresses": ["10.0.0.1:8080"]}
    send("10.0.0.1:8080", "10.0.0.2:8080")
    assert (await asyncio.wait_for(received.get(), 30))["addresses"] == ["10.0.0.1:8080", "10.0.0.2:8080"]
    send()
    assert (await asyncio.wait_for(received.get(), 30))["addresses"] == []
    await hub.report(UID, lambda report: not report.endpoints)
