"""Tests of the requests of serving pods on their way from the rank to the hub."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import FakeHub, Host, assignment

from convoy_agents.pods import assignment as assignments
from convoy_agents.traffic import scraper
from convoy_agents.wire import hub_pb2
from convoy_workloads.runtime.heartbeat import HeartbeatWriter
from convoy_workloads.runtime.rank_context import RankContext
from convoy_workloads.serving.traffic import Reporter, Totals

UID = "aaaa-1111"
METRICS = b'vllm:num_requests_waiting 7\nvllm:request_success_total{finished_reason="stop"} 5\n'


async def started(make_host: HostMaker, hub: FakeHub, scrape: hub_pb2.Scrape | None = None) -> Host:
    """Return a host with a pod whose only rank runs in incarnation 2."""
    host = await make_host("one")
    await host.publish(UID)
    launcher = await host.launcher(UID)
    host.pods.append(launcher)
    await hub.report(UID, lambda report: report.launcher_connected)
    plan = assignment("job", 2, 0, [(UID, host, 1)])
    if scrape is not None:
        plan.scrape.CopyFrom(scrape)
    hub.send("one", assignment=plan)
    await launcher.receive()
    launcher.send(type="rank", incarnation=2, rank=0, state="RUNNING", startedMs=1)
    return host


async def traffic(hub: FakeHub, wanted: Any) -> hub_pb2.PodTraffic:
    def check(_: str, message: hub_pb2.AgentMessage) -> bool:
        return any(wanted(one) for one in message.traffic.pods)

    message = await hub.until(check)
    found: hub_pb2.PodTraffic = next(one for one in message.traffic.pods if wanted(one))
    return found


async def test_the_load_and_the_requests_of_a_rank_reach_the_hub(make_host: HostMaker, hub: FakeHub) -> None:
    host = await started(make_host, hub)
    heartbeat, totals = HeartbeatWriter(""), Totals()
    heartbeat.start()
    folder = os.open(host.target(UID), os.O_PATH)
    # The path of a test's folder is too long for a socket address.
    context = RankContext(rank=0, incarnation=2, socket=f"/proc/self/fd/{folder}/agent.sock")
    reporter = Reporter(context, heartbeat)
    reporter.traffic = lambda: totals.message(queue=3, in_flight=2)
    found = await hub.report(UID, lambda report: any(one.loading_unix_ms for one in report.ranks))
    assert abs(found.ranks[0].loading_unix_ms / 1000 - time.time()) < 60
    heartbeat.serve()
    first = await traffic(hub, lambda one: one.queue == 3)
    assert (first.pod_uid, first.incarnation, first.in_flight, first.requests) == (UID, 2, 2, 0)
    for _ in range(20):
        totals.ended("stop", 0.25)
    found = await traffic(hub, lambda one: one.requests == 20)
    assert sum(found.latency.counts) == 20


async def test_the_metrics_of_a_program_reach_the_hub(
    make_host: HostMaker, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scraper, "SCRAPE_SECONDS", 0.2)
    monkeypatch.setattr(assignments, "_check_scrape", lambda scrape: None)  # the test's pod has no IP

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /stats HTTP/1.0\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + METRICS)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        await started(make_host, hub, hub_pb2.Scrape(address="127.0.0.1", port=port, path="/stats"))
        found = await traffic(hub, lambda one: one.queue == 7)
    assert (found.requests, found.incarnation) == (5, 2)
