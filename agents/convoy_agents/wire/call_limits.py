"""Calls of a gRPC server: so many at once of one caller, and their request comes soon or never."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

Context = grpc.aio.ServicerContext[Any, Any]


class CallLimits(grpc.aio.ServerInterceptor):
    """Of all calls. Whoever is one too many gets RESOURCE_EXHAUSTED before a request is waited for, and who
    sends none DEADLINE_EXCEEDED.

    gRPC reads the one request of a call before it calls anybody, and waits for it as long as the caller
    likes: so such a call is taken as a stream of one request, which is the same on the wire.
    """

    def __init__(
        self,
        identify: Callable[[Context], Awaitable[str]],
        per_caller: int,
        most: int,
        refused: Callable[[], object],
        seconds: float,
    ) -> None:
        """`identify`: names a caller, or aborts. At once there are `per_caller` calls of one, and `most` of all.
        `refused`: told of each that is one too many, or late. `seconds`: for the request to come.
        """
        self._identify = identify
        self._per_caller = per_caller
        self._most = most
        self._refused = refused
        self._seconds = seconds
        self._open: Counter[str] = Counter()

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """The handler of a call, behind the bounds."""
        handler = await continuation(details)
        if handler is None:
            return handler
        perform: Any = (
            handler.unary_unary or handler.stream_unary or handler.unary_stream or handler.stream_stream
        )

        async def bounded(requests: AsyncIterator[Any], context: Context) -> Any:
            caller = await self._identify(context)
            if self._open[caller] >= self._per_caller or self._open.total() >= self._most:
                await self._refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls at once")
            with self._counted(caller):
                request = requests if handler.request_streaming else await self._request(requests, context)
                replies = perform(request, context)
                if not hasattr(replies, "__aiter__"):
                    return await replies
                async for reply in replies:
                    await context.write(reply)

        make = grpc.stream_stream_rpc_method_handler
        if not handler.response_streaming:
            make = grpc.stream_unary_rpc_method_handler
        return make(bounded, handler.request_deserializer, handler.response_serializer)

    @contextmanager
    def _counted(self, caller: str) -> Iterator[None]:
        self._open[caller] += 1
        try:
            yield
        finally:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]

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
