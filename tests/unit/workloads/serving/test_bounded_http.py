"""Tests of the limits of a connection: headers, trailers, and clients that do not read."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workloads.serving.harness import Rank, Scripted, serving

from convoy_workloads.serving import bounded_http
from convoy_workloads.serving.bounded_http import HEADER_BYTES
from convoy_workloads.serving.listener import UNREAD_SECONDS, bind
from convoy_workloads.serving.openai import endpoint

LONG = b"a" * (10 * HEADER_BYTES)
POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


async def exchange(rank: Rank, request: bytes) -> bytes:
    """Send bytes. Return all that the server sends until it closes the connection; `reset` if it did
    not read all.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", rank.port)
    writer.write(request)
    async with asyncio.timeout(10):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b"reset"
        finally:
            writer.close()


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + LONG,
        b"GET / HTTP/1.1\r\nX-Long: " + LONG,
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: 12345678\r\n" % number for number in range(7000)),
        POST + b"1\r\n{\r\n0\r\n" + b"".join(b"X-%d: 12345678\r\n" % number for number in range(7000)),
        POST + b"1;" + LONG,
    ],
    ids=["url", "header", "headers", "trailers", "chunk extension"],
)
async def test_parts_without_an_end_are_refused(tmp_path: Path, request_: bytes) -> None:
    async with serving(tmp_path) as rank:
        answer = await exchange(rank, request_)
        assert answer == b"reset" or answer.startswith(b"HTTP/1.1 400 ")
        assert (await rank.complete("ab"))[0] == 200


async def test_large_headers_and_bodies_below_the_limits_are_served(tmp_path: Path) -> None:
    """The limit of the headers holds for one request, not for the connection."""
    async with serving(tmp_path) as rank:
        for _ in range(3):
            status, _ = await rank.get("/healthz", headers={"X-Large": "a" * 7000})
            assert status == 200
        body = json.dumps({"prompt": "ab", "max_tokens": 1, "user": "u" * (3 * HEADER_BYTES)}).encode()
        assert (await rank.post("/v1/completions", body))[0] == 200


async def test_connection_without_complete_headers_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_http, "HEADER_SECONDS", 0.05)
    async with serving(tmp_path) as rank:
        assert await exchange(rank, b"") == b""
        assert await exchange(rank, b"GET /healthz HTTP/1.1\r\n") == b""
        whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        first = await exchange(rank, whole + b"GET /healthz HTTP/1.1\r\n")
        assert first.count(b"HTTP/1.1 200") == 1, "the second request has no end"


async def test_connection_too_many_gets_one_response(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    async with serving(tmp_path) as rank:
        monkeypatch.setattr(bounded_http, "CONNECTIONS", 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", rank.port)
        writer.write(whole)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        refused = await exchange(rank, whole + whole)
        assert refused.startswith(b"HTTP/1.1 503") and refused.count(b"HTTP/1.1") == 1
        assert b"retry-after: 1\r\n" in refused.lower() and b"too many connections" in refused
        monkeypatch.setattr(bounded_http, "ALL_CONNECTIONS", 1)
        assert await exchange(rank, whole) in (b"", b"reset")
        writer.write(whole)
        async with asyncio.timeout(10):
            await reader.readuntil(b"HTTP/1.1 200")
        writer.close()


async def test_request_of_a_client_that_does_not_read_ends_after_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "SEND_SECONDS", 0.0)
    body = json.dumps({"prompt": "ab", "max_tokens": 4, "stream": True}).encode()
    blocked = asyncio.Event()
    received = asyncio.Queue[dict[str, Any]]()
    received.put_nowait({"type": "http.request", "body": body})

    async def send(_message: Any) -> None:
        blocked.set()
        await asyncio.Event().wait()

    async with serving(tmp_path, Scripted()) as rank:
        front = rank.process.front
        scope = {"method": "POST", "path": "/v1/completions", "headers": [(b"x-request-timeout", b"0.2")]}
        async with asyncio.timeout(10):
            await endpoint.CompletionEndpoint(front)(scope, received.get, send)
        assert blocked.is_set() and front.in_flight == 0


async def test_kernel_ends_connections_whose_client_does_not_read() -> None:
    listener = await bind("127.0.0.1", 0)
    with listener, socket.create_connection(listener.getsockname()):
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            limit = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert limit == UNREAD_SECONDS * 1000
