"""Handles the hub's orders for health sweeps, one sweep at a time, and keeps the reports for the hub."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Protocol

import structlog

from convoy_agents import metrics
from convoy_agents.guard.sweep import catalogue, report
from convoy_agents.guard.sweep.probe import Probe, Tier
from convoy_agents.guard.sweep.provenance import Provenance
from convoy_agents.guard.sweep.runner import PairProbe, Result, Runner
from convoy_agents.wire import hub_pb2

MAX_REPORTS = 16
"""Maximum number of sweep reports that the agent keeps. If the hub repeats an order, the agent sends the
kept report again.
"""
NO_DEADLINE = 24 * 3600.0

log = structlog.get_logger()


class PairProbes(Protocol):
    """The agent's functions for probes that need a partner node."""

    def pair_probe(self, name: str, partner: hub_pb2.NodeAddress) -> PairProbe:
        """Return a function that runs a pair probe of the sweep `name` with this partner."""
        ...

    async def respond(self, name: str, partner: hub_pb2.NodeAddress, seconds: float) -> None:
        """Let the partner measure this node for at most `seconds`. Return earlier after the partner's last
        request, or if the partner's next request does not arrive in time.
        """
        ...

    async def release(self, name: str, partner: hub_pb2.NodeAddress) -> None:
        """Notify the partner that this node sends no more requests."""
        ...


class SweepOrders:
    """Runs the sweeps that the hub orders. It calls `wake` when a report must be sent to the hub."""

    def __init__(
        self,
        node: str,
        runner: Runner,
        pair_probes: PairProbes,
        provenance: Callable[[], Provenance],
        wake: Callable[[], None],
    ) -> None:
        self._node = node
        self._runner = runner
        self._pair_probes = pair_probes
        self._provenance = provenance
        self._wake = wake
        self._reports: OrderedDict[str, hub_pb2.SweepReport] = OrderedDict()
        self._unconfirmed: set[str] = set()
        """Names of the sweeps whose final report the hub has not confirmed."""
        self._due: dict[str, hub_pb2.SweepReport] = {}
        self._running: tuple[str, asyncio.Task[None]] | None = None

    def handle(self, message: hub_pb2.HubMessage) -> None:
        """Handle one message of the hub: an order, a cancellation or a confirmation."""
        match message.WhichOneof("body"):
            case "sweep_order":
                self._start(message.sweep_order)
            case "sweep_cancel":
                self._cancel(message.sweep_cancel.name)
            case "sweep_received":
                self._confirm(message.sweep_received.name)

    def reports(self, again: bool) -> list[hub_pb2.SweepReport]:
        """Return the reports that have changed since the last call. `again` must be True at the start of a
        session; the result then also includes all reports that the hub has not confirmed.
        """
        if again:
            self._due.update(
                {name: self._reports[name] for name in self._reports if name in self._unconfirmed}
            )
        due, self._due = list(self._due.values()), {}
        # Return copies, because a running sweep keeps changing its report.
        return [hub_pb2.SweepReport.FromString(one.SerializeToString()) for one in due]

    async def close(self) -> None:
        """Cancel the running sweep, kill its child processes, and wait until the sweep has ended."""
        if self._running:
            task = self._running[1]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _confirm(self, name: str) -> None:
        known = self._reports.get(name)
        if known and known.state != hub_pb2.SweepReport.RUNNING:
            self._unconfirmed.discard(name)

    def _start(self, order: hub_pb2.SweepOrder) -> None:
        name = order.name
        if known := self._reports.get(name):
            self._publish(known)
            return
        if self._running:
            self._refuse(name, f"sweep {self._running[0]!r} is already running on this node")
            return
        try:
            probes = _probes(order, self._runner.accelerators())
        except ValueError as error:
            self._refuse(name, str(error))
            return
        log.info("sweep begins", name=name, probes=[probe.name for probe in probes])
        now = report.started(name, self._node, self._provenance())
        self._reports[name] = now
        if len(self._reports) > MAX_REPORTS:
            oldest, _ = self._reports.popitem(last=False)
            self._unconfirmed.discard(oldest)
        task = asyncio.create_task(self._run(order, probes, now), name=f"sweep {name}")
        task.add_done_callback(partial(self._finish, now))
        self._running = name, task
        self._unconfirmed.add(name)
        self._publish(now)

    def _cancel(self, name: str) -> None:
        if self._running and self._running[0] == name:
            self._running[1].cancel()
        elif known := self._reports.get(name):
            self._publish(known)
        else:
            self._refuse(name, "this agent has no sweep of this name")

    async def _run(self, order: hub_pb2.SweepOrder, probes: list[Probe], now: hub_pb2.SweepReport) -> None:
        partner = order.pair.partner
        seconds = float(order.deadline_seconds or NO_DEADLINE)

        def record(result: Result) -> None:
            metrics.PROBES.labels(result.finding.outcome.value).inc()
            report.add(now, result, partner.node if result.probe.tier is Tier.L2 else "")
            self._publish(now)

        if _is_responder(order):
            await self._pair_probes.respond(order.name, partner, seconds)
            return
        await self._runner.run(probes, seconds, self._pair_probes.pair_probe(order.name, partner), record)
        if order.HasField("pair"):
            await self._pair_probes.release(order.name, partner)

    def _finish(self, now: hub_pb2.SweepReport, task: asyncio.Task[None]) -> None:
        self._running = None
        now.state = hub_pb2.SweepReport.CANCELLED if task.cancelled() else hub_pb2.SweepReport.DONE
        metrics.SWEEPS.labels("cancelled" if task.cancelled() else "done").inc()
        if not task.cancelled() and (error := task.exception()):
            log.error("sweep failed", name=now.name, exc_info=error)
            now.message = f"{type(error).__name__}: {error}"
        log.info("sweep ends", name=now.name, state=hub_pb2.SweepReport.State.Name(now.state))
        self._publish(now)

    def _refuse(self, name: str, why: str) -> None:
        log.warning("sweep refused", name=name, why=why)
        metrics.SWEEPS.labels("refused").inc()
        self._publish(report.refused(name, self._node, why))

    def _publish(self, what: hub_pb2.SweepReport) -> None:
        self._due[what.name] = what
        self._wake()


def _probes(order: hub_pb2.SweepOrder, accelerators: int) -> list[Probe]:
    """Return the probes that an order selects. Raises ValueError if the order is invalid."""
    if not order.name:
        raise ValueError("name: the sweep order has no name")
    if _is_responder(order):
        return []
    if Tier.L2 in order.tiers and not order.HasField("pair"):
        raise ValueError("pair: probes of tier L2 need a partner node")
    found = catalogue.select(order.tiers, order.probes, accelerators)
    if not found:
        raise ValueError("tiers and probes: the order selects no probe")
    return found


def _is_responder(order: hub_pb2.SweepOrder) -> bool:
    return order.HasField("pair") and order.pair.role == hub_pb2.SweepPair.RESPONDER
