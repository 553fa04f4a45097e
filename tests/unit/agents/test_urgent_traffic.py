"""Tests of totals that an agent sends without waiting for its next heartbeat."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from convoy_agents import hub_client
from convoy_agents.outbox import Outbox
from convoy_agents.traffic.buffer import TrafficBuffer
from convoy_agents.wire import hub_pb2


async def test_urgent_totals_do_not_wait_for_the_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_client, "HEARTBEAT_SECONDS", 1000.0)
    buffer = TrafficBuffer()
    handlers: Any = SimpleNamespace(
        outbox=Outbox(),
        telemetry=lambda: None,
        traffic=buffer.pop_message,
        attestations=list,
        sweep_reports=lambda again: [],
        fault_reports=lambda again: [],
        notices=lambda again: None,
    )
    client = hub_client.HubClient("n", "hub:1", SimpleNamespace(), handlers, "1")  # type: ignore[arg-type]
    messages = client._messages()
    assert (await anext(messages)).WhichOneof("body") == "heartbeat"
    following = asyncio.ensure_future(anext(messages))
    await asyncio.sleep(0)
    assert buffer.add(hub_pb2.PodTraffic(pod_uid="u", incarnation=1, queue=1))
    client.send_traffic()
    found = await asyncio.wait_for(following, 30)
    assert [one.queue for one in found.traffic.pods] == [1]
    await messages.aclose()  # type: ignore[attr-defined]
