"""From sealed shards to generations that stand: locally, then with copies on other nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

import structlog

from convoy_agents.backoff import Backoff
from convoy_agents.desk import Answer, Said
from convoy_agents.negotiate import Decide
from convoy_agents.pods.assignment import Assignment, Place
from convoy_agents.tiercheck.abandoning import Abandonments
from convoy_agents.tiercheck.alarms import Alarms
from convoy_agents.tiercheck.exchange import Exchange, Outdated, Unreachable
from convoy_agents.tiercheck.holding import Holding
from convoy_agents.tiercheck.keeper import Keeper
from convoy_agents.tiercheck.remote import Remotes
from convoy_agents.tiercheck.restoring import Reading
from convoy_agents.tiercheck.stores.errors import Stopped, StoreError
from convoy_agents.tiercheck.turns import Turns
from convoy_agents.tiercheck.vault import Damaged, Vault
from convoy_controllers.checkpoint import retention
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import START_STEP, Generation, Tier

UPLOAD_SECONDS = 3600.0
"""For all slots to bring a generation to the store; then it stays in memory alone."""
LOCAL_TRIES = 2
"""Of the whole patience, for a generation to be committed."""
PARTIAL_SECONDS = 150.0
"""For the other ranks of a pod to seal what one has sealed; then it is given up."""

log = structlog.get_logger()


class Asks(Protocol):
    """Who asks slot 0's agent for a commit."""

    async def ask(
        self, plan: Assignment, tier: Tier, generation: Generation, said: Said | None = None
    ) -> Answer:
        """How it ended."""
        ...

    async def abandon(self, plan: Assignment, generation: Generation) -> None:
        """The slot will never prepare it."""
        ...


class Committer:
    """One task per pod and generation; a pod's rank has as many sealed generations as it has slots."""

    def __init__(
        self,
        keeper: Keeper,
        exchange: Exchange,
        remotes: Remotes,
        alarms: Alarms,
        asks: Asks,
        decided: Decide,
        plan: Callable[[str], Assignment | None],
    ) -> None:
        self._keeper = keeper
        self._exchange = exchange
        self._remotes = remotes
        self._alarms = alarms
        self._uploads: dict[str, asyncio.Task[None]] = {}
        """By pod; one at a time."""
        self._asks = asks
        self._decided = decided
        self._plan = plan
        self._tasks: dict[tuple[str, Generation], asyncio.Task[None]] = {}
        self._partial: dict[tuple[str, Generation], asyncio.Task[None]] = {}
        self._abandoned = Abandonments(asks.abandon)
        self._giving: Turns[tuple[str, str, str]] = Turns()
        """By job, host and shard."""

    async def sealed(self, uid: str) -> None:
        """A rank of the pod has sealed something, or an agent begins: what is whole is to be committed."""
        if (mine := self._mine(uid)) is None:
            return
        plan, holding, shards = mine

        def look(vault: Vault) -> tuple[list[tuple[Generation, Said]], list[tuple[Generation, list[str]]]]:
            if vault.incarnation != plan.incarnation:
                return [], []
            floor = vault.marks.get(Tier.PEER)
            whole, parts = [], []
            for generation, ids in vault.sealed(shards, plan.incarnation).items():
                if vault.given_up.intersection(ids.values()) or (floor and generation <= floor):
                    continue
                if ids.keys() == shards and len({vault.facts[key] for key in ids.values()}) == 1:
                    whole.append((generation, Said(ids, vault.facts[next(iter(ids.values()))])))
                else:
                    parts.append((generation, list(ids.values())))
            return whole, parts

        whole, parts = await holding.look(look)
        for generation, said in whole:
            self._start(uid, generation, self._commit(uid, plan, holding, generation, said))
        for generation, keys in parts:
            key = (uid, generation)
            if self._abandoned.holds(uid, generation):
                await holding.give_up(keys, plan.incarnation)
            elif key not in self._partial:
                task = asyncio.create_task(self._give_up_later(uid, plan, holding, generation, shards))
                self._partial[key] = task
                task.add_done_callback(partial(self._forgotten, key))

    async def abandon(self, uid: str, generation: Generation) -> None:
        """A rank of the pod could not save it: what others have of it goes, here at once and everywhere as
        soon as the agent of slot 0 hears of it. ValueError when all ranks of the pod have saved it.
        """
        if (mine := self._mine(uid)) is None:
            return
        plan, holding, shards = mine
        found = await holding.look(lambda vault: vault.sealed(shards, plan.incarnation).get(generation, {}))
        if found.keys() == shards:
            raise ValueError(f"all ranks of the pod have saved {generation.name}")
        log.warning("generation abandoned: a rank could not save it", job=plan.job, **generation._asdict())
        self._abandoned.add(plan, generation)
        await holding.give_up(found.values(), plan.incarnation)

    def _mine(self, uid: str) -> tuple[Assignment, Holding, set[str]] | None:
        """A pod's plan, the memory of its job, and the names of its shards; None when it keeps none."""
        plan = self._plan(uid)
        holding = self._keeper.get(plan.job_uid) if plan and plan.memory else None
        if plan is None or holding is None:
            return None
        return plan, holding, {str(rank) for rank in plan.ranks}

    def _lasts(self, uid: str, plan: Assignment) -> bool:
        """Whether the pod is here, and in the same incarnation still."""
        now = self._plan(uid)
        return now is not None and now.incarnation == plan.incarnation

    def _forgotten(self, key: tuple[str, Generation], task: asyncio.Task[None]) -> None:
        self._partial.pop(key, None)

    async def _give_up_later(
        self, uid: str, plan: Assignment, holding: Holding, generation: Generation, shards: set[str]
    ) -> None:
        """A rank whose save failed must not keep the others' slots for good."""
        await asyncio.sleep(PARTIAL_SECONDS)
        if (uid, generation) in self._tasks:
            return
        found = await holding.look(lambda vault: vault.sealed(shards, plan.incarnation).get(generation, {}))
        if found.keys() == shards or not found:
            return
        log.warning("generation given up: a rank has not saved it", job=plan.job, **generation._asdict())
        await holding.give_up(found.values(), plan.incarnation)

    async def resume_uploads(self, uid: str) -> None:
        """A new agent goes on with what the one before was bringing to the store."""
        if (mine := self._mine(uid)) is None:
            return
        plan, holding, shards = mine

        def look(vault: Vault) -> tuple[Generation, set[str]] | None:
            there = vault.marks.get(Tier.REMOTE)
            for generation in sorted(vault.records, reverse=True):
                record = vault.records[generation]
                if generation.incarnation != plan.incarnation or (there and generation <= there):
                    return None
                heads = [record.shards[one] for one in shards if one in record.shards]
                keys = retention.reachable(heads, vault.manifests)
                if record.remote and keys <= vault.manifests.keys():
                    return generation, keys
            return None

        if (found := await holding.look(look)) is not None:
            self._upload(uid, plan, holding, *found)

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
        # Segments before what they extend: an old base is taken only where something extends it.
        keys = [key for shard in mine for key, _ in reversed(reading.links(shard))]
        holding = self._keeper.open(plan.job_uid)
        start = Generation(plan.incarnation, START_STEP)
        if plan.memory and plan.memory.copies:
            self._start(uid, start, self._copied(uid, plan, holding, start, keys))
        return set(keys)

    def forget(self, uid: str) -> None:
        """The pod left; what it has sealed stays until it is superseded."""
        self._alarms.forget(uid)
        for key, task in [*self._tasks.items(), *self._partial.items()]:
            if key[0] == uid:
                task.cancel()
        if uid in self._uploads:
            self._uploads[uid].cancel()
        self._abandoned.forget(uid)

    async def close(self) -> None:
        """Ends every task."""
        tasks = [
            *self._tasks.values(),
            *self._partial.values(),
            *self._uploads.values(),
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._abandoned.close()

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
        links = await holding.look(lambda vault: _links(vault, said.shards.values()))
        copying = asyncio.create_task(self._copy(uid, plan, holding, links))
        try:
            answer = await self._stand_locally(uid, plan, holding, generation, said)
            if answer is None:
                copying.cancel()
                await holding.give_up(said.shards.values(), plan.incarnation)
                return
            if answer.record is not None and answer.record.remote:
                self._upload(uid, plan, holding, generation, set(links))
            await self._stand_with_peers(uid, plan, holding, generation, copying)
        except Damaged as error:
            # It stands, and cannot have its copies: nobody gets beyond it, so the ranks begin again.
            log.error("SHARD DAMAGED BEFORE ITS COPIES WERE MADE", job=plan.job, why=str(error))
            self._decided(uid, Tier.LOCAL, generation, Verdict.STALE, plan.incarnation + 1)
        finally:
            copying.cancel()

    async def _stand_locally(
        self, uid: str, plan: Assignment, holding: Holding, generation: Generation, said: Said
    ) -> Answer | None:
        """The answer once the generation stands locally; None when it will not."""
        for _ in range(LOCAL_TRIES):
            answer = await self._asks.ask(plan, Tier.LOCAL, generation, said)
            # The time may be up just as the record is being written: who gives up then has lost what stands.
            if answer.verdict is not Verdict.EXPIRED:
                break
        stands = await self._take(uid, plan, holding, Tier.LOCAL, generation, answer)
        return answer if stands else None

    async def _stand_with_peers(
        self,
        uid: str,
        plan: Assignment,
        holding: Holding,
        generation: Generation,
        copying: asyncio.Task[bool],
        tell: bool = True,
    ) -> None:
        """Asks for the peer tier once the copies are there, for as long as the incarnation lasts: what stands
        locally cannot be given up, and keeps a slot of every rank until it has its copies."""
        if not await copying:
            return
        pause = Backoff(first=0.5, cap=10.0)
        while self._lasts(uid, plan):
            answer = await self._asks.ask(plan, Tier.PEER, generation)
            if answer.verdict is not Verdict.EXPIRED:
                await self._take(uid, plan, holding, Tier.PEER, generation, answer, tell)
                return
            await asyncio.sleep(pause.next())

    def _upload(
        self, uid: str, plan: Assignment, holding: Holding, generation: Generation, keys: set[str]
    ) -> None:
        """Begins to bring shards to the store; the pod's last ones, if they are not there yet, give way."""
        if (before := self._uploads.pop(uid, None)) is not None:
            log.warning("upload gives way to the next", job=plan.job, **generation._asdict())
            before.cancel()
        holding.uploading |= keys
        task = asyncio.create_task(self._store(uid, plan, holding, generation, keys))
        self._uploads[uid] = task

        def ended(done: asyncio.Task[None]) -> None:
            if self._uploads.get(uid) is done:
                del self._uploads[uid]
            if not done.cancelled() and (error := done.exception()):
                log.error("upload failed", job=plan.job, exc_info=error)

        task.add_done_callback(ended)

    async def _store(
        self, uid: str, plan: Assignment, holding: Holding, generation: Generation, keys: set[str]
    ) -> None:
        deadline = time.monotonic() + UPLOAD_SECONDS
        pause = Backoff(first=1.0, cap=30.0)
        left = sorted(keys)
        full = swept = False
        try:
            while time.monotonic() < deadline and self._lasts(uid, plan):
                try:
                    if full and not swept:
                        # What follows a commit otherwise, and without room there is none.
                        swept = True
                        await self._remotes.sweep(plan)
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
                    self._alarms.not_stored(plan, generation, error)
                    full = error.full
                else:
                    if answer.verdict is not Verdict.EXPIRED:
                        if await self._take(uid, plan, holding, Tier.REMOTE, generation, answer):
                            self._alarms.stored(plan)
                        return
                    # What was brought there may be gone by now: only what is missing is sent.
                    left = sorted(keys)
                await asyncio.sleep(pause.next())
        finally:
            await holding.uploaded(keys)

    async def _copied(
        self, uid: str, plan: Assignment, holding: Holding, generation: Generation, keys: list[str]
    ) -> None:
        copying = asyncio.create_task(self._copy(uid, plan, holding, keys))
        try:
            # The pod's own saves are what is told of.
            await self._stand_with_peers(uid, plan, holding, generation, copying, tell=False)
        except Damaged as error:
            log.error("no copies of what was restored", job=plan.job, why=str(error))
        finally:
            copying.cancel()

    async def _take(
        self,
        uid: str,
        plan: Assignment,
        holding: Holding,
        tier: Tier,
        generation: Generation,
        answer: Answer,
        tell: bool = True,
    ) -> bool:
        """Notes how it ended; whether the generation stands."""
        committed = answer.verdict is Verdict.COMMITTED
        if committed and answer.record is not None:
            pause = Backoff(first=0.5, cap=10.0)
            while True:
                try:
                    noted = await holding.committed(answer.record, plan.incarnation, tier)
                    self._alarms.noted(plan)
                    break
                except OSError as error:
                    # Full memory: it is tried again for as long as the incarnation lasts.
                    log.error("commit not noted", job=plan.job, why=str(error), **generation._asdict())
                    self._alarms.not_noted(plan, generation, error)
                    if holding.closed or not self._lasts(uid, plan):
                        return False
                    await asyncio.sleep(pause.next())
            if not noted:
                return False
        # Without copies the peer tier is a matter between agents: no watermark promises what is not there.
        if tell and (tier is not Tier.PEER or (plan.memory and plan.memory.copies)):
            self._decided(uid, tier, generation, answer.verdict, answer.seen)
        return committed

    async def _copy(self, uid: str, plan: Assignment, holding: Holding, keys: Sequence[str]) -> bool:
        """Whether every host has its copies of these shards."""
        hosts = plan.memory.hosts if plan.memory else ()
        done = await asyncio.gather(*(self._send(uid, plan, host, holding, keys) for host in hosts))
        return all(done)

    async def _send(
        self, uid: str, plan: Assignment, host: Place, holding: Holding, keys: Sequence[str]
    ) -> bool:
        """Tries for as long as the incarnation lasts. Damaged when there is nothing right to send."""
        pause = Backoff(first=0.05, cap=5.0)
        left = list(keys)
        while left:
            now = self._plan(uid)
            if now is None or now.incarnation != plan.incarnation:
                return False
            hosts = now.memory.hosts if now.memory else ()
            place = next((one for one in hosts if one.node == host.node), host)
            try:
                if await self._give(place, holding, plan.incarnation, left[0]):
                    left.pop(0)
                    pause.reset()
                    continue
            except (Unreachable, OSError) as error:
                log.info("no copy", job=plan.job, node=host.node, why=str(error))
            except Outdated as error:
                log.info("copy refused", job=plan.job, why=str(error))
                return False
            await asyncio.sleep(pause.next())
        return True

    async def _give(self, place: Place, holding: Holding, incarnation: int, key: str) -> bool:
        """One at a time: what several segments extend is not sent for each of them."""
        async with self._giving.turn((holding.job_uid, place.node, key)):
            return await self._exchange.give(place, holding, incarnation, key)


def _links(vault: Vault, heads: Iterable[str]) -> list[str]:
    """These shards and all that they extend, each before what it extends."""
    known = vault.manifests

    def newest_first(key: str) -> tuple[bool, Generation, str]:
        return key in known, known[key].generation if key in known else Generation(0, 0), key

    return sorted(retention.reachable(list(heads), known), key=newest_first, reverse=True)
