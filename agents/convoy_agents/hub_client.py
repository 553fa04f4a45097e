"""The agent's session with the leader's hub: sends Hello, heartbeats and reports, and receives commands."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import grpc
import structlog

from convoy_agents import metrics
from convoy_agents.backoff import Backoff
from convoy_agents.channels import dial
from convoy_agents.enrol import Enrolment, describe
from convoy_agents.guard import hardware
from convoy_agents.isolation import boottime
from convoy_agents.outbox import Outbox
from convoy_agents.wire import hub_pb2, hub_pb2_grpc
from convoy_controllers.liveness.timings import HEARTBEAT_SECONDS, WELCOME_SECONDS
from convoy_crds import terms

CONNECT_SECONDS = 2.0
"""Maximum seconds to connect and to have Hello accepted. The limit is short because the Service may choose
a replica on a dead node.
"""
SILENCE_SECONDS = 3.5
"""Seconds without any message from the hub after which the agent closes the session. Three heartbeats are
unanswered at that time.
"""
WRITE_SECONDS = 10.0
"""Maximum seconds for sending one message. After that the agent closes the session, because the hub does
not read.
"""
GOODBYE_SECONDS = 2.0
STEADY_SECONDS = 10.0
"""Seconds after which a session counts as stable. After a stable session the reconnect back-off starts at
its shortest pause.
"""
MAX_UNANSWERED = 64
"""Maximum number of unanswered heartbeats that are remembered."""
MAX_REPORTS = 64
"""Maximum number of queued store reports. The oldest report is dropped first."""
MAX_REDIRECTS = 5
"""Maximum number of consecutive redirects that the agent follows without a pause."""

log = structlog.get_logger()

Call = grpc.aio.StreamStreamCall[hub_pb2.AgentMessage, hub_pb2.HubMessage]


@dataclass(frozen=True, slots=True)
class HubHandlers:
    """The callbacks by which a hub session reads the agent's state and passes on the hub's messages."""

    outbox: Outbox
    report: Callable[[str], hub_pb2.PodReport | None]
    reports: Callable[[], list[hub_pb2.PodReport]]
    command: Callable[[hub_pb2.HubMessage], None]
    attestations: Callable[[], list[tuple[str, int]]]
    """Returns isolated nodes that requested an attestation from this agent, as (node, milliseconds since
    the node's request).
    """
    reached: Callable[[float], None]
    """Records a contact with the hub. The argument is the send time of a heartbeat that the hub answered
    (CLOCK_BOOTTIME seconds).
    """
    held_jobs: Callable[[], list[tuple[str, str]]]
    """Returns (job uid, slot token) of each job with checkpoints in this node's memory."""
    drop_job: Callable[[str], None]
    """Frees the memory of a job, given the job's uid."""
    store: Callable[[hub_pb2.Store], None]
    """Applies the hub's settings of a remote store."""
    telemetry: Callable[[], hub_pb2.Telemetry | None]
    """Removes and returns step timings to send; None if there are none."""
    traffic: Callable[[float], hub_pb2.Traffic | None]
    """Returns the totals of serving pods to send; None if there are none. The argument is a monotonic time in
    seconds.
    """
    sweep: Callable[[hub_pb2.HubMessage], None]
    """Handles the order or cancellation of a health sweep, or the hub's confirmation of a sweep report."""
    sweep_reports: Callable[[bool], list[hub_pb2.SweepReport]]
    """Returns the sweep reports to send. The argument is True at the start of a session, and then the
    result includes all unconfirmed reports.
    """
    deliver_model: Callable[[hub_pb2.DeliverModel], None]
    """Starts the delivery of a model to a pod."""
    fault: Callable[[hub_pb2.HubMessage], None]
    """Handles the order to inject or to undo a fault."""
    fault_reports: Callable[[bool], list[hub_pb2.FaultReport]]
    """Returns the reports on faults to send. The argument is True at the start of a session, and then the
    result includes all faults that the agent remembers.
    """
    spot_node: Callable[[hub_pb2.SpotNode], None]
    """Handles the SpotPool's orders for the node."""
    notices: Callable[[bool], hub_pb2.Notices | None]
    """Returns the notices to send, if they have changed. The argument is True at the start of a session."""


class _Redirected(Exception):
    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


class HubClient:
    """Keeps a session with the leader's hub open and reconnects after failures."""

    def __init__(
        self, node: str, address: str, enrolment: Enrolment, handlers: HubHandlers, version: str
    ) -> None:
        self._node = node
        self._service_address = address
        self._enrolment = enrolment
        self._handlers = handlers
        self._version = version
        self._boot = uuid.uuid4().hex
        self._wake = asyncio.Event()
        self._leaving = ""
        self._redirects = 0
        self._established = False
        self._leader = ""
        """The leader's address; empty if it is unknown or was unreachable."""
        self._unreachable = ""
        self._held_jobs_due = False
        self._traffic_due = False
        self._store_reports: deque[hub_pb2.StoreReport] = deque(maxlen=MAX_REPORTS)
        self._heartbeats: dict[int, float] = {}
        """Send times of this session's unanswered heartbeats (CLOCK_BOOTTIME seconds), by the heartbeat's
        `sent_unix_ms`. The oldest comes first.
        """
        self.peer_address = ""
        """host:port of this agent's Peer service. Hello sends it to the hub."""

    def wake(self) -> None:
        """Send all messages that are due, without waiting for the next heartbeat."""
        self._wake.set()

    def report_store(self, report: hub_pb2.StoreReport) -> None:
        """Queue a report on a remote store and send it without delay."""
        self._store_reports.append(report)
        self._wake.set()

    def send_traffic(self) -> None:
        """Send the totals of serving pods without waiting for the next heartbeat."""
        self._traffic_due = True
        self._wake.set()

    def held_jobs_changed(self) -> None:
        """Send the hub the list of jobs that have checkpoints in this node's memory, without delay."""
        self._held_jobs_due = True
        self._wake.set()

    async def run(self) -> None:
        """Connect, serve the session, and reconnect, until `leave` is called."""
        backoff = Backoff(first=0.2, cap=2.0)
        address = self._service_address
        while not self._leaving:
            began = time.monotonic()
            try:
                await self._session(address)
                result, address = "ended", self._service_address
            except _Redirected as redirect:
                result, self._redirects = "redirected", self._redirects + 1
                address = redirect.address or self._service_address
                log.info("redirected", to=redirect.address or "no leader yet")
                if redirect.address and self._redirects <= MAX_REDIRECTS:
                    metrics.SESSIONS.labels(result).inc()
                    continue
            except (grpc.aio.AioRpcError, TimeoutError, OSError) as error:
                result, self._redirects = "failed", 0
                log.warning("no session with the hub", address=address, why=describe(error))
                address = self._after_failure(address)
            finally:
                metrics.SESSION_UP.set(0)
                self._established = False
                if time.monotonic() - began > STEADY_SECONDS:
                    backoff.reset()
            metrics.SESSIONS.labels(result).inc()
            if not self._leaving:
                await asyncio.sleep(backoff.next())

    def _held_jobs(self) -> hub_pb2.HeldJobs:
        held = self._handlers.held_jobs()
        return hub_pb2.HeldJobs(
            jobs=[hub_pb2.HeldJob(job_uid=uid, slot_token=slot_token) for uid, slot_token in held]
        )

    def _after_failure(self, address: str) -> str:
        """Return the address for the next attempt after the session at `address` failed.

        If the agent knows the leader's address and the failed session was at another address, the result is
        the leader's address. Otherwise it is the Service's address.
        """
        if self._leader and address != self._leader:
            address, self._leader = self._leader, ""
            return address
        if address != self._service_address:
            self._unreachable = address
        self._leader = ""
        return self._service_address

    def leave(self, reason: str) -> bool:
        """Schedule the Goodbye message; `run` then returns within about GOODBYE_SECONDS. Return True if a
        session is established.
        """
        self._leaving = reason
        self.wake()
        return self._established

    async def _session(self, address: str) -> None:
        identity = await self._enrolment.ready()
        self._heartbeats.clear()
        async with dial(address, terms.HUB_SERVER_NAME, identity.authority, identity) as channel:
            call: Call = hub_pb2_grpc.HubStub(channel).Session()
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await call.write(hub_pb2.AgentMessage(hello=self._hello()))
                    await call.initial_metadata()
                async with asyncio.timeout(WELCOME_SECONDS):
                    self._leader = _leader(await call.read())
                self._unreachable = ""
                log.info("session established", address=address, leader=self._leader)
                metrics.SESSION_UP.set(1)
                self._redirects = 0
                self._established = True
                await self._converse(call)
            finally:
                call.cancel()

    def _hello(self) -> hub_pb2.Hello:
        reports = self._handlers.reports()
        self._handlers.outbox.mark_all_sent([report.pod_uid for report in reports], time.monotonic())
        return hub_pb2.Hello(
            node=self._node,
            boot_id=self._boot,
            peer_address=self.peer_address,
            version=self._version,
            pods=reports,
            unreachable=self._unreachable,
            held_jobs=self._held_jobs(),
            hardware=hardware.detect(),
        )

    async def _converse(self, call: Call) -> None:
        reading = asyncio.create_task(self._read(call))
        writing = asyncio.create_task(self._write(call))
        try:
            await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
            for task in (reading, writing):
                if task.done():
                    task.result()
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def _read(self, call: Call) -> None:
        while isinstance(message := await _read(call), hub_pb2.HubMessage):
            if message.WhichOneof("body") == "redirect":
                raise _Redirected(message.redirect.address)
            if message.WhichOneof("body") == "heartbeat_reply":
                self._record_heartbeat_reply(message.heartbeat_reply.sent_unix_ms)
                continue
            try:
                self._handle(message)
            except Exception:
                # If handling one message fails, keep the session, because all pods of the node share it.
                metrics.COMMANDS.labels(message.WhichOneof("body") or "none", "failed").inc()
                log.exception("handling a hub message failed", kind=message.WhichOneof("body"))
        # The stream has ended, and its status contains the reason.
        if (code := await call.code()) is not grpc.StatusCode.OK:
            raise ConnectionError(f"the hub ended the session: {code.name}: {await call.details()}")

    def _handle(self, message: hub_pb2.HubMessage) -> None:
        kind = message.WhichOneof("body") or ""
        if kind == "drop_job":
            self._handlers.drop_job(message.drop_job.job_uid)
        elif kind == "store":
            self._handlers.store(message.store)
        elif kind == "deliver_model":
            self._handlers.deliver_model(message.deliver_model)
        elif kind.startswith("sweep_"):
            self._handlers.sweep(message)
        elif kind.endswith("_fault"):
            self._handlers.fault(message)
        elif kind == "spot_node":
            self._handlers.spot_node(message.spot_node)
        else:
            # `command` itself counts its results, by kind of failure. So skip the count below.
            self._handlers.command(message)
            return
        metrics.COMMANDS.labels(kind, "done").inc()

    async def _write(self, call: Call) -> None:
        async for message in self._messages():
            try:
                async with asyncio.timeout(WRITE_SECONDS):
                    await call.write(message)
            except (asyncio.InvalidStateError, grpc.aio.UsageError) as error:
                raise ConnectionError("the hub ended the session") from error
        with contextlib.suppress(TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                for report in self._order_reports(False):
                    await call.write(report)
                await call.write(hub_pb2.AgentMessage(goodbye=hub_pb2.Goodbye(reason=self._leaving)))
                await call.done_writing()
                # Wait for the hub to close the stream. The hub does so after it has read Goodbye.
                await call.code()

    def _heartbeat(self) -> hub_pb2.Heartbeat:
        sent = int(time.time() * 1000)
        # If the wall clock was set back, a pending heartbeat may have the same `sent_unix_ms`. Keep the
        # earlier send time. A contact with the hub may then seem older than it is, but never newer.
        self._heartbeats.setdefault(sent, boottime())
        if len(self._heartbeats) > MAX_UNANSWERED:
            del self._heartbeats[next(iter(self._heartbeats))]
        attestations = [
            hub_pb2.Attestation(node=node, age_ms=age) for node, age in self._handlers.attestations()
        ]
        return hub_pb2.Heartbeat(sent_unix_ms=sent, attestations=attestations)

    def _record_heartbeat_reply(self, sent_unix_ms: int) -> None:
        if (sent := self._heartbeats.pop(sent_unix_ms, None)) is not None:
            metrics.HEARTBEAT_SECONDS.observe(max(0.0, boottime() - sent))
            self._handlers.reached(sent)

    async def _messages(self) -> AsyncIterator[hub_pb2.AgentMessage]:
        """Yield each message to the hub when the message is due, until the agent exits."""
        outbox, next_heartbeat, again = self._handlers.outbox, time.monotonic(), True
        while not self._leaving:
            self._wake.clear()
            now = time.monotonic()
            if now >= next_heartbeat:
                next_heartbeat = now + HEARTBEAT_SECONDS
                yield hub_pb2.AgentMessage(heartbeat=self._heartbeat())
                while telemetry := self._handlers.telemetry():
                    yield hub_pb2.AgentMessage(telemetry=telemetry)
                self._traffic_due = True
            if self._traffic_due:
                self._traffic_due = False
                if traffic := self._handlers.traffic(now):
                    yield hub_pb2.AgentMessage(traffic=traffic)
            if self._held_jobs_due:
                self._held_jobs_due = False
                yield hub_pb2.AgentMessage(held_jobs=self._held_jobs())
            while self._store_reports:
                yield hub_pb2.AgentMessage(store=self._store_reports.popleft())
            for message in self._order_reports(again):
                yield message
            again = False
            removed, changed = outbox.pop_due(now)
            for uid in removed:
                yield hub_pb2.AgentMessage(pod_removed=hub_pb2.PodRemoved(pod_uid=uid))
            for uid in changed:
                if pod := self._handlers.report(uid):
                    metrics.REPORTS.inc()
                    yield hub_pb2.AgentMessage(pod=pod)
            due = outbox.next_due()
            pause = min(next_heartbeat, next_heartbeat if due is None else due) - time.monotonic()
            if pause > 0 and not self._leaving:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._wake.wait()

    def _order_reports(self, again: bool) -> Iterator[hub_pb2.AgentMessage]:
        """Yield the reports on the hub's orders. `again` is True at the start of a session."""
        for sweep in self._handlers.sweep_reports(again):
            yield hub_pb2.AgentMessage(sweep=sweep)
        for fault in self._handlers.fault_reports(again):
            yield hub_pb2.AgentMessage(fault=fault)
        if (notices := self._handlers.notices(again)) is not None:
            yield hub_pb2.AgentMessage(notices=notices)


async def _read(call: Call) -> object:
    """Return the next message from the hub. Raises TimeoutError if none arrives within SILENCE_SECONDS."""
    async with asyncio.timeout(SILENCE_SECONDS):
        return await call.read()


def _leader(first: object) -> str:
    """Return the leader's address from the hub's first message. Raises _Redirected or ConnectionError if
    the message is not Welcome.
    """
    if not isinstance(first, hub_pb2.HubMessage):
        raise ConnectionError("the hub closed the stream without a reply to Hello")
    if first.WhichOneof("body") == "redirect":
        raise _Redirected(first.redirect.address)
    if first.WhichOneof("body") != "welcome":
        raise ConnectionError("the hub's reply to Hello is neither Welcome nor Redirect")
    return first.welcome.leader
