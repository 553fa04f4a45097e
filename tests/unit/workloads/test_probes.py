"""Tests of the launcher's responses to the kubelet's probes."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.ports import free_port

from convoy_workloads.launcher import probes
from convoy_workloads.launcher.probes import ProbeServer, Readiness
from convoy_workloads.launcher.rank import EXITED, Rank
from convoy_workloads.launcher.supervisor import Supervisor
from convoy_workloads.runtime.heartbeat import (
    DRAINING,
    SERVING,
    Heartbeat,
    HeartbeatWriter,
    hung,
    read,
    ready,
)


def rank(folder: Path, number: int = 0) -> tuple[Rank, HeartbeatWriter]:
    path = folder / str(number)
    path.touch()
    return Rank(1, number, str(path)), HeartbeatWriter(str(path), joined=True)


@pytest.mark.parametrize("state", [SERVING, DRAINING])
def test_a_serving_rank_without_heartbeats_is_hung(state: int) -> None:
    assert not hung(Heartbeat(state, 100.0), 109.9, 10.0)
    assert hung(Heartbeat(state, 100.0), 110.1, 10.0)


def test_only_a_serving_rank_with_a_fresh_heartbeat_is_ready() -> None:
    assert ready(Heartbeat(SERVING, 100.0), 105.0, 5.0)
    assert not ready(Heartbeat(SERVING, 100.0), 105.1, 5.0)
    assert not any(ready(Heartbeat(state, 100.0), 100.0, 5.0) for state in (0, 1, 2, 3, DRAINING))


def test_a_touch_keeps_the_state_of_a_serving_rank(tmp_path: Path) -> None:
    _, writer = rank(tmp_path)
    seen = []
    for act in (writer.start, writer.touch, writer.serve, writer.touch, writer.drain, writer.touch):
        act()
        seen.append(read(str(tmp_path / "0")).state)
    assert seen == [1, 1, SERVING, SERVING, DRAINING, DRAINING]


def test_a_pod_is_ready_while_all_its_ranks_serve(tmp_path: Path) -> None:
    (first, one), (second, other) = rank(tmp_path, 0), rank(tmp_path, 1)
    readiness = Readiness(5.0)
    ranks = [first, second]

    def status(path: str = "/ready", after: float = 0.0, ending: bool = False) -> tuple[int, str]:
        return readiness.respond(path, ranks, ending, time.monotonic() + after)

    assert readiness.respond("/ready", [], False, 0.0) == (503, "no rank has been started")
    assert status() == (503, "rank 0 has not reported a state")
    one.start()
    assert status() == (503, "rank 0 loads its model")
    assert status("/startup")[0] == 503
    one.serve()
    assert status() == (503, "rank 1 has not reported a state")
    other.serve()
    assert status() == (200, "ready")
    # The compute loop of rank 0 hangs: only rank 1 renews its heartbeat.
    other._write(SERVING, 60.0)
    code, why = status(after=10.0)
    assert code == 503 and why.startswith("the compute loop of rank 0 has been silent for 10.")
    assert status("/startup", after=10.0)[0] == 200
    assert status("/live", after=10.0)[0] == 200
    assert status(ending=True) == (503, "the pod is ending")
    one.drain()
    assert status() == (503, "rank 0 drains")
    first.exit_code, first.state = 9, EXITED
    assert status() == (503, "rank 0 has ended: exit code 9")
    assert status("/other")[0] == 404


def test_the_startup_probe_fails_until_the_pod_was_ready_once(tmp_path: Path) -> None:
    only, writer = rank(tmp_path)
    readiness = Readiness(5.0)
    writer.serve()
    now = time.monotonic()
    assert readiness.respond("/startup", [only], True, now)[0] == 503
    assert readiness.respond("/startup", [only], False, now)[0] == 200
    assert readiness.respond("/startup", [], False, now)[0] == 200


@pytest.fixture
def port() -> int:
    return free_port()


async def send(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    if writer.can_write_eof():
        writer.write_eof()
    found = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return found


@pytest.fixture
def served(port: int, tmp_path: Path) -> Callable[[], ProbeServer]:
    only, writer = rank(tmp_path)
    writer.serve()
    return lambda: ProbeServer({"CONVOY_READY_PORT": str(port)}, lambda: [only], lambda: False)


async def test_the_server_answers_requests_and_survives_nonsense(
    served: Callable[[], ProbeServer], port: int
) -> None:
    server = served()
    assert await server.start() == ""
    try:
        found = await send(port, b"GET /ready?x=1 HTTP/1.1\r\nHost: a\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 200 OK\r\n") and found.endswith(b"\r\n\r\nready\n")
        assert (await send(port, b"HEAD /live HTTP/1.0\r\n\r\n")).endswith(
            b"Content-Length: 0\r\nConnection: close\r\n\r\n"
        )
        assert (await send(port, b"PUT /ready HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
        assert (await send(port, b"GET /nowhere HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404 ")
        assert await send(port, b"nonsense") == b""
        assert await send(port, b"x" * 100_000) == b""
        assert (await send(port, b"GET /live HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    finally:
        server.close()


async def test_a_silent_client_is_closed(
    served: Callable[[], ProbeServer], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "READ_SECONDS", 0.05)
    server = served()
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    server.close()


async def test_a_used_port_ends_the_launcher_with_a_message(
    port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CONVOY_READY_PORT", str(port))
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("0.0.0.0", port))
        taken.listen()
        assert await Supervisor().run() == 1
    assert (
        f"port {port} (CONVOY_READY_PORT) for the kubelet's probes cannot be used" in capsys.readouterr().err
    )


async def test_without_a_port_nothing_listens() -> None:
    assert await ProbeServer({}, list, lambda: False).start() == ""


@pytest.mark.parametrize(("drained", "code"), [(True, 0), (False, 75)])
def test_a_launcher_whose_rank_has_drained_ends_with_success(
    tmp_path: Path, drained: bool, code: int
) -> None:
    launcher = Supervisor()
    only, writer = rank(tmp_path)
    writer.serve()
    if drained:
        writer.drain()
    only.termination_requested = True
    only._finish(0)
    launcher._ranks = [only]
    assert launcher._stopped_exit_code([0]) == code
