"""From sealed shards to generations that stand: locally, then with copies on other nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

import structlog

from convoy_agents.backoff import Backoff
from convoy_agents.desk import Answer, Said
from convoy_agents.negotiate import Decide
from convoy_agents.pods.assignment import Assignment, Place
from convoy_agents.tiercheck.exchange import Exchange, Outdated, Unreachable
from convoy_agents.tiercheck.holding import Holding
from convoy_agents.tiercheck.keeper import Keeper
from convoy_agents.tiercheck.ledger import stands_at
from convoy_agents.tiercheck.remote import Remotes
from convoy_agents.tiercheck.restoring import Reading
from convoy_agents.tiercheck.stores.errors import Stopped, StoreError
from convoy_agents.tiercheck.vault import Damaged, Vault
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import Generation, Tier

UPLOAD_SECONDS = 3600.0
"""For all slots to bring a generation to the store; then it stays in memory alone."""
COPY_SECONDS = 300.0
"""For one node to take its copies of a generation; then the generation stays without them."""

log = structlog.get_logger()


class Asks(Protocol):
    """Who asks slot 0's agent for a commit."""

    async def ask(
        self, plan: Assignment, tier: Tier, generation: Generation, said: Said | None = None
    ) -> Answer:
        """How it ended."""
        ...


class Committer:
    """One task per pod and generation; a pod's rank has as many sealed generations as it has slots."""

    def __init__(
        self,
        keeper: Keeper,
        exchange: Exchange,
        remotes: Remotes,
        asks: Asks,
        decided: Decide,
        plan: Callable[[str], Assignment | None],
    ) -> None:
        self._keeper = keeper
        self._exchange = exchange
        self._remotes = remotes
        self._uploads: dict[str, asyncio.Task[None]] = {}
        """By pod; one at a time."""
        self._asks = asks
        self._decided = decided
        self._plan = plan
        self._tasks: dict[tuple[str, Generation], asyncio.Task[None]] = {}

    async def sealed(self, uid: str) -> None:
        """A rank of the pod has sealed something, or an agent begins: what is whole is to be committed."""
        plan = self._plan(uid)
        holding = self._keeper.get(plan.job_uid) if plan and plan.memory else None
        if plan is None or holding is None:
            return
        shards = {str(rank) for rank in plan.ranks}

        def whole(vault: Vault) -> list[tuple[Generation, Said]]:
            if vault.incarnation != plan.incarnation:
                return []
            floor = vault.marks.get(Tier.PEER)
            return [
                (generation, Said(ids, vault.facts[next(iter(ids.values()))]))
                for generation, ids in vault.sealed(shards, plan.incarnation).items()
                if ids.keys() == shards
                and len({vault.facts[key] for key in ids.values()}) == 1
                and not vault.given_up.intersection(ids.values())
                and (floor is None or generation > floor)
            ]

        for generation, said in await holding.look(whole):
            self._start(uid, generation, self._commit(uid, plan, holding, generation, said))

    async def adopt(self, uid: str, reading: Reading) -> set[str]:
        """What was restored may have lost copies: it gets the places that its successors will have. The
        shards that are this pod's to keep until then.
        """
        plan, chosen = reading.plan, reading.chosen
        if chosen is None:
            return set()
        # Another number of ranks may have saved it.
        mine = [
            shard for number, shard in enumerate(reading.shards) if number % plan.world_size in plan.ranks
        ]
        keys = [key for shard in mine for key, _ in reading.links(shard)]
        holding = self._keeper.open(plan.job_uid)
        own = Generation(plan.incarnation, chosen.step)
        if plan.memory and plan.memory.copies:
            self._start(uid, own, self._copied(uid, plan, holding, own, keys))
        return set(keys)

    def forget(self, uid: str) -> None:
        """The pod left; what it has sealed stays until it is superseded."""
        for key, task in list(self._tasks.items()):
            if key[0] == uid:
                task.cancel()
        if uid in self._uploads:
            self._uploads[uid].cancel()

    async def close(self) -> None:
        """Ends every task."""
        tasks = [*self._tasks.values(), *self._uploads.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, uid: str, generation: Generation, work: Coroutine[Any, Any, None]) -> None:
        key = (uid, generation)
        if key in self._tasks:
            work.close()
            return
        task = asyncio.create_task(work)
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._ended(key, done))

    def _ended(self, key: tuple[str, Generation], task: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled() and (error := task.exception()):
            log.error("commit failed", pod_uid=key[0], exc_info=error)

    async def _commit(
        self, uid: str, plan: Assignment, holding: Holding, generation: Generation, said: Said
    ) -> None:
        copying = asyncio.create_task(self._copy(uid, plan, holding, said.shards))
        try:
            answer = await self._asks.ask(plan, Tier.LOCAL, generation, said)
            if not await self._take(uid, plan, holding, Tier.LOCAL, generation, answer):
                await holding.give_up(said.shards.values())
                return
            if answer.record is not None and answer.record.remote:
                self._upload(uid, plan, holding, generation, set(said.shards.values()))
            if plan.memory and plan.memory.copies and await copying:
                answer = await self._asks.ask(plan, Tier.PEER, generation)
                if await self._take(uid, plan, holding, Tier.PEER, generation, answer):
                    return
            if plan.memory and plan.memory.copies:
                await holding.give_up(said.shards.values())
        finally:
            copying.cancel()

    def _upload(
        self, uid: str, plan: Assignment, holding: Holding, generation: Generation, keys: set[str]
    ) -> None:
        """Begins to bring shards to the store, if the pod's last ones are there."""
        if uid in self._uploads:
            log.warning("upload skipped: the last one is under way", job=plan.job, **generation._asdict())
            return
        holding.uploading |= keys
        task = asyncio.create_task(self._store(uid, plan, holding, generation, keys))
        self._uploads[uid] = task

        def ended(done: asyncio.Task[None]) -> None:
            self._uploads.pop(uid, None)
            if not done.cancelled() and (error := done.exception()):
                log.error("upload failed", job=plan.job, exc_info=error)

        task.add_done_callback(ended)

    async def _store(
        self, uid: str, plan: Assignment, holding: Holding, generation: Generation, keys: set[str]
    ) -> None:
        deadline = time.monotonic() + UPLOAD_SECONDS
        pause = Backoff(first=1.0, cap=30.0)
        left = sorted(keys)
        try:
            while time.monotonic() < deadline and (now := self._plan(uid)) is not None:
                if now.incarnation != plan.incarnation:
                    return
                try:
                    if left:
                        await self._remotes.upload(plan, holding, left[0])
                        left.pop(0)
                        continue
                    answer = await self._asks.ask(plan, Tier.REMOTE, generation)
                except (Damaged, Stopped) as error:
                    log.error("shard not uploaded", job=plan.job, why=str(error), **generation._asdict())
                    return
                except StoreError as error:
                    log.warning("shard not uploaded", job=plan.job, why=str(error), **generation._asdict())
                else:
                    if answer.verdict is not Verdict.EXPIRED:
                        await self._take(uid, plan, holding, Tier.REMOTE, generation, answer)
                        return
                await asyncio.sleep(pause.next())
        finally:
            await holding.uploaded(keys)

    async def _copied(
        self, uid: str, plan: Assignment, holding: Holding, generation: Generation, keys: list[str]
    ) -> None:
        if await self._copy(uid, plan, holding, dict(zip(keys, keys, strict=True))):
            answer = await self._asks.ask(plan, Tier.PEER, generation)
            await self._take(uid, plan, holding, Tier.PEER, generation, answer)

    async def _take(
        self,
        uid: str,
        plan: Assignment,
        holding: Holding,
        tier: Tier,
        generation: Generation,
        answer: Answer,
    ) -> bool:
        """Notes how it ended; whether the generation stands."""
        if answer.record is not None and answer.verdict is Verdict.COMMITTED:
            noted = await holding.committed(answer.record, plan.incarnation, *stands_at(plan, tier))
            if not noted:
                return False
        self._decided(uid, tier, generation, answer.verdict, answer.seen)
        return answer.verdict is Verdict.COMMITTED

    async def _copy(self, uid: str, plan: Assignment, holding: Holding, ids: Mapping[str, str]) -> bool:
        """Whether every host has its copies of these shards."""
        hosts = plan.memory.hosts if plan.memory else ()
        done = await asyncio.gather(*(self._send(uid, plan, host, holding, ids) for host in hosts))
        return all(done)

    async def _send(
        self, uid: str, plan: Assignment, host: Place, holding: Holding, ids: Mapping[str, str]
    ) -> bool:
        deadline = time.monotonic() + COPY_SECONDS
        pause = Backoff(first=0.05, cap=2.0)
        left = list(ids.values())
        while left and time.monotonic() < deadline:
            now = self._plan(uid) or plan
            if now.incarnation != plan.incarnation:
                return False
            hosts = now.memory.hosts if now.memory else ()
            place = next((one for one in hosts if one.node == host.node), host)
            try:
                if await self._exchange.give(place, holding, plan.incarnation, left[0]):
                    left.pop(0)
                    pause.reset()
                    continue
            except Unreachable as error:
                log.info("no copy", job=plan.job, node=host.node, why=str(error))
            except Outdated as error:
                log.info("copy refused", job=plan.job, why=str(error))
                return False
            except Damaged as error:
                log.info("nothing to copy", job=plan.job, why=str(error))
                return False
            await asyncio.sleep(pause.next())
        return not left
