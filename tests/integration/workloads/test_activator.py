"""Tests of an activator as its pod runs it: real launcher, real engine, scripted agent."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from tests.ports import free_port

from .conftest import Agent, Launcher

COMMAND = ["python", "-m", "convoy_workloads.engines.activator.engine"]


class Replica(BaseHTTPRequestHandler):
    """A replica that returns what it gets."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.timeout(180)
async def test_a_held_request_is_reported_and_released_by_a_message_of_the_agent(
    agent: Agent, launch: Callable[..., Launcher]
) -> None:
    port, probe = free_port(), free_port()
    launcher = launch(
        torch=True,
        CONVOY_WARM="false",
        CONVOY_PARAMS="{}",
        CONVOY_SERVING_PORT=str(port),
        CONVOY_READY_PORT=str(probe),
        CONVOY_ENDPOINT_LAG_SECONDS="0",
    )
    await agent.receives(lambda m: m["type"] == "hello" and m["role"] == "launcher")
    await agent.form(COMMAND, ranks=1)
    await agent.receives(lambda m: m["type"] == "traffic" and m["queue"] == 0)
    assert await asyncio.to_thread(status_of, f"http://127.0.0.1:{probe}/ready") == 200

    def post() -> bytes:
        body = json.dumps({"prompt": "abc"}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body)
        with urllib.request.urlopen(request, timeout=60) as response:
            return bytes(response.read())

    waiting = asyncio.create_task(asyncio.to_thread(post))
    await agent.receives(lambda m: m["type"] == "traffic" and m["queue"] == 1)
    with ThreadingHTTPServer(("127.0.0.1", 0), Replica) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        agent.send_to_rank(0, type="endpoints", incarnation=1, addresses=[address])
        assert json.loads(await waiting) == {"prompt": "abc"}
        server.shutdown()
    launcher.signal(signal.SIGTERM)
    ended = await agent.receives_exit(0)
    assert ended["exitCode"] == 0
