"""Runs HealthSweeps: looks, stores what was learned and decided, then orders, cancels and forgets."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import structlog

from convoy_controllers.cached import Parent
from convoy_controllers.children import Event
from convoy_controllers.healthsweep.classes import stale
from convoy_controllers.healthsweep.observed import Stand, SweepNode
from convoy_controllers.healthsweep.participant import prefix
from convoy_controllers.healthsweep.plan import Step, advance
from convoy_controllers.merge_patch import merge_patch
from convoy_controllers.resources import HARDWARE_CLASSES, HEALTH_SWEEPS
from convoy_crds.guardpolicy import Budgets
from convoy_crds.hardwareclass import HardwareClass, HardwareClassStatus
from convoy_crds.healthsweep import HealthSweep, HealthSweepStatus, SweepPhase
from convoy_crds.nodehealth import Verdict
from convoy_crds.reasons.catalogue import Reasons
from convoy_operator import errors, views
from convoy_operator.events import Recorder
from convoy_operator.gateway import ApiGateway, ensure
from convoy_operator.guarding.seeing import Parsed, Sight
from convoy_operator.hub.sweeps import Sweeps
from convoy_operator.metrics import Metrics
from convoy_operator.world import World

log = structlog.get_logger(__name__)

LEAST_SECONDS = 0.5
"""Between two looks: news come in bursts."""
BUSY_SECONDS = 2.0
"""Between two looks while a sweep runs: whether nodes are idle is not announced."""
IDLE_SECONDS = 30.0
_COST = 10.0
"""Between two looks lies so many times what one took, but no more than BUSY_SECONDS."""
_RACK = Budgets().rack_label


class Sweeper:
    """Of the leader alone."""

    def __init__(
        self,
        gateway: ApiGateway,
        world: World,
        sweeps: Sweeps,
        sight: Sight,
        peer_address: Callable[[str], str],
        recorder: Recorder,
        metrics: Metrics,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._gateway = gateway
        self._world = world
        self._sweeps = sweeps
        self._sight = sight
        self._peer_address = peer_address
        self._recorder = recorder
        self._metrics = metrics
        self._now = now
        self.on_verdict: Callable[[], None] = lambda: None
        """Called when a node has been judged."""
        self._parsed = Parsed(HealthSweep)
        self._classes = Parsed(HardwareClass)
        self._news = asyncio.Event()
        sweeps.on_news = self.wake
        world.health_sweeps.listen(self._changed)

    def wake(self) -> None:
        """There is something new to look at."""
        self._news.set()

    async def run(self, unsettled: Callable[[], float]) -> None:
        """Looks again and again until cancelled. `unsettled`: seconds until it is known which agents are
        there.
        """
        loop = asyncio.get_running_loop()
        while True:
            if (wait := unsettled()) > 0:
                await asyncio.sleep(wait)
                continue
            self._news.clear()
            began = loop.time()
            try:
                busy = await self.look()
            except Exception:
                log.exception("health sweeps not looked at")
                busy = False
            await asyncio.sleep(min(BUSY_SECONDS, max(LEAST_SECONDS, _COST * (loop.time() - began))))
            try:
                async with asyncio.timeout(BUSY_SECONDS if busy else IDLE_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def look(self) -> bool:
        """One look at all sweeps; whether one of them runs."""
        found = self._parsed.all(self._world.health_sweeps)
        running = any(one.status.completion_time is None for one in found)
        nodes = self._nodes() if running else ()
        for sweep in found:
            try:
                await self._one(sweep, nodes)
            except errors.Conflict:
                # Somebody else has written; the watch brings it.
                continue
            except errors.ApiError as fault:
                log.warning("not written", sweep=sweep.metadata.name, error=str(fault))
            except Exception:
                log.exception("not looked at", sweep=sweep.metadata.name)
        self._tidy()
        await self._forget()
        return running

    async def _one(self, sweep: HealthSweep, nodes: Sequence[SweepNode]) -> None:
        if sweep.status.completion_time is not None:
            await self._carry_out(sweep, advance(sweep, nodes, self._sweeps.told, {}, self._now()))
            return
        known = {one.metadata.name: one.status for one in self._classes.all(self._world.hardware_classes)}
        # Hundreds of nodes take seconds: in a thread, since the leader's Lease has to be renewed meanwhile.
        step = await asyncio.to_thread(advance, sweep, nodes, self._sweeps.told, known, self._now())
        await self._carry_out(sweep, step)

    async def _carry_out(self, sweep: HealthSweep, step: Step) -> None:
        parent = self._world.health_sweeps.get("", sweep.metadata.name)
        if parent is None or parent.uid != sweep.metadata.uid:
            return
        if step.delete:
            await self._gateway.delete(HEALTH_SWEEPS, None, parent.name, uid=parent.uid)
            return
        for name, status in step.classes.items():
            try:
                await self._learn(name, status)
            except errors.Conflict:
                raise
            except errors.ApiError as fault:
                # Nodes get their verdicts all the same.
                log.warning("not learned", hardware_class=name, error=str(fault))
        for one in step.cancels:
            self._sweeps.cancel(one.node, one.name)
        if step.status is not None:
            await self._status(parent, sweep.status, step.status)
        for one in step.orders:
            self._sweeps.order(one)

    async def _learn(self, name: str, status: HardwareClassStatus) -> None:
        parent = self._world.hardware_classes.get("", name)
        if parent is None:
            parent = views.parent(await ensure(self._gateway, HARDWARE_CLASSES, name))
            self._world.hardware_classes.upsert(parent, own=True)
            log.info("hardware class first seen", name=name)
        if patch := merge_patch(parent.status, status.to_dict()):
            version = str(parent.version)
            raw = await self._gateway.patch_status(HARDWARE_CLASSES, None, name, version, patch)
            self._world.hardware_classes.upsert(views.parent(raw), own=True)

    async def _status(self, parent: Parent, before: HealthSweepStatus, after: HealthSweepStatus) -> None:
        if not (patch := merge_patch(parent.status, after.to_dict())):
            return
        version = str(parent.version)
        raw = await self._gateway.patch_status(HEALTH_SWEEPS, None, parent.name, version, patch)
        self._world.health_sweeps.upsert(views.parent(raw), own=True)
        judged = {one.node for one in before.nodes if one.verdict is not None}
        if after.done > before.done:
            self.on_verdict()
        for one in after.nodes:
            if one.verdict is not None and one.node not in judged:
                self._metrics.guard_sweeps.labels(one.verdict.value).inc()
                log.info("swept", node=one.node, verdict=one.verdict.value, message=one.message)
                if one.verdict is Verdict.FAIL:
                    words = f"{one.node}: {one.message}"
                    self._recorder.record(HEALTH_SWEEPS, dict(parent.raw), Event(Reasons.NODE_FAILED, words))
        if after.phase is not before.phase and after.phase in (SweepPhase.COMPLETE, SweepPhase.FAILED):
            reason = Reasons.SWEPT if after.phase is SweepPhase.COMPLETE else Reasons.SWEEP_NOT_RUN
            self._recorder.record(HEALTH_SWEEPS, dict(parent.raw), Event(reason, after.message))

    async def _forget(self) -> None:
        """Deletes classes that there are no nodes of any more."""
        for one in self._classes.all(self._world.hardware_classes):
            parent = self._world.hardware_classes.get("", one.metadata.name)
            if parent is None or not stale(one, self._now()):
                continue
            try:
                await self._gateway.delete(HARDWARE_CLASSES, None, parent.name, uid=parent.uid)
                log.info("hardware class forgotten", name=parent.name)
            except errors.ApiError as fault:
                log.warning("not deleted", hardware_class=parent.name, error=str(fault))

    def _tidy(self) -> None:
        """Cancels and forgets what belongs to no sweep that runs."""
        running = tuple(
            f"{prefix(one)}."
            for one in self._parsed.all(self._world.health_sweeps)
            if one.status.completion_time is None
        )
        for node, order, told in self._sweeps.all():
            if order.startswith(running):
                continue
            if told.stand is Stand.RUNNING:
                self._sweeps.cancel(node, order)
            else:
                self._sweeps.forget(node, order)

    def _nodes(self) -> Sequence[SweepNode]:
        seen = self._sight.look()
        claims = Counter(seen.named.values())
        found = []
        for facts in (*seen.all_facts, *seen.strangers.values()):
            if (node := facts.node) is not None:
                known = self._world.nodes.get("", node.name)
                labels = known.labels if known is not None else {}
                found.append(
                    SweepNode(
                        name=node.name,
                        hardware=seen.hardware.get(node.name)
                        or self._own(seen.named.get(node.name, ""), claims),
                        rack=node.rack or labels.get(_RACK, ""),
                        labels=labels,
                        address=self._peer_address(node.name),
                        heard=node.telemetry,
                        pods=node.pods,
                    )
                )
        return tuple(found)

    @staticmethod
    def _own(hardware: str, claims: Counter[str]) -> str:
        """The hardware of a node that no NodeHealth speaks for; empty where others claim the same."""
        return hardware if claims[hardware] == 1 else ""

    def _changed(self, before: Parent | None, after: Parent | None, own: bool) -> None:
        if not own:
            self.wake()
