"""Tests of an activator: its bounds, the release of its requests, and the way of a request to a replica."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from tests.unit.workloads.activator.harness import activator, echo, replica

from convoy_workloads.engines.activator import app
from convoy_workloads.engines.activator.hold import Closed, Full, Hold, Place
from convoy_workloads.runtime.heartbeat import DRAINING, SERVING


async def test_requests_wait_for_a_replica_and_are_released_in_order(tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def record(request: web.Request) -> web.Response:
        seen.append(await request.read())
        return web.Response(text="ok")

    async with activator(tmp_path) as it, replica(record) as address:
        sent = []
        for number in range(5):
            sent += it.posted(b"%d" % number)
            await it.until(lambda number=number: it.hold.waiting == number + 1)  # type: ignore[misc]
        assert it.process.metrics.message()["queue"] == 5
        it.process.receive({"type": "endpoints", "incarnation": 1, "addresses": [address]})
        assert [(await one)[0] for one in sent] == [200] * 5
        assert seen == [b"0", b"1", b"2", b"3", b"4"]
        await it.until(it.hold.idle.is_set)
        message = it.process.metrics.message()
        # The replica counts these requests, so the activator does not.
        assert (message["queue"], message["inFlight"], message["requests"]) == (0, 0, 0)


async def test_a_request_and_its_response_pass_unchanged(tmp_path: Path) -> None:
    async with activator(tmp_path) as it, replica(echo) as address:
        it.hold.set_addresses([address])
        status, text, headers = await it.post(
            gzip.compress(b"body"),
            "/v2/models/m/infer?a=%2F&b",
            authorization="Bearer t",
            accept="x/y",
            content_encoding="gzip",
        )
        assert (status, text) == (200, "body")
        assert headers["x-target"] == "POST /v2/models/m/infer?a=%2F&b"
        assert headers["x-seen-authorization"] == "Bearer t"
        assert (headers["x-seen-accept"], headers["x-seen-content-encoding"]) == ("x/y", "gzip")
        assert headers["x-seen-host"] == f"127.0.0.1:{it.port}"
        assert headers["x-seen-x-request-id"] and headers["x-own"] == "1"
        # The next request of this client shall reach a replica through the Service.
        assert headers["connection"] == "close"
        async with it.session.get(it.url("/v1/models")) as response:
            assert response.status == 200 and response.headers["x-target"] == "GET /v1/models"


async def test_a_stream_passes_event_by_event(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await go_on.wait()
        await response.write(b"data: [DONE]\n\n")
        return response

    async with activator(tmp_path) as it, replica(stream) as address:
        it.hold.set_addresses([address])
        async with it.session.post(it.url(), data=b"{}") as response:
            assert response.headers["content-type"] == "text/event-stream"
            assert await response.content.readany() == b"data: 1\n\n"
            assert it.hold.proxied == 1
            go_on.set()
            assert await response.content.read() == b"data: [DONE]\n\n"


async def test_excess_requests_are_refused_at_once(tmp_path: Path) -> None:
    async with activator(tmp_path, max_requests=4) as it, replica(echo) as address:
        held = it.posted(*[b"%d" % number for number in range(4)])
        await it.until(lambda: it.hold.waiting == 4)
        refused = await asyncio.gather(*it.posted(*[b"x"] * 76))
        assert {(status, headers["retry-after"]) for status, _, headers in refused} == {(503, "5")}
        assert json.loads(refused[0][1])["error"]["code"] == "queue_full"
        assert it.process.metrics.message()["refused"] == 76
        it.hold.set_addresses([address])
        assert [(await one)[:2] for one in held] == [(200, str(number)) for number in range(4)]


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_large_body_is_refused(chunked: bool, tmp_path: Path) -> None:
    async with activator(tmp_path, max_body_bytes=1024) as it:

        async def parts() -> object:
            yield b"x" * 1025

        data = parts() if chunked else b"x" * 1025
        async with it.session.post(it.url(), data=data) as response:
            assert response.status == 413
        assert it.hold.idle.is_set()


async def test_a_request_without_a_valid_token_does_not_wait(tmp_path: Path) -> None:
    async with activator(tmp_path, token="secret") as it, replica(echo) as address:
        for given in ("", "Bearer wrong"):
            status, text, _ = await it.post(authorization=given)
            assert (status, json.loads(text)["error"]["code"]) == (401, "invalid_token")
        assert it.hold.idle.is_set()
        [held] = it.posted(b"x", authorization="Bearer secret")
        await it.until(lambda: it.hold.waiting == 1)
        it.hold.set_addresses([address])
        # The replica checks the token again.
        assert (await held)[2]["x-seen-authorization"] == "Bearer secret"


async def test_a_client_that_leaves_gives_its_place_back(tmp_path: Path) -> None:
    async with activator(tmp_path, max_requests=1) as it, replica(echo) as address:
        [gone] = it.posted(b"gone")
        await it.until(lambda: it.hold.waiting == 1)
        gone.cancel()
        await it.until(it.hold.idle.is_set)
        [held] = it.posted(b"held")
        await it.until(lambda: it.hold.waiting == 1)
        it.hold.set_addresses([address])
        assert (await held)[:2] == (200, "held")


async def test_a_request_waits_no_longer_than_its_bound(tmp_path: Path) -> None:
    async with activator(tmp_path, hold_seconds=0.05) as it:
        status, text, headers = await it.post()
        assert (status, headers["retry-after"]) == (503, "5")
        assert json.loads(text)["error"]["code"] == "not_ready"
        assert it.process.metrics.message()["errors"] == 1


async def test_a_request_waits_no_longer_than_its_client(tmp_path: Path) -> None:
    async with activator(tmp_path) as it, replica(echo) as address:
        status, text, _ = await it.post(x_request_timeout="0.05")
        assert (status, json.loads(text)["error"]["code"]) == (504, "deadline_exceeded")
        [held] = it.posted(b"x", x_request_timeout="20")
        await it.until(lambda: it.hold.waiting == 1)
        it.hold.set_addresses([address])
        _, _, headers = await held
        # The replica gets the time that is left.
        assert 0 < float(headers["x-seen-x-request-timeout"]) < 20


def free_address() -> str:
    """Return an address at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


async def test_a_request_that_reaches_no_replica_waits_for_the_next(tmp_path: Path) -> None:
    async with activator(tmp_path) as it, replica(echo) as address:
        it.hold.set_addresses([free_address()])
        [held] = it.posted(b"x")
        await it.until(lambda: it.hold.waiting == 1)
        it.hold.set_addresses([address])
        assert (await held)[:2] == (200, "x")


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_replica_is_asked_again(
    status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "PAUSE_SECONDS", (0.01, 0.01))
    calls = 0

    async def busy(request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        return web.Response(status=status if calls < 3 else 200, headers={"retry-after": "1"})

    async with activator(tmp_path) as it, replica(busy) as address:
        it.hold.set_addresses([address])
        assert (await it.post())[0] == 200
        assert calls == 3


async def test_a_refusal_for_good_is_passed_on(tmp_path: Path) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=503, text="gone")

    async with activator(tmp_path) as it, replica(refuse) as address:
        it.hold.set_addresses([address])
        assert (await it.post())[:2] == (503, "gone")


async def test_a_replica_that_fails_before_its_response_is_an_error(tmp_path: Path) -> None:
    async def fail(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with activator(tmp_path) as it, replica(fail) as address:
        it.hold.set_addresses([address])
        status, text, _ = await it.post()
        # It may have handled the request, so no second replica gets it.
        assert (status, json.loads(text)["error"]["code"]) == (502, "replica_failed")
        assert it.process.metrics.message()["errors"] == 1


async def test_a_stream_that_breaks_is_not_complete_for_the_client(tmp_path: Path) -> None:
    async def fail(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.abort()
        return response

    async with activator(tmp_path) as it, replica(fail) as address:
        it.hold.set_addresses([address])
        with pytest.raises(aiohttp.ClientPayloadError):
            await it.post()
        await it.until(it.hold.idle.is_set)


async def test_requests_are_shared_by_the_replicas(tmp_path: Path) -> None:
    release = asyncio.Event()
    seen: list[str] = []

    async def wait(request: web.Request) -> web.Response:
        seen.append(request.url.authority.rsplit(":")[-1])
        await release.wait()
        return web.Response(text=str(request.transport.get_extra_info("sockname")[1]))  # type: ignore[union-attr]

    async with activator(tmp_path) as it, replica(wait) as one, replica(wait) as other:
        sent = it.posted(*[b"x"] * 10)
        await it.until(lambda: it.hold.waiting == 10)
        it.hold.set_addresses([one, other])
        await it.until(lambda: len(seen) == 10)
        release.set()
        ports = [(await each)[1] for each in sent]
        assert [ports.count(address.split(":")[1]) for address in (one, other)] == [5, 5]


async def test_probes_and_scrapes_wake_no_replica(tmp_path: Path) -> None:
    async with activator(tmp_path) as it:
        for path in ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"):
            async with it.session.get(it.url(path)) as response:
                assert response.status == 200
        [_] = it.posted(b"x")
        await it.until(lambda: it.hold.waiting == 1)
        async with it.session.get(it.url("/metrics")) as response:
            text = await response.text()
        assert (
            'convoy_num_requests_waiting{engine="activator",job="default/job",model="activator"} 1.0' in text
        )


async def test_an_activator_that_ends_still_passes_its_requests_on(tmp_path: Path) -> None:
    async with activator(tmp_path) as it, replica(echo) as address:
        await it.until(lambda: it.heartbeat.state == SERVING)
        [held] = it.posted(b"x")
        await it.until(lambda: it.hold.waiting == 1)
        it.process.leave()
        await it.until(lambda: it.heartbeat.state == DRAINING)
        await it.until(lambda: not it.process.lifecycle.accepts)
        status, _, headers = await it.post()
        assert (status, headers["retry-after"]) == (503, "1")
        it.hold.set_addresses([address])
        assert (await held)[:2] == (200, "x")
        assert await asyncio.wait_for(it.task, 30) == 0


async def test_requests_that_wait_at_the_end_get_an_error(tmp_path: Path) -> None:
    async with activator(tmp_path, drain_seconds=0.05) as it:
        [held] = it.posted(b"x")
        await it.until(lambda: it.hold.waiting == 1)
        it.process.leave()
        status, _, headers = await held
        assert (status, headers["retry-after"]) == (503, "1")
        assert await asyncio.wait_for(it.task, 30) == 0


async def test_other_messages_of_the_agent_are_ignored(tmp_path: Path) -> None:
    async with activator(tmp_path) as it:
        for message in ({"type": "refused"}, {"type": "endpoints"}, {"type": "endpoints", "addresses": [1]}):
            it.process.receive(message)
        await asyncio.sleep(0)
        assert it.hold.addresses == ()


async def test_the_first_request_that_waits_is_reported_at_once() -> None:
    hold, calls = Hold(4), []
    hold.on_first = lambda: calls.append(hold.waiting)
    first = hold.enter()
    second = hold.enter()
    assert calls == [1]
    hold.leave(first)
    hold.leave(second)
    hold.enter()
    assert calls == [1, 1]
    hold.set_addresses(["a:1"])
    with pytest.raises(Full):
        for _ in range(5):
            hold.enter()
    assert len(calls) == 2


async def test_a_closed_hold_fails_whoever_waits() -> None:
    hold = Hold(2)
    place = hold.enter()
    waiting = asyncio.create_task(hold.address(place))
    await asyncio.sleep(0)
    hold.close()
    with pytest.raises(Closed):
        await waiting


@pytest.mark.parametrize("path", [b"*@%s/secret", b"*"])
async def test_a_client_cannot_choose_the_host_of_its_request(path: bytes, tmp_path: Path) -> None:
    seen: list[str] = []

    async def record(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response(text="secret")

    async with activator(tmp_path) as it, replica(echo) as address, replica(record) as other:
        it.hold.set_addresses([address])
        reader, writer = await asyncio.open_connection("127.0.0.1", it.port)
        target = path.replace(b"%s", other.encode())
        writer.write(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), 30)).startswith(b"HTTP/1.1 400 ")
        writer.close()
        assert not seen


async def test_a_request_that_every_replica_refuses_ends_with_its_time(tmp_path: Path) -> None:
    asked = 0

    async def busy(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=429, headers={"retry-after": "1"})

    async with activator(tmp_path, hold_seconds=0.3) as it, replica(busy) as address:
        it.hold.set_addresses([address])
        status, _, headers = await it.post()
        assert (status, headers["retry-after"]) == (503, "5")
        assert 1 <= asked <= 8


def test_the_pause_before_another_attempt_is_bounded() -> None:
    assert app._pause(1) <= app.PAUSE_SECONDS[0]
    assert app._pause(100_000) <= app.PAUSE_SECONDS[1]


def test_waiting_requests_are_counted_while_others_arrive() -> None:
    hold = Hold(8)

    class Arrival:
        """A request during whose count another one arrives, as from another thread."""

        @property
        def waiting(self) -> bool:
            hold._places[len(hold._places)] = Place(0)
            return True

    hold._places = {-1: Arrival(), -2: Arrival()}  # type: ignore[dict-item]
    assert hold.waiting == 2
