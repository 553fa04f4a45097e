"""Tests with certificates that expire within seconds. Agents must continue their work when certificates are
renewed, and a stolen certificate must be refused after its expiry.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from tests.integration.agents.conftest import HostMaker
from tests.integration.agents.harness import Authority, FakeHub, Host, eventually
from tests.integration.agents.memory_job import MemoryJob, saved
from tests.integration.agents.test_peers import coordinator
from tests.integration.operator.conftest import FakeAgent, Installation, installation, quiet_logs, running

from convoy_agents.channels import dial
from convoy_agents.wire import hub_pb2, hub_pb2_grpc
from convoy_controllers.checkpoint.generation import Tier
from convoy_crds import terms

__all__ = ["installation", "quiet_logs"]

pytestmark = pytest.mark.timeout(180)
LIFE = 4.0
"""Lifetime of a certificate in seconds."""
LIVES = 3
"""Duration of a test, in lifetimes of a certificate."""


async def test_saves_and_copies_continue_during_certificate_rotation(
    make_host: HostMaker, hub: FakeHub, tmp_path: Path
) -> None:
    hub.certificate_seconds = LIFE
    one, two = await make_host("one"), await make_host("two")
    ranks = await MemoryJob(hub, tmp_path).start_incarnation(1, [("aaaa-1111", one), ("bbbb-2222", two)])
    ends, step = time.monotonic() + LIVES * LIFE, 0
    while time.monotonic() < ends:
        step += 1
        await saved(ranks, 1, step, Tier.LOCAL, Tier.PEER)
    assert hub.enrolments >= 2 * LIVES
    assert step > LIVES, "there was work all the while"


class OperatorHub:
    """The ports and the authority of a real operator's hub, with the attributes of FakeHub that `Host`
    needs.
    """

    def __init__(self, server: Any, ca: bytes) -> None:
        self.authority, self.address = SimpleNamespace(pem=ca), "127.0.0.1"
        self.enrol_port, self.session_port = server.enrolment_port, server.session_port


@asynccontextmanager
async def agents(place: Installation, operator: Any, root: Path, count: int) -> AsyncIterator[list[Host]]:
    """Start `count` nodes with agents that connect to the operator's hub. Yield the nodes."""
    beside: Any = OperatorHub(operator.server, await place.ca())
    hosts = []
    try:
        for number in range(count):
            node = f"{place.namespace}-{number}"
            await place.node(node)
            host = Host(root, node, beside)
            host.settings.token_file.write_text(await place.agent_token(node))
            hosts.append(host)
            await host.start()
        yield hosts
    finally:
        for host in hosts:
            await host.stop()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Yield a folder with a path that is short enough for socket addresses."""
    with tempfile.TemporaryDirectory(prefix="cv-") as name:
        yield Path(name)


async def test_no_agent_counts_as_lost_while_sessions_are_renewed(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, short_path: Path
) -> None:
    dialled: list[str] = []
    # An agent renews its certificate after two thirds of the lifetime. With a lifetime of LIFE, the remaining
    # third would be too short for retries.
    life = 2 * LIFE
    async with (
        running(installation, monkeypatch, certificate_hours=life / 3600) as operator,
        agents(installation, operator, short_path, 3) as hosts,
    ):
        join = operator.hub.streams.join
        monkeypatch.setattr(
            operator.hub.streams, "join", lambda hello: (dialled.append(hello.node), join(hello))[1]
        )
        monitor = operator.hub.monitor
        await eventually(lambda: all(monitor.connected(host.node) for host in hosts))
        ends = time.monotonic() + LIVES * life
        while time.monotonic() < ends:
            assert all(monitor.connected(host.node) for host in hosts)
            assert all(host.agent.enrolment.current for host in hosts)
            await asyncio.sleep(0.05)
    again = {host.node: dialled.count(host.node) for host in hosts}
    assert min(again.values()) >= LIVES - 1, f"certificates have run out: {again}"
    # A session ends with its certificate. The next session uses a renewed certificate and lasts about two
    # thirds of a lifetime.
    assert max(again.values()) <= 2 * LIVES, f"and nothing else has ended sessions: {again}"


async def test_the_hub_refuses_a_stolen_certificate_after_its_expiry(
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = f"{installation.namespace}-n"
    await installation.node(node)
    async with running(installation, monkeypatch, certificate_hours=LIFE / 3600) as operator:
        thief = FakeAgent(installation, operator.server, node)
        ends = (await thief.enrol()).expires_unix
        await thief.dial()
        await eventually(lambda: thief.last("heartbeat_reply") is not None)
        # The thief keeps sending heartbeats, but the hub must end the stream.
        await asyncio.wait_for(thief.stream.code(), LIFE + 5)
        assert time.time() >= ends
        # The old TLS connection stays open. Open a second session on it.
        agent, again = operator.hub.registry.ensure(node), hub_pb2_grpc.HubStub(thief.link).Session()
        await again.write(hub_pb2.AgentMessage(hello=hub_pb2.Hello(node=node, peer_address="thief:1")))
        assert await asyncio.wait_for(again.code(), 5) is grpc.StatusCode.UNAUTHENTICATED
        assert agent.stream is None and agent.peer_address == f"{node}:8472"
        await thief.hang_up()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await thief.dial()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        await thief.link.close()


async def test_agents_refuse_a_stolen_certificate_after_its_expiry(
    make_host: HostMaker, hub: FakeHub, authority: Authority
) -> None:
    one, _ = await coordinator(make_host, hub)
    stolen = authority.identity("two", seconds=5)
    name, own = terms.agent_server_name("one"), one.settings.ca_file.read_bytes()
    async with dial(f"127.0.0.1:{one.agent.peer_port}", name, own, stolen) as channel:
        peer, shards = hub_pb2_grpc.PeerStub(channel), hub_pb2_grpc.ShardsStub(channel)

        async def refused() -> bool:
            """Return True if the agent refuses all calls on the old connection as unauthenticated."""
            codes: list[grpc.StatusCode] = []
            for call in (
                peer.Attest(hub_pb2.AttestRequest(job_uid="uid-of-job"), timeout=5),
                peer.Abandon(hub_pb2.AbandonRequest(job_uid="uid-of-job", incarnation=1, slot=1), timeout=5),
                shards.Offer(hub_pb2.OfferRequest(), timeout=5),
                shards.Put(timeout=5),
                # This call never sends its request.
                channel.stream_unary("/convoy.wire.Peer/Attest")(timeout=5),
            ):
                codes.append(await call.code())
                if codes[-1] is not grpc.StatusCode.UNAUTHENTICATED:
                    return False
            return True

        assert (await peer.Attest(hub_pb2.AttestRequest(job_uid="uid-of-job"), timeout=5)).member
        async with asyncio.timeout(20):
            while not await refused():  # noqa: ASYNC110 - its end is a moment, not an event
                await asyncio.sleep(0.1)
        assert time.time() >= stolen.expires
