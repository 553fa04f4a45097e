"""Tests of requests that offer another protocol, as Java's HTTP client does. Server and clients go on with
HTTP/1.1.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.unit.workloads.serving.harness import serving

BODY = json.dumps({"prompt": "ab", "max_tokens": 4}).encode()
OFFER = (
    b"Host: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\n"
)
POST = b"POST /v1/completions HTTP/1.1\r\n" + OFFER
WITH_LENGTH = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = (
    POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n" + BODY[:5] + b"\r\n"
    b"%x\r\n" % len(BODY[5:]) + BODY[5:] + b"\r\n0\r\nX-Trailer: y\r\n\r\n"
)
GET = b"GET /healthz HTTP/1.1\r\n" + OFFER + b"\r\n"
EMPTY = b"GET /healthz HTTP/1.1\r\n" + OFFER + b"Content-Length: 0\r\n\r\n"
SOCKET = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("part", [1, 7, 1 << 16], ids=["bytes", "parts", "at once"])
async def test_each_request_keeps_its_body_and_its_connection(tmp_path: Path, part: int) -> None:
    requests = [WITH_LENGTH, CHUNKED, GET, EMPTY, WITH_LENGTH, SOCKET, CHUNKED, LAST]
    sent = b"".join(requests)
    async with serving(tmp_path) as rank, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", rank.port)
        for begin in range(0, len(sent), part):
            writer.write(sent[begin : begin + part])
            await writer.drain()
            if part < len(sent):
                await asyncio.sleep(0)
        received = await reader.read()
        writer.close()
    assert received.count(b"HTTP/1.1 200 OK\r\n") == len(requests), received
    assert received.count(b'"text":"abab"') == 4


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ],
    ids=["two lengths", "no chunk"],
)
async def test_malformed_bodies_are_refused(tmp_path: Path, body: bytes) -> None:
    async with serving(tmp_path) as rank, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", rank.port)
        writer.write(POST + body)
        received = await reader.read()
        writer.close()
    assert b"HTTP/1.1 400" in received and b"HTTP/1.1 200" not in received
