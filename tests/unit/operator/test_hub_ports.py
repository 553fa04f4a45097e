"""Tests of the hub's two ports under connections from clients without a certificate."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from unittest.mock import Mock

import pytest

from convoy_operator.hub import server
from convoy_operator.hub.ca import Authority, make_authority
from convoy_operator.hub.server import HubServer
from convoy_operator.metrics import Metrics
from convoy_operator.settings import Settings

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The start of an HTTP/2 connection whose client sends no request."""


@pytest.fixture
async def hub(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HubServer]:
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 0.5)
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.5)
    settings = Settings(hub_bind="127.0.0.1", enrolment_port=0, session_port=0)
    found = HubServer(settings, Authority(make_authority(datetime.now(UTC))), Mock(), Mock(), Metrics())
    await found.start()
    yield found
    await found.stop()


async def ended(reader: asyncio.StreamReader) -> None:
    """Wait until the hub closes a connection."""
    with suppress(ConnectionError):
        while await reader.read(65536):
            pass


async def test_a_connection_without_a_handshake_is_closed_on_both_ports(hub: HubServer) -> None:
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        for port in (hub.enrolment_port, hub.session_port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.transport.abort)
            await ended(reader)


async def test_a_connection_without_a_certificate_request_is_closed(hub: HubServer) -> None:
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    anybody.set_alpn_protocols(["h2"])
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        reader, writer = await asyncio.open_connection("127.0.0.1", hub.enrolment_port, ssl=anybody)
        stack.callback(writer.transport.abort)
        writer.write(PREFACE)
        assert await reader.readexactly(9), "the handshake ended and HTTP/2 started"
        await ended(reader)
