"""The answering side of tests of two nodes: the one partner that may measure this node now."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from convoy_agents.wire import hub_pb2
from convoy_agents.wire.callers import node_of

MOST_POURED = 256 * 2**20
"""Bytes of one call."""
FIRST_SECONDS = 120.0
"""For the partner's first call to come."""
NEXT_SECONDS = 30.0
"""For the next: a partner that is gone holds nobody up."""

Context = grpc.aio.ServicerContext[Any, Any]


class Answering:
    """Who may measure this node; nobody unless the hub has ordered it."""

    def __init__(self) -> None:
        self._armed: tuple[str, str] | None = None
        self._news = asyncio.Event()
        self._over = False

    async def answer(self, name: str, node: str, seconds: float) -> None:
        """Lets the agent of `node` measure in the sweep `name`, until it is done or silent, or so long."""
        self._armed, self._over = (name, node), False
        patience = FIRST_SECONDS
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while not self._over:
                        self._news.clear()
                        await asyncio.wait_for(self._news.wait(), patience)
                        patience = NEXT_SECONDS
        finally:
            self._armed = None

    def heard(self, name: str, node: str, last: bool = False) -> bool:
        """Whether this caller may measure; it has said something then."""
        if self._armed != (name, node):
            return False
        self._over = self._over or last
        self._news.set()
        return True


class PairService:
    """The Pairs service. Whoever is not the partner of this sweep gets PERMISSION_DENIED."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering
        self._pouring = asyncio.Lock()

    async def Echo(self, request: hub_pb2.EchoRequest, context: Context) -> hub_pb2.EchoReply:
        """Answers at once."""
        await self._admit(request.sweep, context, last=request.last)
        return hub_pb2.EchoReply()

    async def Transfer(
        self, requests: AsyncIterator[hub_pb2.TransferPiece], context: Context
    ) -> hub_pb2.TransferReply:
        """Takes bytes to their end and says how many there were."""
        # Before the partner is held up, the first piece has said who this is.
        part = await self._next(requests, context)
        if part and self._pouring.locked():
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "one call at a time")
        async with self._pouring:
            total = 0
            while part:
                total += len(part.data)
                if total > MOST_POURED:
                    await context.abort(grpc.StatusCode.OUT_OF_RANGE, f"more than {MOST_POURED} bytes")
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
        if not self._answering.heard(sweep, node, last):
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED, f"{node or 'who is no agent'} is no partner in {sweep!r}"
            )
