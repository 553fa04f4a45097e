"""Tests of replication over HTTP: two serving ranks in the test's process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import BaseRoute
from tests.unit.workloads.serving.harness import Rank, Scripted, serving

from convoy_workloads.serving.auth import TokenFile
from convoy_workloads.serving.extensions import Guard
from convoy_workloads.serving.replication.frames import HEAD_BYTES, MAX_FRAME, decode, encode
from convoy_workloads.serving.replication.http import PATH, HttpTransport, routes
from convoy_workloads.serving.replication.messages import Confirm, Pull, Push, Sender, StateBegin, StateEnd
from convoy_workloads.serving.replication.operation import Operation
from convoy_workloads.serving.replication.replicator import Replicator
from convoy_workloads.serving.replication.settings import Settings
from convoy_workloads.serving.replication.transport import Unreachable

SENDER = Sender(bytes(16), joins=True)
QUICK = Settings(sync_seconds=0.05, retained_bytes=2000)


class Values:
    """A store in memory."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes | None] = {}
        self.logged: list[Operation] = []

    async def log(self, operations: Sequence[Operation]) -> None:
        self.logged += operations

    def apply(self, operations: Sequence[Operation]) -> None:
        self.values |= {one.key: one.payload for one in operations}

    async def payloads(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        return [self.values[key] for key in keys]

    def snapshot(self) -> AsyncIterator[bytes] | None:
        copied = dict(self.values)

        async def parts() -> AsyncIterator[bytes]:
            for key, value in copied.items():
                yield key + b"=" + (value or b"")

        return parts()

    async def restore(self, parts: AsyncIterator[bytes]) -> None:
        pairs = [part.split(b"=") async for part in parts]
        self.values = {key: value for key, value in pairs}  # noqa: C416 - pairs are lists


class Replicated(Scripted):
    """An engine whose load ends when it has caught up."""

    def __init__(self, token: TokenFile | None) -> None:
        super().__init__()
        self.may_load.set()
        self.store = Values()
        self.transport = HttpTransport(token)
        self.replicator = Replicator(self.store, self.transport, QUICK)
        self.own = ""

    def routes(self, guard: Guard) -> Sequence[BaseRoute]:
        return routes(self.replicator, guard)

    def set_peers(self, own: str, others: Sequence[str]) -> None:
        self.replicator.set_peers(own, others)

    async def serve(self) -> None:
        async with self.transport:
            await self.replicator.run()

    async def drain(self) -> None:
        await self.replicator.drain()

    def load(self, renew: Any) -> Any:
        while not self.replicator.caught_up.wait(0.02):
            renew()
        return super().load(renew)


@contextlib.asynccontextmanager
async def replicas(folder: Path, count: int) -> AsyncIterator[list[tuple[Rank, Replicated]]]:
    """Yield serving ranks that share a token."""
    token = folder / "token"
    token.write_text("secret")
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for number in range(count):
            own = folder / str(number)
            own.mkdir()
            engine = Replicated(TokenFile(token))
            rank = await stack.enter_async_context(serving(own, engine, wait=False, token_file=token))
            found.append((rank, engine))
        yield found


def connect(ranks: Sequence[tuple[Rank, Replicated]]) -> None:
    """Report all ranks to each other."""
    every = [f"127.0.0.1:{rank.port}" for rank, _ in ranks]
    for own, (rank, _) in zip(every, ranks, strict=True):
        message = {"type": "endpoints", "addresses": [own, *(one for one in every if one != own)]}
        rank.process.receive(message)


async def post(rank: Rank, path: str, body: bytes, token: str = "secret") -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {token}"}
    async with rank.session.post(rank.base + path, data=body, headers=headers) as response:
        return response.status, await response.read()


async def status_of_long_body(rank: Rank, path: str) -> bytes:
    """Return the status of a request whose body would be too long."""
    reader, writer = await asyncio.open_connection("127.0.0.1", rank.port)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\n"
    writer.write(f"{head}Content-Length: {HEAD_BYTES + MAX_FRAME + 1}\r\n\r\n".encode())
    line = await asyncio.wait_for(reader.readline(), 30)
    writer.close()
    return line.split()[1]


async def test_operations_reach_the_other_replica_and_a_fresh_one_restores_them(tmp_path: Path) -> None:
    async with replicas(tmp_path, 3) as ranks:
        connect(ranks[:2])
        for rank, _ in ranks[:2]:
            await rank.until(lambda rank=rank: rank.process.lifecycle.ready)  # type: ignore[misc]
        (_, first), (_, second), (fresh, third) = ranks
        await asyncio.gather(
            *(first.replicator.append([(f"a{n}".encode(), b"1" * 99)]) for n in range(30)),
            *(second.replicator.append([(f"b{n}".encode(), b"2" * 99)]) for n in range(30)),
        )
        await fresh.until(lambda: first.store.values == second.store.values)
        assert len(first.store.values) == 60 and not fresh.process.lifecycle.ready
        connect(ranks)
        await fresh.until(lambda: fresh.process.lifecycle.ready)
        assert third.store.values == first.store.values
        await third.replicator.append([(b"c", b"3")])
        await fresh.until(lambda: first.store.values.get(b"c") == second.store.values.get(b"c") == b"3")
        fresh.process.leave()
        assert await fresh.ended() == 0
        for one in ranks:
            connect([one])


@pytest.mark.parametrize("name", ["push", "pull", "state"])
async def test_only_valid_frames_with_the_token_are_accepted(tmp_path: Path, name: str) -> None:
    async with replicas(tmp_path, 1) as [(rank, engine)]:
        connect([(rank, engine)])
        path = f"{PATH}/{name}"
        good = encode(Push(SENDER) if name == "push" else Pull(SENDER))
        assert (await post(rank, path, good))[0] == 200
        assert (await post(rank, path, good, "wrong"))[0] == 401
        assert (await post(rank, path, b"", "wrong"))[0] == 401
        for body in (b"", good[:-1], good + b"x", bytes([good[0] ^ 1]) + good[1:], encode(Confirm(SENDER))):
            code, text = await post(rank, path, body)
            assert code == 400 and b"invalid_frame" in text
        assert await status_of_long_body(rank, path) == b"413"
        async with rank.session.get(rank.base + path, headers={"Authorization": "Bearer secret"}) as response:
            assert response.status == 405
        assert not engine.store.values


async def test_a_state_is_a_stream_of_frames(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1) as [(rank, engine)]:
        rank.process.receive({"type": "endpoints", "addresses": ["127.0.0.1:1"]})
        await rank.until(lambda: rank.process.lifecycle.ready)
        await engine.replicator.append([(b"k", b"v")])
        async with HttpTransport(TokenFile(tmp_path / "token")) as transport:
            address = f"127.0.0.1:{rank.port}"
            found = [one async for one in transport.state(address, Pull(SENDER, {}, whole=True))]
            assert isinstance(found[0], StateBegin) and found[0].whole and found[-1] == StateEnd()
            supply = await transport.pull(address, Pull(SENDER))
            assert [one.key for one in supply.operations] == [b"k"]


class Broken:
    """A server that responds with given bytes, and then ends the connection."""

    def __init__(self, response: bytes) -> None:
        self._response = response

    @contextlib.asynccontextmanager
    async def address(self) -> AsyncIterator[str]:
        async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self._response)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(respond, "127.0.0.1", 0)
        async with server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def response(body: bytes, status: str = "200 OK", length: int | None = None, more: bytes = b"") -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n".encode() + more + b"\r\n" + body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        response(b"", "503 Service Unavailable"),
        response(b"", "302 Found", more=b"Location: http://127.0.0.1:1/\r\n"),
        response(b"nonsense"),
        response(encode(StateEnd())),
        response(encode(Confirm(SENDER))[:-1], length=99),
        response(b"", length=HEAD_BYTES + MAX_FRAME + 1),
    ],
)
async def test_a_peer_that_responds_with_something_else_is_unreachable(data: bytes) -> None:
    async with Broken(data).address() as address, HttpTransport() as transport:
        with pytest.raises(Unreachable):
            await transport.push(address, Push(SENDER))
        with pytest.raises(Unreachable):
            found = [one async for one in transport.state(address, Pull(SENDER))]
            if not found or found[-1] == StateEnd() or isinstance(found[-1], Confirm):
                raise Unreachable("a state that the replicator refuses")


async def test_nobody_at_the_address_is_unreachable() -> None:
    async with HttpTransport() as transport:
        with pytest.raises(Unreachable):
            await transport.pull("127.0.0.1:1", Pull(SENDER))


def test_the_token_of_a_request_follows_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    token = TokenFile(file)
    assert token.header == "Bearer one"
    file.write_text("another")
    assert token.header == "Bearer another" and token.accepts(token.header.encode())
    assert isinstance(decode(encode(Push(SENDER))), Push)
