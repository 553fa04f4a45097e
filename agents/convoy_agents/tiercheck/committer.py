"""From sealed shards to generations that stand: locally, then with copies on other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

import structlog

from convoy_agents.backoff import Backoff
from convoy_agents.desk import Answer, Said
from convoy_agents.pods.assignment import Assignment
from convoy_agents.tiercheck.abandoning import Abandonments
from convoy_agents.tiercheck.alarms import Alarms
from convoy_agents.tiercheck.copying import Copies, links, own, restored
from convoy_agents.tiercheck.exchange import Exchange
from convoy_agents.tiercheck.holding import Holding
from convoy_agents.tiercheck.keeper import Keeper
from convoy_agents.tiercheck.remote import Remotes
from convoy_agents.tiercheck.restoring import Reading
from convoy_agents.tiercheck.uploading import Uploads, unfinished
from convoy_agents.tiercheck.vault import Damaged, Vault
from convoy_controllers.checkpoint.commit import Verdict
from convoy_controllers.checkpoint.generation import START_STEP, Generation, Tier

LOCAL_TRIES = 2
"""Of the whole patience, for a generation to be committed."""
PARTIAL_SECONDS = 150.0
"""For the other ranks of a pod to seal what one has sealed; then it is given up."""

Decide = Callable[[str, Tier, Generation, Verdict, int], None]
"""(pod uid, tier, generation, verdict, latest incarnation seen)"""

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
        self._copies = Copies(exchange, alarms, plan)
        self._uploads = Uploads(remotes, alarms, self._stand_remotely, self._lasts)
        self._alarms = alarms
        self._asks = asks
        self._decided = decided
        self._plan = plan
        self._tasks: dict[tuple[str, Generation], asyncio.Task[None]] = {}
        self._partial: dict[tuple[str, Generation], asyncio.Task[None]] = {}
        self._abandoned = Abandonments(asks.abandon)

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

    def _lasts(self, plan: Assignment) -> bool:
        """Whether the pod is here, and in the same incarnation still."""
        now = self._plan(plan.pod_uid)
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

    async def resume(self, uid: str) -> None:
        """A new agent goes on with what the one before was doing for a pod."""
        await self.sealed(uid)
        if (mine := self._mine(uid)) is None:
            return
        plan, holding, _ = mine
        if (found := await holding.look(lambda vault: unfinished(vault, plan))) is not None:
            self._uploads.begin(plan, holding, *found)
        if (keys := await holding.look(lambda vault: restored(vault, plan))) is not None:
            self._copy_restored(plan, holding, keys)

    async def adopt(self, uid: str, reading: Reading) -> set[str]:
        """What was restored may have lost copies: it gets the places that its successors will have. The
        shards that are this pod's to keep until then.
        """
        plan, chosen = reading.plan, reading.chosen
        if chosen is None:
            return set()
        # Segments before what they extend: an old base is taken only where something extends it.
        keys = [key for shard in own(plan, reading.shards) for key, _ in reversed(reading.links(shard))]
        self._copy_restored(plan, self._keeper.open(plan.job_uid), keys)
        return set(keys)

    def _copy_restored(self, plan: Assignment, holding: Holding, keys: list[str]) -> None:
        # A pod that has none of them to keep prepares it too: all slots must.
        if plan.memory and plan.memory.copies:
            start = Generation(plan.incarnation, START_STEP)
            self._start(plan.pod_uid, start, self._copied(plan.pod_uid, plan, holding, start, keys))

    def forget(self, uid: str) -> None:
        """The pod left; what it has sealed stays until it is superseded."""
        self._alarms.forget(uid)
        for key, task in [*self._tasks.items(), *self._partial.items()]:
            if key[0] == uid:
                task.cancel()
        self._uploads.forget(uid)
        self._abandoned.forget(uid)

    async def close(self) -> None:
        """Ends every task."""
        tasks = [
            *self._tasks.values(),
            *self._partial.values(),
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self._uploads.close(), self._abandoned.close(), return_exceptions=True)

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
        keys = await holding.look(lambda vault: links(vault, said.shards.values()))
        copying = asyncio.create_task(self._copies.make(plan, holding, keys))
        try:
            answer, stands = await self._stand_locally(uid, plan, holding, generation, said)
            if not stands:
                copying.cancel()
                # Undecided is not refused: others may know that it stands, and count on the copies.
                refused = answer.verdict is not Verdict.EXPIRED
                await holding.give_up(said.shards.values(), plan.incarnation, withdraw=refused)
                return
            if answer.record is not None and answer.record.remote:
                self._uploads.begin(plan, holding, generation, keys)
            await self._stand_with_peers(uid, plan, holding, generation, copying)
        except Damaged as error:
            # It stands, and cannot have its copies: nobody gets beyond it, so the ranks begin again.
            log.error("SHARD DAMAGED BEFORE ITS COPIES WERE MADE", job=plan.job, why=str(error))
            self._decided(uid, Tier.LOCAL, generation, Verdict.STALE, plan.incarnation + 1)
        finally:
            copying.cancel()

    async def _stand_locally(
        self, uid: str, plan: Assignment, holding: Holding, generation: Generation, said: Said
    ) -> tuple[Answer, bool]:
        """The answer, and whether the generation stands locally."""
        for _ in range(LOCAL_TRIES):
            answer = await self._asks.ask(plan, Tier.LOCAL, generation, said)
            # The time may be up just as the record is being written: who gives up then has lost what stands.
            if answer.verdict is not Verdict.EXPIRED:
                break
        return answer, await self._take(uid, plan, holding, Tier.LOCAL, generation, answer)

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
        while self._lasts(plan):
            answer = await self._asks.ask(plan, Tier.PEER, generation)
            if answer.verdict is not Verdict.EXPIRED:
                await self._take(uid, plan, holding, Tier.PEER, generation, answer, tell)
                return
            await asyncio.sleep(pause.next())

    async def _stand_remotely(
        self, plan: Assignment, holding: Holding, generation: Generation
    ) -> bool | None:
        """Asks for the tier of the store: whether the generation stands there; None while that is open."""
        answer = await self._asks.ask(plan, Tier.REMOTE, generation)
        if answer.verdict is Verdict.EXPIRED:
            return None
        return await self._take(plan.pod_uid, plan, holding, Tier.REMOTE, generation, answer)

    async def _copied(
        self, uid: str, plan: Assignment, holding: Holding, generation: Generation, keys: list[str]
    ) -> None:
        copying = asyncio.create_task(self._copies.make(plan, holding, keys))
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
                    if holding.closed or not self._lasts(plan):
                        return False
                    await asyncio.sleep(pause.next())
            if not noted:
                return False
        # Without copies the peer tier is a matter between agents: no watermark promises what is not there.
        if tell and (tier is not Tier.PEER or (plan.memory and plan.memory.copies)):
            self._decided(uid, tier, generation, answer.verdict, answer.seen)
        return committed
