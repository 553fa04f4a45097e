"""Tests of transfers that go wrong: damaged and missing chunks, and peers that stall. A shard counts only
when all its chunks have arrived undamaged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from tests.unit.agents.test_tiercheck_job_memory import Tmpfs, open_job_memory
from tests.unit.agents.test_tiercheck_shard_store import named, noise, pieces

from convoy_agents.pods.assignment import NodeAddress
from convoy_agents.tiercheck import memory, peer_transfer, service
from convoy_agents.tiercheck.digest import Damaged
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.peer_transfer import PeerTransfer, Unreachable
from convoy_agents.tiercheck.service import ShardService
from convoy_agents.tiercheck.shares import OTHERS
from convoy_agents.wire import hub_pb2, hub_pb2_grpc, shard_pieces
from convoy_agents.wire.shard_pieces import ShardPiece

COUNT = 12
"""Number of the shard's chunks: more than a transfer holds at once."""
DATA = noise(1)
SHARD = named(DATA, 1, count=COUNT)
CHUNKS = pieces(DATA, COUNT)
PLACE = NodeAddress("two", "two:1")
PLAN: Any = SimpleNamespace(job_uid="uid", incarnation=1, slot_token="", memory_limit=0)


class OtherNode(hub_pb2_grpc.ShardsServicer):
    """A fake agent of another node. It sends `sent`, and then stalls if `stalls` is True."""

    def __init__(self, sent: list[ShardPiece], stalls: bool = False) -> None:
        self.sent = sent
        self.stalls = stalls

    async def Fetch(self, request: Any, context: Any) -> AsyncIterator[ShardPiece]:
        if not request.chunks:
            yield ShardPiece(manifest=SHARD.text)
            return
        for piece in self.sent:
            yield piece
        if self.stalls:
            await asyncio.Event().wait()


@pytest.fixture
async def job_memory(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[JobMemory]:
    tmpfs = Tmpfs(tmp_path)
    monkeypatch.setattr(memory, "open_share", tmpfs.open)
    monkeypatch.setattr(memory, "used_bytes", tmpfs.used)
    monkeypatch.setattr(memory, "free_bytes", tmpfs.left)
    with ThreadPoolExecutor(1) as pool:
        yield await open_job_memory(tmpfs, pool)


@asynccontextmanager
async def serving(servicer: Any) -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server()
    shard_pieces.serve(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with asyncio.timeout(20), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(None)


async def fetch(job_memory: JobMemory, other: OtherNode) -> None:
    async with serving(other) as channel:

        async def shards(place: NodeAddress) -> Any:
            return shard_pieces.stub(channel)

        nobody: Any = None
        stubs: Any = SimpleNamespace(shards=shards)
        await PeerTransfer(stubs, nobody).fetch(PLACE, job_memory, PLAN, SHARD.id)


def chunk(index: int) -> ShardPiece:
    return ShardPiece(index, CHUNKS[index])


def flipped(index: int) -> ShardPiece:
    return ShardPiece(index, bytes([CHUNKS[index][0] ^ 1]) + CHUNKS[index][1:])


async def held(job_memory: JobMemory) -> bytes:
    """Return the bytes of the shard in a memory; empty if it is not complete there."""
    if not await job_memory.inspect(lambda store: store.holds(SHARD.id)):
        return b""
    return b"".join([await job_memory.read(SHARD.id, index) for index in range(COUNT)])


async def test_a_fetch_keeps_every_chunk_in_any_order(job_memory: JobMemory) -> None:
    order = [*range(COUNT // 2, COUNT), *range(COUNT // 2)]
    await fetch(job_memory, OtherNode([chunk(index) for index in order]))
    assert await held(job_memory) == DATA


@pytest.mark.parametrize("at", [0, 5, COUNT - 1])
async def test_a_chunk_damaged_on_the_way_ends_the_fetch(job_memory: JobMemory, at: int) -> None:
    sent = [flipped(index) if index == at else chunk(index) for index in range(COUNT)]
    with pytest.raises(Damaged, match="damaged"):
        await fetch(job_memory, OtherNode(sent))
    assert await held(job_memory) == b""
    # The undamaged chunks stay, so the next node sends only those that are missing.
    left = await job_memory.expect(SHARD, OTHERS, 0)
    assert at in left
    await fetch(job_memory, OtherNode([chunk(index) for index in left]))
    assert await held(job_memory) == DATA


@pytest.mark.parametrize("count", [0, 1, COUNT - 1])
async def test_a_truncated_stream_does_not_complete_the_shard(job_memory: JobMemory, count: int) -> None:
    with pytest.raises(Damaged, match="not complete"):
        await fetch(job_memory, OtherNode([chunk(index) for index in range(count)]))
    assert await held(job_memory) == b""


@pytest.mark.parametrize("index", [COUNT, 2**32 - 1])
async def test_a_chunk_that_the_manifest_does_not_have_is_refused(job_memory: JobMemory, index: int) -> None:
    with pytest.raises(Damaged, match="not expected"):
        await fetch(job_memory, OtherNode([chunk(0), ShardPiece(index, b"more")]))


async def test_a_peer_that_stalls_ends_the_fetch_at_its_deadline(
    job_memory: JobMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_transfer, "PIECE_SECONDS", 0.02)
    with pytest.raises(Unreachable, match="DEADLINE_EXCEEDED"):
        await fetch(job_memory, OtherNode([chunk(0), chunk(1)], stalls=True))
    assert await held(job_memory) == b""


@pytest.fixture
def putting(job_memory: JobMemory, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShardService]:
    """The Shards service of a node, which knows the memory of one job and believes every caller."""

    async def believe(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(node="two", incarnation=1, job_uid="uid")

    monkeypatch.setattr(service, "agent_of", believe)
    memory_manager: Any = SimpleNamespace(get=lambda uid: job_memory)
    slot_tokens: Any = SimpleNamespace(require=believe)
    nobody: Any = None
    yield ShardService(memory_manager, nobody, nobody, nobody, slot_tokens, nobody)


async def put(shards: ShardService, sent: list[ShardPiece], stalls: bool = False) -> hub_pb2.PutReply:
    async def requests() -> AsyncIterator[ShardPiece]:
        for piece in sent:
            yield ShardPiece(piece.index, piece.data, "uid", SHARD.id)
        if stalls:
            await asyncio.Event().wait()

    async with serving(shards) as channel:
        return await shard_pieces.stub(channel).Put(requests())


async def test_a_put_keeps_a_shard_with_more_chunks_than_it_holds_at_once(
    putting: ShardService, job_memory: JobMemory
) -> None:
    await job_memory.expect(SHARD, OTHERS, 0, copy_of="two")
    assert (await put(putting, [chunk(index) for index in range(COUNT)])).whole
    assert await held(job_memory) == DATA


@pytest.mark.parametrize(
    ("sent", "stalls", "words"),
    [
        ([flipped(0), *map(chunk, range(1, COUNT))], False, "damaged"),
        ([*map(chunk, range(COUNT - 1)), flipped(COUNT - 1)], False, "damaged"),
        ([chunk(0), chunk(1)], False, "not complete"),
        ([chunk(0), chunk(1)], True, "no chunk came in time"),
    ],
    ids=["first damaged", "last damaged", "truncated", "stalled"],
)
async def test_a_put_that_goes_wrong_does_not_complete_the_shard(
    putting: ShardService,
    job_memory: JobMemory,
    monkeypatch: pytest.MonkeyPatch,
    sent: list[ShardPiece],
    stalls: bool,
    words: str,
) -> None:
    if stalls:
        monkeypatch.setattr(service, "PIECE_SECONDS", 0.1)
    await job_memory.expect(SHARD, OTHERS, 0, copy_of="two")
    reply = await put(putting, sent, stalls)
    assert not reply.whole and words in reply.reason
    assert await held(job_memory) == b""
