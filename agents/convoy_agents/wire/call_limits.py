"""Limits on a gRPC server: concurrent calls per caller and in total, and seconds until a call's request has
arrived.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

Context = grpc.aio.ServicerContext[Any, Any]


class CallLimits(grpc.aio.ServerInterceptor):
    """An interceptor that enforces the limits on all calls of a server.

    A call beyond a limit fails with RESOURCE_EXHAUSTED before its request is read. A call whose request
    does not arrive in time fails with DEADLINE_EXCEEDED.

    For a call with a single request, gRPC reads the request before it calls the handler, and waits for it
    without a time limit. The interceptor therefore registers every call as a stream of requests and reads
    the request itself. On the wire both kinds of call are identical.
    """

    def __init__(
        self,
        identify: Callable[[Context], Awaitable[str]],
        per_caller: int,
        total: int,
        refused: Callable[[], object],
        seconds: float,
    ) -> None:
        """Set the limits.

        `identify` returns the caller's name or aborts the call. `per_caller` is the maximum number of
        concurrent calls of one caller, and `total` that of all callers together. `refused` is called for
        each refused call. `seconds` is the maximum wait for a request.
        """
        self._identify = identify
        self._per_caller = per_caller
        self._total = total
        self._refused = refused
        self._seconds = seconds
        self._open: Counter[str] = Counter()

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """Return a handler that applies the limits and then calls the original handler."""
        handler = await continuation(details)
        if handler is None:
            return handler
        perform: Any = (
            handler.unary_unary or handler.stream_unary or handler.unary_stream or handler.stream_stream
        )

        async def bounded(requests: AsyncIterator[Any], context: Context) -> Any:
            caller = await self._identify(context)
            if self._open[caller] >= self._per_caller or self._open.total() >= self._total:
                await self._refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "too many concurrent calls")
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
            await self._refuse(context, grpc.StatusCode.DEADLINE_EXCEEDED, "no request received in time")
        return request

    async def _refuse(self, context: Context, code: grpc.StatusCode, words: str) -> None:
        self._refused()
        await context.abort(code, words)
