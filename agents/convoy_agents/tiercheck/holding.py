"""One job's memory on this node, as its ranks and the other agents use it.

The vault is used by one thread at a time; digests are taken beside it, since they read what nobody writes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import structlog

from convoy_agents.tiercheck import digest, memory
from convoy_agents.tiercheck.budget import Budget, Refusal
from convoy_agents.tiercheck.vault import Vault
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Branch, Manifest, Record

T = TypeVar("T")

log = structlog.get_logger()


class Refused(Exception):
    """There is no memory for it."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.missing} bytes are missing")
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class Sealed:
    """A base that a rank has written."""

    manifest: Manifest
    seconds: float
    """For which its digests were taken."""


class Holding:
    """Opened when the job's first rank asks for memory, closed when the job has no need of it any more."""

    def __init__(self, job_uid: str, folder: Path, budget: Budget, pool: ThreadPoolExecutor) -> None:
        self.job_uid = job_uid
        self._folder = folder
        self._budget = budget
        self._pool = pool
        self._turn = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._vault: Vault | None = None
        self._shares: dict[str, int] = {}
        """Bytes by what they are for: a rank's slots, copies for others."""

    async def use(self, do: Callable[[Vault], T]) -> T:
        """Lets `do` work with the vault in a thread, nobody else meanwhile. OSError when there is none."""
        async with self._turn:
            vault = await self._open()
            found = await asyncio.to_thread(do, vault)
        async with self._changed:
            self._changed.notify_all()
        return found

    async def until(self, holds: Callable[[Vault], T | None], seconds: float) -> T | None:
        """What `holds` gives as soon as it gives something; None when it does not in time."""
        deadline = time.monotonic() + seconds
        while True:
            async with self._turn:
                found = holds(await self._open())
            if found is not None:
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            try:
                async with asyncio.timeout(left), self._changed:
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def grow(self, purpose: str, size: int, own_limit: int) -> None:
        """Room for so many bytes for one purpose. Refused, and nothing is changed, when there is none."""
        async with self._turn:
            shares = {**self._shares, purpose: max(size, self._shares.get(purpose, 0))}
            whole = sum(shares.values()) + OVERHEAD
            if refusal := self._budget.grow(self.job_uid, whole, own_limit):
                raise Refused(refusal)
            self._shares = shares
            await asyncio.to_thread(memory.open_share, self._folder, self._budget.shares[self.job_uid])

    async def reserve(self, owner: str, count: int, size: int, own_limit: int) -> list[Path]:
        """A rank's slots, ready to be written. Refused."""
        await self.grow(f"slots of {owner}", count * size, own_limit)
        names = await self.use(lambda vault: vault.reserve(owner, count, size))
        return [self._folder / "slots" / name for name in names]

    async def seal(self, slot: Path, generation: Generation, shard: str, length: int) -> Sealed:
        """Takes the digests of what a rank has written into a slot, and keeps it. OSError, ValueError."""
        began = time.monotonic()
        manifest = await asyncio.to_thread(self._digest, slot, generation, shard, length)
        await self.use(lambda vault: vault.seal(manifest, slot.name))
        return Sealed(manifest, time.monotonic() - began)

    def _digest(self, slot: Path, generation: Generation, shard: str, length: int) -> Manifest:
        with slot.open("rb") as file, memory.mapped(file.fileno(), length) as view:
            return Manifest(generation, shard, digest.chunks(view, self._pool), length)

    async def committed(self, record: Record, tier: Tier) -> None:
        """A generation stands at a tier: what it replaces may go."""

        def keep(vault: Vault) -> None:
            if record.generation not in vault.records:
                vault.record(record)
            vault.advance(tier, record.generation)
            vault.collect()

        await self.use(keep)

    async def begin(self, branch: Branch, marks: Mapping[Tier, Generation]) -> None:
        """An incarnation goes on from here."""

        def note(vault: Vault) -> None:
            vault.branch(branch)
            vault.begin(branch.incarnation, dict(marks))
            vault.collect()

        await self.use(note)

    async def close(self) -> None:
        """Gives all memory back."""
        async with self._turn:
            self._vault = None
            self._budget.free(self.job_uid)
            await asyncio.to_thread(memory.close_share, self._folder)

    async def _open(self) -> Vault:
        if self._vault is None:
            self._vault = await asyncio.to_thread(Vault, self._folder)
        return self._vault


OVERHEAD = 8 * 1024 * 1024
"""For manifests, records and the file system itself."""
