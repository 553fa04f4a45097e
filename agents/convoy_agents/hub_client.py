"""The session with the leader's hub: hello, heartbeats, reports; commands come back."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
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
"""For a dial and the sign that Hello was taken: the Service may have chosen a replica whose node is gone."""
SILENCE_SECONDS = 3.5
"""A hub that answers three heartbeats in a row with nothing is left for another."""
WRITE_SECONDS = 10.0
"""A hub that reads nothing for so long is left."""
GOODBYE_SECONDS = 2.0
STEADY_SECONDS = 10.0
"""A session that held so long was a good one: the next dial begins with the shortest pause."""
MAX_UNANSWERED = 64
"""Heartbeats whose answer is awaited."""
MAX_REPORTS = 64
"""Of stores, that wait to be sent."""
MAX_REDIRECTS = 5
"""Redirects followed without a pause between them."""

log = structlog.get_logger()

Call = grpc.aio.StreamStreamCall[hub_pb2.AgentMessage, hub_pb2.HubMessage]


@dataclass(frozen=True, slots=True)
class HubHandlers:
    """What the pods' registry offers the session."""

    outbox: Outbox
    report: Callable[[str], hub_pb2.PodReport | None]
    reports: Callable[[], list[hub_pb2.PodReport]]
    command: Callable[[hub_pb2.HubMessage], None]
    attestations: Callable[[], list[tuple[str, int]]]
    """(node, milliseconds) of the isolated nodes that have asked this agent to vouch for them."""
    reached: Callable[[float], None]
    """The hub has answered what was sent at this time (seconds of CLOCK_BOOTTIME)."""
    held_jobs: Callable[[], list[tuple[str, str]]]
    """(uid, slot token) of the jobs whose checkpoints lie in this node's memory."""
    drop_job: Callable[[str], None]
    """A job is over: its memory is given back."""
    store: Callable[[hub_pb2.Store], None]
    """A remote store is told of."""
    telemetry: Callable[[], hub_pb2.Telemetry | None]
    """What ranks have said of their steps since it was last asked for."""
    sweep: Callable[[hub_pb2.HubMessage], None]
    """A health sweep is ordered, cancelled, or its report confirmed."""
    sweep_reports: Callable[[bool], list[hub_pb2.SweepReport]]
    """What is new of sweeps; with True all that no hub has confirmed."""


class _Redirected(Exception):
    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address


class HubClient:
    """Keeps one session up for as long as there is a hub to hold it with."""

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
        """Its address, as long as it has not been dialled in vain."""
        self._unreachable = ""
        self._held_jobs_due = False
        self._store_reports: deque[hub_pb2.StoreReport] = deque(maxlen=MAX_REPORTS)
        self._heartbeats: dict[int, float] = {}
        """By their sent_unix_ms: when heartbeats of this session were sent, oldest first."""
        self.peer_address = ""
        """host:port of this agent's Peer service, as Hello tells it."""

    def wake(self) -> None:
        """The outbox has something new."""
        self._wake.set()

    def report_store(self, report: hub_pb2.StoreReport) -> None:
        """The hub is to hear what a store can do."""
        self._store_reports.append(report)
        self._wake.set()

    def held_jobs_changed(self) -> None:
        """The hub is to hear which jobs have memory here."""
        self._held_jobs_due = True
        self._wake.set()

    async def run(self) -> None:
        """Dials, serves, dials again; returns only after `leave`."""
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
                log.info("redirected", to=redirect.address or "nobody leads yet")
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
        """Whom to dial next: the leader once more where only its stream broke, else whoever answers."""
        if self._leader and address != self._leader:
            address, self._leader = self._leader, ""
            return address
        if address != self._service_address:
            self._unreachable = address
        self._leader = ""
        return self._service_address

    def leave(self, reason: str) -> bool:
        """Has Goodbye said; `run` then returns within GOODBYE_SECONDS or so. False when nobody listens."""
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
                # What one message brings about must not end the session that serves all pods.
                metrics.COMMANDS.labels(message.WhichOneof("body") or "none", "failed").inc()
                log.exception("message of the hub failed", kind=message.WhichOneof("body"))
        # The stream has ended: its status says why.
        if (code := await call.code()) is not grpc.StatusCode.OK:
            raise ConnectionError(f"the hub ended the session: {code.name}: {await call.details()}")

    def _handle(self, message: hub_pb2.HubMessage) -> None:
        kind = message.WhichOneof("body") or ""
        if kind == "drop_job":
            self._handlers.drop_job(message.drop_job.job_uid)
        elif kind == "store":
            self._handlers.store(message.store)
        elif kind.startswith("sweep_"):
            self._handlers.sweep(message)
        else:
            # It counts itself: there are more ways for it to end.
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
                await call.write(hub_pb2.AgentMessage(goodbye=hub_pb2.Goodbye(reason=self._leaving)))
                await call.done_writing()
                # The hub closes the stream once it has read this far.
                await call.code()

    def _heartbeat(self) -> hub_pb2.Heartbeat:
        sent = int(time.time() * 1000)
        # Should the wall clock be set back onto a beat that is still awaited, the older of the two counts.
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
        """What is due, when it is due, until the agent leaves."""
        outbox, next_heartbeat, again = self._handlers.outbox, time.monotonic(), True
        while not self._leaving:
            self._wake.clear()
            now = time.monotonic()
            if now >= next_heartbeat:
                next_heartbeat = now + HEARTBEAT_SECONDS
                yield hub_pb2.AgentMessage(heartbeat=self._heartbeat())
                while telemetry := self._handlers.telemetry():
                    yield hub_pb2.AgentMessage(telemetry=telemetry)
            if self._held_jobs_due:
                self._held_jobs_due = False
                yield hub_pb2.AgentMessage(held_jobs=self._held_jobs())
            while self._store_reports:
                yield hub_pb2.AgentMessage(store=self._store_reports.popleft())
            for report in self._handlers.sweep_reports(again):
                yield hub_pb2.AgentMessage(sweep=report)
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


async def _read(call: Call) -> object:
    """The next message; TimeoutError when the hub has fallen silent."""
    async with asyncio.timeout(SILENCE_SECONDS):
        return await call.read()


def _leader(first: object) -> str:
    """Reads the answer to Hello."""
    if not isinstance(first, hub_pb2.HubMessage):
        raise ConnectionError("the hub ended the stream without a word")
    if first.WhichOneof("body") == "redirect":
        raise _Redirected(first.redirect.address)
    if first.WhichOneof("body") != "welcome":
        raise ConnectionError("the hub answered Hello with neither Welcome nor Redirect")
    return first.welcome.leader
