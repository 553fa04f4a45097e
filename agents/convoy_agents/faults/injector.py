"""The faults of one node: begins them, keeps them, undoes them, and reports them to the hub."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from convoy_agents import metrics
from convoy_agents.backoff import Backoff
from convoy_agents.faults.disk import FullDisk
from convoy_agents.faults.error import FaultError, TargetGone
from convoy_agents.faults.fault import Fault, Surroundings, Target
from convoy_agents.faults.kill import KillRank
from convoy_agents.faults.link import LinkLimit
from convoy_agents.faults.pod_processes import NodeFolders
from convoy_agents.faults.record import Order, Record, Records, from_wire
from convoy_agents.faults.rules import order_refusal, target_refusal
from convoy_agents.faults.slow import Slow
from convoy_agents.faults.tenant import Tenant
from convoy_agents.pods.state import PodState
from convoy_agents.settings import Settings
from convoy_agents.wire import hub_pb2
from convoy_crds.perturbations import PerturbationKind

TICK_SECONDS = 0.25
"""Seconds between two checks and measurements of the faults in effect."""
REPORT_SECONDS = 5.0
"""Seconds between two reports of the achieved magnitude."""
MAX_ORDERS = 64
"""Maximum number of orders that wait. Further ones are dropped: the operator repeats them."""
UNDO_RETRY_SECONDS, MAX_UNDO_RETRY_SECONDS = 1.0, 30.0
"""First and longest pause between two attempts to undo a fault."""
DISABLED = "fault injection is off: set the chart's value faultInjection.enabled"

KINDS: Mapping[str, type[Fault]] = {
    PerturbationKind.SLOW_NODE.value: Slow,
    PerturbationKind.SLOW_RANK.value: Slow,
    PerturbationKind.KILL_RANK.value: KillRank,
    PerturbationKind.LINK_LIMIT.value: LinkLimit,
    PerturbationKind.FULL_DISK.value: FullDisk,
    PerturbationKind.TENANT.value: Tenant,
}

log = structlog.get_logger()


@dataclass(slots=True)
class _Running:
    """A fault that is not undone yet."""

    fault: Fault
    ends: float
    """Monotonic time at which the fault ends by itself."""
    why: str = ""
    """Reason for which the fault must be undone; empty while it goes on."""
    retry: Backoff | None = None
    """Back-off of undoing the fault; None while that has not failed."""
    retry_at: float = 0.0
    reported: float | None = None
    """Achieved magnitude in the last report."""
    reported_at: float = 0.0


class FaultInjector:
    """All faults of a node. One of them is changed at a time."""

    def __init__(
        self,
        enabled: bool,
        records: Records,
        around: Surroundings,
        pods: Callable[[], Iterable[PodState]],
        wake: Callable[[], None],
    ) -> None:
        """`pods` returns the states of the node's pods. `wake` is called when a report is due."""
        self._enabled = enabled
        self._records = records
        self._around = around
        self._pods = pods
        self._wake = wake
        self._running: dict[str, _Running] = {}
        self._due: dict[str, hub_pb2.FaultReport] = {}
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._orders: set[asyncio.Task[None]] = set()

    def handle(self, message: hub_pb2.HubMessage) -> None:
        """Handle an order of the hub: to inject a fault or to undo one."""
        if len(self._orders) >= MAX_ORDERS:
            kind = message.WhichOneof("body")
            log.warning("too many orders for faults, this one is dropped", kind=kind, limit=MAX_ORDERS)
            return
        if message.WhichOneof("body") == "inject_fault":
            self._spawn(self._inject(from_wire(message.inject_fault)))
        else:
            self._spawn(self._undo_ordered(message.undo_fault))

    def reports(self, again: bool) -> list[hub_pb2.FaultReport]:
        """Return the reports that have changed since the last call. `again` must be True at the start of a
        session; the result then has all faults that the agent remembers.
        """
        if again:
            known = [one for one in self._records.all() if one.injected_ms or one.over]
            self._due = {one.order.id: _report(one) for one in known} | self._due
        due, self._due = list(self._due.values()), {}
        return due

    async def recover(self) -> None:
        """Undo the faults that an earlier agent left. An undo that fails is repeated by `run`."""
        await _finished(self._records.load)
        for record in self._records.all():
            if not record.over:
                log.info("fault of an earlier agent", **_named(record))
                fault = KINDS[record.order.kind](record, self._around)
                self._running[record.order.id] = _Running(fault, 0.0, why="the agent restarted")
        async with self._lock:
            for running in list(self._running.values()):
                await self._undo(running)

    async def run(self) -> None:
        """Keep the faults in effect, and undo each one in time, until cancelled."""
        while True:
            if not self._running:
                self._changed.clear()
                await self._changed.wait()
            async with self._lock:
                for running in list(self._running.values()):
                    await self._tick(running)
            await asyncio.sleep(TICK_SECONDS)

    async def close(self) -> None:
        """Undo all faults because the agent stops. The next agent undoes what fails here."""
        for task in self._orders:
            task.cancel()
        await asyncio.gather(*self._orders, return_exceptions=True)
        async with self._lock:
            for running in list(self._running.values()):
                running.why = running.why or "the agent stopped"
                await self._undo(running)

    def clear(self) -> None:
        """Remove the records of faults that are over, because the node is no longer used."""
        for record in self._records.all():
            if record.over:
                self._records.remove(record.order.id)

    def drop_pod(self, uid: str) -> None:
        """Undo the faults of a pod that left the node."""
        for running in self._running.values():
            if running.fault.order.pod_uid == uid:
                running.why = running.why or "the pod left the node"
        self._changed.set()

    async def _inject(self, order: Order) -> None:
        async with self._lock:
            known = self._records.get(order.id)
            if known is not None and (known.order.pod_uid == order.pod_uid or not known.over):
                self._publish(known)  # The hub may have missed the report.
                return
            record = Record(order)
            others = [one.fault.order for one in self._running.values()]
            why = "" if self._enabled else DISABLED
            why = why or order_refusal(order, others) or self._target_refusal(order)
            if why:
                self._refuse(record, why)
                return
            fault = KINDS[order.kind](record, self._around)
            target = self._target(order)
            try:
                # The record must be complete before the fault changes anything.
                await _finished(self._records.save, record)
                self._running[order.id] = _Running(fault, self._around.clock() + order.seconds)
                await _finished(fault.start, target)
            except (FaultError, TargetGone, OSError) as error:
                await self._abandon(fault, str(error))
                return
            await self._settle(fault)
        self._changed.set()

    async def _undo_ordered(self, order: hub_pb2.UndoFault) -> None:
        async with self._lock:
            running, record = self._running.get(order.id), self._records.get(order.id)
            if running is not None:
                running.why = running.why or "the operator ended it"
                await self._undo(running)
            elif record is not None:
                self._publish(record)
            else:
                # The node was rebooted, or the order to inject never arrived. Nothing is left to undo.
                self._due[order.id] = hub_pb2.FaultReport(
                    id=order.id,
                    pod_uid=order.pod_uid,
                    state=hub_pb2.FaultReport.UNDONE,
                    message="this agent knows no fault of this id",
                    undone_unix_ms=_now_ms(),
                )
                self._wake()

    async def _tick(self, running: _Running) -> None:
        now, fault = self._around.clock(), running.fault
        if not running.why and fault.active and now >= running.ends:
            running.why = "its time is over"
        running.why = running.why or self._target_refusal(fault.order)
        if running.why:
            if now >= running.retry_at:
                await self._undo(running)
            return
        try:
            await _finished(fault.keep, self._target(fault.order))
        except (FaultError, TargetGone, OSError) as error:
            await self._end_early(running, str(error))
        except Exception as error:
            # One fault that fails must not keep the others from their end.
            log.exception("keeping a fault failed", **_named(fault.record))
            await self._end_early(running, f"an error of the agent, see its log: {error}")
        else:
            await self._settle(fault)

    async def _end_early(self, running: _Running, why: str) -> None:
        if running.fault.active:
            running.why = why
            await self._undo(running)
        else:
            await self._abandon(running.fault, why)

    async def _settle(self, fault: Fault) -> None:
        """Record and report that a fault has taken effect, and what it achieves."""
        record, now = fault.record, self._around.clock()
        running = self._running[record.order.id]
        if fault.active and not record.injected_ms:
            record.injected_ms = _now_ms()
            # The time counts from here: some kinds measure before they begin.
            running.ends = now + record.order.seconds
            log.info("fault injected", **_named(record))
            metrics.FAULTS.labels("injected").inc()
        elif record.achieved == running.reported or now - running.reported_at < REPORT_SECONDS:
            return
        if fault.active:
            running.reported, running.reported_at = record.achieved, now
            await _finished(self._save, record)
            self._publish(record)
        self._count()

    async def _abandon(self, fault: Fault, why: str) -> None:
        """Undo a fault that could not begin, and refuse its order."""
        running = self._running.get(fault.order.id)
        if running is None:
            self._refuse(fault.record, why)
            return
        running.why = why
        if await self._undo(running, report=False):
            await _finished(self._records.remove, fault.order.id)
            self._refuse(fault.record, why)

    async def _undo(self, running: _Running, *, report: bool = True) -> bool:
        """Undo a fault and record that it is over. Return False if that failed; it is then repeated."""
        record = running.fault.record
        try:
            await _finished(running.fault.undo)
        except TargetGone:
            pass
        except Exception as error:
            # Whatever the error is: try again, and undo the other faults.
            self._retry(running, error)
            return False
        del self._running[record.order.id]
        self._count()
        record.undone_ms, record.message, record.undo = _now_ms(), running.why, {}
        if report:
            await _finished(self._save, record)
            log.info("fault undone", why=running.why, achieved=record.achieved, **_named(record))
            metrics.FAULTS.labels("undone").inc()
            self._publish(record)
        return True

    def _retry(self, running: _Running, error: Exception) -> None:
        """Report that a fault could not be undone, and try again later."""
        record = running.fault.record
        running.retry = running.retry or Backoff(UNDO_RETRY_SECONDS, MAX_UNDO_RETRY_SECONDS)
        running.retry_at = self._around.clock() + running.retry.next()
        record.message = f"cannot be undone, the agent tries again: {error}"
        log.error("fault not undone, will retry", why=str(error), exc_info=error, **_named(record))
        metrics.FAULTS.labels("undo_failed").inc()
        self._publish(record)
        self._count()

    def _save(self, record: Record) -> None:
        """Write a record that only tells the next agent what is over. If that fails, log it and continue."""
        try:
            self._records.save(record)
        except OSError as error:
            log.error("record of a fault not written", why=str(error), **_named(record))

    def _refuse(self, record: Record, why: str) -> None:
        log.warning("fault refused", why=why, **_named(record))
        metrics.FAULTS.labels("refused").inc()
        refused = _report(record)
        refused.state, refused.message = hub_pb2.FaultReport.REFUSED, why
        self._due[record.order.id] = refused
        self._wake()

    def _publish(self, record: Record) -> None:
        if not record.injected_ms and not record.over:
            return  # The fault has not taken effect yet.
        self._due[record.order.id] = _report(record)
        self._wake()

    def _target_refusal(self, order: Order) -> str:
        return target_refusal(order, {pod.uid: pod for pod in self._pods()})

    def _target(self, order: Order) -> Target:
        """Return the present target of an order that `target_refusal` allows."""
        pods = {pod.uid: pod for pod in self._pods()}
        plan = pods[order.pod_uid].assignment
        members = tuple(uid for uid, pod in pods.items() if pod.assignment is not None)
        first, processes = (plan.rank_offset, plan.processes) if plan is not None else (0, 0)
        return Target(order.pod_uid, members, first, processes)

    def _count(self) -> None:
        metrics.FAULTS_ACTIVE.set(len(self._running))
        metrics.FAULTS_OVERDUE.set(sum(one.retry is not None for one in self._running.values()))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._orders.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._orders.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("order for a fault failed", exc_info=error)


async def _finished(work: Callable[..., Any], *arguments: object) -> None:
    """Run a blocking function in a thread. A cancellation waits for the function's end, so that no other
    function changes the same fault meanwhile.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


def assemble(
    settings: Settings, pods: Callable[[], Iterable[PodState]], wake: Callable[[], None]
) -> FaultInjector:
    """Build the injector of an agent."""
    records = Records(settings.run_dir / "faults", KINDS)
    node = NodeFolders.at(settings.node_root, Path("/proc"))
    around = Surroundings(node, settings.kubelet_dir, records.save)
    return FaultInjector(settings.fault_injection, records, around, pods, wake)


def _report(record: Record) -> hub_pb2.FaultReport:
    state = hub_pb2.FaultReport.UNDONE if record.over else hub_pb2.FaultReport.INJECTED
    return hub_pb2.FaultReport(
        id=record.order.id,
        pod_uid=record.order.pod_uid,
        kind=record.order.kind,
        state=state,
        achieved=record.achieved,
        message=record.message,
        injected_unix_ms=record.injected_ms,
        undone_unix_ms=record.undone_ms,
    )


def _named(record: Record) -> dict[str, object]:
    order = record.order
    return {
        "fault": order.id,
        "kind": order.kind,
        "pod_uid": order.pod_uid,
        "magnitude": order.magnitude,
    }


def _now_ms() -> int:
    return int(time.time() * 1000)
