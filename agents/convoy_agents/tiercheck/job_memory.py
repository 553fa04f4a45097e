"""One job's memory on this node. The job's ranks and other agents use it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import structlog

from convoy_agents import metrics
from convoy_agents.tiercheck import digest, planes, shares
from convoy_agents.tiercheck.budget import Budget
from convoy_agents.tiercheck.buffers import BASES, SEGMENTS
from convoy_agents.tiercheck.job_share import BudgetExceeded, JobShare
from convoy_agents.tiercheck.shard_sealer import ShardSealer
from convoy_agents.tiercheck.shard_store import ShardStore
from convoy_agents.tiercheck.shard_uses import ShardUses
from convoy_agents.tiercheck.shares import BUFFERS
from convoy_agents.tiercheck.store_access import StoreAccess
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Branch, Manifest, Record

log = structlog.get_logger()

MakeRoom = Callable[[str, int], Awaitable[bool]]
"""A function that releases memory of jobs with tiers by default, for another job. It gets the uid of the
other job and the missing bytes. It returns True if it has released enough.
"""


class JobMemory(StoreAccess):
    """The memory of one job on this node. It is opened on first use. It is closed when the hub reports the
    end of the job.
    """

    def __init__(
        self,
        job_uid: str,
        folder: Path,
        budget: Budget,
        pool: ThreadPoolExecutor,
        make_room: MakeRoom | None = None,
    ) -> None:
        super().__init__()
        self.job_uid = job_uid
        self.by_default = False
        """True if the job has no tiers in its spec. It then gets at most half of the node's memory, and gives
        way to other jobs.
        """
        self.releases = 0
        """Number of times that the memory of the job was released for another job."""
        self.yielded = ""
        """Reason of the last release; empty once the job has memory again."""
        self._budget = budget
        self._make_room = make_room
        self.uses = ShardUses()
        """For each shard, the operations that use it: restores, copies for other nodes, and uploads. A
        shard that a restore or an upload needs stays in memory.
        """
        self.seen = 0
        """The latest incarnation of the job that this agent knows, from a survey or from a pod. Requests of
        earlier incarnations are refused.
        """
        self.slot_token = ""
        """The stored slot token of the job. The agent stored it at the newest survey, or when the hub
        renewed it.
        """
        self.closed = False
        self.sealer = ShardSealer(self, folder / "buffers", pool)
        self._folder = folder
        self._pool = pool
        self._share = JobShare(job_uid, folder, budget)
        self._store: ShardStore | None = None

    async def recover(self) -> None:
        """Recover the memory that an earlier agent allocated for the job. Raises OSError if it cannot be
        read.
        """
        found = await asyncio.to_thread(shares.read, self._folder)
        async with self._turn:
            self._share.recover(found)
            store = await self._open()
            self.seen = max(store.seen, store.incarnation, max(store.branches, default=0))
            self.slot_token = store.slot_token

    async def close(self) -> None:
        """Release all memory of the job."""
        await self.finish(self._close())

    async def _close(self) -> None:
        async with self._turn:
            self.closed = True
            self._store = None
            await self._share.close()

    async def _open(self) -> ShardStore:
        if self.closed:
            raise OSError("the job is over and its memory was released")
        if self._store is None:
            await self._with_room(self._share.open)
            self._store = await asyncio.to_thread(ShardStore, self._folder)
        return self._store

    # Allocation of memory.

    async def reserve(
        self, owner: str, count: int, size: int, owners: Collection[str], own_limit: int, kind: str = BASES
    ) -> list[Path]:
        """Allocate a rank's buffers. Return their paths.

        Raises BudgetExceeded if the job would exceed its limit or the node's. Raises ShareExhausted if the
        free part of the job's tmpfs is too small.
        """
        return await self.finish(self._reserve(owner, count, size, owners, own_limit, kind))

    async def _reserve(
        self, owner: str, count: int, size: int, owners: Collection[str], own_limit: int, kind: str
    ) -> list[Path]:
        async with self._turn:
            # `store.reserve` below removes the buffers of ranks that are no longer on this node, unless the
            # buffers hold a shard. So stop counting the bytes of these buffers before the share grows.
            store = await self._open()
            used = {owner, *owners, *store.owners}
            self._share.keep_buffers({f"{BUFFERS}{of}{one}" for one in used for of in (BASES, SEGMENTS)})
            await self._grow(f"{BUFFERS}{kind}{owner}", count * size, self.limit(own_limit))
            names = await asyncio.to_thread(store.reserve, owner, count, size, owners, kind)
        await self.notify_changed()
        return [store.buffers.path(name) for name in names]

    async def expect(
        self, manifest: Manifest, purpose: str, own_limit: int, *, copy_of: str = ""
    ) -> list[int]:
        """Allocate memory for a shard before its transfer to this node. Return the indexes of the chunks
        that the sender must send.

        Raises BudgetExceeded or ShareExhausted if memory is missing. `copy_of`: the node that sends the
        shard to have a copy here; empty for a shard that this node fetches.
        """
        return await self.finish(self._expect(manifest, purpose, own_limit, copy_of))

    async def _expect(self, manifest: Manifest, purpose: str, own_limit: int, copy_of: str) -> list[int]:
        async with self._turn:
            store = await self._open()
            # A restore needs the memory only for a short time, so only the node limits a job by default.
            limit = self.limit(own_limit) if copy_of or not self.by_default else 0
            await self._grow(purpose, store.unbuffered_bytes_with(manifest), limit)
            wanted = await asyncio.to_thread(store.expect, manifest, copy_of)
            if copy_of:
                self.uses.mark_copy(manifest.id)
            return wanted

    def limit(self, own_limit: int) -> int:
        """Return the maximum bytes of the job on this node; 0 if only the node's memory limits the job.
        `own_limit`: the limit in the job's assignment, or 0.
        """
        if not self.by_default:
            return own_limit
        half = self._budget.limit // 2
        return min(own_limit, half) if own_limit else half

    async def release(self, why: str) -> bool:
        """Release the memory of the job for another job. Return False, and change nothing, while a restore or
        an upload needs it, or while a shard is being sealed.

        The job keeps its records, and may request memory again.
        """
        return await self.finish(self._release(why))

    async def _release(self, why: str) -> bool:
        async with self._turn:
            store = self._store
            if store is None or self.uses.needed or store.sealing:
                return False
            await asyncio.to_thread(_drop_all, store)
            await self._share.release()
            self.uses.unmark_all_copies()
            self.releases += 1
            self.yielded = why
        await self.notify_changed()
        return True

    async def _grow(self, purpose: str, size: int, limit: int) -> None:
        await self._with_room(lambda: self._share.grow(purpose, size, limit))

    async def _with_room(self, allocate: Callable[[], Awaitable[None]]) -> None:
        """Allocate memory. If the node has too little, and jobs with tiers by default can give way, allocate
        again after they have. Raises BudgetExceeded if the memory still does not suffice.
        """
        try:
            await allocate()
        except BudgetExceeded as error:
            refusal = replace(error.refusal, by_default=self.by_default)
            room = self._make_room
            if self.by_default or refusal.own or room is None:
                raise BudgetExceeded(refusal) from None
            if not await room(self.job_uid, refusal.missing):
                raise
            await allocate()

    # Chunks and shards.

    async def read(self, key: str, index: int) -> bytes:
        """Return the bytes of a chunk. Raises Damaged if the chunk is missing or damaged."""
        return await self.use_quietly(lambda store: store.read(key, index))

    async def put(self, key: str, index: int, data: digest.Buffer) -> int:
        """Write a chunk, encoded or plain, of a shard in transfer. Return the chunk's decoded length in
        bytes.

        Raises Damaged if the bytes do not match the manifest.
        """
        length = (await self.inspect(lambda store: store.incoming.chunk(key, index))).length
        if len(data) != length:
            loop = asyncio.get_running_loop()
            data = await loop.run_in_executor(self._pool, planes.unpack, data, length)
        await self.use_quietly(lambda store: store.incoming.put(key, index, data))
        return length

    async def verified_path(self, key: str) -> Path | None:
        """Check every byte of a shard and return the path of its file. Return None if the shard is missing
        or was dropped as damaged.
        """
        if await self.drop_if_damaged(key):
            return None
        return await self.inspect(lambda store: store.path(key) if store.holds(key) else None)

    async def drop_if_damaged(self, key: str) -> bool:
        """Check every byte of a shard. If it is damaged, drop it and return True. Return False otherwise,
        also for a shard that does not exist.
        """

        def find(store: ShardStore) -> tuple[Path, Manifest] | None:
            manifest = store.manifest(key)
            return (store.path(key), manifest) if manifest is not None else None

        found = await self.inspect(find)
        if found is None or await asyncio.to_thread(self._whole, *found):
            return False
        if await self.inspect(find) != found:
            # During the check a rank wrote a newer shard to the same file. The file changed for this reason,
            # so the bytes are not damaged.
            return False
        log.error("SHARD DAMAGED IN MEMORY", job_uid=self.job_uid, **found[1].generation._asdict())
        metrics.DAMAGED.inc()
        await self.use(lambda store: store.drop(key))
        return True

    def _whole(self, path: Path, manifest: Manifest) -> bool:
        try:
            with path.open("rb") as file:
                return digest.chunks(file.fileno(), manifest.size, self._pool) == manifest.chunks
        except (OSError, ValueError):
            return False

    # Commits and incarnations.

    async def record_commit(self, record: Record, incarnation: int, *tiers: Tier) -> bool:
        """Record that a generation is committed at these tiers, and drop the shards that are no longer
        needed. Return False, and change nothing, if this agent knows a later incarnation.
        """

        def keep(store: ShardStore) -> bool:
            if store.incarnation != incarnation or self.seen > incarnation:
                return False
            if record.generation not in store.records:
                store.add_record(record)
            for tier in tiers:
                store.advance(tier, record.generation)
            self._collect(store)
            return True

        return await self.use(keep)

    async def give_up(self, keys: Iterable[str], incarnation: int, *, withdraw: bool = True) -> None:
        """Give up shards whose generation will not be committed. They are dropped, unless a committed
        generation or another kept shard needs them.

        Do nothing if this agent knows a later incarnation, because the ranks of that incarnation may
        restore these shards. `withdraw`: True to drop their copies on other nodes too. Use False if another
        agent may know that the generation is committed.
        """

        def drop(store: ShardStore) -> None:
            if self.seen <= incarnation:
                store.give_up(keys, withdraw)
                self._collect(store)

        await self.use(drop)

    async def drop_withdrawn(self, node: str, keys: Collection[str], incarnation: int) -> None:
        """Drop this node's copies of shards that `node` has given up, unless a committed generation or
        another kept shard needs them. Idempotent.

        Do nothing if this agent knows a later incarnation, because the ranks of that incarnation may
        restore these shards.
        """

        def mine(store: ShardStore) -> set[str]:
            return store.copies_from(node).intersection(keys) - store.given_up

        def drop(store: ShardStore) -> None:
            if store.incarnation == incarnation and self.seen <= incarnation:
                store.release_copies(mine(store))
                self._collect(store)

        if keys and await self.inspect(mine):
            await self.use(drop)

    async def start_incarnation(
        self, branch: Branch, marks: Mapping[Tier, Generation], known: Collection[Record]
    ) -> bool:
        """Start an incarnation with the watermarks `marks`. Return False, and change nothing, if this agent
        knows a later incarnation.

        `known`: the records of the generations at the watermarks.
        """

        def note(store: ShardStore) -> bool:
            if branch.incarnation < max(store.incarnation, self.seen):
                return False
            if branch.incarnation > store.incarnation:
                self.uses.unmark_all_copies()
            for record in known:
                store.add_record(record)
            store.add_branch(branch)
            store.start_incarnation(branch.incarnation, dict(marks))
            self._collect(store)
            return True

        return await self.use(note)

    async def record_seen(self, incarnation: int) -> None:
        """Record that a later incarnation exists. Commits of earlier incarnations then fail on this node."""
        if incarnation > self.seen:
            self.seen = incarnation
            await self.use(lambda store: store.record_seen(incarnation))

    async def set_slot_token(self, slot_token: str) -> None:
        """Store the slot token of the job's shards on this node. Raises OSError if it cannot be written."""
        await self.use(lambda store: store.set_slot_token(slot_token))
        self.slot_token = slot_token

    # Shards that restores and uploads need.

    async def unpin(self, dropped: Collection[str]) -> None:
        """Release all shards that were kept for a restore, and drop the shards in `dropped`.

        A shard in `dropped` stays if this node holds it as a copy for another node, or if it is being
        uploaded.
        """

        def drop(store: ShardStore) -> None:
            self.uses.unpin_all()
            for key in set(dropped) - self.uses.copies - self.uses.uploading:
                store.drop(key)
            self._collect(store)

        await self.free(drop)

    async def free(self, drop: Callable[[ShardStore], None]) -> None:
        """Run `drop`, which drops shards. Then return the bytes outside the buffers that no shard needs to
        the node's budget, since other jobs may need them.
        """
        await self.finish(self._free(drop))

    async def _free(self, drop: Callable[[ShardStore], None]) -> None:
        async with self._turn:
            store = await self._open()
            await asyncio.to_thread(drop, store)
            await self._share.shrink(store.unbuffered_bytes)
        await self.notify_changed()

    def start_upload(self, keys: Collection[str]) -> None:
        """Keep shards until `end_upload` was called for them as often as `start_upload`."""
        self.uses.start_upload(keys)

    async def end_upload(self, keys: Collection[str]) -> None:
        """Release shards that were kept for an upload."""
        self.uses.end_upload(keys)
        await self.use(self._collect)

    def _collect(self, store: ShardStore) -> None:
        store.collect(self.uses.needed)
        self.uses.unmark_copies_except(store.known)


def _drop_all(store: ShardStore) -> None:
    """Drop all shards, also those in transfer, and all buffers. Records and watermarks stay."""
    for key in store.known:
        store.drop(key)
        store.incoming.drop(key)
    store.buffers.release()
