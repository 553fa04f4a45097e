"""The answering side of tests of two nodes: the one partner that may measure this node now."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from convoy_agents.wire import hub_pb2
from convoy_agents.wire.callers import node_of

MAX_TRANSFER = 256 * 2**20
"""Bytes of one call."""
FIRST_SECONDS = 120.0
"""For the partner's first call to come."""
NEXT_SECONDS = 30.0
"""For the next: a partner that is gone holds nobody up."""

Context = grpc.aio.ServicerContext[Any, Any]


class PairResponder:
    """Who may measure this node; nobody unless the hub has ordered it."""

    def __init__(self) -> None:
        self._armed: tuple[str, str] | None = None
        self._called = asyncio.Event()
        self._done = False

    async def serve(self, name: str, node: str, seconds: float) -> None:
        """Lets the agent of `node` measure in the sweep `name`, until it is done or silent, or so long."""
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
        """Whether this caller may measure; it has said something then."""
        if self._armed != (name, node):
            return False
        self._done = self._done or last
        self._called.set()
        return True


class PairService:
    """The Pairs service. Whoever is not the partner of this sweep gets PERMISSION_DENIED."""

    def __init__(self, responder: PairResponder) -> None:
        self._responder = responder
        self._transferring = asyncio.Lock()

    async def Echo(self, request: hub_pb2.EchoRequest, context: Context) -> hub_pb2.EchoReply:
        """Answers at once."""
        await self._admit(request.sweep, context, last=request.last)
        return hub_pb2.EchoReply()

    async def Transfer(
        self, requests: AsyncIterator[hub_pb2.TransferPiece], context: Context
    ) -> hub_pb2.TransferReply:
        """AcceleratorUse bytes to their end and says how many there were."""
        # Before the partner is held up, the first piece has said who this is.
        part = await self._next(requests, context)
        if part and self._transferring.locked():
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "one call at a time")
        async with self._transferring:
            total = 0
            while part:
                total += len(part.data)
                if total > MAX_TRANSFER:
                    await context.abort(grpc.StatusCode.OUT_OF_RANGE, f"more than {MAX_TRANSFER} bytes")
                part = await self._next(requests, context)
        return hub_pb2.TransferReply(bytes=total)

    async def _next(
        self, requests: AsyncIterator[hub_pb2.TransferPiece], context: Context
    ) -> hub_pb2.TransferPiece | None:
        """The next piece, of the partner alone; None at the end."""
        try:
            async with asyncio.timeout(NEXT_SECONDS):
                part = await anext(requests, None)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"nothing came for {NEXT_SECONDS:g} s")
        if part:
            await self._admit(part.sweep, context)
        return part

    async def _admit(self, sweep: str, context: Context, *, last: bool = False) -> None:
        node = node_of(context)
        if not self._responder.admit(sweep, node, last):
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED, f"{node or 'who is no agent'} is no partner in {sweep!r}"
            )
