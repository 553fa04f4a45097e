"""Seals shards: computes the digests of a shard that a rank has written into a buffer, and records the
shard.

The ShardStore is not locked while the digests are computed. The buffer is marked instead, so that no rank
writes to it.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from convoy_agents.tiercheck import digest
from convoy_agents.tiercheck.buffers import BASES, SEGMENTS
from convoy_agents.tiercheck.shard_record import ShardMetadata
from convoy_agents.tiercheck.shard_store import ShardStore
from convoy_agents.tiercheck.store_access import StoreAccess
from convoy_controllers.checkpoint.generation import Generation
from convoy_controllers.checkpoint.records import Chunk, Manifest


@dataclass(frozen=True, slots=True)
class Sealed:
    """The result of sealing a shard."""

    manifest: Manifest
    seconds: float
    """Seconds that sealing took, mostly for the digests."""


@dataclass(frozen=True, slots=True)
class WrittenBuffer:
    """A buffer that a rank reports as completely written."""

    name: str
    shard: str
    """Name of the shard in the buffer, which is the number of the rank."""
    length: int
    metadata: ShardMetadata


class ShardSealer:
    """Seals the buffers of one job."""

    def __init__(self, access: StoreAccess, folder: Path, pool: ThreadPoolExecutor) -> None:
        """`folder`: the folder of the job's buffers."""
        self._access = access
        self._folder = folder
        self._pool = pool
        self._under_way: dict[tuple[str, Generation], asyncio.Task[Sealed]] = {}

    async def seal(
        self, written: WrittenBuffer, generation: Generation, extends: Generation | None = None
    ) -> Sealed:
        """Seal the shard that a rank has written into one of its writable buffers. Raises OSError, or
        ValueError for an invalid request.

        `extends`: the generation that a journal segment extends; the same rank must have sealed it. None
        for a full save.

        The work continues if the caller is cancelled. A second call for the same buffer and generation
        waits for the same work.
        """
        key = (written.name, generation)
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._seal(written, generation, extends))

            def ended(done: asyncio.Task[Sealed]) -> None:
                self._under_way.pop(key, None)
                if not done.cancelled():
                    # The caller already gets the exception through asyncio.shield, so mark it as retrieved
                    # here.
                    done.exception()

            task.add_done_callback(ended)
        return await asyncio.shield(task)

    async def _seal(
        self, written: WrittenBuffer, generation: Generation, extends: Generation | None
    ) -> Sealed:
        started = time.monotonic()

        def reserve(store: ShardStore) -> str | None:
            """Mark the buffer as being sealed, so that no rank writes to it. Return the id of the shard
            that a journal segment extends; None for a full save.
            """
            if store.incarnation != generation.incarnation:
                raise ValueError("the incarnation has not started here, or a later one has")
            if written.name not in store.writable(written.shard, BASES if extends is None else SEGMENTS):
                raise ValueError(f"{written.name} is not one of the rank's free buffers")
            there = store.buffers.written(written.name)
            if not 0 < written.length <= there:
                raise ValueError(f"{written.name} has {there} bytes, not {written.length}")
            before = None
            if extends is not None:
                held = store.sealed_generations([written.shard], generation.incarnation)
                if extends not in held or extends >= generation:
                    raise ValueError(f"the segment extends {extends.name}, which is not on this node")
                before = held[extends][written.shard]
            store.sealing.add(written.name)
            return before

        before = await self._access.inspect(reserve)
        try:
            chunks = await asyncio.to_thread(self._digest, written)
            manifest = Manifest(generation, written.shard, chunks, written.length, extends=before)
        except BaseException:
            await self._access.use_in_turn(lambda store: store.sealing.discard(written.name))
            raise

        def keep(store: ShardStore) -> None:
            store.sealing.discard(written.name)
            if store.incarnation != generation.incarnation:
                raise ValueError("a later incarnation has started")
            if before is not None and not store.holds(before):
                raise ValueError("the shard that the segment extends was dropped")
            store.seal(manifest, written.name, written.metadata)

        await self._access.use_in_turn(keep)
        return Sealed(manifest, time.monotonic() - started)

    def _digest(self, written: WrittenBuffer) -> tuple[Chunk, ...]:
        with (self._folder / written.name).open("rb") as file:
            return digest.chunks(file.fileno(), written.length, self._pool)
