"""Tests of what a serving rank reports to its agent: real launcher, real engine lm, scripted agent."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable

import pytest
from tests.ports import free_port

from .conftest import Agent, Launcher
from .test_serving import SMALL


@pytest.mark.timeout(180)
async def test_a_rank_reports_its_requests_once_it_serves(
    agent: Agent, launch: Callable[..., Launcher]
) -> None:
    port = free_port()
    launch(torch=True, CONVOY_PARAMS=json.dumps(SMALL), CONVOY_SERVING_PORT=str(port))
    await agent.receives(lambda m: m["type"] == "hello" and m["role"] == "launcher")
    await agent.form(["python", "-m", "convoy_workloads.engines.lm.engine"], ranks=1)
    first = await agent.receives(lambda m: m["type"] == "traffic")
    assert (first["requests"], first["queue"], first["inFlight"]) == (0, 0, 0)

    def complete() -> int:
        data = json.dumps({"prompt": "abc", "max_tokens": 4, "seed": 1}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", data)
        with urllib.request.urlopen(request, timeout=30) as response:
            return int(response.status)

    assert await asyncio.to_thread(complete) == 200
    after = await agent.receives(lambda m: m["type"] == "traffic" and m["requests"] == 1)
    assert after["tokens"] == 4 and after["computeSeconds"] > 0 and after["cpuSeconds"] > 0
    assert sum(after["latency"]["counts"]) == sum(after["firstToken"]["counts"]) == 1
