"""Tests of `convoy load`: the arrivals, the outcomes and the report, against a scripted service."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy.load.arrivals import Arrivals, arrivals
from convoy.load.client import Load, Target
from convoy.load.outcome import Kind, Outcome
from convoy.load.report import lines, percentile, report

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def test_constant_arrivals_are_evenly_spaced() -> None:
    assert list(arrivals(Arrivals.CONSTANT, 4, 1.0, 1)) == [0.0, 0.25, 0.5, 0.75]
    # The times do not drift, because they are not sums.
    assert list(arrivals(Arrivals.CONSTANT, 10, 1000.0, 1))[-1] == 999.9


def test_poisson_arrivals_have_the_rate_and_depend_on_the_seed() -> None:
    one = list(arrivals(Arrivals.POISSON, 100, 100.0, 1))
    assert one == list(arrivals(Arrivals.POISSON, 100, 100.0, 1))
    assert one != list(arrivals(Arrivals.POISSON, 100, 100.0, 2))
    assert one == sorted(one) and one[-1] < 100
    assert 9_600 < len(one) < 10_400  # Four standard deviations.
    gaps = sorted(after - before for before, after in itertools.pairwise(one))
    # The median of exponential gaps is ln 2 times their mean.
    assert gaps[len(gaps) // 2] == pytest.approx(0.00693, rel=0.1)


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile([], 50) is None
    assert [percentile([1, 2, 3, 4], share) for share in (1, 50, 51, 75, 99, 100)] == [1, 2, 3, 3, 4, 4]
    assert percentile(list(range(1, 101)), 95) == 95


def test_the_report_counts_every_request_once() -> None:
    outcomes = [
        *(Outcome(one, Kind.OK, first=0.001 * one, total=0.01 * one, events=3) for one in range(1, 5)),
        Outcome(9.0, Kind.LOST, "no connection: refused", "x", delay=0.5),
        Outcome(7.0, Kind.LOST, "no connection: refused"),
        Outcome(8.0, Kind.SHED, "status 429", "full"),
        Outcome(8.5, Kind.UNSENT, "1 requests in flight"),
    ]
    found = report(outcomes, 2.0)
    assert [found[kind.value] for kind in Kind] == [4, 1, 0, 2, 1]
    assert found["scheduled"] == 8 and found["okPerSecond"] == 2 and found["eventsPerSecond"] == 6
    assert found["firstTokenMs"] == {"p50": 2.0, "p95": 4.0, "p99": 4.0, "max": 4.0}
    assert found["totalMs"]["p50"] == 20 and found["clientDelayMs"]["max"] == 500
    assert [(one["outcome"], one["cause"], one["count"]) for one in found["causes"]] == [
        ("lost", "no connection: refused", 2),
        ("unsent", "1 requests in flight", 1),
        ("shed", "status 429", 1),
    ]
    assert found["causes"][0]["firstAtSeconds"] == 7 and found["causes"][0]["message"] == "x"
    assert [(one["atSeconds"], one["outcome"]) for one in found["failures"]] == [
        (7, "lost"), (8, "shed"), (8.5, "unsent"), (9, "lost"),
    ]  # fmt: skip
    assert lines(found)[0] == "8 requests in 2 s: 4 ok, 1 shed, 2 lost, 1 unsent"
    assert "lost: 2 x no connection: refused, from 7 s to 9 s: x" in lines(found)


class Service:
    """A service that responds to completions by a function of the test."""

    def __init__(self) -> None:
        self.handler: Handler = self.good
        self.bodies: list[Any] = []
        self.authorizations: list[str | None] = []
        self.paths: list[str] = []
        self.clients: set[Any] = set()
        """Address of the other end of each connection."""
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.authorizations.append(request.headers.get("Authorization"))
        self.paths.append(request.path)
        self.clients.add(request.transport.get_extra_info("peername") if request.transport else None)
        return await self.handler(request)

    async def good(self, request: web.Request) -> web.StreamResponse:
        return await stream(request, [b'{"choices":[{"text":"a"}]}', b'{"choices":[{"text":""}]}', b"[DONE]"])


async def stream(request: web.Request, events: list[bytes]) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for one in events:
        await response.write(b"data: " + one + b"\n\n")
    return response


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    made = Service()
    application = web.Application()
    application.router.add_post("/{path:.*}", made.serve)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


async def run(service: Service, times: list[float], most: int = 64, **target: Any) -> list[Outcome]:
    made = Load(Target(service.url, ("p",), 4, **target), seed=3, max_in_flight=most)
    await made.run(times)
    return made.outcomes


@pytest.mark.parametrize(("keep_alive", "connections"), [(True, 1), (False, 4)])
async def test_connections_are_used_again_unless_refused(
    service: Service, keep_alive: bool, connections: int
) -> None:
    # Each request ends before the next: the service responds at once.
    found = await run(service, [0.0, 0.2, 0.4, 0.6], keep_alive=keep_alive)
    assert [one.kind for one in found] == [Kind.OK] * 4
    assert len(service.clients) < 4 if keep_alive else len(service.clients) == 4


async def test_complete_responses_are_ok_and_have_their_own_seeds(service: Service) -> None:
    found = await run(service, [0.0, 0.0, 0.0], model="m", token="t")
    assert [one.kind for one in found] == [Kind.OK] * 3
    assert all(0 < one.first <= one.total and one.events == 1 for one in found)
    assert sorted(one["seed"] for one in service.bodies) == [3, 4, 5]
    body = {"prompt": "p", "model": "m", "max_tokens": 4, "seed": 3, "stream": True}
    assert min(service.bodies, key=lambda one: one["seed"]) == body
    assert set(service.authorizations) == {"Bearer t"} and set(service.paths) == {"/v1/completions"}
    service.bodies.clear()
    found = await run(service, [0.0], chat=True, stream=False)
    assert (found[0].kind, found[0].first) == (Kind.OK, 0.0)
    assert service.bodies[0]["messages"] == [{"role": "user", "content": "p"}]
    assert service.paths[-1] == "/v1/chat/completions"


def status(code: int, headers: dict[str, str] | None = None) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        text = json.dumps({"error": {"message": "why"}})
        return web.Response(status=code, text=text, headers=headers)

    return handler


async def disconnect(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def ends(events: list[bytes], abort: bool = False) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = await stream(request, events)
        if abort:
            assert request.transport is not None
            request.transport.abort()
        return response

    return handler


TEXT = b'{"choices":[{"text":"a"}]}'


@pytest.mark.parametrize(
    ("handler", "kind", "cause", "message"),
    [
        (status(429), Kind.SHED, "status 429", "why"),
        (status(503, {"Retry-After": "1"}), Kind.SHED, "status 503", "why"),
        (status(503), Kind.FAILED, "status 503", "why"),
        (status(500), Kind.FAILED, "status 500", "why"),
        (status(404), Kind.FAILED, "status 404", "why"),
        (ends([TEXT, b'{"error":{"message":"m","code":"c"}}']), Kind.FAILED, "error event c", "m"),
        (ends([TEXT]), Kind.LOST, "the stream ended before [DONE]", ""),
        (ends([TEXT], abort=True), Kind.LOST, "the connection broke", None),
        (disconnect, Kind.LOST, "the connection ended before the response", None),
    ],
)
async def test_every_other_outcome_has_its_cause(
    handler: Handler, kind: Kind, cause: str, message: str | None, service: Service
) -> None:
    service.handler = handler
    (found,) = await run(service, [0.0])
    assert (found.kind, found.cause) == (kind, cause)
    assert message is None or found.message == message
    assert found.first == found.total == 0


async def test_a_request_without_a_connection_is_lost(service: Service) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        service.port = free.getsockname()[1]
        (found,) = await run(service, [0.0])
    assert (found.kind, found.cause) == (Kind.LOST, "no connection: connection refused")


async def test_a_request_without_an_end_is_lost_at_its_limit(service: Service) -> None:
    forever = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = await stream(request, [TEXT])
        await forever.wait()
        return response

    service.handler = handler
    (found,) = await run(service, [0.0], timeout=0.2)
    forever.set()
    assert (found.kind, found.cause) == (Kind.LOST, "no end within 0.2 s")


async def test_latency_counts_from_the_schedule_and_not_from_the_sending(service: Service) -> None:
    """A service that stalls delays every request that arrives during the stall."""
    opened = asyncio.Event()
    arrived: list[int] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        arrived.append(len(arrived))
        if len(arrived) == 20:
            opened.set()
        await opened.wait()
        return await service.good(request)

    service.handler = handler
    times = [0.01 * number for number in range(20)]
    found = await run(service, times)
    # No request waited for another one: all were sent although the first had no response.
    assert [one.kind for one in found] == [Kind.OK] * 20
    last = max(times)
    assert all(one.total >= last - one.scheduled for one in found)


async def test_a_late_client_counts_its_delay(service: Service) -> None:
    found = await run(service, [-1.0])
    assert found[0].delay >= 1.0 and found[0].total >= 1.0


async def test_requests_beyond_the_limit_are_unsent(service: Service) -> None:
    opened = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        await opened.wait()
        return await service.good(request)

    service.handler = handler
    asyncio.get_running_loop().call_later(0.5, opened.set)
    found = await run(service, [0.0, 0.0, 0.0, 0.0, 0.0], most=2)
    assert sorted(one.kind for one in found) == ["ok", "ok", "unsent", "unsent", "unsent"]
    assert {one.cause for one in found} == {"", "2 requests in flight"}


async def test_a_stopped_load_waits_for_its_responses(service: Service) -> None:
    made = Load(Target(service.url, ("p",), 4), 1, 64)

    def times() -> Iterator[float]:
        yield 0.0
        yield 3600.0

    async def handler(request: web.Request) -> web.StreamResponse:
        made.stop()
        return await service.good(request)

    service.handler = handler
    assert await asyncio.wait_for(made.run(times()), 60) < 3600
    assert [one.kind for one in made.outcomes] == [Kind.OK]


async def test_the_command_prints_or_writes_the_report(service: Service, tmp_path: Path) -> None:
    prompts, token = tmp_path / "prompts", tmp_path / "token"
    prompts.write_text("one\ntwo\n\n")
    token.write_text("secret\n")
    options = ["--rate", "40", "--seconds", "0.5", "--arrivals", "constant", "--max-tokens", "2"]

    async def invoke(*more: str) -> Any:
        return await asyncio.to_thread(
            CliRunner().invoke, app, ["load", f"{service.url}/v1/", *options, *more]
        )

    # A signal handler needs the main thread, which runs the service here.
    loop = type(asyncio.get_running_loop())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "add_signal_handler", lambda *_: None)
        done = await invoke("--prompts", str(prompts), "--token-file", str(token))
        assert done.exit_code == 0, done.output
        assert re.match(r"20 requests in [0-9.]+ s: 20 ok\nfirst token: +p50 ", done.output)
        assert {one["prompt"] for one in service.bodies} == {"one", "two"}
        assert set(service.authorizations) == {"Bearer secret"}
        service.handler = status(500)
        file, before = tmp_path / "report.json", round(time.time(), 3)
        assert (await invoke("--json", str(file))).exit_code == 1
        stored = json.loads(file.read_text())
        assert stored["failed"] == 20 and before <= stored["startedAt"] <= time.time()
        assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]  # noqa: PTH208
        service.handler = status(429)
        done = await invoke("--json", "-")
        assert done.exit_code == 0 and json.loads(done.output)["shed"] == 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["service:8080"], "must begin with http:// or https://"),
        (["http://a", "--prompts", "absent"], "absent: No such file"),
        (["http://a", "--token-file", "absent"], "absent: No such file"),
        (["http://a", "--rate", "0"], "0"),
        (["http://a", "--arrivals", "bursts"], "bursts"),
    ],
)
def test_bad_options_are_refused(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["load", *arguments])
    assert done.exit_code != 0 and words in done.output
