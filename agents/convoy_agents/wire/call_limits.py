"""Limits on the concurrent calls of a gRPC server, per caller and in total, and on the wait for a request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

Context = grpc.aio.ServicerContext[Any, Any]


class CallLimits(grpc.aio.ServerInterceptor):
    """Enforces the limits on all calls.

    A call over a limit fails with RESOURCE_EXHAUSTED before its request is read. A call whose request does
    not arrive in time fails with DEADLINE_EXCEEDED.

    For a unary request, gRPC calls the handler only after it has read the request, and waits for the
    request without a limit. The interceptor therefore handles every call as a stream of requests, which is
    identical on the wire.
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

        `identify` returns the caller's name or aborts the call. `per_caller` and `total` limit the
        concurrent calls of one caller and of all. `refused` is called for every refused call. `seconds` is
        the time limit for the request.
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
        """Return the call's handler, wrapped in the limits."""
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
