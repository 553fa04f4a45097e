"""What an incarnation goes on from: slot 0's agent asks everybody and decides, once; the others follow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from convoy_agents.backoff import Backoff
from convoy_agents.pods.assignment import Assignment, Place
from convoy_agents.tiercheck.alarms import Alarms
from convoy_agents.tiercheck.exchange import (
    Denied,
    Exchange,
    Shortage,
    Surveyed,
    Unreachable,
    marks_from_wire,
    marks_to_wire,
)
from convoy_agents.tiercheck.holding import Holding
from convoy_agents.tiercheck.keeper import Keeper
from convoy_agents.tiercheck.remote import Remotes
from convoy_agents.tiercheck.stores.errors import Stopped, StoreError
from convoy_agents.tiercheck.surveying import Surveys
from convoy_agents.tiercheck.turns import Turns
from convoy_agents.tiercheck.vault import Damaged
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint import records, restore
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.lineage import branch_of
from convoy_controllers.checkpoint.records import Branch, Inventory, merge

DECIDE_SECONDS = 60.0
"""For all members to answer: each has a live pod, so its agent is there or comes back."""
UNHEARD_SECONDS = 30.0
"""For which nodes that do not answer are waited for while an incarnation is unheard of: they may know what it
has done. After that its work counts as lost with them.
"""
STORE_SECONDS = 15.0
"""For a store to tell what it holds."""
ADOPT_SECONDS = 3600.0
"""For another job's state to be copied within the store."""
FETCH_SECONDS = 20.0
"""For which a place that does not answer is asked for a shard again before another is."""
PATIENCE_SECONDS = 150.0
"""For a slot to hear what was decided."""
MAX_DECISIONS = 64

Broken = tuple[tuple[str, str], ...]
"""(node, id) of shards that could not be read."""

log = structlog.get_logger()


class Failed(Exception):
    """What to go on from is not known, or not here: the rank is to be started again."""

    def __init__(self, why: str, *, memory: bool = False, store: bool = False) -> None:
        super().__init__(why)
        self.memory = memory
        """Whether more memory would have helped."""
        self.store = store
        """Whether it is the store that does not answer: nothing here or in the job is at fault."""


@dataclass(slots=True)
class Reading:
    """What a pod restores from."""

    plan: Assignment
    attempt: int
    reply: hub_pb2.ResumeReply
    left: set[int]
    """Ranks that have not read everything yet."""
    fetched: set[str] = field(default_factory=set)
    """Shards that were not on this node before."""
    began: float = field(default_factory=time.monotonic)
    """When the pod first asked; monotonic seconds."""

    @property
    def chosen(self) -> Generation | None:
        """The generation; None for a fresh start."""
        if self.reply.outcome != hub_pb2.ResumeReply.FOUND:
            return None
        return Generation(self.reply.chosen.incarnation, self.reply.chosen.step)

    @property
    def shards(self) -> list[str]:
        """Names of its shards, in order."""
        return [chain.shard for chain in self.reply.chains]

    def links(self, shard: str) -> list[tuple[str, list[Place]]]:
        """Ids of a shard's manifests, base first, each with the places that had it."""
        places = [Place(one.node, one.peer_address) for one in self.reply.places]
        for chain in self.reply.chains:
            if chain.shard == shard:
                return [(link.id, [places[index] for index in link.places]) for link in chain.links]
        return []


class Restores:
    """Of one node."""

    def __init__(
        self,
        node: str,
        keeper: Keeper,
        surveys: Surveys,
        exchange: Exchange,
        remotes: Remotes,
        alarms: Alarms,
    ) -> None:
        self._node = node
        self._keeper = keeper
        self._surveys = surveys
        self._exchange = exchange
        self._remotes = remotes
        self._alarms = alarms
        self._telling: set[asyncio.Task[None]] = set()
        self._decisions: dict[tuple[str, int, int], asyncio.Task[hub_pb2.ResumeReply]] = {}
        self._fetching: Turns[tuple[str, str]] = Turns()

    # At the agent of slot 0.

    async def decide(
        self, job_uid: str, incarnation: int, attempt: int, broken: Broken, *, bases: bool = False
    ) -> hub_pb2.ResumeReply:
        """What the incarnation goes on from. All who ask for the same attempt hear the same.

        `bases`: full saves alone are of use to the ranks.
        """
        plan = self._surveys.plan(job_uid)
        if plan is None or plan.slot or plan.incarnation < incarnation:
            return hub_pb2.ResumeReply(outcome=hub_pb2.ResumeReply.UNKNOWN)
        if plan.incarnation > incarnation:
            return hub_pb2.ResumeReply(outcome=hub_pb2.ResumeReply.STALE)
        key = (job_uid, incarnation, attempt)
        if key not in self._decisions:
            while len(self._decisions) >= MAX_DECISIONS:
                del self._decisions[next(iter(self._decisions))]
            task = self._decisions[key] = asyncio.create_task(self._decide(plan, broken, bases))

            def ended(done: asyncio.Task[hub_pb2.ResumeReply]) -> None:
                # Whatever went wrong: whoever asks again shall find it tried again.
                failed = done.cancelled() or done.exception() is not None
                if failed and self._decisions.get(key) is done:
                    del self._decisions[key]

            task.add_done_callback(ended)
        try:
            return await asyncio.shield(self._decisions[key])
        except Failed as error:
            log.warning("not decided what to go on from", job=plan.job, why=str(error))
            unknown = hub_pb2.ResumeReply.UNKNOWN
            return hub_pb2.ResumeReply(outcome=unknown, message=str(error), store_away=error.store)

    async def _decide(self, plan: Assignment, broken: Broken, bases: bool) -> hub_pb2.ResumeReply:
        began = time.monotonic()
        members = {one.node: Place(one.node, one.peer_address) for one in plan.members}
        others = {
            one.node: one for one in (plan.memory.holders if plan.memory else ()) if one.node not in members
        }
        found = await self._members(plan, members)
        silent = await self._others(plan, others, found)
        stored, trouble = await self._store(plan, Branch(plan.incarnation, decided=False))
        while plan.incarnation > 1 and time.monotonic() - began < UNHEARD_SECONDS:
            held = _held(found, stored, bases)
            if not (silent or trouble) or not await asyncio.to_thread(
                restore.doubtful, held, plan.incarnation, broken
            ):
                break
            await asyncio.sleep(1.0)
            silent = await self._others(plan, silent, found)
            if trouble:
                stored, trouble = await self._store(plan, Branch(plan.incarnation, decided=False))
        held = _held(found, stored, bases)
        if (
            trouble
            and (plan.incarnation > 1 or bool(plan.resume_uid))
            and await asyncio.to_thread(restore.doubtful, held, plan.incarnation, broken)
        ):
            # The store may well have what is newer: no work is thrown away on a guess.
            raise trouble
        if any(one.seen > plan.incarnation for one in found.values()):
            return hub_pb2.ResumeReply(outcome=hub_pb2.ResumeReply.STALE)
        reply = await asyncio.to_thread(
            _reply, plan, found, held, {**members, **others}, broken, sorted(silent)
        )
        if trouble:
            reply.message = "; ".join(filter(None, (reply.message, str(trouble))))
        self._tell(plan, records.branch(reply.branch))
        log.info(
            "decided what to go on from",
            job=plan.job,
            incarnation=plan.incarnation,
            outcome=hub_pb2.ResumeReply.Outcome.Name(reply.outcome),
            message=reply.message,
            seconds=round(time.monotonic() - began, 3),
        )
        return reply

    async def _store(self, plan: Assignment, branch: Branch) -> tuple[Inventory | None, Failed | None]:
        """What the job's store holds, once it has heard that this incarnation looks; or why that is not
        known."""
        if not (plan.memory and plan.memory.store):
            return None, None
        answered = False
        try:
            found = await self._stored(plan, branch)
            answered = True
            if plan.resume_uid and not found.records:
                async with asyncio.timeout(ADOPT_SECONDS):
                    await self._remotes.adopt(plan)
                found = await self._stored(plan, branch)
            return found, None
        except (StoreError, Damaged, TimeoutError) as error:
            why = str(error) or f"the store does not answer within {STORE_SECONDS:.0f} s"
            log.warning("store not read", job=plan.job, why=why)
            # What a store that answers refuses for good, or has damaged, is no matter of waiting.
            refused = answered and isinstance(error, StoreError) and not error.retriable
            return None, Failed(why, store=not (refused or isinstance(error, Damaged)))

    async def _stored(self, plan: Assignment, branch: Branch) -> Inventory:
        async with asyncio.timeout(STORE_SECONDS):
            await self._remotes.branch(plan, branch)
            return await self._remotes.inventory(plan)

    def _tell(self, plan: Assignment, branch: Branch) -> None:
        """Has the store know where the incarnation began; a store that is away learns it with no commit."""
        if not (plan.memory and plan.memory.store):
            return

        async def tell() -> None:
            pause = Backoff(first=1.0, cap=30.0)
            while (now := self._surveys.plan(plan.job_uid)) and now.incarnation == plan.incarnation:
                try:
                    await self._remotes.branch(plan, branch)
                    return
                except StoreError as error:
                    log.warning("store not told where it began", job=plan.job, why=str(error))
                await asyncio.sleep(pause.next())

        task = asyncio.create_task(tell())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _members(self, plan: Assignment, places: Mapping[str, Place]) -> dict[str, Surveyed]:
        """What all of them hold. Failed when one does not answer in time."""
        deadline = time.monotonic() + DECIDE_SECONDS
        found: dict[str, Surveyed] = {}
        pause = Backoff(first=0.05, cap=1.0)
        while True:
            missing = [place for node, place in places.items() if node not in found]
            for place, one in zip(
                missing,
                await asyncio.gather(*(self._survey(plan, place, True) for place in missing)),
                strict=True,
            ):
                if one is not None and (one.ready or one.seen > plan.incarnation):
                    found[place.node] = one
            if len(found) == len(places):
                return found
            if time.monotonic() > deadline:
                raise Failed(f"no answer from {', '.join(sorted(set(places) - set(found)))}")
            await asyncio.sleep(pause.next())

    async def _others(
        self, plan: Assignment, places: Mapping[str, Place], found: dict[str, Surveyed]
    ) -> dict[str, Place]:
        """Adds what the nodes beside the members hold; those that do not answer."""
        answers = await asyncio.gather(*(self._survey(plan, place, False) for place in places.values()))
        silent = {}
        for place, one in zip(places.values(), answers, strict=True):
            if one is None:
                silent[place.node] = place
            else:
                found[place.node] = one
        return silent

    async def _survey(self, plan: Assignment, place: Place, member: bool) -> Surveyed | None:
        try:
            if place.node == self._node:
                return await self._surveys.answer(plan.job_uid, plan.incarnation, member)
            return await self._exchange.survey(place, self._now(plan), member)
        except (Unreachable, OSError, *Shortage) as error:
            log.info("no survey", job=plan.job, node=place.node, why=str(error))
            return None

    def _now(self, plan: Assignment) -> Assignment:
        """The same as it is now: the hub may have told it again, by another authority."""
        now = self._surveys.plan(plan.job_uid)
        return now if now is not None and now.incarnation == plan.incarnation else plan

    # At the agent of any slot.

    async def resume(self, plan: Assignment, attempt: int, broken: Broken, *, bases: bool = False) -> Reading:
        """What the pod's ranks are to go on from; from then on this node's memory goes on from there. Failed.

        Every rank of the pod asks, and hears the same.
        """
        reply = await self._ask(plan, attempt, broken, bases)
        if reply.outcome == hub_pb2.ResumeReply.STALE:
            raise Failed("a later incarnation of this job has begun")
        holding = self._keeper.open(plan.job_uid)
        branch = records.branch(reply.branch)
        known = [records.record(text) for text in reply.records]
        holding.pinned |= {link.id for chain in reply.chains for link in chain.links}
        if not await holding.begin(branch, marks_from_wire(reply.marks), known):
            raise Failed("a later incarnation of this job has begun here")
        return Reading(plan, attempt, reply, set(plan.ranks))

    async def _ask(self, plan: Assignment, attempt: int, broken: Broken, bases: bool) -> hub_pb2.ResumeReply:
        request = hub_pb2.ResumeRequest(
            job_uid=plan.job_uid,
            incarnation=plan.incarnation,
            slot=plan.slot,
            attempt=attempt,
            broken=[hub_pb2.Broken(node=node, id=key) for node, key in broken],
            bases=bases,
        )
        deadline = time.monotonic() + PATIENCE_SECONDS + (ADOPT_SECONDS if plan.resume_uid else 0.0)
        pause = Backoff(first=0.05, cap=1.0)
        first = plan.members[0]
        why, store = "", False
        while time.monotonic() < deadline:
            try:
                if first.node == self._node:
                    reply = await self.decide(plan.job_uid, plan.incarnation, attempt, broken, bases=bases)
                else:
                    place = Place(first.node, first.peer_address)
                    reply = await self._exchange.resume(place, request)
                if reply.outcome != hub_pb2.ResumeReply.UNKNOWN:
                    self._alarms.restorable(plan)
                    return reply
                why = reply.message or f"{first.node} does not coordinate {plan.job}"
                store = reply.store_away
                if store:
                    self._alarms.not_restored(plan, why)
            except Unreachable as error:
                why = str(error)
            now = self._surveys.plan(plan.job_uid)
            if now is not None and now.incarnation == plan.incarnation:
                first = now.members[0]  # its agent may answer elsewhere by now
            await asyncio.sleep(pause.next())
        raise Failed(why, store=store)

    async def fetch(self, reading: Reading, key: str, places: Sequence[Place]) -> list[tuple[str, str]]:
        """Has a shard here, every byte of it looked at. The (node, id) where it could not be read; nobody
        is left to ask when these are all.
        """
        plan = reading.plan
        holding = self._keeper.open(plan.job_uid)
        async with self._fetching.turn((plan.job_uid, key)):
            return await self._fetch(reading, holding, key, places)

    async def _fetch(
        self, reading: Reading, holding: Holding, key: str, places: Sequence[Place]
    ) -> list[tuple[str, str]]:
        plan = reading.plan
        holding.pinned.add(key)
        if await holding.verified(key) is not None:
            return []
        broken = [(self._node, key)] if any(place.node == self._node for place in places) else []
        order = restore.order([place.node for place in places], self._node, plan.slot)
        by_node = {place.node: place for place in places}
        for node in order:
            if node == self._node:
                continue
            if await self._gives(plan, holding, key, by_node[node]):
                reading.fetched.add(key)
                return broken
            broken.append((node, key))
        return broken

    async def _gives(self, plan: Assignment, holding: Holding, key: str, place: Place) -> bool:
        """Whether a place, asked again for a while, has given a shard. Failed when none can give it now."""
        deadline = time.monotonic() + FETCH_SECONDS
        pause = Backoff(first=0.2, cap=5.0)
        while True:
            try:
                if place.node == restore.REMOTE:
                    await self._remotes.fetch(plan, holding, key, plan.memory_limit)
                else:
                    await self._exchange.take(place, holding, self._now(plan), key)
                return True
            except Shortage as error:
                why = f"no memory for shard {key[:12]} of what is restored: {error}"
                raise Failed(why, memory=True) from error
            except Denied as error:
                # Nothing is wrong with the shard.
                if time.monotonic() > deadline:
                    raise Failed(str(error)) from error
            except (Unreachable, StoreError) as error:
                # An agent that is being replaced, or a store that stumbles, loses nobody a generation.
                log.warning("shard not read", job=plan.job, node=place.node or "the store", why=str(error))
                if time.monotonic() > deadline:
                    if place.node == restore.REMOTE:
                        await self._see_store(plan)
                    return False
            except (Damaged, Stopped) as error:
                log.warning("shard not read", job=plan.job, node=place.node or "the store", why=str(error))
                return False
            await asyncio.sleep(pause.next())

    async def _see_store(self, plan: Assignment) -> None:
        """Failed when the store answers nothing: then it says nothing of the one shard either."""
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await self._remotes.inventory(plan)
        except (StoreError, TimeoutError) as error:
            why = str(error) or f"the store does not answer within {STORE_SECONDS:.0f} s"
            self._alarms.not_restored(plan, why)
            raise Failed(why, store=True) from error


def _held(found: Mapping[str, Surveyed], stored: Inventory | None, bases: bool) -> dict[str, Inventory]:
    """`bases`: without the segments of journals."""
    held = {node: one.inventory for node, one in found.items()}
    if stored is not None:
        held[restore.REMOTE] = stored
    if not bases:
        return held
    return {
        place: replace(one, manifests={key: m for key, m in one.manifests.items() if m.extends is None})
        for place, one in held.items()
    }


def _reply(
    plan: Assignment,
    found: Mapping[str, Surveyed],
    held: Mapping[str, Inventory],
    places: Mapping[str, Place],
    broken: Broken,
    silent: Sequence[str],
) -> hub_pb2.ResumeReply:
    """The decision, as it is told to every slot. Pure."""
    known = merge(held.values())
    chosen = restore.plan(held, broken)
    notes = [f"{node} does not answer" for node in silent]
    start: Generation | None = None
    marks: dict[Tier, Generation] = {}
    reply = hub_pb2.ResumeReply(outcome=hub_pb2.ResumeReply.FRESH)
    if chosen is None and restore.unheard_of(held, plan.incarnation):
        reply.outcome = hub_pb2.ResumeReply.LOST
        notes.append("nobody who is left knows of any checkpoint")
    if isinstance(chosen, restore.Lost):
        reply.outcome = hub_pb2.ResumeReply.LOST
        notes += _passed(chosen.passed)
    elif chosen is not None:
        reply.outcome = hub_pb2.ResumeReply.FOUND
        notes += _passed(chosen.passed)
        start = chosen.record.generation
        marks = restore.standing(held, chosen.record, [one.marks for one in found.values()])
        if not (plan.memory and plan.memory.copies):
            marks[Tier.PEER] = start
        reply.chosen.CopyFrom(hub_pb2.Mark(**start._asdict()))
        names = sorted({node for links in chosen.shards.values() for link in links for node in link.places})
        number = {node: index for index, node in enumerate(names)}
        reply.places.extend(
            hub_pb2.Place(node=node, peer_address=places[node].peer_address if node else "") for node in names
        )
        for shard in sorted(chosen.shards, key=records.by_number):
            links = [
                hub_pb2.Link(id=link.manifest.id, places=[number[node] for node in link.places])
                for link in chosen.shards[shard]
            ]
            reply.chains.append(hub_pb2.Chain(shard=shard, links=links))
    reply.message = "; ".join(notes)[:2048]
    reply.branch = branch_of(plan.incarnation, start, known.branches.values()).text
    reply.marks.extend(marks_to_wire(marks))
    reply.records.extend(known.records[one].text for one in sorted(set(marks.values())))
    return reply


def _passed(passed: Iterable[restore.Passed]) -> list[str]:
    return [
        f"{one.generation.name} is not whole: nobody has shard {one.shard} of {one.missing.name}"
        for one in passed
    ]
