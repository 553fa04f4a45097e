"""Requests to a metadata service. The replies are untrusted, so time and size have strict limits.

No redirect is followed and no proxy is used, so a request reaches the service's own address only.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from convoy_agents.spot.source import SourceError

REQUEST_SECONDS = 1.0
"""Maximum seconds for the whole exchange."""
MAX_HEAD, MAX_BODY = 16 * 1024, 256 * 1024
"""Maximum bytes of a reply's headers, and of its body."""
LINK_LOCAL = "169.254.169.254"
"""Address of the metadata services of EC2, Compute Engine and Azure. It never leaves the machine."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to a request."""

    status: int
    headers: Mapping[str, str]
    """Values by name in lower case. Of several headers with one name, the last counts."""
    body: bytes

    def text(self) -> str:
        """Return the body as text, without white space around it."""
        return self.body.decode(errors="replace").strip()

    def json(self) -> dict[str, Any]:
        """Return the body, a JSON object. Raises SourceError for anything else."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise SourceError(f"the reply {self.body[:40]!r} is not JSON") from error
        if not isinstance(found, dict):
            raise SourceError(f"the reply {self.body[:40]!r} is not a JSON object")
        return found


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a metadata service."""

    host: str = LINK_LOCAL
    port: int = 80
    prefix: str = ""
    """Text before the path of each request."""

    @property
    def link_local(self) -> bool:
        """Return True if the address is on the machine's own link."""
        try:
            return ip_address(self.host).is_link_local
        except ValueError:
            return False

    async def request(self, method: str, path: str, headers: Mapping[str, str]) -> Reply:
        """Send a request and return the reply, whatever its status. Raises SourceError if there is no valid
        reply within REQUEST_SECONDS.
        """
        where = f"{method} http://{self.host}:{self.port}{self.prefix}{path}"
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await self._exchange(method, path, headers)
        except TimeoutError as error:
            raise SourceError(f"{where}: no complete reply within {REQUEST_SECONDS:g} s") from error
        except OSError as error:
            raise SourceError(f"{where}: no connection: {error.strerror or error}") from error
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            raise SourceError(f"{where}: the reply is not valid HTTP, or too long") from error

    async def _exchange(self, method: str, path: str, headers: Mapping[str, str]) -> Reply:
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=MAX_HEAD)
        try:
            lines = [
                f"{method} {self.prefix}{path} HTTP/1.1",
                f"Host: {self.host}",
                "Connection: close",
                "Content-Length: 0",
                *(f"{name}: {value}" for name, value in headers.items()),
            ]
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
            status, found = _parse_head(await reader.readuntil(b"\r\n\r\n"))
            return Reply(status, found, await _read_body(reader, status, found))
        finally:
            writer.transport.abort()


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    version, status, *_ = first.split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(version)
    fields = (line.partition(":") for line in lines if line)
    return int(status), {name.strip().lower(): value.strip() for name, _, value in fields}


async def _read_body(reader: asyncio.StreamReader, status: int, headers: Mapping[str, str]) -> bytes:
    if status in (204, 304):
        return b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _read_chunks(reader)
    if (length := headers.get("content-length")) is not None:
        return await reader.readexactly(_bounded(int(length)))
    received = bytearray()
    while data := await reader.read(MAX_BODY):
        received += data
        _bounded(len(received))
    return bytes(received)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    received = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        _bounded(len(received) + _bounded(size))
        received += (await reader.readexactly(size + 2))[:-2]
    return bytes(received)


def _bounded(size: int) -> int:
    if not 0 <= size <= MAX_BODY:
        raise ValueError(size)
    return size
