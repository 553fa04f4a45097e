"""Tests of the certificate provider: gRPC receives a new configuration only after the certificate has
changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from tests.integration.agents.harness import Authority

from convoy_agents.channels import Identity
from convoy_agents.peer import PeerServer, PeerService, PeerServices
from convoy_agents.wire import certificate_provider, hub_pb2_grpc
from convoy_agents.wire.certificate_provider import CertificateProvider


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace `time.sleep`, and return the list of its calls' arguments."""
    found: list[float] = []
    monkeypatch.setattr(certificate_provider.time, "sleep", found.append)
    return found


def test_grpc_receives_a_configuration_only_after_a_change(pauses: list[float]) -> None:
    """When gRPC receives a new configuration, it frees the previous one, which other threads may still
    need.
    """
    now = "first"
    its: Any = CertificateProvider(lambda: now, lambda name: f"configuration of {name}")  # type: ignore[arg-type, return-value]
    assert [its.poll() for _ in range(3)] == [None] * 3 and not pauses
    now = "second"
    assert its.poll() == "configuration of second"
    assert pauses == [certificate_provider.SETTLE_SECONDS], "who asked before has begun by then"
    assert [its.poll() for _ in range(3)] == [None] * 3
    now = "first"
    assert its.poll() == "configuration of first"


def test_one_of_many_concurrent_polls_gets_the_change(pauses: list[float]) -> None:
    now = "first"
    its: Any = CertificateProvider(lambda: now, lambda name: name)  # type: ignore[arg-type, return-value]
    now, received = "second", []
    threads = [threading.Thread(target=lambda: received.append(its.poll())) for _ in range(32)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(filter(None, received)) == ["second"] and len(received) == 32


def test_a_failed_configuration_is_retried(pauses: list[float]) -> None:
    now = "first"

    def configuration(name: str) -> str:
        if name == "bad":
            raise ValueError(name)
        return name

    its: Any = CertificateProvider(lambda: now, configuration)  # type: ignore[arg-type]
    now = "bad"
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            its.poll()
    now = "good"
    assert its.poll() == "good"


class FakeEnrolment:
    """A fake enrolment. A test renews the certificate by setting `current`."""

    def __init__(self, first: Identity) -> None:
        self.current = first

    async def ready(self) -> Identity:
        return self.current


async def test_grpc_gets_only_renewed_certificates_of_the_agent_s_port(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    fetchers: list[Callable[[], grpc.ServerCertificateConfiguration | None]] = []
    made = grpc.dynamic_ssl_server_credentials

    def noted(first: Any, fetcher: Any, **given: Any) -> grpc.ServerCredentials:
        fetchers.append(fetcher)
        return made(first, fetcher, **given)

    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", noted)
    authority = Authority()
    enrolled: Any = FakeEnrolment(authority.identity("node-1"))
    nobody: Any = None
    shards: Any = hub_pb2_grpc.ShardsServicer()
    pairs: Any = hub_pb2_grpc.PairsServicer()
    services = PeerServices(PeerService(nobody, nobody, nobody), shards, pairs)
    server = PeerServer(services, enrolled, 0)
    await server.start()
    try:
        (fetcher,) = fetchers
        assert [fetcher() is not None for _ in range(3)] == [False] * 3
        enrolled.current = authority.identity("node-1")
        assert [fetcher() is not None for _ in range(3)] == [True, False, False]
    finally:
        await server.stop()
