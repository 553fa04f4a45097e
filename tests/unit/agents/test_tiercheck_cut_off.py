"""Tests of calls to other agents whose channel is closed during the call, for example after a renewal of
the certificate. Each call must raise Unreachable, because callers retry after this error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from tests.unit.agents.test_tiercheck_shard_store import named, noise

from convoy_agents.pods.assignment import NodeAddress
from convoy_agents.tiercheck.peer_transfer import PeerTransfer, Unreachable
from convoy_agents.wire import hub_pb2, hub_pb2_grpc

PLACE = NodeAddress("two", "two:1")
SHARD = named(noise(1), 1)
PLAN: Any = SimpleNamespace(job_uid="job", incarnation=1, slot_token="", memory_limit=0)


class OtherNode(hub_pb2_grpc.ShardsServicer):
    """A fake agent of another node. It never answers calls of one kind: `hangs`."""

    def __init__(self, hangs: str, breaks: bool = False) -> None:
        self.hangs = hangs
        self.breaks = breaks
        """True to end each Put with UNAVAILABLE after all chunks have arrived."""
        self.called = asyncio.Event()

    async def _come(self, kind: str) -> None:
        if kind == self.hangs:
            self.called.set()
            await asyncio.Event().wait()

    async def Offer(self, request: Any, context: Any) -> hub_pb2.OfferReply:
        await self._come("offer")
        encodings = [hub_pb2.Piece.PLANES]
        return hub_pb2.OfferReply(decision=hub_pb2.OfferReply.WANTED, chunks=[0], encodings=encodings)

    async def Put(self, requests: Any, context: Any) -> hub_pb2.PutReply:
        await self._come("give")
        async for _ in requests:
            pass
        if self.breaks:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "it leaves")
        return hub_pb2.PutReply(whole=True)

    async def Fetch(self, request: Any, context: Any) -> AsyncIterator[hub_pb2.Piece]:
        await self._come("chunks" if request.chunks else "manifest")
        yield hub_pb2.Piece(manifest=SHARD.text)

    async def Survey(self, request: Any, context: Any) -> AsyncIterator[hub_pb2.SurveyPart]:
        await self._come("survey")
        yield hub_pb2.SurveyPart()

    async def Resume(self, request: Any, context: Any) -> hub_pb2.ResumeReply:
        await self._come("resume")
        return hub_pb2.ResumeReply()


class Memory:
    """A fake JobMemory with one shard. `before_expect` runs at the start of `expect`."""

    job_uid = "job"

    def __init__(self, before_expect: Callable[[], Awaitable[None]]) -> None:
        self._before_expect = before_expect

    async def inspect(self, do: Any) -> Any:
        return do(
            SimpleNamespace(
                manifest={SHARD.id: SHARD}.get, holds={SHARD.id}.__contains__, dropped_withdrawn=lambda: []
            )
        )

    async def read(self, key: str, index: int) -> bytes:
        return noise(1)

    async def expect(self, *_: Any) -> list[int]:
        await self._before_expect()
        return [0]


class Link:
    def __init__(self, fault: Exception | None) -> None:
        self._fault = fault

    async def pack_async(self, data: bytes) -> bytes:
        if self._fault is not None:
            raise self._fault
        return data

    def record_sent(self, *_: Any) -> None:
        """Ignore the measurement."""


async def nothing() -> None:
    """Return without doing anything. Used where a test needs no `before_expect`."""


@asynccontextmanager
async def dialled(two: OtherNode) -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server()
    hub_pb2_grpc.add_ShardsServicer_to_server(two, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    finally:
        await server.stop(None)


def run_call(
    what: str,
    channel: grpc.aio.Channel,
    before_expect: Callable[[], Awaitable[None]] = nothing,
    packing: Exception | None = None,
) -> Any:
    """Start the call of the kind `what` through PeerTransfer, and return its coroutine. `packing`: an error
    that the encoding of a chunk raises, or None.
    """

    async def shards(place: NodeAddress) -> Any:
        return hub_pb2_grpc.ShardsStub(channel)

    stubs: Any = SimpleNamespace(shards=shards)
    links: Any = SimpleNamespace(to=lambda node: Link(packing))
    peer_transfer, memory = PeerTransfer(stubs, links), Memory(before_expect)
    some: Any = memory
    return {
        "offer": lambda: peer_transfer.send(PLACE, some, PLAN, SHARD.id),
        "give": lambda: peer_transfer.send(PLACE, some, PLAN, SHARD.id),
        "manifest": lambda: peer_transfer.fetch(PLACE, some, PLAN, SHARD.id),
        "chunks": lambda: peer_transfer.fetch(PLACE, some, PLAN, SHARD.id),
        "survey": lambda: peer_transfer.survey(PLACE, PLAN, member=True),
        "resume": lambda: peer_transfer.resume(PLACE, hub_pb2.ResumeRequest()),
    }[what]()


KINDS = ["offer", "give", "manifest", "chunks", "survey", "resume"]


@asynccontextmanager
async def running_call(kind: str) -> AsyncIterator[tuple[grpc.aio.Channel, asyncio.Task[Any]]]:
    """Start a call that is never answered. Yield the channel and the call's task once the request has
    arrived.
    """
    two = OtherNode(kind)
    async with asyncio.timeout(20), dialled(two) as channel:
        call = asyncio.create_task(run_call(kind, channel))
        await two.called.wait()
        yield channel, call


@pytest.mark.parametrize("kind", KINDS)
async def test_a_channel_closed_during_a_call_raises_unreachable(kind: str) -> None:
    async with running_call(kind) as (channel, call):
        await channel.close(0.01)
        with pytest.raises(Unreachable, match="two"):
            await call


@pytest.mark.parametrize("kind", KINDS)
async def test_a_cancelled_call_raises_cancelled_error(kind: str) -> None:
    async with running_call(kind) as (_, call):
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_a_channel_closed_between_two_calls_raises_unreachable() -> None:
    async with asyncio.timeout(20), dialled(OtherNode("")) as channel:
        with pytest.raises(Unreachable, match="two"):
            await run_call("chunks", channel, lambda: channel.close(None))


@pytest.mark.parametrize("breaks", [False, True], ids=["it answers", "it leaves"])
async def test_a_fault_of_this_node_is_raised_unchanged(breaks: bool) -> None:
    """Encoding a chunk fails on this node. The error must be raised unchanged, whether the other node
    answers or breaks off. It must not become Unreachable, which callers retry.
    """
    async with asyncio.timeout(20), dialled(OtherNode("", breaks)) as channel:
        with pytest.raises(ZeroDivisionError, match="packing"):
            await run_call("give", channel, packing=ZeroDivisionError("packing"))


async def test_a_node_that_leaves_during_a_transfer_raises_unreachable() -> None:
    async with asyncio.timeout(20), dialled(OtherNode("", breaks=True)) as channel:
        with pytest.raises(Unreachable, match="it leaves"):
            await run_call("give", channel)
