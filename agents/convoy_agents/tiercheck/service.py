"""The Shards service, through which other agents survey this node's memory, send copies and fetch shards.

A caller needs an agent's certificate. It also needs a slot token, which proves that its node has a slot of
the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
import structlog

from convoy_agents.pods.assignment import Assignment
from convoy_agents.states.hosting import HostedStates
from convoy_agents.tiercheck import digest
from convoy_agents.tiercheck.chunk_pipeline import read_ahead, write_behind
from convoy_agents.tiercheck.concurrency_limits import ConcurrencyLimits
from convoy_agents.tiercheck.deciding import Decisions
from convoy_agents.tiercheck.digest import Damaged
from convoy_agents.tiercheck.link import Links
from convoy_agents.tiercheck.memory_manager import MemoryManager
from convoy_agents.tiercheck.peer_transfer import ENCODINGS, PIECE_SECONDS, Shortage, Surveyed, marks_to_wire
from convoy_agents.tiercheck.shard_store import MAX_WITHDRAWN, ShardStore
from convoy_agents.tiercheck.shares import OTHERS
from convoy_agents.tiercheck.slot_token_check import SlotTokenCheck
from convoy_agents.tiercheck.surveying import Surveys
from convoy_agents.wire import hub_pb2
from convoy_agents.wire.callers import agent_of
from convoy_agents.wire.shard_pieces import ShardPiece
from convoy_controllers.checkpoint import records, replica_state
from convoy_controllers.checkpoint.generation import Tier
from convoy_controllers.checkpoint.records import MalformedError, Manifest

MAX_PUTS = 16
"""Maximum number of shards that are received at the same time. Each needs the memory of some chunks: those
that are being written (WRITE_BEHIND) and the one that arrives.
"""
MAX_FETCHES = 16
"""Maximum number of shards that are sent at the same time. Further calls wait. Each needs the memory of some
chunks: those that are read ahead (READ_AHEAD) and the one that is being sent.
"""
MAX_PER_NODE = 8
"""Maximum number of shards that are received from one node at the same time, and likewise sent to one node.
"""

Context = grpc.aio.ServicerContext[Any, Any]

log = structlog.get_logger()


class ShardService:
    """The Shards service of one node. Its methods have the names of hub.proto."""

    def __init__(
        self,
        memory_manager: MemoryManager,
        surveys: Surveys,
        decisions: Decisions,
        links: Links,
        slot_tokens: SlotTokenCheck,
        hosted: HostedStates,
    ) -> None:
        self._memory_manager = memory_manager
        self._hosted = hosted
        self._links = links
        self._slot_tokens = slot_tokens
        self._surveys = surveys
        self._decisions = decisions
        self._puts = ConcurrencyLimits(MAX_PUTS, MAX_PER_NODE)
        self._fetches = ConcurrencyLimits(MAX_FETCHES, MAX_PER_NODE)

    async def Survey(
        self, request: hub_pb2.SurveyRequest, context: Context
    ) -> AsyncIterator[hub_pb2.SurveyPart]:
        """Yield everything that this node holds of a job."""
        token = await self._slot_tokens.require(request.slot_token, request.job_uid, context)
        if (token.slot, token.incarnation) != (0, request.incarnation):
            # After a survey, this node refuses commits of all earlier incarnations. So only slot 0 may
            # survey.
            text = f"the slot token is not of slot 0 in incarnation {request.incarnation}"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)
        try:
            found = await self._surveys.survey(request.job_uid, request.incarnation, request.member)
        except (OSError, ValueError) as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        for part in _parts(found):
            yield part

    async def Resume(self, request: hub_pb2.ResumeRequest, context: Context) -> hub_pb2.ResumeReply:
        """Return the restore decision if slot 0 of the job is on this node."""
        node = await agent_of(context)
        plan = self._surveys.plan(request.job_uid)
        if plan and _from_wrong_node(plan, request, node):
            # All slots skip the shards that one caller reports as unreadable. So the report must come from
            # the node on which the reporting slot runs.
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED,
                f"slot {request.slot} of {plan.job} does not run on node {node}",
            )
        broken = tuple((one.node, one.id) for one in request.broken)
        return await self._decisions.decide(
            request.job_uid, request.incarnation, request.attempt, broken, bases=request.bases
        )

    async def Offer(self, request: hub_pb2.OfferRequest, context: Context) -> hub_pb2.OfferReply:
        """Decide whether this node accepts a copy, and which of its chunks it needs. First drop the copies
        that the caller has withdrawn.
        """
        token = await self._slot_tokens.require(request.slot_token, request.job_uid, context)
        if token.incarnation != request.incarnation:
            text = f"the slot token is not of incarnation {request.incarnation}"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)
        if len(request.withdrawn) > MAX_WITHDRAWN:
            text = f"withdrawn: {len(request.withdrawn)} shards, at most {MAX_WITHDRAWN} are allowed"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        try:
            manifest = records.parse_manifest(request.manifest)
        except MalformedError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if replica_state.parse(request.job_uid) is not None:
            reply = await self._hosted.offer(request, token, manifest)
            reply.encodings.extend(ENCODINGS)
            return reply
        job_memory = self._memory_manager.get(request.job_uid)
        plan = self._surveys.plan(request.job_uid)
        if job_memory is None or plan is None:
            return hub_pb2.OfferReply(
                decision=hub_pb2.OfferReply.LATER, reason="the job has not started on this node"
            )
        if request.incarnation < max(job_memory.seen, plan.incarnation):
            return _refused("a later incarnation has started")
        try:
            verdict = await job_memory.inspect(
                lambda store: _refusal_of(store, request.incarnation, manifest)
            )
            if verdict is not None:
                return verdict
            job_memory.by_default = plan.memory is not None and plan.memory.by_default
            await job_memory.drop_withdrawn(token.node, request.withdrawn, request.incarnation)
            wanted = await job_memory.expect(manifest, OTHERS, plan.memory_limit, copy_of=token.node)
        except Shortage as error:
            return hub_pb2.OfferReply(decision=hub_pb2.OfferReply.LATER, reason=str(error))
        if not wanted:
            await job_memory.use(lambda store: store.admit(manifest.id))
        return hub_pb2.OfferReply(decision=hub_pb2.OfferReply.WANTED, chunks=wanted, encodings=ENCODINGS)

    async def Put(self, requests: AsyncIterator[ShardPiece], context: Context) -> hub_pb2.PutReply:
        """Receive the chunks of an offered shard. Keep the shard once all chunks have arrived."""
        try:
            first = await _piece(requests)
        except TimeoutError:
            first = None
        if first is None:
            return hub_pb2.PutReply(whole=False, reason="no chunk came")
        token = await self._slot_tokens.require(first.slot_token, first.job_uid, context)
        job_memory = self._memory_manager.get(first.job_uid)
        if job_memory is None:
            return hub_pb2.PutReply(whole=False, reason="the job has no memory on this node")
        if token.incarnation < job_memory.seen:
            return hub_pb2.PutReply(whole=False, reason="a later incarnation has started")
        if self._puts.full(token.node):
            return hub_pb2.PutReply(whole=False, reason="too many copies are being received")
        async with self._puts.acquire(token.node):
            piece: ShardPiece | None = first
            try:
                async with write_behind() as writes:
                    while piece is not None:
                        await agent_of(context)
                        await writes.start(partial(job_memory.put, first.id, piece.index, piece.data))
                        piece = await _piece(requests)
                if replica_state.parse(first.job_uid) is not None:
                    await self._hosted.admit(job_memory, first.id)
                else:
                    await job_memory.use(lambda store: store.admit(first.id))
            except (Damaged, OSError) as error:
                return hub_pb2.PutReply(whole=False, reason=str(error) or "no chunk came in time")
        return hub_pb2.PutReply(whole=True)

    async def Fetch(self, request: hub_pb2.FetchRequest, context: Context) -> None:
        """Send a shard's manifest, or the requested chunks of the shard."""
        token = await self._slot_tokens.require(request.slot_token, request.job_uid, context, reads=True)
        job_memory = self._memory_manager.get(request.job_uid)
        own = token.job_uid == request.job_uid
        if job_memory is not None and own and token.incarnation < job_memory.seen:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "a later incarnation has started")
        manifest = await job_memory.inspect(lambda store: store.manifest(request.id)) if job_memory else None
        if job_memory is None or manifest is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"shard {request.id} is not on this node")
        if not request.chunks:
            await context.write(ShardPiece(manifest=manifest.text))
            return
        link = self._links.to(token.node)
        packs = hub_pb2.Piece.PLANES in request.encodings

        async def read(index: int) -> tuple[int, int, digest.Buffer]:
            try:
                data = await job_memory.read(request.id, index)
            except OSError as error:
                raise Damaged(str(error)) from error
            return index, len(data), await link.pack_async(data) if packs else data

        async with (
            self._fetches.acquire(token.node),
            contextlib.aclosing(read_ahead(request.chunks, read)) as chunks,
        ):
            try:
                async for index, length, body in chunks:
                    await agent_of(context)
                    started = time.monotonic()
                    # The write returns when the stream has space for the next chunk, so the measured time
                    # includes the sending.
                    async with asyncio.timeout(PIECE_SECONDS):
                        await context.write(ShardPiece(index, body))
                    link.record_sent(length, len(body), time.monotonic() - started)
            except Damaged as error:
                await context.abort(grpc.StatusCode.DATA_LOSS, str(error))

    async def ListStates(
        self, request: hub_pb2.ListStatesRequest, context: Context
    ) -> AsyncIterator[hub_pb2.StatePart]:
        """Yield the states of replicas on this node that the caller may read."""
        await self._slot_tokens.require(request.slot_token, request.uid, context)
        for uid, manifest in await self._hosted.manifests(request.uid):
            yield hub_pb2.StatePart(uid=uid, manifest=manifest.text)


def _refusal_of(store: ShardStore, incarnation: int, manifest: Manifest) -> hub_pb2.OfferReply | None:
    """Return the reply that refuses a copy, either permanently or only for now. Return None if the copy is
    accepted.
    """
    if store.incarnation != incarnation:
        return hub_pb2.OfferReply(
            decision=hub_pb2.OfferReply.LATER, reason="the incarnation has not started on this node"
        )
    floor = store.marks.get(Tier.PEER)
    wanted = store.holds(manifest.id) or store.is_extended(manifest.id)
    if floor is not None and manifest.generation < floor and not wanted:
        return _refused(f"{floor.name} has its copies here already")
    return None


def _refused(reason: str) -> hub_pb2.OfferReply:
    return hub_pb2.OfferReply(decision=hub_pb2.OfferReply.REFUSED, reason=reason)


async def _piece(requests: AsyncIterator[ShardPiece]) -> ShardPiece | None:
    async with asyncio.timeout(PIECE_SECONDS):
        return await anext(requests, None)


def _from_wrong_node(plan: Assignment, request: hub_pb2.ResumeRequest, node: str) -> bool:
    """Return True if slot 0 is on this node and the slot in the request does not run on the caller's node.
    Return False if slot 0 is on another node: its agent decides, and only it knows the nodes of all
    slots.
    """
    decides = plan.slot == 0 and plan.incarnation == request.incarnation
    return decides and not any((one.slot, one.node) == (request.slot, node) for one in plan.members)


def _parts(found: Surveyed) -> list[hub_pb2.SurveyPart]:
    state = hub_pb2.SurveyState(
        ready=found.ready, seen_incarnation=found.seen, marks=marks_to_wire(found.marks)
    )
    held = found.inventory
    return [
        hub_pb2.SurveyPart(state=state),
        *(hub_pb2.SurveyPart(record=one.text) for one in held.records.values()),
        *(hub_pb2.SurveyPart(branch=one.text) for one in held.branches.values()),
        *(hub_pb2.SurveyPart(manifest=one.text) for one in held.manifests.values()),
    ]
