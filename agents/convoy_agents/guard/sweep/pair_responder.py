"""The responding side of pair probes. It admits calls only from the partner that the hub's order names."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from convoy_agents.wire import hub_pb2
from convoy_agents.wire.callers import node_of

MAX_TRANSFER = 256 * 2**20
"""Maximum bytes of one Transfer call."""
FIRST_SECONDS = 120.0
"""Maximum seconds to wait for the partner's first call."""
NEXT_SECONDS = 30.0
"""Maximum seconds to wait for the partner's next call. If the partner dies, the sweep of this node
therefore ends soon.
"""

Context = grpc.aio.ServicerContext[Any, Any]


class PairResponder:
    """Decides which caller may measure this node. It admits the agent of one partner node, and only while
    `serve` is running for this partner.
    """

    def __init__(self) -> None:
        self._armed: tuple[str, str] | None = None
        self._called = asyncio.Event()
        self._done = False

    async def serve(self, name: str, node: str, seconds: float) -> None:
        """Let the agent of `node` measure this node in the sweep `name`, for at most `seconds`.

        Return earlier after the agent's last call, if the first call does not arrive within FIRST_SECONDS,
        or if a later call does not arrive within NEXT_SECONDS of the previous one.
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
        """Return True if the agent of `node` may measure this node in the sweep `name` now. An admitted
        call restarts the timeout of NEXT_SECONDS. `last`: True if this is the agent's last call, after
        which `serve` returns.
        """
        if self._armed != (name, node):
            return False
        self._done = self._done or last
        self._called.set()
        return True


class PairService:
    """The gRPC service Pairs. It aborts the call of any node but the partner with PERMISSION_DENIED."""

    def __init__(self, responder: PairResponder) -> None:
        self._responder = responder
        self._transferring = asyncio.Lock()

    async def Echo(self, request: hub_pb2.EchoRequest, context: Context) -> hub_pb2.EchoReply:
        """Reply without delay, for measurements of latency."""
        await self._admit(request.sweep, context, last=request.last)
        return hub_pb2.EchoReply()

    async def Transfer(
        self, requests: AsyncIterator[hub_pb2.TransferPiece], context: Context
    ) -> hub_pb2.TransferReply:
        """Receive all pieces and reply with the number of received bytes, for measurements of bandwidth."""
        # Read the first piece, which checks the caller, before taking the lock for transfers. Otherwise a
        # node that is not the partner could take this lock.
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
        """Return the next piece; None at the end of the stream. Abort the call if the caller is not the
        partner or sends nothing for NEXT_SECONDS.
        """
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
