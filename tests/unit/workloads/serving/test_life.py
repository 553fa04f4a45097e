"""Tests of a serving rank's life: loading, readiness, hangs, failures and the drain."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from pathlib import Path

import pytest
from tests.unit.workloads.serving.harness import Scripted, parse_events, serving

from convoy_workloads.runtime.heartbeat import DRAINING, SERVING, STARTED, ready
from convoy_workloads.serving import compute, kept_socket, listener
from convoy_workloads.serving.front import Limits
from convoy_workloads.serving.lifecycle import Lifecycle, State
from convoy_workloads.serving.listener import PortInUse
from convoy_workloads.serving.protocol import ModelError, SelfTestFailed


async def test_a_rank_is_ready_after_its_load_and_its_self_test(tmp_path: Path) -> None:
    async with serving(tmp_path, wait=False) as rank:
        assert (await rank.get("/healthz"))[0] == 200
        assert await rank.get("/readyz") == (503, "the model is loading\n")
        code, body, headers = await rank.complete("abc")
        assert (code, headers["retry-after"]) == (503, "1")
        assert body["error"]["message"] == "the model is loading: send the request again"
        first = rank.heartbeat
        assert first.state == STARTED and first.joined
        await rank.until(lambda: rank.heartbeat.at > first.at)
        rank.engine.may_load.set()
        await rank.until(lambda: rank.heartbeat.state == SERVING)
        assert await rank.get("/readyz") == (200, "ready\n")
        assert (await rank.complete("abc"))[0] == 200


async def test_the_heartbeat_is_renewed_without_requests(tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        for _ in range(3):
            before = rank.heartbeat
            await rank.until(lambda before=before: rank.heartbeat.at > before.at)  # type: ignore[misc]
            assert rank.heartbeat.state == SERVING


async def test_a_hung_engine_stops_its_heartbeat_although_the_server_runs(tmp_path: Path) -> None:
    engine = Scripted(free=False)
    async with serving(tmp_path, engine) as rank:
        waiting = asyncio.create_task(rank.complete("abc", 1))
        await rank.until(lambda: bool(engine.running))
        at = rank.heartbeat.at
        assert (await rank.get("/healthz"))[0] == 200
        assert (rank.heartbeat.at, rank.heartbeat.state) == (at, SERVING)
        assert not ready(rank.heartbeat, at + 5.1, 5.0)
        engine.permits.release()
        assert (await waiting)[0] == 200
        await rank.until(lambda: rank.heartbeat.at > at)


async def test_a_hung_event_loop_stops_the_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as rank:
        monkeypatch.setattr(compute, "FRONT_SECONDS", -1.0)
        # An iteration that has already begun may still write.
        at = rank.heartbeat.at
        await rank.until(lambda: time.monotonic() - rank.heartbeat.at > 2 * compute.IDLE_SECONDS)
        at = rank.heartbeat.at
        monkeypatch.setattr(compute, "FRONT_SECONDS", 5.0)
        await rank.until(lambda: rank.heartbeat.at > at)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ModelError("tensor a has shape [1], expected [2]"), "ModelError: tensor a has shape [1]"),
        (SelfTestFailed("logits differ"), "SelfTestFailed: logits differ"),
    ],
)
async def test_a_model_that_cannot_be_served_ends_the_process(
    error: Exception, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = Scripted()
    if isinstance(error, ModelError):
        engine.loads = [error]
    else:

        def fail() -> None:
            raise error

        engine.test = fail
    async with serving(tmp_path, engine, wait=False) as rank:
        engine.may_load.set()
        assert await rank.ended() == 1
        assert rank.process.compute.error is error
        assert words in rank.process.lifecycle.reason
        assert rank.heartbeat.state == STARTED and engine.closed
    shown = capsys.readouterr().err
    assert shown.count(words) == 1 and "Traceback" not in shown


async def test_a_failed_iteration_fails_its_requests_and_ends_the_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = Scripted(free=False)
    async with serving(tmp_path, engine) as rank:
        streamed = asyncio.create_task(rank.events({"prompt": "abc", "max_tokens": 9}))
        await rank.until(lambda: len(engine.running) == 1)
        whole = asyncio.create_task(rank.complete("abc", 9))
        await rank.until(lambda: rank.process.compute.waiting == 1)
        # The stream gets its first token, and the second request is admitted.
        engine.permits.release()
        await rank.until(lambda: len(engine.running) == 2)
        engine.broken = RuntimeError("out of memory")
        engine.permits.release()
        code, body, _ = await whole
        assert (code, body["error"]["code"]) == (503, "engine_failed")
        assert body["error"]["message"] == "the engine has failed: RuntimeError: out of memory"
        *_, last = await streamed
        assert last["error"]["code"] == "engine_failed"
        assert await rank.ended() == 1
        assert rank.process.lifecycle.state is State.FAILED
    assert "Traceback" in capsys.readouterr().err, "the error is a defect, so its place must be known"


async def test_a_full_queue_refuses_with_a_time_to_retry(tmp_path: Path) -> None:
    engine = Scripted(room=1, free=False)
    async with serving(tmp_path, engine, Limits(queue=2)) as rank:
        running = asyncio.create_task(rank.complete("a", 1))
        await rank.until(lambda: bool(engine.running))
        waiting = [asyncio.create_task(rank.complete("b", 1)) for _ in range(2)]
        await rank.until(lambda: rank.process.compute.waiting == 2)
        code, body, headers = await rank.complete("c", 1)
        assert (code, headers["retry-after"]) == (429, "1")
        assert body["error"]["type"] == "rate_limit_error" and body["error"]["code"] == "queue_full"
        # A request with too many choices does not get a part of the queue.
        assert (await rank.complete("c", 1, n=2))[0] == 429
        engine.free = True
        engine.permits.release()
        assert [(await one)[0] for one in (running, *waiting)] == [200] * 3


async def test_a_deadline_ends_a_request_that_runs_or_waits(tmp_path: Path) -> None:
    engine = Scripted(room=1, free=False)
    async with serving(tmp_path, engine) as rank:
        late = {"X-Request-Timeout": "0.2"}
        running = asyncio.create_task(rank.post("/v1/completions", {"prompt": "a", "max_tokens": 9}, late))
        await rank.until(lambda: bool(engine.running))
        waiting = asyncio.create_task(rank.post("/v1/completions", {"prompt": "b", "max_tokens": 9}, late))
        await rank.until(lambda: rank.process.compute.waiting == 1)
        deadline = max(one.deadline for one in rank.process.compute._waiting)
        await rank.until(lambda: time.monotonic() > deadline)
        engine.permits.release()
        for one in (running, waiting):
            code, body, _ = await one
            assert (code, body["error"]["code"]) == (504, "deadline_exceeded")
        assert len(engine.admitted) == 1 and not engine.running


@pytest.mark.parametrize("value", ["0", "-1", "soon", "nan"])
async def test_a_malformed_deadline_is_refused(value: str, tmp_path: Path) -> None:
    async with serving(tmp_path) as rank:
        code, body, _ = await rank.post("/v1/completions", {"prompt": "a"}, {"X-Request-Timeout": value})
        assert (code, body["error"]["param"]) == (400, "X-Request-Timeout")


@pytest.mark.parametrize("stream", [True, False])
async def test_generation_stops_when_the_client_leaves(stream: bool, tmp_path: Path) -> None:
    engine = Scripted(free=False)
    async with serving(tmp_path, engine) as rank:
        body = json.dumps({"prompt": "abc", "max_tokens": 40, "stream": stream}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", rank.port)
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        await rank.until(lambda: bool(engine.running))
        if stream:
            engine.permits.release()
            await reader.readuntil(b"\n\n")
        writer.transport.abort()
        await rank.until(lambda: rank.process.front.in_flight == 0)
        engine.permits.release()
        await rank.until(lambda: not engine.running)
        assert len(engine.cancelled) == 1
        engine.free = True
        engine.permits.release()
        assert (await rank.complete("abc"))[0] == 200


async def test_a_client_that_leaves_the_queue_is_not_admitted(tmp_path: Path) -> None:
    engine = Scripted(room=1, free=False)
    async with serving(tmp_path, engine) as rank:
        running = asyncio.create_task(rank.complete("a", 2))
        await rank.until(lambda: bool(engine.running))
        waiting = asyncio.create_task(rank.complete("b", 2))
        await rank.until(lambda: rank.process.compute.waiting == 1)
        waiting.cancel()
        await rank.until(lambda: rank.process.front.in_flight == 1)
        engine.permits.release()
        await rank.until(lambda: rank.process.compute.waiting == 0)
        engine.free = True
        engine.permits.release()
        assert (await running)[0] == 200
        assert len(engine.admitted) == 1


async def test_a_drain_accepts_then_refuses_then_finishes(tmp_path: Path) -> None:
    engine = Scripted(free=False)
    async with serving(tmp_path, engine, endpoint_lag_seconds=3600.0) as rank:
        running = asyncio.create_task(rank.complete("abc", 40))
        await rank.until(lambda: bool(engine.running))
        os.kill(os.getpid(), 15)
        await rank.until(lambda: rank.process.lifecycle.state is State.LEAVING)
        assert (await rank.get("/readyz"))[0] == 503
        # Proxies that do not know yet still send requests.
        late = asyncio.create_task(rank.complete("x", 1))
        await rank.until(lambda: rank.process.compute.waiting == 1)
        engine.permits.release(5)
        code, _, headers = await late
        assert (code, headers["connection"]) == (200, "close")
        assert (await rank.post("/v2/models/echo/infer", {}))[2]["connection"] == "close"
        reader, writer = await asyncio.open_connection("127.0.0.1", rank.port)
        writer.write(b"GET /v1/models HTTP/1.1\r\nHost: a\r\n")
        rank.process.leave()
        assert await reader.read() == b"", "a connection without a complete request is closed"
        writer.close()
        await rank.until(lambda: rank.process.lifecycle.state is State.DRAINING)
        code, body, headers = await rank.complete("y", 1)
        assert (code, headers["connection"], headers["retry-after"]) == (503, "close", "1")
        assert body["error"]["message"] == "this replica is ending: send the request again"
        assert rank.heartbeat.state == DRAINING
        engine.permits.release(100)
        assert (await running)[0] == 200
        assert await rank.ended() == 0


@pytest.mark.parametrize("in_time", [True, False])
async def test_a_drain_ends_with_success_within_its_limit(in_time: bool, tmp_path: Path) -> None:
    engine = Scripted(free=False)
    seconds = 30.0 if in_time else 0.1
    async with serving(tmp_path, engine, drain_seconds=seconds) as rank:
        running = asyncio.create_task(rank.events({"prompt": "abc", "max_tokens": 3}))
        await rank.until(lambda: bool(engine.running))
        engine.permits.release()
        await rank.until(lambda: any(place == 1 for _, place in engine.running.values()))
        rank.process.leave()
        if not in_time:
            await rank.until(lambda: rank.process.lifecycle.state is State.ENDED)
        engine.free = True
        engine.permits.release()
        events = await running
        assert await rank.ended() == 0
        if in_time:
            assert events[-1] == "[DONE]"
        else:
            assert events[-1]["error"]["code"] == "cancelled"
        assert engine.closed


async def test_a_rank_that_still_loads_ends_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path, wait=False, endpoint_lag_seconds=3600.0) as rank:
        rank.process.leave()
        assert (await rank.complete("a"))[0] == 503
        rank.process.leave()
        rank.engine.may_load.set()
        assert await rank.ended() == 0
        assert rank.heartbeat.state == DRAINING


async def test_a_used_port_is_an_error_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "BIND_SECONDS", 0.0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            PortInUse, match=rf"port {port} of 127\.0\.0\.1 cannot be opened: Address already"
        ):
            async with serving(tmp_path, port=port):
                pass


def test_the_states_follow_each_other() -> None:
    life = Lifecycle()
    assert not life.accepts and not life.ready and not life.ending
    life.serving()
    assert life.accepts and life.ready
    life.loading()
    assert not life.accepts and not life.ending
    life.serving()
    life.leave()
    assert life.accepts and not life.ready and life.ending
    life.serving()
    assert life.state is State.LEAVING
    life.drain()
    assert not life.accepts
    life.end()
    assert life.state is State.ENDED
    life.fail("x")
    life.end()
    assert life.state is State.FAILED and life.reason == "x"


def test_an_unfinished_stream_has_no_end_mark() -> None:
    assert parse_events(b'data: {"error":{}}\n\n')[-1] != "[DONE]"


@pytest.mark.parametrize("asked", [True, False])
async def test_only_a_rank_that_ends_as_asked_gives_up_its_port(
    asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another rank replaces one that fails, so connections wait for that one."""
    dropped: list[bool] = []
    monkeypatch.setattr(kept_socket, "drop", lambda: dropped.append(True))
    async with serving(tmp_path) as rank:
        if asked:
            rank.process.leave()
        else:
            rank.process.lifecycle.fail("the engine has failed")
            rank.process.compute.ended.set()
        assert await rank.ended() == (0 if asked else 1)
        assert dropped == [True] * asked
