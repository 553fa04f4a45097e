"""Tests of many concurrent handshakes while the server changes its certificate."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest

from convoy_agents.wire.certificate_provider import CertificateProvider
from convoy_crds.terms import HUB_SERVER_NAME
from convoy_operator.hub.ca import Authority, make_authority
from convoy_operator.hub.certificate import LIFE, ServerCertificate


def serve(pairs: list[tuple[bytes, bytes]], notified: Any) -> None:
    """Serve with each certificate in turn for a second, until the process ends."""

    async def run() -> None:
        server = grpc.aio.server()
        its = CertificateProvider(
            lambda: pairs[int(time.monotonic()) % len(pairs)],
            lambda one: grpc.ssl_server_certificate_configuration([one]),
        )
        notified.put(server.add_secure_port("127.0.0.1:0", its.credentials(clients=False)))
        await server.start()
        await asyncio.Event().wait()

    asyncio.run(run())


def dial(port: int, roots: bytes, times: int, notified: Any) -> None:
    """Connect fifty agents at the same time, and repeat that `times` times."""
    options = [("grpc.ssl_target_name_override", HUB_SERVER_NAME), ("grpc.use_local_subchannel_pool", 1)]

    async def one() -> None:
        credentials = grpc.ssl_channel_credentials(roots)
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
            await channel.channel_ready()

    async def run() -> None:
        async with asyncio.timeout(90):
            for _ in range(times):
                await asyncio.gather(*(one() for _ in range(50)))

    asyncio.run(run())
    notified.put("done")


def test_a_server_survives_concurrent_handshakes_during_renewals() -> None:
    """Let many agents connect while the certificate changes, as after a change of the leader. The server's
    process must survive.
    """
    authority = Authority(make_authority())
    made = [authority.server(timedelta(days=1), datetime.now(UTC)) for _ in range(4)]
    pairs, roots = [(one.key_pem, one.certificate_pem) for one in made], authority.certificate_pem
    spawn = multiprocessing.get_context("spawn")
    notified, done = spawn.Queue(), spawn.Queue()
    server = spawn.Process(target=serve, args=(pairs, notified), daemon=True)
    server.start()
    try:
        port = notified.get(timeout=60)
        agents = [spawn.Process(target=dial, args=(port, roots, 4, done), daemon=True) for _ in range(3)]
        for one in agents:
            one.start()
        for one in agents:
            one.join(100)
        assert server.is_alive()
        assert [done.get(timeout=1) for _ in agents] == ["done"] * 3
    finally:
        server.kill()
        server.join()


def test_hub_ports_pass_only_a_renewed_certificate_to_grpc(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetchers: list[Callable[[], grpc.ServerCertificateConfiguration | None]] = []
    monkeypatch.setattr(
        grpc, "dynamic_ssl_server_credentials", lambda first, fetcher, **_: fetchers.append(fetcher)
    )
    now = datetime.now(UTC)
    certificates = ServerCertificate(Authority(make_authority()), lambda _: None, clock=lambda: now)
    for clients in (False, True):
        certificates.credentials(clients=clients)

    def notified() -> list[list[bool]]:
        """Make three handshakes on each port. Return one list per port, with True for each handshake that
        gives gRPC a new configuration.
        """
        return [[fetcher() is not None for _ in range(3)] for fetcher in fetchers]

    assert notified() == [[False] * 3] * 2
    now += 0.6 * LIFE
    assert notified() == [[True, False, False]] * 2
