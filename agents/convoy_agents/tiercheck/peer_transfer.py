"""The client of other agents' Shards service: it surveys their memory, requests decisions, and sends and
fetches shards.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from typing import NamedTuple, Protocol

import grpc
import structlog

from convoy_agents import metrics
from convoy_agents.channels import ChannelClosed, detect_close
from convoy_agents.enrol import describe
from convoy_agents.pods.assignment import Assignment, NodeAddress
from convoy_agents.tiercheck import digest
from convoy_agents.tiercheck.chunk_pipeline import read_ahead, write_behind
from convoy_agents.tiercheck.digest import Damaged
from convoy_agents.tiercheck.job_memory import JobMemory
from convoy_agents.tiercheck.job_share import BudgetExceeded
from convoy_agents.tiercheck.link import Link, Links
from convoy_agents.tiercheck.memory import ShareExhausted
from convoy_agents.tiercheck.shares import OTHERS
from convoy_agents.tiercheck.stores.upload import Rate
from convoy_agents.wire import hub_pb2, hub_pb2_grpc
from convoy_agents.wire.shard_pieces import ShardPiece
from convoy_controllers.checkpoint import records
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Inventory, MalformedError, Manifest
from convoy_controllers.checkpoint.retention import Watermarks

CALL_SECONDS = 15.0
HOLDER_SECONDS = 3.0
"""Timeout in seconds for surveying a node that runs no slot of the incarnation. The timeout is short
because such a node may no longer exist.
"""
PIECE_SECONDS = 30.0
"""Timeout in seconds for each chunk. The timeout of a transfer is this times the number of chunks."""
ENCODINGS = (hub_pb2.Piece.PLANES,)
"""Encodings of chunks that this agent accepts. It also accepts plain chunks."""
RESUME_SECONDS = 90.0
"""Timeout in seconds for a Resume call to the agent of slot 0."""

log = structlog.get_logger()


class Unreachable(Exception):
    """The agent of another node does not answer, or its response is invalid."""


class Denied(Unreachable):
    """The agent of another node refuses this slot. Either it knows a later incarnation of the job, or it
    does not trust the certificate authority that signed the slot token.
    """


class Outdated(Exception):
    """The copy is no longer needed. The other node knows a later incarnation or has copies of a later
    generation, or the shard to send was replaced on this node.
    """


class Later(Exception):
    """The other node does not accept a copy now, but may accept it later. The error message contains that
    node's reason.
    """


class Stubs(Protocol):
    """Provides gRPC stubs for the services of other agents."""

    async def shards(self, place: NodeAddress) -> hub_pb2_grpc.ShardsStub:
        """Return a stub for the Shards service of a node's agent. Raises TimeoutError if this agent gets no
        certificate in time.
        """
        ...


class Surveyed(NamedTuple):
    """The result of a survey: what an agent holds of a job."""

    ready: bool
    """False if the agent refuses the survey: it does not know the incarnation yet, or it knows a later one.
    """
    seen: int
    marks: Watermarks
    inventory: Inventory


class PeerTransfer:
    """The client of the Shards service of other agents."""

    def __init__(self, stubs: Stubs, links: Links, rate: float = 0.0) -> None:
        """`rate`: rate limit for sent copies in bytes per second; 0 for no limit."""
        self._stubs = stubs
        self._links = links
        self._rate = Rate(rate)

    async def survey(self, place: NodeAddress, plan: Assignment, member: bool) -> Surveyed:
        """Return what another node holds of a job. Raises Unreachable if that node's agent does not answer or
        its answer is invalid. `plan`: the assignment of slot 0.
        """
        request = hub_pb2.SurveyRequest(
            job_uid=plan.job_uid, incarnation=plan.incarnation, member=member, slot_token=plan.slot_token
        )
        parts = []
        with _raising_unreachable(place):
            stub = await self._stubs.shards(place)
            async with asyncio.timeout(CALL_SECONDS if member else HOLDER_SECONDS):
                async for part in stub.Survey(request):
                    parts.append(part)
        try:
            # The survey of large shards has megabytes, so parse it in a thread.
            return await asyncio.to_thread(_surveyed, parts)
        except (MalformedError, ValueError) as error:
            raise _unreachable(place, error) from error

    async def resume(self, place: NodeAddress, request: hub_pb2.ResumeRequest) -> hub_pb2.ResumeReply:
        """Request the restore decision from the agent of slot 0. Raises Unreachable if that agent does not
        answer or its answer is invalid.
        """
        with _raising_unreachable(place):
            stub = await self._stubs.shards(place)
            reply: hub_pb2.ResumeReply = await stub.Resume(request, timeout=RESUME_SECONDS)
        return reply

    async def send(self, place: NodeAddress, job_memory: JobMemory, plan: Assignment, key: str) -> None:
        """Send a copy of a shard to another node. `plan`: any assignment of this incarnation.

        Raises Later, Outdated or Unreachable if the other node does not get the copy. Raises Damaged if the
        shard is damaged here. Any other error of this node is raised unchanged.
        """
        manifest, withdrawn = await job_memory.inspect(
            lambda store: (store.manifest(key), store.dropped_withdrawn())
        )
        if manifest is None:
            # Shards are dropped only after newer ones replaced them. So a shard that is missing here is
            # outdated and not damaged.
            raise Outdated(f"shard {key} was replaced by a newer one")
        with _raising_unreachable(place):
            stub = await self._stubs.shards(place)
            offer = await stub.Offer(
                hub_pb2.OfferRequest(
                    job_uid=job_memory.job_uid,
                    incarnation=plan.incarnation,
                    manifest=manifest.text,
                    withdrawn=withdrawn,
                    slot_token=plan.slot_token,
                ),
                timeout=CALL_SECONDS,
            )
            if offer.decision == hub_pb2.OfferReply.REFUSED:
                raise Outdated(f"{place.node}: {offer.reason}")
            if offer.decision != hub_pb2.OfferReply.WANTED:
                raise Later(f"{place.node}: {offer.reason}")
            if not offer.chunks:
                return
            # The timeout of the call is the sum of the timeouts of all chunks.
            failed: list[Exception] = []
            pieces = self._pieces(job_memory, plan, key, offer, self._links.to(place.node), failed)
            try:
                with detect_close():
                    reply = await stub.Put(pieces, timeout=PIECE_SECONDS * len(offer.chunks))
            except (grpc.aio.AioRpcError, ChannelClosed):
                # If `failed` is not empty, an error of this node ended the stream. That error is raised
                # below.
                if not failed:
                    raise
            if failed:
                if await job_memory.inspect(lambda store: not store.holds(key)):
                    raise Outdated(f"shard {key} was replaced by a newer one")
                raise failed[0]
        if not reply.whole:
            raise Later(f"{place.node}: {reply.reason}")

    async def _pieces(
        self,
        job_memory: JobMemory,
        plan: Assignment,
        key: str,
        offer: hub_pb2.OfferReply,
        link: Link,
        failed: list[Exception],
    ) -> AsyncIterator[ShardPiece]:
        """Yield the chunks that the other node wants. An error is appended to `failed` and ends the stream.

        gRPC would report a raised error to the caller as a cancellation.
        """
        packs = hub_pb2.Piece.PLANES in offer.encodings
        slot_token = plan.slot_token

        async def read(index: int) -> tuple[int, int, digest.Buffer]:
            data = await job_memory.read(key, index)
            return index, len(data), await link.pack_async(data) if packs else data

        try:
            async with contextlib.aclosing(read_ahead(offer.chunks, read)) as chunks:
                async for index, length, body in chunks:
                    started = time.monotonic()
                    if (delay := self._rate.delay(len(body))) > 0:
                        await asyncio.sleep(delay)
                    metrics.COPIED_BYTES.labels("sent").inc(length)
                    yield ShardPiece(index, body, job_memory.job_uid, key, slot_token)
                    slot_token = ""
                    # The generator continues after the `yield` when the stream has space for the next chunk.
                    # So the measured time includes the sending.
                    link.record_sent(length, len(body), time.monotonic() - started)
        except Exception as error:
            failed.append(error)

    async def list_states(self, place: NodeAddress, plan: Assignment) -> list[tuple[str, Manifest]]:
        """Return the states of replicas on another node that the replica of `plan` may read, with their uids.
        Raises Unreachable if that node's agent does not answer or its answer is invalid.
        """
        request = hub_pb2.ListStatesRequest(uid=plan.job_uid, slot_token=plan.slot_token)
        with _raising_unreachable(place):
            stub = await self._stubs.shards(place)
            async with asyncio.timeout(HOLDER_SECONDS):
                parts = [part async for part in stub.ListStates(request)]
        try:
            return [(part.uid, records.parse_manifest(part.manifest)) for part in parts]
        except MalformedError as error:
            raise _unreachable(place, error) from error

    async def fetch(
        self, place: NodeAddress, job_memory: JobMemory, plan: Assignment, key: str, of: str = ""
    ) -> None:
        """Fetch a shard from another node into `job_memory`. `of`: the uid of the memory that has the shard
        there; empty for the same uid. Raises Unreachable, Damaged, BudgetExceeded or ShareExhausted.
        """
        uid = of or job_memory.job_uid
        with _raising_unreachable(place):
            stub = await self._stubs.shards(place)
            manifest = await self._manifest(stub, place, plan, uid, key)
            wanted = await job_memory.expect(manifest, OTHERS, plan.memory_limit)
            if wanted:
                request = hub_pb2.FetchRequest(
                    job_uid=uid,
                    id=key,
                    chunks=wanted,
                    encodings=ENCODINGS,
                    slot_token=plan.slot_token,
                )
                call = stub.Fetch(request, timeout=PIECE_SECONDS * len(wanted))
                async with write_behind() as writes:
                    async for piece in call:
                        await writes.start(partial(_put, job_memory, key, piece))
            await job_memory.use(lambda store: store.admit(key))

    async def _manifest(
        self, stub: hub_pb2_grpc.ShardsStub, place: NodeAddress, plan: Assignment, uid: str, key: str
    ) -> Manifest:
        """Fetch a shard's manifest. Raises Damaged if it is not the manifest of this shard."""
        request = hub_pb2.FetchRequest(job_uid=uid, id=key, slot_token=plan.slot_token)
        text = b""
        async for piece in stub.Fetch(request, timeout=CALL_SECONDS):
            text = piece.manifest
        try:
            manifest = records.parse_manifest(text)
        except MalformedError as error:
            raise Damaged(f"{place.node}: {error}") from error
        if manifest.id != key:
            raise Damaged(f"{place.node}: sent another shard than {key}")
        return manifest


async def _put(job_memory: JobMemory, key: str, piece: ShardPiece) -> None:
    length = await job_memory.put(key, piece.index, piece.data)
    metrics.COPIED_BYTES.labels("taken").inc(length)


@contextlib.contextmanager
def _raising_unreachable(place: NodeAddress) -> Iterator[None]:
    """Convert the errors with which a call can fail into Unreachable."""
    try:
        with detect_close():
            yield
    except (grpc.aio.AioRpcError, ChannelClosed, TimeoutError) as error:
        raise _unreachable(place, error) from error


def _unreachable(place: NodeAddress, error: Exception) -> Unreachable:
    denied = isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.PERMISSION_DENIED
    return (Denied if denied else Unreachable)(f"{place.node}: {describe(error)}")


def marks_to_wire(marks: Watermarks) -> list[hub_pb2.Watermark]:
    """Convert watermarks into protobuf messages."""
    return [hub_pb2.Watermark(tier=tier.value, **generation._asdict()) for tier, generation in marks.items()]


def marks_from_wire(marks: Iterable[hub_pb2.Watermark]) -> dict[Tier, Generation]:
    """Convert protobuf messages into watermarks. Raises ValueError for an unknown tier."""
    return {Tier(mark.tier): Generation(mark.incarnation, mark.step) for mark in marks}


def _surveyed(parts: list[hub_pb2.SurveyPart]) -> Surveyed:
    if not parts or parts[0].WhichOneof("body") != "state":
        raise ValueError("the survey does not start with its state")
    state, found = parts[0].state, Inventory({}, {}, {})
    held, begun, manifests = dict(found.records), dict(found.branches), dict(found.manifests)
    for part in parts[1:]:
        match part.WhichOneof("body"):
            case "record":
                record = records.parse_record(part.record)
                held[record.generation] = record
            case "branch":
                branch = records.parse_branch(part.branch)
                begun[branch.incarnation] = branch
            case "manifest":
                manifest = records.parse_manifest(part.manifest)
                manifests[manifest.id] = manifest
    inventory = Inventory(held, begun, manifests)
    return Surveyed(state.ready, state.seen_incarnation, marks_from_wire(state.marks), inventory)


Shortage = (BudgetExceeded, ShareExhausted)
"""The errors that mean that memory is missing."""
