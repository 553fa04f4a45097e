"""The Peer service for calls from other agents, the server of all peer services, and the client for other
agents.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, NamedTuple

import grpc
import structlog

from convoy_agents import metrics
from convoy_agents.channels import SERVER_OPTIONS, Identity, dial
from convoy_agents.commit_coordinator import CommitCoordinator, CommitOutcome, PrepareVote
from convoy_agents.enrol import Enrolment, describe
from convoy_agents.guard.sweep.pair_responder import PairService
from convoy_agents.peer_attestation import PeerAttestation
from convoy_agents.pods.assignment import Member, NodeAddress
from convoy_agents.tiercheck.service import ShardService
from convoy_agents.tiercheck.shard_record import ShardMetadata
from convoy_agents.tiercheck.slot_token_check import SlotTokenCheck
from convoy_agents.wire import hub_pb2, hub_pb2_grpc, shard_pieces
from convoy_agents.wire.call_limits import CallLimits
from convoy_agents.wire.callers import agent_of
from convoy_agents.wire.certificate_provider import CertificateProvider
from convoy_controllers.checkpoint import records
from convoy_controllers.checkpoint.commit import DEADLINE_SECONDS, Verdict
from convoy_controllers.checkpoint.generation import Generation, Tier
from convoy_crds import terms

MAX_CHANNELS = 128
"""Maximum number of open channels to other agents. At the limit, the least recently used channel is closed.
"""
MAX_CALLS = 8192
"""Maximum number of concurrent calls from other agents. It suffices for a few generations of a job with
1,000 slots, and for attestations.
"""
MAX_CALLS_PER_NODE = MAX_CALLS // 8
"""Maximum number of concurrent calls from one node. It suffices for some hundred slots on that node, each
with a few generations at each tier.
"""
REQUEST_SECONDS = 15.0
"""Maximum seconds from the start of a call until its request has arrived. Keepalive detects a broken link
in the same time.
"""

TO_WIRE = {
    Verdict.COMMITTED: hub_pb2.CommitReply.COMMITTED,
    Verdict.STALE: hub_pb2.CommitReply.STALE,
    Verdict.EXPIRED: hub_pb2.CommitReply.UNKNOWN,
}
FROM_WIRE = {number: verdict for verdict, number in TO_WIRE.items()}

log = structlog.get_logger()


class PeerService:
    """Serves Attest, and also Prepare and Abandon for jobs whose slot 0 is on this node. A caller may act
    only for its own node.
    """

    def __init__(
        self, coordinator: CommitCoordinator, attestation: PeerAttestation, slot_tokens: SlotTokenCheck
    ) -> None:
        self._coordinator = coordinator
        self._attestation = attestation
        self._slot_tokens = slot_tokens

    async def Attest(
        self,
        request: hub_pb2.AttestRequest,
        context: grpc.aio.ServicerContext[hub_pb2.AttestRequest, hub_pb2.AttestReply],
    ) -> hub_pb2.AttestReply:
        """Reply whether this agent attests the caller's node for the job. If it does, the next heartbeat
        reports the attestation to the hub.
        """
        node = await agent_of(context)
        return hub_pb2.AttestReply(member=self._attestation.request(node, request.job_uid))

    async def Prepare(
        self,
        request: hub_pb2.PrepareRequest,
        context: grpc.aio.ServicerContext[hub_pb2.PrepareRequest, hub_pb2.CommitReply],
    ) -> hub_pb2.CommitReply:
        """Wait for the decision on a generation, and reply with it. Abort with PERMISSION_DENIED if the
        slot is not on the caller's node.

        The call may name a later incarnation than this agent knows. Then it must contain the slot's token
        for that incarnation. Otherwise abort with PERMISSION_DENIED.
        """
        if (refused := await self._refused(request, context)) is not None:
            return refused
        try:
            tier = Tier(request.tier)
        except ValueError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"tier: {request.tier!r} is unknown")
        generation = Generation(request.incarnation, request.step)
        outcome = await self._coordinator.prepare(
            request.job_uid, request.slot, tier, generation, _vote(request)
        )
        return hub_pb2.CommitReply(
            verdict=TO_WIRE[outcome.verdict],
            seen_incarnation=outcome.seen,
            record=outcome.record.text if outcome.record else b"",
        )

    async def Abandon(
        self,
        request: hub_pb2.AbandonRequest,
        context: grpc.aio.ServicerContext[hub_pb2.AbandonRequest, hub_pb2.CommitReply],
    ) -> hub_pb2.CommitReply:
        """Record that a slot abandoned a generation, and reply without waiting. Abort with
        PERMISSION_DENIED if the slot is not on the caller's node.
        """
        if (refused := await self._refused(request, context)) is not None:
            return refused
        outcome = self._coordinator.abandon(request.job_uid, Generation(request.incarnation, request.step))
        return hub_pb2.CommitReply(verdict=TO_WIRE[outcome.verdict], seen_incarnation=outcome.seen)

    async def _refused(
        self,
        request: hub_pb2.PrepareRequest | hub_pb2.AbandonRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> hub_pb2.CommitReply | None:
        """Return the reply to a call that the coordinator must not handle, else None. Abort a call that the
        caller may not make.
        """
        node = await agent_of(context)
        plan = self._coordinator.assignment(request.job_uid)
        if plan is None:
            return hub_pb2.CommitReply(verdict=hub_pb2.CommitReply.UNKNOWN)
        if request.incarnation < plan.incarnation:
            return hub_pb2.CommitReply(
                verdict=hub_pb2.CommitReply.STALE, seen_incarnation=self._coordinator.seen(request.job_uid)
            )
        if request.incarnation > plan.incarnation:
            if isinstance(request, hub_pb2.AbandonRequest):
                return hub_pb2.CommitReply(verdict=hub_pb2.CommitReply.UNKNOWN)
            # A later incarnation ends the current incarnation, so the caller must prove with a slot token
            # that the later one exists.
            shown = await self._slot_tokens.require(request.slot_token, request.job_uid, context)
            if (shown.incarnation, shown.slot) != (request.incarnation, request.slot):
                text = f"the slot token is not for slot {request.slot} of incarnation {request.incarnation}"
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)
            return None
        if node not in {member.node for member in plan.members[request.slot : request.slot + 1]}:
            log.warning("peer refused", node=node, slot=request.slot, job=plan.job)
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED,
                f"slot {request.slot} of {plan.job} does not run on node {node}",
            )
        return None


def _vote(request: hub_pb2.PrepareRequest) -> PrepareVote | None:
    if not request.shards:
        return None
    shards = {one.shard: one.id for one in request.shards}
    return PrepareVote(shards, ShardMetadata(request.world_size, request.torch, request.plan, request.last))


class PeerServices(NamedTuple):
    """The services for calls from agents of other nodes."""

    peer: PeerService
    shards: ShardService
    pairs: PairService


class PeerServer:
    """Serves the peer services over mutual TLS. After a renewal, new connections use the renewed
    certificate.
    """

    def __init__(self, services: PeerServices, enrolment: Enrolment, port: int) -> None:
        self._services = services
        self._enrolment = enrolment
        self._port = port
        self._server: grpc.aio.Server | None = None

    async def start(self) -> int:
        """Wait for an identity, then listen. Return the port. Raises OSError if the port is in use."""
        first = await self._enrolment.ready()
        certificates = CertificateProvider(lambda: self._enrolment.current or first, _configuration)
        limits = CallLimits(
            agent_of, MAX_CALLS_PER_NODE, MAX_CALLS, metrics.PEER_REFUSED.inc, REQUEST_SECONDS
        )
        self._server = grpc.aio.server(
            options=SERVER_OPTIONS, interceptors=[limits], maximum_concurrent_rpcs=MAX_CALLS
        )
        hub_pb2_grpc.add_PeerServicer_to_server(self._services.peer, self._server)
        shard_pieces.serve(self._services.shards, self._server)
        hub_pb2_grpc.add_PairsServicer_to_server(self._services.pairs, self._server)
        try:
            port: int = self._server.add_secure_port(
                f"[::]:{self._port}", certificates.credentials(clients=True)
            )
        except RuntimeError as error:
            raise OSError(f"CONVOY_PEER_PORT: cannot listen on {self._port}: {error}") from error
        await self._server.start()
        return port

    async def stop(self) -> None:
        """End all pending calls and close the port. The callers retry."""
        if self._server:
            await self._server.stop(grace=0.5)


class PeerClient:
    """Calls agents of other nodes."""

    def __init__(self, enrolment: Enrolment) -> None:
        self._enrolment = enrolment
        self._channels: OrderedDict[tuple[str, str], grpc.aio.Channel] = OrderedDict()
        self._identity: Identity | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def prepare(self, member: Member, request: hub_pb2.PrepareRequest) -> CommitOutcome:
        """Call Prepare on the agent of `member`. Raises AioRpcError if the call fails, and TimeoutError if
        this agent has no identity.
        """
        stub = await self._peer(member)
        reply: hub_pb2.CommitReply = await stub.Prepare(request, timeout=DEADLINE_SECONDS)
        verdict = FROM_WIRE.get(reply.verdict, Verdict.EXPIRED)
        try:
            record = records.parse_record(reply.record) if reply.record else None
        except records.MalformedError as error:
            log.error("commit record in the reply is malformed", node=member.node, why=str(error))
            return CommitOutcome(Verdict.EXPIRED, reply.seen_incarnation)
        return CommitOutcome(verdict, reply.seen_incarnation, record)

    async def abandon(self, member: Member, request: hub_pb2.AbandonRequest) -> CommitOutcome:
        """Call Abandon on the agent of `member`. Raises the same errors as `prepare`."""
        stub = await self._peer(member)
        reply: hub_pb2.CommitReply = await stub.Abandon(request, timeout=DEADLINE_SECONDS)
        return CommitOutcome(FROM_WIRE.get(reply.verdict, Verdict.EXPIRED), reply.seen_incarnation)

    async def _peer(self, member: Member) -> hub_pb2_grpc.PeerStub:
        async with asyncio.timeout(DEADLINE_SECONDS):
            identity = await self._enrolment.ready()
        return hub_pb2_grpc.PeerStub(self._channel(member, identity))

    async def shards(self, address: NodeAddress) -> hub_pb2_grpc.ShardsStub:
        """Return a client of the Shards service at `address`. Raises TimeoutError if this agent has no
        identity.
        """
        async with asyncio.timeout(DEADLINE_SECONDS):
            identity = await self._enrolment.ready()
        return shard_pieces.stub(self._channel(address, identity))

    async def pairs(self, address: hub_pb2.NodeAddress) -> hub_pb2_grpc.PairsStub:
        """Return a client of the Pairs service at `address`. Raises TimeoutError if this agent has no
        identity.
        """
        async with asyncio.timeout(DEADLINE_SECONDS):
            identity = await self._enrolment.ready()
        return hub_pb2_grpc.PairsStub(
            self._channel(NodeAddress(address.node, address.peer_address), identity)
        )

    async def request_attestation(self, member: Member, job_uid: str, seconds: float) -> bool:
        """Return True if the agent of `member` attests this node for the job within `seconds`."""
        identity = self._enrolment.current
        if identity is None:
            return False
        stub = hub_pb2_grpc.PeerStub(self._channel(member, identity))
        try:
            reply: hub_pb2.AttestReply = await stub.Attest(
                hub_pb2.AttestRequest(job_uid=job_uid), timeout=seconds
            )
        except grpc.aio.AioRpcError as error:
            log.debug("peer did not attest this node", node=member.node, why=describe(error))
            return False
        return reply.member

    async def close(self) -> None:
        """Close all channels."""
        for task in self._closing:
            task.cancel()
        for channel in self._channels.values():
            await channel.close(None)
        self._channels.clear()

    def _channel(self, member: Member | NodeAddress, identity: Identity) -> grpc.aio.Channel:
        if identity is not self._identity:
            self._identity = identity
            self._drop(0)
        key = (member.node, member.peer_address)
        if key not in self._channels:
            self._drop(MAX_CHANNELS - 1)
            name = terms.agent_server_name(member.node)
            self._channels[key] = dial(member.peer_address, name, identity.authority, identity)
        self._channels.move_to_end(key)
        return self._channels[key]

    def _drop(self, keep: int) -> None:
        while len(self._channels) > keep:
            _, channel = self._channels.popitem(last=False)
            # Let the channel's pending calls continue for at most DEADLINE_SECONDS, the longest time that a
            # Prepare call waits for a decision. gRPC then cancels them, and their callers retry.
            task = asyncio.create_task(channel.close(DEADLINE_SECONDS))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _configuration(identity: Identity) -> grpc.ServerCertificateConfiguration:
    pair = (identity.key, identity.certificate)
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=identity.authority)
