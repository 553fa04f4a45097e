"""Tests of pair probes whose channel is closed during a call. A renewal of the certificate closes channels
in this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from convoy_agents.guard.sweep import pair_probes
from convoy_agents.guard.sweep.finding import Outcome
from convoy_agents.guard.sweep.pair_probes import BANDWIDTH, LATENCY, PairProbes
from convoy_agents.guard.sweep.probe import Probe, Tier
from convoy_agents.wire import hub_pb2, hub_pb2_grpc

PARTNER = hub_pb2.NodeAddress(node="two", peer_address="two:1")


class FakePartner(hub_pb2_grpc.PairsServicer):
    """A fake partner node. While `hangs` is True, it replies only to the first `answers` calls."""

    def __init__(self) -> None:
        self.answers = 0
        self.called = asyncio.Event()
        self.hangs = True

    async def _come(self) -> None:
        self.answers -= 1
        if self.answers < 0 and self.hangs:
            self.called.set()
            await asyncio.Event().wait()

    async def Echo(self, request: Any, context: Any) -> hub_pb2.EchoReply:
        await self._come()
        return hub_pb2.EchoReply()

    async def Transfer(
        self, requests: AsyncIterator[hub_pb2.TransferPiece], context: Any
    ) -> hub_pb2.TransferReply:
        await self._come()
        total = 0
        async for part in requests:
            total += len(part.data)
        return hub_pb2.TransferReply(bytes=total)


class MeasuringSide:
    """The measuring side's connection. It keeps one channel and dials again after the channel was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.dialled = 0
        self.channel: grpc.aio.Channel | None = None
        self.closes_next = False

    async def stub(self, place: hub_pb2.NodeAddress) -> hub_pb2_grpc.PairsStub:
        if self.channel is None:
            self.dialled += 1
            self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{self._port}")
        stub = hub_pb2_grpc.PairsStub(self.channel)
        if self.closes_next:
            self.closes_next = False
            await self.close()
        return stub

    async def close(self) -> None:
        channel, self.channel = self.channel, None
        assert channel is not None
        await channel.close(0.01)


@pytest.fixture
async def two() -> FakePartner:
    return FakePartner()


@pytest.fixture
async def line(two: FakePartner, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MeasuringSide]:
    monkeypatch.setattr(pair_probes, "TRANSFER_BYTES", 2 * pair_probes.PIECE_BYTES)
    server = grpc.aio.server()
    hub_pb2_grpc.add_PairsServicer_to_server(two, server)
    line = MeasuringSide(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    try:
        yield line
    finally:
        if line.channel is not None:
            await line.channel.close(None)
        await server.stop(None)


def measured(line: MeasuringSide, metric: str, seconds: float = 20) -> asyncio.Task[Any]:
    measure = PairProbes(line.stub).pair_probe("sweep", PARTNER)
    return asyncio.ensure_future(measure(Probe(metric, Tier.L2, "", True, 0.01, ""), seconds))


@pytest.mark.parametrize("answers", [0, 2], ids=["before it answers", "while it is measured"])
@pytest.mark.parametrize("metric", [LATENCY, BANDWIDTH])
async def test_a_channel_closed_during_a_call_is_dialled_again(
    line: MeasuringSide, two: FakePartner, metric: str, answers: int
) -> None:
    two.answers = answers
    work = measured(line, metric)
    await two.called.wait()
    two.hangs = False
    await line.close()
    found = await work
    assert (found.outcome, line.dialled) == (Outcome.MEASURED, 2)
    assert len(found.samples) >= 3


async def test_a_channel_closed_between_two_calls_is_dialled_again(
    line: MeasuringSide, two: FakePartner
) -> None:
    two.hangs = False
    line.closes_next = True
    assert (await measured(line, LATENCY)).outcome is Outcome.MEASURED
    assert line.dialled == 2


async def test_a_probe_ends_when_cancelled_or_timed_out(line: MeasuringSide, two: FakePartner) -> None:
    work = measured(line, LATENCY)
    await two.called.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert (await measured(line, LATENCY, 0.05)).outcome is Outcome.TIMED_OUT


async def test_release_returns_although_the_partner_is_unreachable(
    line: MeasuringSide, two: FakePartner
) -> None:
    pair = PairProbes(line.stub)
    line.closes_next = True
    await pair.release("sweep", PARTNER)
    release = asyncio.ensure_future(pair.release("sweep", PARTNER))
    await two.called.wait()
    await line.close()
    await release
