"""Tests of the operator's process, mostly at its start, before the API server responds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import aiohttp
import pytest
from kubernetes.aio.client import Configuration

from convoy_agents.wire import http
from convoy_controllers.keys import Key
from convoy_controllers.resources import HEALTH_SWEEPS
from convoy_crds.terms import MANAGED_BY
from convoy_operator import app, views
from convoy_operator.app import Operator
from convoy_operator.connection import configure_client
from convoy_operator.discovery import Discovery
from convoy_operator.hub.ca import Authority, make_authority
from convoy_operator.reflectors import Reflectors
from convoy_operator.settings import CA_MAKERS, Settings

from .conftest import FakeApi

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("environment", "host", "given", "proxy"),
    [
        ({}, "https://10.0.0.1:443", None, None),
        ({"https_proxy": "http://p:3128"}, "https://10.0.0.1:443", None, "http://p:3128"),
        ({"https_proxy": "http://p:3128"}, "https://10.0.0.1:443", "http://mine:1", "http://mine:1"),
        ({"https_proxy": "http://p:3128", "no_proxy": "10.0.0.1"}, "https://10.0.0.1:443", None, None),
        ({"http_proxy": "http://p:3128"}, "https://10.0.0.1:443", None, None),
    ],
)
async def test_the_environments_proxy_is_used_unless_one_is_configured(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    host: str,
    given: str | None,
    proxy: str | None,
) -> None:
    for name in ("https_proxy", "http_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    configuration = Configuration(host=host)
    configuration.proxy = given
    assert configure_client(configuration).proxy == proxy
    assert configuration.client_session_kwargs["trust_env"] is False


@pytest.mark.parametrize("maker", CA_MAKERS)
def test_the_operator_waits_for_an_authority_made_by_others(
    api: FakeApi, virtual: Callable[..., Any], maker: str
) -> None:
    async def start() -> bool:
        operator = Operator(Settings(namespace="sys", ca_maker=maker), Mock(), Mock(), Mock())
        operator.gateway = api  # type: ignore[assignment]  # in memory
        try:
            async with asyncio.timeout(60):
                await operator._authority()
        except TimeoutError:
            return False
        return True

    assert virtual(start()) is (maker == "Operator")
    assert api.count("create", "secrets") == (maker == "Operator")
    assert maker == "Operator" or api.count("get", "secrets") > 3


async def test_sweep_reports_wake_running_sweeps() -> None:
    operator = Operator(Settings(namespace="sys"), Mock(), Mock(), Mock())
    for name, status in (("fresh", {}), ("over", {"completionTime": "2026-01-01T00:00:00Z"})):
        metadata = {"name": name, "uid": name, "resourceVersion": "1"}
        operator.cache.upsert(HEALTH_SWEEPS, {"metadata": metadata, "spec": {}, "status": status})
    operator.queue.open = True
    operator.hub.sweeps.on_news()
    assert Key("HealthSweep", "", "fresh") in operator.queue
    assert Key("HealthSweep", "", "over") not in operator.queue


async def fetch(
    client: aiohttp.ClientSession, port: int, path: str, host: str = "127.0.0.1"
) -> tuple[int, str]:
    """Return the status and the text of a response. Retry until the server listens."""
    while True:
        try:
            async with client.get(f"http://{host}:{port}{path}") as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectorError:  # the server does not listen yet
            await asyncio.sleep(0.05)


async def test_the_operator_is_live_but_not_ready_while_waiting_for_the_authority(
    api: FakeApi, unused_tcp_port_factory: Callable[[], int]
) -> None:
    probes, metrics = unused_tcp_port_factory(), unused_tcp_port_factory()
    settings = Settings(
        namespace="sys", ca_maker="CertManager",
        http_bind="127.0.0.1", probe_port=probes, metrics_port=metrics,
    )  # fmt: skip
    operator = Operator(settings, Mock(), Mock(), Mock())
    operator.gateway = api  # type: ignore[assignment]  # in memory
    running = asyncio.create_task(operator.run())
    try:
        async with asyncio.timeout(20), aiohttp.ClientSession() as client:
            assert await fetch(client, probes, "/healthz") == (200, "ok\n")
            code, words = await fetch(client, probes, "/readyz")
            assert code == 503 and words.startswith("not ready: authority, ")
            assert (await fetch(client, metrics, "/metrics"))[0] == 200
            assert api.count("get", "secrets") and operator.server is None
    finally:
        running.cancel()
        await asyncio.wait({running})


@pytest.mark.parametrize("given", [{}, {"qps": 7.0, "burst": 2000}, {"qps": 0.0}])
def test_api_requests_have_three_budgets_whose_sum_is_documented(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    made: list[Settings] = []
    connections: list[str] = []

    def gateway(client: Any, settings: Settings, metrics: Any) -> Mock:
        made.append(settings)
        connections.append(client.name)
        return Mock()

    monkeypatch.setattr(app, "KubernetesGateway", gateway)
    settings = Settings(**given)
    client, aside, lease = Mock(), Mock(), Mock()
    client.name, aside.name = "client", "aside"
    operator = Operator(settings, client, aside, lease)
    assert connections == ["client", "aside", "client"]
    assert operator.elector._lock.api_instance.api_client is lease, "the Lease has its own connections"
    qps, burst = settings.qps, settings.burst
    each = [(one.qps, one.burst) for one in made]
    assert each == [(qps, burst), (min(qps, 50), burst), (qps, max(burst, 1000))]
    if not given:
        a_second, at_once = (f"{sum(found):g}" for found in zip(*each, strict=True))
        values = (ROOT / "charts/convoy/values.yaml").read_text()
        assert f"add up to {a_second} per second" in values
        assert f"add up to {at_once} requests" in values
        page = (ROOT / "docs/metrics.md").read_text().replace("\n", " ")
        assert f"{a_second} requests per second in total, and a burst of {at_once}" in page


async def test_the_lease_has_its_own_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, int]] = []
    given: list[Any] = []

    async def connect(settings: Settings) -> Any:
        client = AsyncMock()
        client.__aenter__.return_value = client
        made.append((client, settings.connections))
        return client

    def operator(settings: Settings, *clients: Any) -> Any:
        given.extend(clients)
        return AsyncMock(run=AsyncMock(side_effect=RuntimeError("enough")))

    monkeypatch.setattr(app, "connect", connect)
    monkeypatch.setattr(app, "Operator", operator)
    assert await app.run(Settings()) == 1
    assert given == [client for client, _ in made]
    assert [number for _, number in made] == [64, 8, 2]


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_probes_metrics_and_hub_listen_on_ipv4_and_ipv6_by_default(
    api: FakeApi, unused_tcp_port_factory: Callable[[], int], host: str
) -> None:
    probes, metrics, enrolment, sessions = (unused_tcp_port_factory() for _ in range(4))
    settings = Settings(
        namespace="sys", ca_maker="CertManager", probe_port=probes, metrics_port=metrics,
        enrolment_port=enrolment, session_port=sessions,
    )  # fmt: skip
    operator = Operator(settings, Mock(), Mock(), Mock())
    operator.gateway = api  # type: ignore[assignment]  # in memory
    hub = operator._hub_server(Authority(make_authority(datetime.now(UTC))))
    await hub.start()
    running = asyncio.create_task(operator.run())
    try:
        async with asyncio.timeout(20), aiohttp.ClientSession() as client:
            assert await fetch(client, probes, "/healthz", host) == (200, "ok\n")
            assert (await fetch(client, metrics, "/metrics", host))[0] == 200
            for port in (enrolment, sessions):
                _, writer = await asyncio.open_connection(host.strip("[]"), port)
                writer.close()
    finally:
        running.cancel()
        await asyncio.wait({running})
        await hub.stop()


async def ended(reader: asyncio.StreamReader) -> None:
    """Wait until the server closes a connection."""
    with suppress(ConnectionError):
        await reader.read(1)


async def test_probes_are_served_while_idle_clients_hold_connections(
    api: FakeApi, unused_tcp_port_factory: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Disable the timeout of requests, so that only the limit on the number of connections can close them.
    monkeypatch.setattr(http, "REQUEST_SECONDS", 600.0)
    probes, metrics = unused_tcp_port_factory(), unused_tcp_port_factory()
    settings = Settings(namespace="sys", ca_maker="CertManager", probe_port=probes, metrics_port=metrics)
    operator = Operator(settings, Mock(), Mock(), Mock())
    operator.gateway = api  # type: ignore[assignment]  # in memory
    running = asyncio.create_task(operator.run())
    held: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    try:
        async with asyncio.timeout(150), aiohttp.ClientSession() as client:
            for port, path in ((probes, "/healthz"), (metrics, "/metrics")):
                assert (await fetch(client, port, path))[0] == 200
                held += [
                    await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.0.2.{number}", 0))
                    for number in range(1, 101)
                ]
                assert (await fetch(client, port, path))[0] == 200
            # Each port may hold only a limited number of connections, so the server must close the others.
            waits = {asyncio.create_task(ended(reader)) for reader, _ in held}
            while len(waits) > 2 * http.MAX_CLIENTS:
                _, waits = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        running.cancel()
        await asyncio.wait({running})
        for _, writer in held:
            writer.transport.abort()


class Takeover:
    """A standby replica that becomes the leader. It has no agents and no workers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def listed(_: Any) -> None:
            pass

        monkeypatch.setattr(Reflectors, "list_all", listed)
        monkeypatch.setattr(Discovery, "first", listed)
        monkeypatch.setattr(app, "run_until_first_exit", self.lead)
        self.operator = Operator(Settings(namespace="sys"), Mock(), Mock(), Mock())
        self.seen: dict[str, float | None] = {}
        self.dequeued = ""

    async def lead(self, parts: list[Coroutine[Any, Any, None]]) -> None:
        """Run in place of the leader's tasks: read the metrics and get one key from the queue."""
        for part in parts:
            part.close()
        self.seen = {phase: self.value("convoy_jobs", phase=phase) for phase in ("Running", "Failed")}
        self.seen["queue"] = self.value("convoy_queue_depth")
        self.dequeued = (await self.operator.queue.get()).name

    def make(self, name: str, phase: str, **spec: str) -> None:
        metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}
        raw = {"metadata": metadata, "spec": spec, "status": {"phase": phase}}
        self.operator.cache.jobs.upsert(views.cached_object(raw))

    def value(self, name: str, **labels: str) -> float | None:
        self.operator._refresh()
        return self.operator.metrics.registry.get_sample_value(name, labels)


def test_a_standby_queues_nothing_and_a_new_leader_counts_no_wait(
    virtual: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        it = Takeover(monkeypatch)
        it.make("a", "Running")
        await asyncio.sleep(3 * 3600)
        assert it.value("convoy_queue_depth") == it.operator.queue.depth == 0
        await it.operator._lead()
        assert (it.seen["queue"], it.dequeued) == (1, "a")
        assert it.value("convoy_queue_seconds_count") == 1
        assert it.value("convoy_queue_seconds_sum") == 0
        it.make("b", "Running")
        assert it.value("convoy_queue_depth") == 0, "the replica no longer leads"

    virtual(play())


def test_the_leader_counts_only_jobs_managed_by_convoy(
    virtual: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        it = Takeover(monkeypatch)
        it.make("own", "Running")
        it.make("named", "Running", managedBy=MANAGED_BY)
        it.make("theirs", "Failed", managedBy="example.com/other")
        assert it.value("convoy_jobs", phase="Running") == 0, "a standby counts no jobs"
        await it.operator._lead()
        assert (it.seen["Running"], it.seen["Failed"]) == (2, 0)

    virtual(play())
