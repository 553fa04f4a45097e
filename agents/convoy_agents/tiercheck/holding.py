"""One job's memory on this node, as its ranks and the other agents use it.

The vault is used by one thread at a time; digests are taken beside it, since they read what nobody writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog

from convoy_agents import metrics
from convoy_agents.tiercheck import digest, memory, planes, shares
from convoy_agents.tiercheck.budget import Budget, Refusal
from convoy_agents.tiercheck.shares import OTHERS, OVERHEAD, SLOTS
from convoy_agents.tiercheck.vault import BASES, SEGMENTS, Facts, Vault
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Branch, Chunk, Manifest, Record

T = TypeVar("T")

log = structlog.get_logger()


class Refused(OSError):
    """There is no memory for it."""

    def __init__(self, refusal: Refusal) -> None:
        # As with NoRoom: who can do without the memory need not know what it lacks.
        super().__init__(errno.ENOSPC, str(refusal))
        self.refusal = refusal

    def __str__(self) -> str:
        return str(self.refusal)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A shard that a rank has written."""

    manifest: Manifest
    seconds: float
    """For which its digests were taken."""


class Holding:
    """Opened when the job first needs memory here, closed when the job is over."""

    def __init__(self, job_uid: str, folder: Path, budget: Budget, pool: ThreadPoolExecutor) -> None:
        self.job_uid = job_uid
        self.pinned: set[str] = set()
        """Shards that are being read: they stay."""
        self._uploads: Counter[str] = Counter()
        """By shard that is on its way to a store, and stays, the uploads that want it."""
        self.claimed: set[str] = set()
        """Shards that others count on as their copies, whatever else they were fetched for."""
        self.seen = 0
        """The latest incarnation that anybody has asked about; earlier ones are refused."""
        self.warrant = ""
        """The newest by which anything came here."""
        self.closed = False
        self._folder = folder
        self._budget = budget
        self._pool = pool
        self._turn = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._seals: dict[tuple[str, Generation], asyncio.Task[Sealed]] = {}
        self._changed = asyncio.Condition()
        self._vault: Vault | None = None
        self._shares: dict[str, int] = {}
        """Bytes by what they are for: a rank's slots, copies for others."""

    async def recover(self) -> None:
        """Takes over what an earlier agent had given the job. OSError when it cannot be read."""
        found = await asyncio.to_thread(shares.read, self._folder)
        async with self._turn:
            self._shares = found
            self._budget.shares[self.job_uid] = shares.whole(found)
            vault = await self._open()
            self.seen = max(vault.seen, vault.incarnation, max(vault.branches, default=0))
            self.warrant = vault.warrant

    async def use(self, do: Callable[[Vault], T]) -> T:
        """Lets `do` work with the vault in a thread, nobody else meanwhile. OSError when there is none;
        Refused when the node has no memory for it.
        """
        return await self._through(self._use(do))

    async def _use(self, do: Callable[[Vault], T]) -> T:
        async with self._turn:
            vault = await self._open()
            found = await asyncio.to_thread(do, vault)
        await self.changed()
        return found

    async def _through(self, work: Coroutine[Any, Any, T]) -> T:
        """To its end, even if whoever waits for it is gone: a thread cannot be called back, and what is half
        done must not be believed to be done.
        """
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has heard of it, and nobody else needs to

    async def look(self, do: Callable[[Vault], T]) -> T:
        """What `do` sees, quickly and without changing anything. OSError as `use`."""
        async with self._turn:
            return do(await self._open())

    async def changed(self) -> None:
        """Something that somebody may wait for is otherwise now."""
        async with self._changed:
            self._changed.notify_all()

    async def until(self, holds: Callable[[Vault], T | None], seconds: float) -> T | None:
        """What `holds` gives as soon as it gives something; None when it does not in time."""
        deadline = time.monotonic() + seconds
        while True:
            # Before the look: what changes behind it is not missed.
            async with self._changed:
                found = await self.look(holds)
                left = deadline - time.monotonic()
                if found is not None or left <= 0:
                    return found
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._changed.wait()

    async def _grow(self, purpose: str, size: int, own_limit: int) -> None:
        """Room for so many bytes for one purpose. Refused, and nothing is changed, when there is none."""
        if size <= self._shares.get(purpose, 0):
            return
        wanted = {**self._shares, purpose: size}
        whole = shares.whole(wanted)
        await self._open()
        if refusal := self._budget.grow(self.job_uid, whole, own_limit):
            raise Refused(refusal)
        await asyncio.to_thread(memory.open_share, self._folder, self._budget.shares[self.job_uid])
        await asyncio.to_thread(shares.write, self._folder, wanted)
        self._shares = wanted

    async def reserve(
        self, owner: str, count: int, size: int, owners: Collection[str], own_limit: int, kind: str = BASES
    ) -> list[Path]:
        """A rank's slots, ready to be written. Refused; NoRoom when others have grown into what it had."""
        return await self._through(self._reserve(owner, count, size, owners, own_limit, kind))

    async def _reserve(
        self, owner: str, count: int, size: int, owners: Collection[str], own_limit: int, kind: str
    ) -> list[Path]:
        async with self._turn:
            # What ranks that are here no more have had, and nobody needs, serves the ones that are.
            vault = await self._open()
            used = {owner, *owners, *vault.owners}
            mine = {f"{SLOTS}{of}{one}" for one in used for of in (BASES, SEGMENTS)}
            self._shares = {
                purpose: share
                for purpose, share in self._shares.items()
                if not purpose.startswith(SLOTS) or purpose in mine
            }
            await self._grow(f"{SLOTS}{kind}{owner}", count * size, own_limit)
            names = await asyncio.to_thread(vault.reserve, owner, count, size, owners, kind)
        await self.changed()
        return [self._folder / "slots" / name for name in names]

    async def expect(self, manifest: Manifest, purpose: str, own_limit: int, *, giver: str = "") -> list[int]:
        """A shard is about to come. The chunks that are wanted, by index. Refused, NoRoom.

        `giver`: the node that counts on it from now on.
        """
        return await self._through(self._expect(manifest, purpose, own_limit, giver))

    async def _expect(self, manifest: Manifest, purpose: str, own_limit: int, giver: str) -> list[int]:
        async with self._turn:
            vault = await self._open()
            await self._grow(purpose, vault.room_with(manifest), own_limit)
            wanted = await asyncio.to_thread(vault.expect, manifest, giver)
            if giver:
                self.claimed.add(manifest.id)
            return wanted

    async def seal(
        self,
        slot: str,
        generation: Generation,
        shard: str,
        length: int,
        facts: Facts,
        extends: Generation | None = None,
    ) -> Sealed:
        """Takes the digests of what a rank has written into one of its free slots, and keeps it. OSError,
        ValueError.

        `extends`: what the same rank has sealed before, which a journal segment follows.

        Goes on without whoever asked; who asks again for the same waits for the same.
        """
        under_way = self._seals.get((slot, generation))
        if under_way is None:
            under_way = asyncio.create_task(self._seal(slot, generation, shard, length, facts, extends))
            self._seals[slot, generation] = under_way

            def ended(task: asyncio.Task[Sealed]) -> None:
                self._seals.pop((slot, generation), None)
                self._ended(task)

            under_way.add_done_callback(ended)
        return await asyncio.shield(under_way)

    async def _seal(
        self,
        slot: str,
        generation: Generation,
        shard: str,
        length: int,
        facts: Facts,
        extends: Generation | None,
    ) -> Sealed:
        began = time.monotonic()

        def take(vault: Vault) -> str | None:
            if vault.incarnation != generation.incarnation:
                raise ValueError("nothing was restored in this incarnation, or a later one has begun")
            if slot not in vault.writable(shard, BASES if extends is None else SEGMENTS):
                raise ValueError(f"{slot} is none of the rank's free slots")
            there = vault.written(slot)
            if not 0 < length <= there:
                raise ValueError(f"{slot} has {there} bytes, not {length}")
            before = None
            if extends is not None:
                held = vault.sealed([shard], generation.incarnation)
                if extends not in held or extends >= generation:
                    raise ValueError(f"what the segment follows is not here: {extends.name}")
                before = held[extends][shard]
            vault.sealing.add(slot)
            return before

        async with self._turn:
            before = take(await self._open())
        try:
            chunks = await asyncio.to_thread(self._digest, slot, length)
            manifest = Manifest(generation, shard, chunks, length, extends=before)
        except BaseException:
            await self._use(lambda vault: vault.sealing.discard(slot))
            raise

        def keep(vault: Vault) -> None:
            vault.sealing.discard(slot)
            if vault.incarnation != generation.incarnation:
                raise ValueError("a later incarnation has begun")
            if before is not None and before not in vault.manifests:
                raise ValueError("what the segment follows is not here any more")
            vault.seal(manifest, slot, facts)

        await self._use(keep)
        return Sealed(manifest, time.monotonic() - began)

    def _digest(self, slot: str, length: int) -> tuple[Chunk, ...]:
        with (self._folder / "slots" / slot).open("rb") as file:
            return digest.chunks(file.fileno(), length, self._pool)

    async def read(self, key: str, index: int) -> bytes:
        """A chunk of a shard. Damaged when it is not here or not as it was."""
        return await self._through(self._quietly(lambda vault: vault.read(key, index)))

    async def put(self, key: str, index: int, data: bytes) -> int:
        """A chunk of a shard that is expected, encoded or not; its length, decoded. Damaged when it is not
        what the manifest says.
        """
        length = (await self.look(lambda vault: vault.expected(key, index))).length
        loop = asyncio.get_running_loop()
        whole = await loop.run_in_executor(self._pool, planes.unpack, data, length)
        await self._through(self._quietly(lambda vault: vault.put(key, index, whole)))
        return length

    async def _quietly(self, do: Callable[[Vault], T]) -> T:
        """As `use`, for what nobody waits for."""
        async with self._turn:
            vault = await self._open()
            return await asyncio.to_thread(do, vault)

    async def verified(self, key: str) -> Path | None:
        """The file in which a shard lies, every byte of it looked at; None when it is not here, or damaged:
        then it is dropped.
        """
        if await self.damaged(key):
            return None
        return await self.look(lambda vault: vault.path(key) if key in vault.manifests else None)

    async def damaged(self, key: str) -> bool:
        """Whether a shard that is here is not as it was: then it is dropped."""

        def find(vault: Vault) -> tuple[Path, Manifest] | None:
            return (vault.path(key), vault.manifests[key]) if key in vault.manifests else None

        found = await self.look(find)
        if found is None or await asyncio.to_thread(self._whole, *found):
            return False
        if await self.look(find) != found:
            return False  # it has made room meanwhile, and others write there
        log.error("SHARD DAMAGED IN MEMORY", job_uid=self.job_uid, **found[1].generation._asdict())
        metrics.DAMAGED.inc()
        await self.use(lambda vault: vault.drop(key))
        return True

    def _whole(self, path: Path, manifest: Manifest) -> bool:
        try:
            with path.open("rb") as file:
                return digest.chunks(file.fileno(), manifest.size, self._pool) == manifest.chunks
        except (OSError, ValueError):
            return False

    async def committed(self, record: Record, incarnation: int, *tiers: Tier) -> bool:
        """A generation stands at these tiers by the word of this incarnation: what it replaces may go.
        False when a later incarnation has begun here.
        """

        def keep(vault: Vault) -> bool:
            if vault.incarnation != incarnation or self.seen > incarnation:
                return False
            if record.generation not in vault.records:
                vault.record(record)
            for tier in tiers:
                vault.advance(tier, record.generation)
            self._collect(vault)
            return True

        return await self.use(keep)

    async def give_up(self, keys: Iterable[str], incarnation: int, *, withdraw: bool = True) -> None:
        """These shards will not be committed; they go unless a watermark stands on them. Not once a later
        incarnation has looked: it may just have chosen them.

        `withdraw`: their copies go too. Not where somebody else may know them to be committed.
        """

        def forget(vault: Vault) -> None:
            if self.seen <= incarnation:
                vault.give_up(keys, withdraw)
                self._collect(vault)

        await self.use(forget)

    async def withdrawn(self, node: str, keys: Collection[str], incarnation: int) -> None:
        """`node` has given these shards up: what of them it has brought here goes, unless a watermark stands
        on it. Again it does nothing. Not once a later incarnation has looked, as with `give_up`.
        """

        def mine(vault: Vault) -> set[str]:
            return vault.brought(node).intersection(keys) - vault.given_up

        def forget(vault: Vault) -> None:
            if vault.incarnation == incarnation and self.seen <= incarnation:
                vault.give_back(mine(vault))
                self._collect(vault)

        if keys and await self.look(mine):
            await self.use(forget)

    async def begin(
        self, branch: Branch, marks: Mapping[Tier, Generation], known: Collection[Record]
    ) -> bool:
        """An incarnation goes on from here. False, and nothing is changed, when a later one has begun."""

        def note(vault: Vault) -> bool:
            if branch.incarnation < max(vault.incarnation, self.seen):
                return False
            if branch.incarnation > vault.incarnation:
                self.claimed.clear()
            for record in known:
                vault.record(record)
            vault.branch(branch)
            vault.begin(branch.incarnation, dict(marks))
            self._collect(vault)
            return True

        return await self.use(note)

    async def see(self, incarnation: int) -> None:
        """A later incarnation is heard of: earlier ones get nothing committed here any more."""
        if incarnation > self.seen:
            self.seen = incarnation
            await self.use(lambda vault: vault.see(incarnation))

    async def warranted(self, warrant: str) -> None:
        """What is here lies here by this warrant. OSError."""
        await self.use(lambda vault: vault.warranted(warrant))
        self.warrant = warrant

    async def unpin(self, dropped: Collection[str]) -> None:
        """What was kept to be read may go; of these shards, whose place is elsewhere, all on which nobody
        counts.
        """
        await self._through(self._unpin(dropped))

    async def _unpin(self, dropped: Collection[str]) -> None:
        def forget(vault: Vault) -> int:
            self.pinned.clear()
            for key in set(dropped) - self.claimed - self.uploading:
                vault.drop(key)
            self._collect(vault)
            return vault.room

        async with self._turn:
            vault = await self._open()
            self._shares[OTHERS] = await asyncio.to_thread(forget, vault)
            # Other jobs may need what this one did for its restore.
            size = max(shares.whole(self._shares), await asyncio.to_thread(memory.used, self._folder))
            await asyncio.to_thread(memory.open_share, self._folder, size)
            self._budget.shares[self.job_uid] = size
            await asyncio.to_thread(shares.write, self._folder, self._shares)
        await self.changed()

    def _collect(self, vault: Vault) -> None:
        vault.collect(self.pinned | self.uploading)
        # What is being read may be damaged, and fetched once more: others count on it as before.
        self.claimed &= vault.known | self.pinned

    @property
    def uploading(self) -> Set[str]:
        """Shards that are on their way to a store."""
        return self._uploads.keys()

    def upload(self, keys: Collection[str]) -> None:
        """These shards stay until they are `uploaded`, once for each call."""
        self._uploads.update(keys)

    async def uploaded(self, keys: Collection[str]) -> None:
        """These shards need not stay for their upload any more."""
        self._uploads -= Counter(keys)
        await self.use(self._collect)

    async def close(self) -> None:
        """Gives all memory back."""
        await self._through(self._close())

    async def _close(self) -> None:
        async with self._turn:
            self.closed = True
            self._vault = None
            self._budget.free(self.job_uid)
            await asyncio.to_thread(memory.close_share, self._folder)

    async def _open(self) -> Vault:
        if self.closed:
            raise OSError("the job is over: its memory is given back")
        if self._vault is None:
            if self.job_uid not in self._budget.shares:
                if refusal := self._budget.grow(self.job_uid, OVERHEAD):
                    raise Refused(refusal)
                await asyncio.to_thread(memory.open_share, self._folder, OVERHEAD)
            self._vault = await asyncio.to_thread(Vault, self._folder)
        return self._vault
