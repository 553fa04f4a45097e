"""The agents' streams: who dials is known by certificate, and speaks for that node alone."""

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
from convoy_operator.hub.agent_record import MOST_PODS
from convoy_operator.hub.assembly import Hub
from convoy_operator.hub.streams import Stream
from convoy_operator.limits import TokenBucket
from convoy_operator.metrics import Metrics

log = structlog.get_logger(__name__)

SILENCE = 20.0
"""Seconds without a message after which a stream is ended; agents beat once per second and dial again."""
_POLL_SECONDS = 0.1
MOST_STREAMS = 4
"""Of one agent at once: one, and those that it has left and that have not ended."""
REFUSED_SECONDS = 1.0
"""For which a stream that is one too many is left open, since a connection has few of them."""
_WARNINGS_PER_SECOND, _WARNINGS_AT_ONCE = 0.2, 20
"""Of streams that are turned away, of all agents together."""
_WRITE = 10.0
"""Seconds an agent may take to accept one message."""

Context = Any
"""grpc.aio.ServicerContext; its stubs leave reads and writes untyped."""


class Sessions(hub_pb2_grpc.HubServicer):  # type: ignore[misc]  # generated without types
    """The Hub service."""

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
        """`leader_address`: as the Lease names it, empty for nobody; `renewals`: how often the Lease was seen
        renewed; `own_address`: this replica's.
        """
        self._hub = hub
        self._metrics = metrics
        self._leads = leads
        self._leader_address = leader_address
        self._renewals = renewals
        self._own_address = own_address
        self._open: Counter[str] = Counter()
        """Streams, by node."""
        self._warnings = TokenBucket(_WARNINGS_PER_SECOND, _WARNINGS_AT_ONCE)

    async def Session(self, request_iterator: Any, context: Context) -> None:
        """One agent's stream, from its Hello to its end."""
        who = caller(context)
        node = who.node
        if not node:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "the certificate is no agent's")
        if self._open[node] >= MOST_STREAMS or self._hub.registry.debt(node) > 0:
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
        """Refuses a stream, and not at once: whoever dials as fast as they can is answered no faster."""
        self._metrics.agent_streams_refused.inc()
        if not self._warnings.debt:
            self._warnings.reserve()
            log.warning("an agent says too much", node=node, streams=self._open[node])
        await asyncio.sleep(REFUSED_SECONDS)
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much was said: dial again later")

    async def _admit(self, context: Context, who: Caller) -> Stream | None:
        """The stream of an agent that is let in; None for one that is sent elsewhere, or has gone."""
        node = who.node
        first = await _read(context)
        if first is None:
            return None
        self._hub.registry.charge(node, first)
        if first.WhichOneof("body") != "hello":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first message must be Hello")
        if first.hello.node != node:
            log.warning("agent claims another node", certificate=node, claimed=first.hello.node)
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED, f"this certificate speaks for node {node!r} alone"
            )
        await context.send_initial_metadata(())
        if (address := await self._redirect_address(first.hello.unreachable)) is not None:
            await context.write(wire.HubMessage(redirect=wire.Redirect(address=address)))
            return None
        if who.expired():
            # A connection that its handshake has let in may open streams for as long as it stands.
            log.warning("an outdated certificate dials", node=node)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the certificate has run out")
        if not self._hub.registry.expects(node):
            log.warning("an agent of a node that does not exist dials", node=node)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"there is no node {node!r}")
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
        """Where an agent had better go; None as soon as this replica leads.

        One that nobody answered at the leader's address stays for a while: either another leads soon, or it
        is sent here again. Where the Lease is renewed meanwhile, the leader is well, and it was the way there
        that was cut: it is sent there once more.
        """
        deadline, before = asyncio.get_running_loop().time() + HOLD_SECONDS, self._renewals()
        while not self._leads():
            address = self._leader_address()
            if address not in ("", unreachable, self._own_address):
                return address
            if asyncio.get_running_loop().time() >= deadline:
                # What the last leader did at its end may have been seen just now.
                alive = address and self._renewals() > before + 1
                return address if alive else self._own_address
            await asyncio.sleep(_POLL_SECONDS)
        return None

    async def _run_stream(self, context: Context, stream: Stream, who: Caller) -> None:
        """Reads and writes until one side has had enough, or the certificate runs out."""
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
                log.info("agent's certificate has run out", node=stream.node)
        except (grpc.RpcError, TimeoutError) as fault:
            log.info("stream broke", node=stream.node, error=repr(fault))
        finally:
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    async def _read_messages(self, context: Context, stream: Stream, who: Caller) -> None:
        node = stream.node
        while (message := await self._next_message(context, node)) is not None:
            if stream.superseded.is_set():
                # What it still holds is older than what the agent's next stream began with.
                return
            if who.expired():
                # The agent has long had another one, and dials with that.
                log.info("agent's certificate has run out", node=node)
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
            if kind == "pod":
                self._hub.reports.record(node, message.pod)
            elif kind == "held_jobs":
                self._hub.registry.ensure(node).record_holdings(message.held_jobs)
            elif kind == "pod_removed":
                self._hub.reports.remove(node, message.pod_removed.pod_uid)
            elif kind == "store":
                self._hub.stores.report(node, message.store)
            elif kind == "telemetry":
                await self._record_telemetry(node, message.telemetry)
            elif kind == "sweep":
                self._hub.sweeps.record_report(node, message.sweep)

    async def _next_message(self, context: Context, node: str) -> wire.AgentMessage | None:
        """The next message, when its time has come: it waits in its own connection meanwhile."""
        if (pause := self._hub.registry.debt(node)) > 0:
            await asyncio.sleep(pause)
        message = await _read(context)
        if message is not None:
            self._hub.registry.charge(node, message)
        return message

    async def _record_telemetry(self, node: str, telemetry: wire.Telemetry) -> None:
        for pod in telemetry.pods[:MOST_PODS]:
            more = self._hub.detectors.record(node, pod)
            # A look for stragglers takes milliseconds, and among 10,000 ranks a fifth of a second.
            await asyncio.sleep(0)
            while more:
                more = self._hub.detectors.record(node, pod, more)
                await asyncio.sleep(0)


async def _read(context: Context) -> wire.AgentMessage | None:
    """The next message; None at the end of the stream. TimeoutError when the agent is silent."""
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
