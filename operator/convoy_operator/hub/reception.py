"""Calls of whom nobody knows yet: few at a time of one address, and their request comes soon or never."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

REQUEST_SECONDS = 5.0
"""For the whole request, from the call's first word."""
MOST_OF_ONE, MOST = 8, 256
"""Calls at once of one address, and of all together."""

Context = grpc.aio.ServicerContext[Any, Any]


def address(peer: str) -> str:
    """Of a peer, as gRPC writes it, without its port."""
    return peer.rpartition(":")[0] or peer


class Reception(grpc.aio.ServerInterceptor):
    """Of unary calls. Whoever is one too many gets RESOURCE_EXHAUSTED before a request is waited for, and who
    sends none DEADLINE_EXCEEDED.

    gRPC reads the request of a unary call before it calls anybody, and waits for it as long as the caller
    likes: so such a call is taken as a stream of one request, which is the same on the wire.
    """

    def __init__(self, refused: Callable[[], object], seconds: float = REQUEST_SECONDS) -> None:
        """`refused`: told of each that is one too many, or late."""
        self._refused = refused
        self._seconds = seconds
        self._open: Counter[str] = Counter()

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """The handler of a call, behind the bounds."""
        handler = await continuation(details)
        if handler is None or handler.unary_unary is None:
            return handler

        async def bounded(requests: AsyncIterator[Any], context: Context) -> Any:
            caller = address(context.peer())
            if self._open[caller] >= MOST_OF_ONE or self._open.total() >= MOST:
                await self._refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls at once")
            self._open[caller] += 1
            try:
                return await handler.unary_unary(await self._request(requests, context), context)
            finally:
                self._open[caller] -= 1
                if not self._open[caller]:
                    del self._open[caller]

        return grpc.stream_unary_rpc_method_handler(
            bounded, handler.request_deserializer, handler.response_serializer
        )

    async def _request(self, requests: AsyncIterator[Any], context: Context) -> Any:
        try:
            async with asyncio.timeout(self._seconds):
                request = await anext(requests, None)
        except TimeoutError:
            request = None
        if request is None:
            await self._refuse(context, grpc.StatusCode.DEADLINE_EXCEEDED, "no request came")
        return request

    async def _refuse(self, context: Context, code: grpc.StatusCode, words: str) -> None:
        self._refused()
        await context.abort(code, words)
