"""Tests of `convoy load`: the arrivals, the outcomes and the report, against a scripted service."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from typer.testing import CliRunner

from convoy.cli.__main__ import app
from convoy.load import workers
from convoy.load.arrivals import Arrivals, Step, arrivals
from convoy.load.client import Bodies, Completions, Load, Target
from convoy.load.outcome import Kind, Outcome
from convoy.load.workers import Progress, WorkerLost

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


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


COMPLETIONS = Completions(("p",), 4)


async def run(
    service: Service,
    times: list[float],
    most: int = 64,
    requests: Completions | Bodies = COMPLETIONS,
    **target: Any,
) -> list[Outcome]:
    found: list[Outcome] = []
    made = Load(Target(service.url, requests, **target), 3, most, found.append)
    await made.run(enumerate(times))
    return found


@pytest.mark.parametrize(("keep_alive", "connections"), [(True, 1), (False, 4)])
async def test_connections_are_used_again_unless_refused(
    service: Service, keep_alive: bool, connections: int
) -> None:
    # Each request ends before the next: the service responds at once.
    found = await run(service, [0.0, 0.2, 0.4, 0.6], keep_alive=keep_alive)
    assert [one.kind for one in found] == [Kind.OK] * 4
    assert len(service.clients) < 4 if keep_alive else len(service.clients) == 4


async def test_complete_responses_are_ok_and_have_their_own_seeds(service: Service) -> None:
    asks = Completions(("p",), 4, model="m")
    found = await run(service, [0.0, 0.0, 0.0], requests=asks, token="t")
    assert [one.kind for one in found] == [Kind.OK] * 3
    assert all(0 < one.first <= one.total and one.events == 1 for one in found)
    assert sorted(one["seed"] for one in service.bodies) == [3, 4, 5]
    body = {"prompt": "p", "model": "m", "max_tokens": 4, "seed": 3, "stream": True}
    assert min(service.bodies, key=lambda one: one["seed"]) == body
    assert set(service.authorizations) == {"Bearer t"} and set(service.paths) == {"/v1/completions"}
    service.bodies.clear()
    found = await run(service, [0.0], requests=Completions(("p",), 4, chat=True, stream=False))
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
REDIRECTS = "the service redirects to /: use that address"
NO_EVENTS = "the response is text/plain; use --no-stream"


@pytest.mark.parametrize(
    ("handler", "kind", "cause", "message"),
    [
        (status(429), Kind.SHED, "status 429", "why"),
        (status(503, {"Retry-After": "1"}), Kind.SHED, "status 503", "why"),
        (status(503), Kind.FAILED, "status 503", "why"),
        (status(500), Kind.FAILED, "status 500", "why"),
        (status(404), Kind.FAILED, "status 404", "why"),
        (ends([TEXT, b'{"error":{"message":"m","code":"c"}}']), Kind.FAILED, "error event c", "m"),
        (ends([TEXT, b"{"]), Kind.FAILED, "malformed stream", "an event has no valid JSON: {"),
        (status(308, {"Location": "/"}), Kind.FAILED, "status 308", REDIRECTS),
        (status(200), Kind.LOST, "the stream ended before [DONE]", NO_EVENTS),
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
    assert found.first == 0 < found.total


async def test_a_request_without_a_connection_is_lost(service: Service) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        service.port = free.getsockname()[1]
        (found,) = await run(service, [0.0])
    assert (found.kind, found.cause) == (Kind.LOST, "no connection: connection refused")
    assert f"127.0.0.1:{service.port}: " in found.message and "ssl" not in found.message


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
    found: list[Outcome] = []
    made = Load(Target(service.url, Completions(("p",), 4)), 1, 64, found.append)

    def times() -> Iterator[tuple[int, float]]:
        yield 0, 0.0
        yield 1, 3600.0

    async def handler(request: web.Request) -> web.StreamResponse:
        made.stop()
        return await service.good(request)

    service.handler = handler
    assert await asyncio.wait_for(made.run(times()), 60) < 3600
    assert [one.kind for one in found] == [Kind.OK]


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
        (["http://a", "--arrivals", "waves"], "waves"),
        (["http://a", "--steps", "5:10,x"], "step 2 is 'x', expected RATE:SECONDS such as 50:30"),
        (["http://a", "--trace", "absent"], "absent: No such file"),
        (["http://a", "--trace", "absent", "--trace-unit", "h"], "trace-unit"),
        (["http://a", "--trace", "absent", "--steps", "5:1"], "give only one of --steps and --trace"),
        (["http://a", "--seconds", "5", "--steps", "5:1"], "give no --seconds with --steps"),
        (["http://a", "--bodies", "absent"], "--bodies needs --path"),
        (["http://a", "--bodies", "absent", "--path", "/p"], "absent: No such file"),
        (["http://a", "--path", "/p"], "--path needs --bodies"),
    ],
)
def test_bad_options_are_refused(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["load", *arguments])
    assert done.exit_code != 0 and words in done.output


async def test_bodies_of_a_file_go_to_their_route(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "bodies"
    file.write_text('{"inputs": 1}\n\n{"inputs": 2}\n')
    options = ["--rate", "40", "--seconds", "0.5", "--path", "/v2/models/m/infer", "--bodies", str(file)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(asyncio.get_running_loop()), "add_signal_handler", lambda *_: None)
        done = await asyncio.to_thread(
            CliRunner().invoke, app, ["load", service.url, *options, "--json", "-", "--plot"]
        )
    assert done.exit_code == 0, done.output
    assert {json.dumps(one) for one in service.bodies} == {'{"inputs": 1}', '{"inputs": 2}'}
    assert set(service.paths) == {"/v2/models/m/infer"}
    assert json.loads(done.stdout)["ok"] == len(service.bodies)
    assert "latency in ms, by percentile" in done.stderr


def test_a_body_that_is_not_json_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bodies"
    file.write_text("{}\n{")
    done = CliRunner().invoke(app, ["load", "http://a", "--path", "/p", "--bodies", str(file)])
    assert done.exit_code != 0 and "body 2 is not valid JSON" in done.output


def test_workers_share_the_requests_and_their_latencies_are_merged() -> None:
    # No service listens, so every request is lost at once. The schedule has 40 requests.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        target = Target(f"http://127.0.0.1:{free.getsockname()[1]}", Completions(("p",), 4))
        schedule = partial(arrivals, Arrivals.CONSTANT, (Step(400, 0.1),), 1)
        result = workers.run(workers.Plan(target, schedule, 1, 64), 2, lambda _: None)
    assert result.tally.counts == {Kind.LOST: 40}
    times = [at for at, *_ in result.tally.failures]
    assert times == pytest.approx([0.0025 * number for number in range(40)])
    assert result.tally.delay.count == 40


def test_workers_stop_at_sigint_and_report() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        target = Target(f"http://127.0.0.1:{free.getsockname()[1]}", Completions(("p",), 4))
        # The second request would be sent in an hour.
        schedule = partial(arrivals, Arrivals.CONSTANT, (Step(1 / 1800, 7200),), 1)

        def interrupt(_: Progress) -> None:
            os.kill(os.getpid(), signal.SIGINT)

        result = workers.run(workers.Plan(target, schedule, 1, 64), 2, interrupt)
    assert result.tally.counts == {Kind.LOST: 1}


async def test_a_worker_that_ends_early_is_an_error() -> None:
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    with pytest.raises(WorkerLost, match="has ended without its result"):
        workers._lead([ours], lambda _: None)
