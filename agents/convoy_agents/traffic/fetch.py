"""Fetches a page of metrics from a pod. The pod is untrusted, so time and size have strict limits."""

from __future__ import annotations

import asyncio
import contextlib
from ipaddress import ip_address

FETCH_SECONDS = 1.0
"""Maximum seconds for the whole exchange."""
MAX_BYTES = 2**20
"""Maximum bytes of a response, with its headers."""


class FetchError(Exception):
    """The page cannot be fetched. The message says why."""


async def fetch(address: str, port: int, path: str) -> str:
    """Return the body of a page. A redirect is an error, so the agent connects to the pod only. Raises
    FetchError if the pod does not answer with a page.
    """
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            response = await _exchange(address, port, path)
    except TimeoutError as error:
        raise FetchError(f"no complete response within {FETCH_SECONDS:g} s") from error
    except OSError as error:
        raise FetchError(f"no connection: {error.strerror or error}") from error
    head, separator, body = response.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].split(b" ", 2)
    if not separator or len(status) < 2 or not status[0].startswith(b"HTTP/1."):
        raise FetchError("the response is not HTTP")
    if status[1] != b"200":
        raise FetchError(f"status {status[1][:8].decode(errors='replace')} instead of 200")
    return body.decode(errors="replace")


async def _exchange(address: str, port: int, path: str) -> bytes:
    # HTTP/1.0 ends a response with the connection, so its size is the only length that matters.
    host = f"[{address}]" if ip_address(address).version == 6 else address
    request = f"GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\nAccept: text/plain\r\n\r\n"
    reader, writer = await asyncio.open_connection(address, port)
    try:
        writer.write(request.encode())
        received = bytearray()
        while data := await reader.read(65536):
            received += data
            if len(received) > MAX_BYTES:
                raise FetchError(f"the response exceeds {MAX_BYTES} bytes")
        return bytes(received)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            writer.transport.abort()
