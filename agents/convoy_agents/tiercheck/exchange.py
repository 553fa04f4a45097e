"""What this agent asks of other agents' memory: surveys, decisions, and shards either way."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from typing import NamedTuple, Protocol

import grpc
import structlog

from convoy_agents import metrics
from convoy_agents.channels import Closed, noticing_close
from convoy_agents.enrol import describe
from convoy_agents.pods.assignment import Assignment, Place
from convoy_agents.tiercheck.holding import Holding, Refused
from convoy_agents.tiercheck.link import Link, Links
from convoy_agents.tiercheck.memory import NoRoom
from convoy_agents.tiercheck.shares import OTHERS
from convoy_agents.tiercheck.stores.upload import Rate
from convoy_agents.tiercheck.vault import Damaged
from convoy_agents.wire import hub_pb2, hub_pb2_grpc
from convoy_controllers.checkpoint import records
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_controllers.checkpoint.records import Inventory, MalformedError
from convoy_controllers.checkpoint.retention import Watermarks

CALL_SECONDS = 15.0
HOLDER_SECONDS = 3.0
"""For a node beside the job to tell what it holds: it may be gone."""
PIECE_SECONDS = 30.0
"""For one chunk: a peer that moves nothing for so long is given up."""
ENCODINGS = (hub_pb2.Piece.PLANES,)
"""In which this agent understands chunks, besides as they are."""
RESUME_SECONDS = 90.0
"""For which slot 0's agent may hold the question what to go on from."""

log = structlog.get_logger()


class Unreachable(Exception):
    """A node's agent does not answer, or not as it should."""


class Denied(Unreachable):
    """It answers, and not to this slot: it knows of a later incarnation, or another authority."""


class Outdated(Exception):
    """A later incarnation has begun, or a later generation has its copies."""


class Later(Exception):
    """The other node does not take a copy now, and says why."""


class Stubs(Protocol):
    """Where other agents' services are dialled."""

    async def shards(self, place: Place) -> hub_pb2_grpc.ShardsStub:
        """The Shards service of a node's agent. TimeoutError without an identity."""
        ...


class Surveyed(NamedTuple):
    """What an agent holds of a job."""

    ready: bool
    """False: it has not heard of the incarnation that asks."""
    seen: int
    marks: Watermarks
    inventory: Inventory


class Exchange:
    """The client's side of the Shards service."""

    def __init__(self, stubs: Stubs, links: Links, rate: float = 0.0) -> None:
        """`rate`: most bytes per second that copies may take of the network; 0 for no bound."""
        self._stubs = stubs
        self._links = links
        self._rate = Rate(rate)

    async def survey(self, place: Place, plan: Assignment, member: bool) -> Surveyed:
        """All that a node's agent holds of a job, of which `plan` is slot 0's. Unreachable."""
        request = hub_pb2.SurveyRequest(
            job_uid=plan.job_uid, incarnation=plan.incarnation, member=member, warrant=plan.warrant
        )
        parts = []
        with _reaching(place):
            stub = await self._stubs.shards(place)
            async with asyncio.timeout(CALL_SECONDS if member else HOLDER_SECONDS):
                async for part in stub.Survey(request):
                    parts.append(part)
        try:
            # Megabytes, for large shards.
            return await asyncio.to_thread(_surveyed, parts)
        except (MalformedError, ValueError) as error:
            raise _unreachable(place, error) from error

    async def resume(self, place: Place, request: hub_pb2.ResumeRequest) -> hub_pb2.ResumeReply:
        """What slot 0's agent has decided. Unreachable."""
        with _reaching(place):
            stub = await self._stubs.shards(place)
            reply: hub_pb2.ResumeReply = await stub.Resume(request, timeout=RESUME_SECONDS)
        return reply

    async def give(self, place: Place, holding: Holding, plan: Assignment, key: str) -> None:
        """Sends a shard's copy, by whichever plan of this incarnation is known: the other node has all of it
        then.

        Later, Outdated, Unreachable; Damaged when it is not here any more as it was, and other faults of this
        node as they are.
        """
        manifest, withdrawn = await holding.look(lambda vault: (vault.manifests.get(key), vault.absent()))
        if manifest is None:
            # Damage is what does not match; this has made room for what is newer.
            raise Outdated(f"shard {key} is not here any more")
        with _reaching(place):
            stub = await self._stubs.shards(place)
            offer = await stub.Offer(
                hub_pb2.OfferRequest(
                    job_uid=holding.job_uid,
                    incarnation=plan.incarnation,
                    manifest=manifest.text,
                    withdrawn=withdrawn,
                    warrant=plan.warrant,
                ),
                timeout=CALL_SECONDS,
            )
            if offer.answer == hub_pb2.OfferReply.REFUSED:
                raise Outdated(f"{place.node}: {offer.reason}")
            if offer.answer != hub_pb2.OfferReply.WANTED:
                raise Later(f"{place.node}: {offer.reason}")
            if not offer.chunks:
                return
            # A whole shard may take long, but not longer than its chunks may.
            failed: list[Exception] = []
            pieces = self._pieces(holding, plan, key, offer, self._links.to(place.node), failed)
            try:
                with noticing_close():
                    reply = await stub.Give(pieces, timeout=PIECE_SECONDS * len(offer.chunks))
            except (grpc.aio.AioRpcError, Closed):
                # What went wrong here is why the other node has not got all.
                if not failed:
                    raise
            if failed:
                if await holding.look(lambda vault: key not in vault.manifests):
                    raise Outdated(f"shard {key} is not here any more")
                raise failed[0]
        if not reply.whole:
            raise Later(f"{place.node}: {reply.reason}")

    async def _pieces(
        self,
        holding: Holding,
        plan: Assignment,
        key: str,
        offer: hub_pb2.OfferReply,
        link: Link,
        failed: list[Exception],
    ) -> AsyncIterator[hub_pb2.Piece]:
        """What goes wrong here ends the stream and is left in `failed`: raised, it would look to the caller
        as if somebody had cancelled it."""
        packs = hub_pb2.Piece.PLANES in offer.encodings
        warrant = plan.warrant
        try:
            for index in offer.chunks:
                data = await holding.read(key, index)
                body = await link.packed(data) if packs else data
                began = time.monotonic()
                if (delay := self._rate.delay(len(body))) > 0:
                    await asyncio.sleep(delay)
                metrics.COPIED_BYTES.labels("sent").inc(len(data))
                yield hub_pb2.Piece(job_uid=holding.job_uid, id=key, index=index, data=body, warrant=warrant)
                warrant = ""
                # It is taken up again when there is room for the next.
                link.sent(len(data), len(body), time.monotonic() - began)
        except Exception as error:
            failed.append(error)

    async def take(self, place: Place, holding: Holding, plan: Assignment, key: str) -> None:
        """Fetches a shard from another node. Unreachable, Damaged, Refused, NoRoom."""
        with _reaching(place):
            stub = await self._stubs.shards(place)
            wanted = await self._expect(stub, place, holding, plan, key)
            if wanted:
                request = hub_pb2.TakeRequest(
                    job_uid=holding.job_uid,
                    id=key,
                    chunks=wanted,
                    encodings=ENCODINGS,
                    warrant=plan.warrant,
                )
                call = stub.Take(request, timeout=PIECE_SECONDS * len(wanted))
                async for piece in call:
                    length = await holding.put(key, piece.index, piece.data)
                    metrics.COPIED_BYTES.labels("taken").inc(length)
            await holding.use(lambda vault: vault.admit(key))

    async def _expect(
        self, stub: hub_pb2_grpc.ShardsStub, place: Place, holding: Holding, plan: Assignment, key: str
    ) -> Collection[int]:
        """Reads the manifest, and makes room for the shard."""
        request = hub_pb2.TakeRequest(job_uid=holding.job_uid, id=key, warrant=plan.warrant)
        text = b""
        async for piece in stub.Take(request, timeout=CALL_SECONDS):
            text = piece.manifest
        try:
            manifest = records.manifest(text)
        except MalformedError as error:
            raise Damaged(f"{place.node}: {error}") from error
        if manifest.id != key:
            raise Damaged(f"{place.node}: another shard than {key}")
        return await holding.expect(manifest, OTHERS, plan.memory_limit)


@contextlib.contextmanager
def _reaching(place: Place) -> Iterator[None]:
    """Unreachable for what ends a call that is made meanwhile."""
    try:
        with noticing_close():
            yield
    except (grpc.aio.AioRpcError, Closed, TimeoutError) as error:
        raise _unreachable(place, error) from error


def _unreachable(place: Place, error: Exception) -> Unreachable:
    denied = isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.PERMISSION_DENIED
    return (Denied if denied else Unreachable)(f"{place.node}: {describe(error)}")


def marks_to_wire(marks: Watermarks) -> list[hub_pb2.Mark]:
    """Watermarks as they are sent."""
    return [hub_pb2.Mark(tier=tier.value, **generation._asdict()) for tier, generation in marks.items()]


def marks_from_wire(marks: Iterable[hub_pb2.Mark]) -> dict[Tier, Generation]:
    """Watermarks as they were sent. ValueError for an unknown tier."""
    return {Tier(mark.tier): Generation(mark.incarnation, mark.step) for mark in marks}


def _surveyed(parts: list[hub_pb2.SurveyPart]) -> Surveyed:
    if not parts or parts[0].WhichOneof("body") != "state":
        raise ValueError("a survey that does not begin with its state")
    state, found = parts[0].state, Inventory({}, {}, {})
    held, begun, manifests = dict(found.records), dict(found.branches), dict(found.manifests)
    for part in parts[1:]:
        match part.WhichOneof("body"):
            case "record":
                record = records.record(part.record)
                held[record.generation] = record
            case "branch":
                branch = records.branch(part.branch)
                begun[branch.incarnation] = branch
            case "manifest":
                manifest = records.manifest(part.manifest)
                manifests[manifest.id] = manifest
    inventory = Inventory(held, begun, manifests)
    return Surveyed(state.ready, state.seen_incarnation, marks_from_wire(state.marks), inventory)


Shortage = (Refused, NoRoom)
"""There is no memory for it."""
