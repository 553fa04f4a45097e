"""Tests of the gateway against a scripted HTTP server: typed errors, retries, limits and watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration

from convoy_controllers.resources import PODS, TRAINING_JOBS
from convoy_operator import client as client_module
from convoy_operator import errors
from convoy_operator.client import KubernetesGateway
from convoy_operator.metrics import Metrics
from convoy_operator.settings import Settings

Handler = Callable[[web.Request], Any]


class Server:
    """A server that responds with the steps of a script, and then repeats the last step."""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.requests: list[tuple[str, str, dict[str, str], dict[str, str], bytes]] = []

    async def respond(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(
            (request.method, request.path, dict(request.query), dict(request.headers), await request.read())
        )
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if callable(step):
            return await step(request)
        status, body, *headers = step
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        return web.Response(status=status, body=data, headers=headers[0] if headers else {})


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def gateway(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubernetesGateway]:
    monkeypatch.setattr(client_module, "backoff", lambda attempt, minimum, maximum: 0.0)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.respond)
    async with TestServer(app) as http:
        configuration = Configuration(host=str(http.make_url("")).rstrip("/"))
        configuration.api_key["BearerToken"] = "Bearer secret"
        async with ApiClient(configuration) as api_client:
            yield KubernetesGateway(
                api_client, Settings(request_seconds=2, watch_silence_seconds=0.3), Metrics()
            )


def status(code: int, reason: str = "", message: str = "m") -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (404, "NotFound", errors.NotFound),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (400, "BadRequest", errors.Invalid),
        (403, "Forbidden", errors.Forbidden),
        (401, "Unauthorized", errors.Forbidden),
    ],
)
async def test_refusals_are_typed_and_not_retried(
    server: Server, gateway: KubernetesGateway, code: int, reason: str, kind: type[errors.ApiError]
) -> None:
    server.steps = [(code, status(code, reason, "because"))]
    with pytest.raises(errors.ApiError) as caught:
        await gateway.get(PODS, "ns", "p")
    assert type(caught.value) is kind
    assert caught.value.message == "because"
    assert len(server.requests) == 1


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
async def test_temporary_refusals_are_retried(server: Server, gateway: KubernetesGateway, code: int) -> None:
    server.steps = [(code, b"<html>sorry</html>"), (code, status(code)), (200, {"kind": "Pod"})]
    assert await gateway.create(PODS, "ns", {"metadata": {"name": "p"}}) == {"kind": "Pod"}
    assert len(server.requests) == 3


async def test_retries_of_a_request_are_limited(server: Server, gateway: KubernetesGateway) -> None:
    server.steps = [(503, status(503))]
    with pytest.raises(errors.Unavailable):
        await gateway.get(PODS, "ns", "p")
    assert len(server.requests) == Settings().request_tries


async def test_retries_stop_when_their_budget_is_spent(server: Server, gateway: KubernetesGateway) -> None:
    server.steps = [(503, status(503))]
    for _ in range(40):
        with pytest.raises(errors.Unavailable):
            await gateway.get(PODS, "ns", "p")
    assert len(server.requests) <= 40 + 20 + 5, "one try each, 20 retries, a tenth on top"


async def test_retry_after_is_honoured(
    server: Server, gateway: KubernetesGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(client_module.asyncio, "sleep", sleep)
    server.steps = [(429, status(429), {"Retry-After": "7"}), (200, {})]
    await gateway.get(PODS, "ns", "p")
    assert 7.0 in slept


async def test_a_status_patch_has_the_resource_version(server: Server, gateway: KubernetesGateway) -> None:
    server.steps = [(200, {})]
    await gateway.patch_status(TRAINING_JOBS, "ns", "j", "42", {"phase": "Running", "gone": None})
    method, path, _, headers, body = server.requests[0]
    assert (method, path) == ("PATCH", "/apis/convoy.dev/v1alpha1/namespaces/ns/trainingjobs/j/status")
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert headers["Authorization"] == "Bearer secret"
    assert orjson.loads(body) == {
        "metadata": {"resourceVersion": "42"},
        "status": {"phase": "Running", "gone": None},
    }


async def test_apply_is_server_side_apply(server: Server, gateway: KubernetesGateway) -> None:
    server.steps = [(200, {})]
    await gateway.apply(PODS, "ns", "p", {"spec": {}})
    _, _, query, headers, body = server.requests[0]
    assert headers["Content-Type"] == "application/apply-patch+yaml"
    assert query == {"fieldManager": "convoy-operator", "force": "true"}
    assert orjson.loads(body) == {"apiVersion": "v1", "kind": "Pod", "spec": {}}


async def test_a_delete_has_a_uid_precondition(server: Server, gateway: KubernetesGateway) -> None:
    server.steps = [(200, {})]
    await gateway.delete(PODS, "ns", "p", uid="u", grace_seconds=0)
    assert orjson.loads(server.requests[0][4]) == {
        "preconditions": {"uid": "u"},
        "propagationPolicy": "Background",
        "gracePeriodSeconds": 0,
    }


async def test_a_list_goes_through_all_pages(server: Server, gateway: KubernetesGateway) -> None:
    server.steps = [
        (200, {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [{"n": 1}]}),
        (200, {"metadata": {"resourceVersion": "9"}, "items": [{"n": 2}]}),
    ]
    assert await gateway.list(PODS, "convoy.dev/job") == ([{"n": 1}, {"n": 2}], "9")
    assert server.requests[1][2]["continue"] == "more"
    assert server.requests[1][2]["labelSelector"] == "convoy.dev/job"


def stream(*chunks: bytes, hang: bool = False) -> Handler:
    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if hang:
            import asyncio

            await asyncio.sleep(5)
        return response

    return respond


async def watched(gateway: KubernetesGateway) -> list[tuple[str, Any]]:
    return [event async for event in gateway.watch(PODS, "5", "convoy.dev/job")]


async def test_a_watch_parses_events_split_at_any_byte(server: Server, gateway: KubernetesGateway) -> None:
    big = "x" * 6_000_000
    lines = b"".join(
        orjson.dumps({"type": kind, "object": {"v": value}}) + b"\n"
        for kind, value in (("ADDED", big), ("BOOKMARK", 2))
    )
    server.steps = [stream(lines[:10], lines[10:70_000], lines[70_000:])]
    assert await watched(gateway) == [("ADDED", {"v": big}), ("BOOKMARK", {"v": 2})]
    query = server.requests[0][2]
    assert query["allowWatchBookmarks"] == "true" and query["resourceVersion"] == "5"
    assert 0.8 * 290 <= int(query["timeoutSeconds"]) <= 290


@pytest.mark.parametrize(
    "step",
    [
        (410, status(410, "Expired")),
        stream(orjson.dumps({"type": "ERROR", "object": status(410, "Expired")}) + b"\n"),
    ],
    ids=["as a response", "in the stream"],
)
async def test_a_watch_of_a_compacted_version_raises_gone(
    server: Server, gateway: KubernetesGateway, step: Any
) -> None:
    server.steps = [step]
    with pytest.raises(errors.Gone):
        await watched(gateway)


async def test_a_silent_watch_times_out(server: Server, gateway: KubernetesGateway) -> None:
    server.steps = [stream(b"\n", hang=True)]
    with pytest.raises(errors.Unavailable):
        await watched(gateway)


async def test_a_watch_cut_within_a_line_is_an_error(server: Server, gateway: KubernetesGateway) -> None:
    server.steps = [stream(b'{"type": "ADDED", "object"\n')]
    with pytest.raises(errors.Unavailable):
        await watched(gateway)


async def test_a_watch_limits_the_wait_for_a_connection_and_reports_its_start(
    server: Server, gateway: KubernetesGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "CONNECT_SECONDS", 0.1)
    gateway._client.rest_client.maxsize = 1
    held, let_go = asyncio.Event(), asyncio.Event()
    opened: list[int] = []

    async def hold(request: web.Request) -> web.StreamResponse:
        held.set()
        await let_go.wait()
        return web.Response(body=b"{}")

    server.steps = [hold]
    holding = asyncio.create_task(gateway.get(PODS, "team", "pod"))
    await held.wait()
    with pytest.raises(errors.Unavailable, match="watch of pods"):
        await asyncio.wait_for(anext(gateway.watch(PODS, "1", opened=lambda: opened.append(1))), 1)
    assert opened == []
    let_go.set()
    await holding
    server.steps = [(200, b'{"type": "ADDED", "object": {}}\n')]
    async for _ in gateway.watch(PODS, "1", opened=lambda: opened.append(1)):
        assert opened == [1]
