"""Makes generations of any size from random, incompressible bytes, through the ranks of a `MemoryJob`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from tests.integration.agents.memory_job import Rank

TIMEOUT_SECONDS = 300.0
"""Maximum seconds to wait for any single operation."""
_PIECE = 16 * 2**20


async def prepare(ranks: list[Rank], size: int) -> None:
    """Let each rank restore the shards that its agent offers, and reserve buffers of `size` bytes. Callers
    exclude the time of this call from their measurements.
    """
    replies = await asyncio.gather(*(rank.restore() for rank in ranks))
    for rank, reply in zip(ranks, replies, strict=True):
        for shard in reply["shards"]:
            await rank.request(type="shard", shard=shard)
    for rank in ranks:
        await rank.request(type="restored")
        if (reply := await rank.reserve(size))["type"] != "buffers":
            raise RuntimeError(f"the agent has no memory for {size} bytes: {reply.body}")


async def fill(rank: Rank, size: int, copy_to: Callable[[bytes], object] | None = None) -> str:
    """Fill a free buffer with `size` random bytes and return the buffer's name.

    `copy_to` receives the same bytes in pieces.
    """
    await rank.until(lambda stand: bool(stand["buffer"]), TIMEOUT_SECONDS)
    buffer: str = rank.stand["buffer"]

    def write() -> None:
        for at in range(0, size, _PIECE):
            piece = os.urandom(min(_PIECE, size - at))
            rank.buffers[buffer][at : at + len(piece)] = piece
            if copy_to is not None:
                copy_to(piece)

    await asyncio.to_thread(write)
    return buffer


async def seal(rank: Rank, buffer: str, step: int, size: int, world: int) -> None:
    """Seal the buffer as the rank's shard of step `step`. Raise RuntimeError if the agent refuses."""
    reply = await rank.request(
        type="seal", buffer=buffer, step=step, length=size, world=world, torch="none", plan="same"
    )
    if reply["type"] != "sealed":
        raise RuntimeError(f"the agent does not seal step {step}: {reply.body}")
