"""Requests to replicas: one attempt to pass a request on, and the way back of its response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass

import aiohttp
from yarl import URL

from convoy_crds.shown import error_line
from convoy_workloads.serving.asgi import CLOSE, Send

CONNECT_SECONDS = 2.0
"""Longest time to connect to a replica."""
BUSY = frozenset({429, 503})
"""Statuses of a replica that has not accepted a request, if the response says when to retry."""
_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Headers that apply to one connection only (RFC 9110, section 7.6.1)."""
_OWN = _HOP | {b"content-length", b"expect", b"x-request-id", b"x-request-timeout"}
_UNSET = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class NotAccepted(Exception):
    """Raised if a replica has not accepted a request, so that another attempt is safe."""


class Broken(Exception):
    """Raised if the connection to a replica breaks after it may have accepted a request."""


@dataclass(frozen=True)
class Call:
    """A request that is ready to be passed on."""

    method: str
    target: bytes
    """Path and query as the client sent them."""
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    id: str
    deadline: float | None
    """Monotonic time at which the client stops to wait; None if it has not said so."""


def session(silence_seconds: float) -> aiohttp.ClientSession:
    """Return the HTTP client. It changes neither requests nor responses, and uses each connection once:
    a replica that ends may close an idle connection at any time.
    """
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence_seconds)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        timeout=timeout,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        skip_auto_headers=_UNSET,
    )


class Response:
    """The response of a replica that has accepted a request."""

    def __init__(self, found: aiohttp.ClientResponse, silence_seconds: float) -> None:
        """`silence_seconds`: longest time for which the client may read nothing."""
        self._found = found
        self._silence_seconds = silence_seconds
        self.started = False
        """True if the client has got the status."""

    async def send(self, send: Send) -> None:
        """Pass the response on as it arrives. Raises Broken if the replica or the client sends or takes
        nothing for too long, or if the connection to the replica breaks.
        """
        headers = [(name.lower(), value) for name, value in self._found.raw_headers]
        start = {
            "type": "http.response.start",
            "status": self._found.status,
            # The client connects again, and so reaches a replica once the Service leads to one.
            "headers": [*(one for one in headers if one[0] not in _HOP), CLOSE],
        }
        await send(start)
        self.started = True
        try:
            async for part in self._found.content.iter_any():
                async with asyncio.timeout(self._silence_seconds):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Broken(error_line(error)) from error
        await send({"type": "http.response.body", "body": b""})

    def close(self) -> None:
        """Close the connection to the replica."""
        self._found.close()


async def attempt(client: aiohttp.ClientSession, address: str, call: Call) -> Response:
    """Send a request to a replica. Return the response when its headers have arrived. Raises NotAccepted and
    Broken.
    """
    url = URL(f"http://{address}{call.target.decode('latin-1')}", encoded=True)
    try:
        found = await client.request(
            call.method,
            url,
            headers=_headers(call),
            data=call.body or None,
            allow_redirects=False,
        )
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise NotAccepted(error_line(error)) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Broken(error_line(error)) from error
    if found.status in BUSY and "retry-after" in found.headers:
        found.close()
        raise NotAccepted(f"status {found.status}")
    return Response(found, client.timeout.sock_read or 0.0)


def _headers(call: Call) -> list[tuple[str, str]]:
    dropped = _OWN | _named(call.headers)
    kept = [(name.decode("latin-1"), _text(value)) for name, value in call.headers if name not in dropped]
    kept.append(("x-request-id", call.id))
    if call.deadline is not None:
        kept.append(("x-request-timeout", f"{max(0.001, call.deadline - time.monotonic()):.3f}"))
    return kept


def _text(value: bytes) -> str:
    """Return the text of a header's value. aiohttp encodes it in UTF-8, so bytes in UTF-8 do not change."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _named(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Return the names of the headers that `Connection` declares to apply to this connection only."""
    values = (value for name, value in headers if name == b"connection")
    return frozenset(part.strip().lower() for value in values for part in value.split(b","))
