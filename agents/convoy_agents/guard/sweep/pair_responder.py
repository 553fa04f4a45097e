"""The responding side of pair probes: admits the one partner that may measure this node."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from convoy_agents.wire import hub_pb2
from convoy_agents.wire.callers import node_of

MAX_TRANSFER = 256 * 2**20
"""Maximum bytes of one call."""
FIRST_SECONDS = 120.0
"""Seconds to wait for the partner's first call."""
NEXT_SECONDS = 30.0
"""Seconds to wait for the next call. A dead partner thus blocks nobody for long."""

Context = grpc.aio.ServicerContext[Any, Any]


class PairResponder:
    """Admits a partner while an order of the hub allows it."""

    def __init__(self) -> None:
        self._armed: tuple[str, str] | None = None
        self._called = asyncio.Event()
        self._done = False

    async def serve(self, name: str, node: str, seconds: float) -> None:
        """Let the agent of `node` measure in the sweep `name`. Return when it is done, silent, or after
        `seconds`.
        """
        self._armed, self._done = (name, node), False
        timeout = FIRST_SECONDS
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while not self._done:
                        self._called.clear()
                        await asyncio.wait_for(self._called.wait(), timeout)
                        timeout = NEXT_SECONDS
        finally:
            self._armed = None

    def admit(self, name: str, node: str, last: bool = False) -> bool:
        """Return True if the caller may measure now. Each call resets the timeout; `last` ends the
        measurement.
        """
        if self._armed != (name, node):
            return False
        self._done = self._done or last
        self._called.set()
        return True


class PairService:
    """The Pairs service. A caller that is not the partner of the sweep gets PERMISSION_DENIED."""

    def __init__(self, responder: PairResponder) -> None:
        self._responder = responder
        self._transferring = asyncio.Lock()

    async def Echo(self, request: hub_pb2.EchoRequest, context: Context) -> hub_pb2.EchoReply:
        """Return at once."""
        await self._admit(request.sweep, context, last=request.last)
        return hub_pb2.EchoReply()

    async def Transfer(
        self, requests: AsyncIterator[hub_pb2.TransferPiece], context: Context
    ) -> hub_pb2.TransferReply:
        """Receive all pieces and return the number of their bytes."""
        # Check the caller by its first piece, before it can block the partner.
        part = await self._next(requests, context)
        if part and self._transferring.locked():
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "only one transfer may run at a time")
        async with self._transferring:
            total = 0
            while part:
                total += len(part.data)
                if total > MAX_TRANSFER:
                    await context.abort(
                        grpc.StatusCode.OUT_OF_RANGE, f"the transfer exceeds {MAX_TRANSFER} bytes"
                    )
                part = await self._next(requests, context)
        return hub_pb2.TransferReply(bytes=total)

    async def _next(
        self, requests: AsyncIterator[hub_pb2.TransferPiece], context: Context
    ) -> hub_pb2.TransferPiece | None:
        """Return the next piece, from the partner only; None at the end."""
        try:
            async with asyncio.timeout(NEXT_SECONDS):
                part = await anext(requests, None)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no data received for {NEXT_SECONDS:g} s")
        if part:
            await self._admit(part.sweep, context)
        return part

    async def _admit(self, sweep: str, context: Context, *, last: bool = False) -> None:
        node = node_of(context)
        if not self._responder.admit(sweep, node, last):
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED,
                f"{node or 'the caller'} is not the partner of sweep {sweep!r}",
            )
