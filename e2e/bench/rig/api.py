"""The API client of the bench itself. It has administrator rights and no rate limit."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import aiohttp
import orjson

Object = dict[str, Any]
T = TypeVar("T")

MERGE = "application/merge-patch+json"
_TOTAL = aiohttp.ClientTimeout(total=300, connect=60)
_AT_ONCE = 16


class ApiError(Exception):
    """Raised when the API server refuses a request."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:500]}")
        self.status = status


class Api:
    """An API client that authenticates with a client certificate. Use it as a context manager."""

    def __init__(self, server: str, authority: Path, certificate: Path, key: Path) -> None:
        self._server = server
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(certificate, key)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Api:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._context, limit=64), timeout=_TOTAL
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> Object:
        """Send one request and return the decoded response.

        Raise ApiError if the server refuses the request.
        """
        data = orjson.dumps(body) if body is not None else None
        async with self._open().request(
            method, self._server + path, data=data, headers={"Content-Type": content_type}, params=params
        ) as response:
            text = await response.read()
            if response.status >= 400:
                raise ApiError(response.status, text.decode(errors="replace"))
            result: Object = orjson.loads(text)
            return result

    async def get(self, path: str, **params: str) -> Object:
        """Return one object or one list."""
        return await self.call("GET", path, params=params)

    async def create(self, path: str, body: Mapping[str, Any]) -> Object:
        """Create an object in the collection `path`."""
        return await self.call("POST", path, body)

    async def ensure(self, path: str, body: Mapping[str, Any]) -> None:
        """Create an object unless it already exists."""
        try:
            await self.create(path, body)
        except ApiError as error:
            if error.status != 409:
                raise

    async def patch(self, path: str, body: Mapping[str, Any]) -> Object:
        """Apply a merge patch."""
        return await self.call("PATCH", path, body, content_type=MERGE)

    async def delete(self, path: str, **params: str) -> Object:
        """Delete an object, or all objects of a collection."""
        return await self.call("DELETE", path, params=params)

    async def watch(self, path: str, version: str, **params: str) -> AsyncIterator[tuple[str, Object]]:
        """Yield (event type, object) until the server ends the watch, which takes at most five minutes."""
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "290", **params}
        limits = aiohttp.ClientTimeout(total=320, sock_connect=10)
        async with self._open().get(self._server + path, params=query, timeout=limits) as response:
            if response.status >= 400:
                raise ApiError(response.status, (await response.read()).decode(errors="replace"))
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, lines):
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        raise ApiError(event["object"].get("code", 0), event["object"].get("message", ""))
                    yield event["type"], event["object"]

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("use Api as a context manager")
        return self._session


async def each(items: Iterable[T], work: Callable[[T], Awaitable[Any]], at_once: int = _AT_ONCE) -> None:
    """Run `work` on all items, at most `at_once` at a time. The first error stops the remaining items."""
    waiting = list(reversed(list(items)))

    async def one() -> None:
        while waiting:
            await work(waiting.pop())

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(waiting))):
            group.create_task(one())
