"""Tests of the requests that an activator sends to a replica."""

from __future__ import annotations

import asyncio

from convoy_workloads.engines.activator.upstream import Call, attempt, session

SECONDS = 30.0


async def test_a_header_in_utf8_reaches_the_replica_unchanged() -> None:
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.set_result(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    call = Call("GET", b"/x", ((b"x-user", "Zoë".encode()),), b"", "id", None)
    async with server, session(SECONDS) as client:
        response = await attempt(client, f"127.0.0.1:{port}", call)
        response.close()
        assert "\r\nx-user: Zoë\r\n".encode() in await asyncio.wait_for(received, SECONDS)
