"""The Hub service, which serves the streams of agents. A client certificate names the agent's node and is
valid only for that node.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc
import structlog

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire import hub_pb2_grpc
from convoy_agents.wire.callers import Caller, caller
from convoy_controllers.liveness.timings import HOLD_SECONDS
from convoy_crds.shown import error_line
from convoy_operator.hub.agent_record import MAX_PODS
from convoy_operator.hub.assembly import Hub
from convoy_operator.hub.streams import Stream
from convoy_operator.limits import TokenBucket
from convoy_operator.metrics import Metrics

log = structlog.get_logger(__name__)

SILENCE = 20.0
"""Seconds without a message after which a stream ends. Agents send a heartbeat every second. An agent whose
stream ended connects again.
"""
_POLL_SECONDS = 0.1
MAX_STREAMS = 4
"""Maximum number of concurrent streams of one agent. An agent needs one stream, but streams that it has
closed may not have ended yet.
"""
REFUSED_SECONDS = 1.0
"""Seconds for which a refused stream stays open. The delay slows down a client that retries immediately."""
_WARNINGS_PER_SECOND, _WARNINGS_AT_ONCE = 0.2, 20
"""Rate limit and burst of warnings about refused streams, for all agents together."""
_PODS_AT_ONCE = 64
"""Number of pods whose totals are recorded before other tasks get a turn."""
_WRITE = 10.0
"""Timeout in seconds for writing one message to an agent."""

Context = Any
"""A grpc.aio.ServicerContext. The type is Any, because its stubs leave reads and writes untyped."""


class Sessions(hub_pb2_grpc.HubServicer):  # type: ignore[misc]  # generated without types
    """The implementation of the Hub service."""

    def __init__(
        self,
        hub: Hub,
        metrics: Metrics,
        *,
        leads: Callable[[], bool],
        leader_address: Callable[[], str],
        renewals: Callable[[], int],
        own_address: str,
    ) -> None:
        """`leads` returns True if this replica leads.

        `leader_address` returns the address in the Lease, or an empty text if no replica leads. `renewals`
        returns how many renewals of the Lease this replica has seen. `own_address` is this replica's
        address.
        """
        self._hub = hub
        self._metrics = metrics
        self._leads = leads
        self._leader_address = leader_address
        self._renewals = renewals
        self._own_address = own_address
        self._open: Counter[str] = Counter()
        """Number of open streams of each node, by node."""
        self._warnings = TokenBucket(_WARNINGS_PER_SECOND, _WARNINGS_AT_ONCE)

    async def Session(self, request_iterator: Any, context: Context) -> None:
        """Serve one agent's stream from its Hello to its end."""
        who = caller(context)
        node = who.node
        if not node:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "the client certificate is not an agent's")
        if self._open[node] >= MAX_STREAMS or self._hub.registry.debt(node) > 0:
            await self._refuse(context, node)
        self._open[node] += 1
        try:
            if (stream := await self._admit(context, who)) is not None:
                await self._serve(context, stream, who)
        finally:
            self._open[node] -= 1
            if not self._open[node]:
                del self._open[node]

    async def _refuse(self, context: Context, node: str) -> None:
        """Abort a stream after a delay, which slows down a client that retries immediately."""
        self._metrics.agent_streams_refused.inc()
        if not self._warnings.debt:
            self._warnings.reserve()
            log.warning(
                "agent exceeds its limit of messages or streams, its stream is refused",
                node=node,
                streams=self._open[node],
            )
        await asyncio.sleep(REFUSED_SECONDS)
        await context.abort(
            grpc.StatusCode.RESOURCE_EXHAUSTED, "limit of messages or streams exceeded, dial again later"
        )

    async def _admit(self, context: Context, who: Caller) -> Stream | None:
        """Read an agent's Hello and return its new stream. Return None if the agent was redirected or
        closed the stream.
        """
        node = who.node
        first = await _read(context)
        if first is None:
            return None
        self._hub.registry.charge(node, first)
        if first.WhichOneof("body") != "hello":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message must be Hello")
        if first.hello.node != node:
            log.warning(
                "agent's Hello names another node than its certificate, refused",
                certificate=node,
                claimed=first.hello.node,
            )
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED, f"this certificate is valid for node {node!r} only"
            )
        await context.send_initial_metadata(())
        if (address := await self._redirect_address(first.hello.unreachable)) is not None:
            await context.write(wire.HubMessage(redirect=wire.Redirect(address=address)))
            return None
        if who.expired():
            # Check the expiry again: the handshake checked it only once, and a connection may open further
            # streams later.
            log.warning("agent's certificate has expired, its stream is refused", node=node)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the certificate has expired, enrol again")
        if not self._hub.registry.expects(node):
            log.warning("agent's node does not exist, its stream is refused", node=node)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"node {node!r} does not exist")
        self._metrics.agent_messages.labels("hello").inc()
        log.info("agent dialled", node=node, version=first.hello.version, pods=len(first.hello.pods))
        return self._hub.streams.join(first.hello)

    async def _serve(self, context: Context, stream: Stream, who: Caller) -> None:
        try:
            await context.write(wire.HubMessage(welcome=wire.Welcome(leader=self._leader_address())))
            await self._run_stream(context, stream, who)
        finally:
            self._hub.streams.leave(stream)
            log.info("agent's stream ended", node=stream.node)

    async def _redirect_address(self, unreachable: str) -> str | None:
        """Return the address to which an agent must be redirected. Return None if this replica leads or
        becomes the leader.

        If the agent could not reach the leader's address, wait up to HOLD_SECONDS, because another replica
        may take over. If none does, there are two cases. If the Lease was renewed during the wait, the
        leader works and only the network failed, so redirect the agent to the leader once more. Otherwise
        redirect the agent to this replica, where the wait starts again.
        """
        deadline, before = asyncio.get_running_loop().time() + HOLD_SECONDS, self._renewals()
        while not self._leads():
            address = self._leader_address()
            if address not in ("", unreachable, self._own_address):
                return address
            if asyncio.get_running_loop().time() >= deadline:
                # Require two renewals: the first may be the last one of a dead leader, which this replica has
                # only seen now.
                alive = address and self._renewals() > before + 1
                return address if alive else self._own_address
            await asyncio.sleep(_POLL_SECONDS)
        return None

    async def _run_stream(self, context: Context, stream: Stream, who: Caller) -> None:
        """Read and write messages until one side ends the stream or the client certificate expires."""
        ends = [
            asyncio.create_task(self._read_messages(context, stream, who)),
            asyncio.create_task(_write_messages(context, stream)),
            asyncio.create_task(_superseded(stream)),
        ]
        try:
            left = max(0.0, who.expires - time.time())
            done, _ = await asyncio.wait(ends, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if not done:
                log.info("agent's certificate expired, its stream ends", node=stream.node)
        except (grpc.RpcError, TimeoutError) as fault:
            log.info(
                "agent's stream failed, the agent will dial again", node=stream.node, error=error_line(fault)
            )
        finally:
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    async def _read_messages(self, context: Context, stream: Stream, who: Caller) -> None:
        node = stream.node
        while (message := await self._next_message(context, node)) is not None:
            if stream.superseded.is_set():
                # Ignore the rest of this stream: the agent sent it before it started its newer stream.
                return
            if who.expired():
                # End the stream. The agent has renewed its certificate and connects again with the new one.
                log.info("agent's certificate expired, its stream ends", node=node)
                return
            kind = message.WhichOneof("body") or "unknown"
            self._metrics.agent_messages.labels(kind).inc()
            if kind == "goodbye":
                log.info("agent leaves", node=node, reason=message.goodbye.reason)
                self._hub.monitor.record_farewell(node)
                return
            if kind == "heartbeat" and self._leads():
                self._hub.streams.heartbeat(stream, message.heartbeat)
                continue
            self._hub.monitor.record_sign(node)
            if kind == "telemetry":
                await self._record_telemetry(node, message.telemetry)
            elif kind == "traffic":
                await self._record_traffic(node, message.traffic)
            else:
                self._record(node, message)

    def _record(self, node: str, message: wire.AgentMessage) -> None:
        """Record a message that needs little time."""
        match message.WhichOneof("body"):
            case "pod":
                self._hub.reports.record(node, message.pod)
            case "held_jobs":
                self._hub.registry.ensure(node).record_holdings(message.held_jobs)
            case "pod_removed":
                self._hub.reports.remove(node, message.pod_removed.pod_uid)
            case "store":
                self._hub.stores.report(node, message.store)
            case "sweep":
                self._hub.sweeps.record_report(node, message.sweep)
            case "notices":
                self._hub.notices.record(node, message.notices)
            case "fault":
                self._hub.faults.record_report(node, message.fault)

    async def _next_message(self, context: Context, node: str) -> wire.AgentMessage | None:
        """Return the next message when the agent's rate limit allows it; None at the end of the stream. The
        message waits in the connection until then.
        """
        if (pause := self._hub.registry.debt(node)) > 0:
            await asyncio.sleep(pause)
        message = await _read(context)
        if message is not None:
            self._hub.registry.charge(node, message)
        return message

    async def _record_telemetry(self, node: str, telemetry: wire.Telemetry) -> None:
        for pod in telemetry.pods[:MAX_PODS]:
            more = self._hub.detectors.record(node, pod)
            # Let other tasks run: a detection takes milliseconds, and for 10,000 ranks a fifth of a second.
            await asyncio.sleep(0)
            while more:
                more = self._hub.detectors.record(node, pod, more)
                await asyncio.sleep(0)

    async def _record_traffic(self, node: str, reported: wire.Traffic) -> None:
        for number, pod in enumerate(reported.pods[:MAX_PODS]):
            self._hub.traffic.record(node, pod)
            if number % _PODS_AT_ONCE == 0:
                await asyncio.sleep(0)


async def _read(context: Context) -> wire.AgentMessage | None:
    """Return the next message; None at the end of the stream. Raises TimeoutError if the agent sends
    nothing for SILENCE seconds.
    """
    async with asyncio.timeout(SILENCE):
        message = await context.read()
    return message if isinstance(message, wire.AgentMessage) else None


async def _write_messages(context: Context, stream: Stream) -> None:
    while True:
        message = await stream.outbox.get()
        async with asyncio.timeout(_WRITE):
            await context.write(message)


async def _superseded(stream: Stream) -> None:
    await stream.superseded.wait()
