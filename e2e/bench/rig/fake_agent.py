"""A simulated agent of one node. Its wire protocol and certificate are real, its pods are fake."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from convoy_agents.backoff import Backoff
from convoy_agents.channels import Identity, dial
from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire import hub_pb2_grpc
from convoy_controllers.liveness.timings import HEARTBEAT_SECONDS
from convoy_crds.terms import HUB_SERVER_NAME
from e2e.bench.rig.fake_pod import FakePod

_WELCOME_SECONDS = 5.0
_VERSION = "bench"

Call = grpc.aio.StreamStreamCall[wire.AgentMessage, wire.HubMessage]
MemberNodes = dict[tuple[str, int], set[str]]
"""Nodes whose agents have received a job's assignment, by job uid and incarnation. All agents share one
mapping.
"""


@dataclass(eq=False)
class FakeAgent:
    """An agent that connects, sends Hello and one heartbeat per second, reports changes and carries out
    orders.
    """

    node: str
    hub: str
    identity: Identity
    member_nodes: MemberNodes
    shut_down: Callable[[FakePod, int], None]
    """Called when the hub orders a launcher to shut down, with the pod and the exit code."""
    progressing: Callable[[FakePod], bool]
    pods: dict[str, FakePod] = field(default_factory=dict)
    connected: bool = False
    dead: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the node is down. While it is set, the agent sends nothing and ignores every message."""
    measure: Callable[[wire.SweepOrder, str], wire.SweepReport] | None = None
    """Function that makes the report of a sweep. With None, the agent does not answer sweep orders."""
    telemetry: bool = False
    """True if the agent forwards the ranks' telemetry."""
    _sweep_reports: list[wire.SweepReport] = field(default_factory=list)
    _store_reports: list[wire.StoreReport] = field(default_factory=list)
    _changed: dict[str, None] = field(default_factory=dict)
    _removed: list[str] = field(default_factory=list)
    _telemetry: list[wire.PodTelemetry] = field(default_factory=list)
    _held_tokens: dict[str, str] = field(default_factory=dict)
    """Latest slot token of each job whose checkpoints are in this node's memory."""
    _held_changed: bool = False
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _boot: str = field(default_factory=lambda: uuid.uuid4().hex)

    def add_pod(self, pod: FakePod) -> None:
        """Add a pod whose launcher has connected."""
        self.pods[pod.uid] = pod
        self._mark_changed(pod.uid)

    def reboot(self) -> None:
        """Drop everything that a reboot removes from the node's memory."""
        self.pods.clear()
        self._telemetry.clear()
        self._held_tokens.clear()
        self._held_changed = False

    def remove_pod(self, uid: str) -> None:
        """Remove a pod that is no longer on the node, and report the removal."""
        if self.pods.pop(uid, None) is not None:
            self._changed.pop(uid, None)
            self._removed.append(uid)
            self._wake.set()

    async def run(self) -> None:
        """Hold a session with the hub until cancelled. Reconnect with back-off, as a real agent does."""
        backoff = Backoff()
        while True:
            while self.dead.is_set():  # noqa: ASYNC110 - a node that is gone waits for nothing
                await asyncio.sleep(HEARTBEAT_SECONDS)
            began = time.monotonic()
            try:
                await self._session()
            except (grpc.aio.AioRpcError, TimeoutError, ConnectionError, asyncio.InvalidStateError):
                # A write to an ended stream raises InvalidStateError, which means that the session is lost.
                pass
            except asyncio.CancelledError:
                # gRPC raises CancelledError for a broken call too, so raise it only if this task is
                # cancelled.
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
            self.connected = False
            if time.monotonic() - began > 10.0:
                backoff.reset()
            await asyncio.sleep(backoff.next())

    async def _session(self) -> None:
        async with dial(self.hub, HUB_SERVER_NAME, self.identity.authority, self.identity) as channel:
            call: Call = hub_pb2_grpc.HubStub(channel).Session()
            try:
                async with asyncio.timeout(_WELCOME_SECONDS):
                    await call.write(wire.AgentMessage(hello=self._hello()))
                    first = await call.read()
                if not isinstance(first, wire.HubMessage) or first.WhichOneof("body") != "welcome":
                    raise ConnectionError("this operator is not the leader")
                self.connected = True
                await self._exchange(call)
            finally:
                call.cancel()

    def _hello(self) -> wire.Hello:
        self._changed.clear()
        self._removed.clear()
        return wire.Hello(
            node=self.node,
            boot_id=self._boot,
            peer_address=f"{self.node}:8472",
            version=_VERSION,
            pods=[pod.report() for pod in self.pods.values()],
            held_jobs=self._held_jobs(),
            hardware=wire.Hardware(known=True),
        )

    async def _exchange(self, call: Call) -> None:
        ends = [asyncio.create_task(self._read(call)), asyncio.create_task(self._write(call))]
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    async def _read(self, call: Call) -> None:
        while isinstance(message := await call.read(), wire.HubMessage):
            if not self.dead.is_set():
                self._handle(message)

    def _handle(self, message: wire.HubMessage) -> None:
        kind = message.WhichOneof("body")
        if kind == "redirect":
            raise ConnectionError("another operator is the leader")
        if kind == "sweep_order" and self.measure is not None:
            self._sweep_reports.append(self.measure(message.sweep_order, self.node))
            self._wake.set()
        if kind == "store" and message.store.probe:
            self._store_reports.append(reached(message.store))
            self._wake.set()
        if kind == "drop_job":
            self._set_held(message.drop_job.job_uid, None)
        if kind not in ("assignment", "pick_port", "shutdown"):
            return
        order = getattr(message, kind)
        pod = self.pods.get(order.pod_uid)
        if pod is None:
            return
        if kind == "assignment":
            member_nodes = self.member_nodes.setdefault((order.job_uid, order.incarnation), set())
            member_nodes.add(self.node)
            pod.assign(order, member_nodes, time.time())
            if pod.interval:
                self._set_held(order.job_uid, order.slot_token)
        elif kind == "pick_port":
            pod.pick_port(order)
        else:
            pod.ended = True
            self.shut_down(pod, order.exit_code)
        self._mark_changed(pod.uid)

    async def _write(self, call: Call) -> None:
        heartbeat_due = time.monotonic() + random.uniform(0, HEARTBEAT_SECONDS)
        while True:
            self._wake.clear()
            if self.dead.is_set():
                await asyncio.sleep(HEARTBEAT_SECONDS)
                continue
            if time.monotonic() >= heartbeat_due:
                heartbeat_due = time.monotonic() + HEARTBEAT_SECONDS
                heartbeat = wire.Heartbeat(sent_unix_ms=int(time.time() * 1000))
                await call.write(wire.AgentMessage(heartbeat=heartbeat))
                self._progress()
            if self._held_changed:
                self._held_changed = False
                await call.write(wire.AgentMessage(held_jobs=self._held_jobs()))
            telemetry, self._telemetry = self._telemetry, []
            if telemetry:
                await call.write(wire.AgentMessage(telemetry=wire.Telemetry(pods=telemetry)))
            removed, self._removed = self._removed, []
            for uid in removed:
                await call.write(wire.AgentMessage(pod_removed=wire.PodRemoved(pod_uid=uid)))
            reports, self._sweep_reports = self._sweep_reports, []
            for report in reports:
                await call.write(wire.AgentMessage(sweep=report))
            probes, self._store_reports = self._store_reports, []
            for probe in probes:
                await call.write(wire.AgentMessage(store=probe))
            changed, self._changed = self._changed, {}
            for uid in changed:
                if (pod := self.pods.get(uid)) is not None:
                    await call.write(wire.AgentMessage(pod=pod.report()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, heartbeat_due - time.monotonic())):
                    await self._wake.wait()

    def _progress(self) -> None:
        """Advance each pod that trains by one step. This runs once per second, as often as real agents
        report progress.
        """
        now = time.time()
        for pod in self.pods.values():
            if pod.incarnation and not pod.ended and self.progressing(pod):
                pod.advance(now)
                self._changed[pod.uid] = None
                if self.telemetry:
                    self._telemetry.append(pod.telemetry())

    def _set_held(self, job_uid: str, slot_token: str | None) -> None:
        """Record whether this node's memory holds a job's checkpoints.

        `slot_token` is the slot token of these checkpoints; None if the memory holds none.
        """
        if self._held_tokens.get(job_uid) != slot_token:
            self._held_tokens.pop(job_uid, None)
            if slot_token is not None:
                self._held_tokens[job_uid] = slot_token
            self._held_changed = True
            self._wake.set()

    def _held_jobs(self) -> wire.HeldJobs:
        return wire.HeldJobs(
            jobs=[wire.HeldJob(job_uid=uid, slot_token=one) for uid, one in self._held_tokens.items()]
        )

    def _mark_changed(self, uid: str) -> None:
        self._changed[uid] = None
        self._wake.set()


def reached(store: wire.Store) -> wire.StoreReport:
    """Return the report of an agent that reaches a store, which supports conditional writes."""
    return wire.StoreReport(name=store.name, version=store.version, reached=True, conditional=True)
