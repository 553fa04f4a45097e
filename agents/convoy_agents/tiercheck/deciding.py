"""Decides from which generation an incarnation starts. The agent of slot 0 surveys the agents of all nodes
that may hold shards of the job. It decides once for each attempt of the incarnation to restore.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from convoy_agents.backoff import Backoff
from convoy_agents.pods.assignment import Assignment, NodeAddress
from convoy_agents.tiercheck.digest import Damaged
from convoy_agents.tiercheck.peer_transfer import PeerTransfer, Surveyed, Unreachable, marks_to_wire
from convoy_agents.tiercheck.remote import Remotes
from convoy_agents.tiercheck.stores.errors import StoreError
from convoy_agents.tiercheck.surveying import Surveys
from convoy_agents.wire import hub_pb2
from convoy_controllers.checkpoint import records, restore
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.lineage import branch_of
from convoy_controllers.checkpoint.records import Branch, Inventory, merge

DECIDE_SECONDS = 60.0
"""Seconds to wait until the nodes of all slots have answered the survey. Each of these nodes has a running
pod of the job, so its agent is running or about to restart.
"""
SILENT_NODE_SECONDS = 30.0
"""Seconds to wait for nodes that run no slot of this incarnation and do not answer the survey. The agent
waits only if one of them may have a newer checkpoint than all nodes that answered. After this time it
decides without them.
"""
STORE_SECONDS = 15.0
"""Timeout in seconds for reading a store's inventory."""
ADOPT_SECONDS = 3600.0
"""Timeout in seconds for copying another job's checkpoint into this job's part of the store."""
MAX_DECISIONS = 64

Broken = tuple[tuple[str, str], ...]
"""Pairs (node, shard id) of shards that could not be read."""

log = structlog.get_logger()


class RestoreFailed(Exception):
    """Slot 0's agent could not decide which generation to restore, or a shard of that generation could not
    be fetched. The rank must be restarted.
    """

    def __init__(self, why: str, *, memory: bool = False, store: bool = False) -> None:
        super().__init__(why)
        self.memory = memory
        """True if the restore failed because the node has too little memory for a shard."""
        self.store = store
        """True if the restore failed because the store does not answer. Then neither this node nor the job
        is at fault.
        """


class Decisions:
    """The restore decisions that this node's agent makes for the jobs whose slot 0 is on this node."""

    def __init__(self, node: str, surveys: Surveys, peer_transfer: PeerTransfer, remotes: Remotes) -> None:
        self._node = node
        self._surveys = surveys
        self._peer_transfer = peer_transfer
        self._remotes = remotes
        self._branch_tasks: set[asyncio.Task[None]] = set()
        self._decisions: dict[tuple[str, int, int], asyncio.Task[hub_pb2.ResumeReply]] = {}

    async def decide(
        self, job_uid: str, incarnation: int, attempt: int, broken: Broken, *, bases: bool = False
    ) -> hub_pb2.ResumeReply:
        """Return a reply with the generation from which the incarnation starts. All callers in the
        incarnation with the same `attempt` get the same reply.

        `broken`: shards that ranks could not read in earlier attempts. `bases`: True to use full saves
        only, without journal segments.
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
                # Delete the decision if it failed, so that the next caller starts another.
                failed = done.cancelled() or done.exception() is not None
                if failed and self._decisions.get(key) is done:
                    del self._decisions[key]

            task.add_done_callback(ended)
        try:
            return await asyncio.shield(self._decisions[key])
        except RestoreFailed as error:
            log.warning("restore decision failed", job=plan.job, why=str(error))
            unknown = hub_pb2.ResumeReply.UNKNOWN
            return hub_pb2.ResumeReply(outcome=unknown, message=str(error), store_unreachable=error.store)

    async def _decide(self, plan: Assignment, broken: Broken, bases: bool) -> hub_pb2.ResumeReply:
        started = time.monotonic()
        members = {one.node: NodeAddress(one.node, one.peer_address) for one in plan.members}
        others = {
            one.node: one for one in (plan.memory.holders if plan.memory else ()) if one.node not in members
        }
        found = await self._survey_members(plan, members)
        silent = await self._survey_others(plan, others, found)
        stored, trouble = await self._survey_store(plan, Branch(plan.incarnation, decided=False))
        while plan.incarnation > 1 and time.monotonic() - started < SILENT_NODE_SECONDS:
            held = _inventories(found, stored, bases)
            if not (silent or trouble) or not await asyncio.to_thread(
                restore.may_be_outdated, held, plan.incarnation, broken
            ):
                break
            await asyncio.sleep(1.0)
            silent = await self._survey_others(plan, silent, found)
            if trouble:
                stored, trouble = await self._survey_store(plan, Branch(plan.incarnation, decided=False))
        held = _inventories(found, stored, bases)
        if (
            trouble
            and (plan.incarnation > 1 or bool(plan.resume_uid))
            and await asyncio.to_thread(restore.may_be_outdated, held, plan.incarnation, broken)
        ):
            # The store does not answer and may have a newer generation than the nodes. Fail, because starting
            # from an older generation would lose work.
            raise trouble
        if any(one.seen > plan.incarnation for one in found.values()):
            return hub_pb2.ResumeReply(outcome=hub_pb2.ResumeReply.STALE)
        reply = await asyncio.to_thread(
            _reply, plan, found, held, {**members, **others}, broken, sorted(silent)
        )
        if trouble:
            reply.message = "; ".join(filter(None, (reply.message, str(trouble))))
        self._start_put_branch(plan, records.parse_branch(reply.branch))
        log.info(
            "restore decision made",
            job=plan.job,
            incarnation=plan.incarnation,
            outcome=hub_pb2.ResumeReply.Outcome.Name(reply.outcome),
            message=reply.message,
            seconds=round(time.monotonic() - started, 3),
        )
        return reply

    async def _survey_store(
        self, plan: Assignment, branch: Branch
    ) -> tuple[Inventory | None, RestoreFailed | None]:
        """Record in the job's store that this incarnation has started. Return the store's inventory and
        None. If that fails, return None and the error.
        """
        if not (plan.memory and plan.memory.store):
            return None, None
        answered = False
        try:
            found = await self._read_store(plan, branch)
            answered = True
            if plan.resume_uid and not found.records:
                async with asyncio.timeout(ADOPT_SECONDS):
                    await self._remotes.adopt(plan)
                found = await self._read_store(plan, branch)
            return found, None
        except (StoreError, Damaged, TimeoutError) as error:
            why = str(error) or f"the store does not answer within {STORE_SECONDS:.0f} s"
            log.warning("store inventory not read", job=plan.job, why=why)
            # Set `store` only if waiting may help. A store that refuses permanently or has damaged data would
            # do the same later.
            refused = answered and isinstance(error, StoreError) and not error.retriable
            return None, RestoreFailed(why, store=not (refused or isinstance(error, Damaged)))

    async def _read_store(self, plan: Assignment, branch: Branch) -> Inventory:
        async with asyncio.timeout(STORE_SECONDS):
            await self._remotes.branch(plan, branch)
            return await self._remotes.inventory(plan)

    def _start_put_branch(self, plan: Assignment, branch: Branch) -> None:
        """Start a task that records in the job's store from which generation the incarnation starts.
        Nothing else writes this to the store, so the task retries until the incarnation ends.
        """
        if not (plan.memory and plan.memory.store):
            return

        async def put_branch() -> None:
            pause = Backoff(first=1.0, cap=30.0)
            while (now := self._surveys.plan(plan.job_uid)) and now.incarnation == plan.incarnation:
                try:
                    await self._remotes.branch(plan, branch)
                    return
                except StoreError as error:
                    log.warning(
                        "start of the incarnation not written to the store; retrying",
                        job=plan.job,
                        why=str(error),
                    )
                await asyncio.sleep(pause.next())

        task = asyncio.create_task(put_branch())
        self._branch_tasks.add(task)
        task.add_done_callback(self._branch_tasks.discard)

    async def _survey_members(
        self, plan: Assignment, places: Mapping[str, NodeAddress]
    ) -> dict[str, Surveyed]:
        """Return the survey of each node that runs a slot of the incarnation, by node. Raises RestoreFailed
        if one of these nodes does not answer within DECIDE_SECONDS.
        """
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
                raise RestoreFailed(
                    f"no answer from the agents of nodes {', '.join(sorted(set(places) - set(found)))}"
                )
            await asyncio.sleep(pause.next())

    async def _survey_others(
        self, plan: Assignment, places: Mapping[str, NodeAddress], found: dict[str, Surveyed]
    ) -> dict[str, NodeAddress]:
        """Survey nodes that run no slot of the incarnation, and add the results to `found`. Return the
        nodes that did not answer.
        """
        answers = await asyncio.gather(*(self._survey(plan, place, False) for place in places.values()))
        silent = {}
        for place, one in zip(places.values(), answers, strict=True):
            if one is None:
                silent[place.node] = place
            else:
                found[place.node] = one
        return silent

    async def _survey(self, plan: Assignment, place: NodeAddress, member: bool) -> Surveyed | None:
        try:
            if place.node == self._node:
                return await self._surveys.survey(plan.job_uid, plan.incarnation, member)
            return await self._peer_transfer.survey(place, self._surveys.current_plan(plan), member)
        except (Unreachable, OSError) as error:
            log.info("node not surveyed", job=plan.job, node=place.node, why=str(error))
            return None


def _inventories(
    found: Mapping[str, Surveyed], stored: Inventory | None, bases: bool
) -> dict[str, Inventory]:
    """Return the inventory of each node and of the store. `bases`: True to leave journal segments out."""
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
    places: Mapping[str, NodeAddress],
    broken: Broken,
    silent: Sequence[str],
) -> hub_pb2.ResumeReply:
    """Return the reply with the restore decision. Every slot of the incarnation gets this reply. Pure."""
    known = merge(held.values())
    chosen = restore.plan(held, broken)
    notes = [f"node {node} does not answer" for node in silent]
    start: Generation | None = None
    marks: dict[Tier, Generation] = {}
    reply = hub_pb2.ResumeReply(outcome=hub_pb2.ResumeReply.FRESH)
    if chosen is None and restore.unknown_incarnations(held, plan.incarnation):
        reply.outcome = hub_pb2.ResumeReply.LOST
        notes.append("no remaining node knows of any checkpoint")
    if isinstance(chosen, restore.Lost):
        reply.outcome = hub_pb2.ResumeReply.LOST
        notes += _passed(chosen.skipped)
    elif chosen is not None:
        reply.outcome = hub_pb2.ResumeReply.FOUND
        notes += _passed(chosen.skipped)
        start = chosen.record.generation
        marks = restore.initial_watermarks(held, chosen.record, [one.marks for one in found.values()])
        if not (plan.memory and plan.memory.copies):
            marks[Tier.PEER] = start
        reply.chosen.CopyFrom(hub_pb2.Watermark(**start._asdict()))
        names = sorted({node for links in chosen.shards.values() for link in links for node in link.places})
        number = {node: index for index, node in enumerate(names)}
        reply.holders.extend(
            hub_pb2.NodeAddress(node=node, peer_address=places[node].peer_address if node else "")
            for node in names
        )
        for shard in sorted(chosen.shards, key=records.by_number):
            links = [
                hub_pb2.Link(id=link.manifest.id, holders=[number[node] for node in link.places])
                for link in chosen.shards[shard]
            ]
            reply.chains.append(hub_pb2.Chain(shard=shard, links=links))
    reply.message = "; ".join(notes)[:2048]
    reply.branch = branch_of(plan.incarnation, start, known.branches.values()).text
    reply.marks.extend(marks_to_wire(marks))
    reply.records.extend(known.records[one].text for one in sorted(set(marks.values())))
    return reply


def _passed(passed: Iterable[restore.SkippedGeneration]) -> list[str]:
    return [
        f"{one.generation.name} is incomplete: no node has shard {one.shard} of {one.missing.name}"
        for one in passed
    ]
