"""The loop of the operator: key -> observe -> plan -> perform -> status -> events -> commands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

import structlog

from convoy_controllers.cached import Parent
from convoy_controllers.commands import Command
from convoy_controllers.keys import Key
from convoy_controllers.merge_patch import merge_patch
from convoy_controllers.plan import Plan
from convoy_controllers.progress_throttle import ProgressThrottle
from convoy_controllers.resources import PARENTS
from convoy_controllers.trainingjob.refusal import Refusal
from convoy_crds.checkpointstore import KIND as CHECKPOINT_STORE
from convoy_crds.trainingjob import KIND as TRAINING_JOB
from convoy_operator import errors, invalid, views
from convoy_operator.dry_runs import DryRuns
from convoy_operator.events import Recorder
from convoy_operator.gateway import ApiGateway
from convoy_operator.kinds import PLANNERS, Hub, Planner
from convoy_operator.limits import FLOW
from convoy_operator.metrics import Metrics
from convoy_operator.perform import Children
from convoy_operator.pod_events import PodEvents
from convoy_operator.queue import WorkQueue
from convoy_operator.recovery_meter import RecoveryMeter
from convoy_operator.refusals import Refusals
from convoy_operator.settings import Settings
from convoy_operator.world import World

log = structlog.get_logger(__name__)

_LONGEST = 600.0
"""Seconds after which a reconcile is given up: ten thousand creates at the default rate fit six times."""
_COMMANDS_AT_ONCE = 16
"""Commands after which everybody else has a turn."""


class Agents(Hub, Protocol):
    """The hub, as a reconcile sees it."""

    def unsettled(self, nodes: set[str]) -> float:
        """Seconds to wait until it is known which of these nodes' agents are there; 0 when it is."""
        ...

    async def resolve(self, store: Parent) -> None:
        """Looks up the Secret of a CheckpointStore."""
        ...

    def send(self, command: Command) -> None:
        """Tells an agent, if it is connected; a plan repeats what had no effect."""
        ...


class Reconciler:
    """Takes keys from the queue and makes the world as their plans want it."""

    def __init__(
        self,
        *,
        gateway: ApiGateway,
        world: World,
        queue: WorkQueue[Key],
        recorder: Recorder,
        agents: Agents,
        metrics: Metrics,
        settings: Settings,
        pod_events: PodEvents | None = None,
        planners: Mapping[str, Planner] = PLANNERS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateway = gateway
        self._world = world
        self._queue = queue
        self._recorder = recorder
        self._agents = agents
        self._metrics = metrics
        self._planners = planners
        self._now = now
        self._clock = clock
        self._children = Children(gateway, world, settings.parallel_creates)
        self._dry_runs = DryRuns(gateway)
        self._refusals = Refusals(settings.backoff_min_seconds, settings.backoff_max_seconds)
        self._pod_events = pod_events or PodEvents(gateway, world, queue.add)
        self._recoveries = RecoveryMeter(metrics, world, agents.slots)
        self._throttle: ProgressThrottle[Key] = ProgressThrottle(
            settings.progress_seconds, settings.progress_writes_per_second
        )
        world.jobs.listen(self._gone)

    async def work(self) -> None:
        """One worker; runs until cancelled."""
        while True:
            key = await self._queue.get()
            FLOW.set(key)
            try:
                await self.handle(key)
            finally:
                self._queue.done(key)
                self._metrics.queue_depth.set(self._queue.depth)

    def progress_delay(self, key: Key) -> float:
        """Seconds until a job may tell of its progress again."""
        return self._throttle.turn(key, self._world.active, self._clock())

    async def handle(self, key: Key) -> None:
        """One reconcile of one key; whatever goes wrong stays with that key."""
        with (
            structlog.contextvars.bound_contextvars(object=str(key)),
            self._metrics.reconcile_seconds.labels(key.kind).time(),
        ):
            try:
                async with asyncio.timeout(_LONGEST):
                    requeue = await self._reconcile(key)
            except errors.Conflict as fault:
                wait = self._queue.retry(key)
                self._metrics.reconcile_errors.labels(key.kind, "conflict").inc()
                log.info("the object changed meanwhile", error=str(fault), retry_seconds=round(wait, 2))
            except (errors.ApiError, TimeoutError) as fault:
                wait = self._queue.retry(key)
                self._metrics.reconcile_errors.labels(key.kind, "api").inc()
                log.warning("reconcile did not finish", error=str(fault), retry_seconds=round(wait, 2))
            except Exception as fault:
                wait = self._queue.retry(key)
                self._metrics.reconcile_errors.labels(key.kind, "bug").inc()
                log.exception("reconcile failed", retry_seconds=round(wait, 2))
                await self._confess(key, fault)
            else:
                self._queue.forget(key)
                if requeue is not None:
                    self._queue.add(key, max(requeue, 0.05))

    async def _confess(self, key: Key, fault: Exception) -> None:
        """Reports a fault of the operator's own: by an Event, and by the status of a job that has none."""
        parent = self._world.parents(key.kind).get(key.namespace, key.name)
        if parent is None:
            return
        why = f"{type(fault).__name__}: {fault}"[:512]
        plan = invalid.failed(key.kind, parent.raw, why)
        for event in plan.events:
            self._recorder.record(PARENTS[key.kind], dict(parent.raw), event)
        try:
            await self._store(key, parent, plan)
        except errors.ApiError as refusal:
            log.warning("the failure is not in the status", error=str(refusal))

    async def _reconcile(self, key: Key) -> float | None:
        """Seconds until time alone makes another reconcile worth while."""
        parent = self._world.parents(key.kind).get(key.namespace, key.name)
        if parent is None:
            self._throttle.drop(key)
            return None
        if unsettled := self._unsettled(key):
            return unsettled
        if key.kind == CHECKPOINT_STORE.name:
            await self._agents.resolve(parent)
        plan = self._plan(key, parent)
        waits = [plan.requeue_after]
        if plan.status_first:
            parent, wait = await self._store(key, parent, plan)
            waits.append(wait)
        await self._children.delete(parent, plan.delete)
        await self._children.end(parent, plan.end)
        if plan.create and (refused := await self._create(parent, plan)):
            log.warning("pods refused", pods=refused)
            # Said in this very status: written before, it would change with every try.
            told = plan.events if plan.status_first else ()
            plan = self._plan(key, parent)
            plan = replace(plan, events=(*told, *plan.events), status_first=False)
            waits.append(plan.requeue_after)
        waits.append(self._retry(parent, plan))
        if not plan.status_first:
            parent, wait = await self._store(key, parent, plan)
            waits.append(wait)
        self._pod_events.request(key, plan.inspect)
        self._recoveries.look(parent)
        for event in plan.events:
            self._recorder.record(PARENTS[key.kind], dict(parent.raw), event)
        for number, command in enumerate(plan.commands, 1):
            self._agents.send(command)
            if number % _COMMANDS_AT_ONCE == 0:
                # A huge Strict job's take a second to be written down.
                await asyncio.sleep(0)
        if plan.delete_parent:
            await self._delete_parent(key, parent)
            return None
        return min((wait for wait in waits if wait is not None), default=None)

    def _plan(self, key: Key, parent: Parent) -> Plan:
        refused = self._refusals.standing(parent.uid, parent.generation, self._clock())
        return self._planners[key.kind](self._world, self._agents, parent, refused, self._now())

    def _unsettled(self, key: Key) -> float:
        """A new leader judges no job before the agents of its pods had time to say what they know."""
        if key.kind != TRAINING_JOB.name:
            return 0.0
        pods = self._world.pods.indexed((key.namespace, key.name))
        nodes = {pod.view.node for pod in pods if pod.view.node}
        job = self._world.jobs.get(key.namespace, key.name)
        if job is not None and views.in_memory(job.raw):
            # Any node may hold checkpoints of it.
            nodes |= self._world.ready_nodes
        return self._agents.unsettled(nodes)

    def _retry(self, parent: Parent, plan: Plan) -> float | None:
        """Seconds until refused pods may be tried again; None when none was, or none is wanted any more."""
        wait = self._refusals.wait(parent.uid, self._clock())
        if wait == 0 and not plan.create:
            self._refusals.clear(parent.uid)
            return None
        return wait

    def _gone(self, before: Parent | None, after: Parent | None, own: bool) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self._refusals.clear(before.uid)

    async def _create(self, parent: Parent, plan: Plan) -> dict[str, Refusal]:
        now = self._clock()
        if self._refusals.standing(parent.uid, parent.generation, now):
            return {}
        refused = await self._dry_runs.refused(parent, plan.dry_run)
        refused = refused or await self._children.create(parent, plan.create)
        if refused and self._world.jobs.by_uid(parent.uid):
            self._refusals.record(parent.uid, parent.generation, refused, self._clock())
        else:
            self._refusals.clear(parent.uid)
        return refused

    async def _store(self, key: Key, parent: Parent, plan: Plan) -> tuple[Parent, float | None]:
        """Writes the status if it differs: the parent as stored, and seconds to wait if it is too early."""
        patch = merge_patch(parent.status, plan.status) if plan.status is not None else {}
        if not patch:
            return parent, None
        if wait := self._throttle.wait(key, parent.status, patch, self._world.active, self._clock()):
            return parent, wait
        self._recoveries.deciding(parent, plan)
        try:
            raw = await self._gateway.patch_status(
                PARENTS[key.kind], parent.namespace or None, parent.name, str(parent.version), patch
            )
        except errors.NotFound:
            self._world.parents(key.kind).remove(parent)
            raise
        self._throttle.record_write(key, self._clock())
        stored = views.parent(raw)
        self._world.parents(key.kind).upsert(stored, own=True)
        return stored, None

    async def _delete_parent(self, key: Key, parent: Parent) -> None:
        try:
            await self._gateway.delete(
                PARENTS[key.kind], parent.namespace or None, parent.name, uid=parent.uid
            )
        except (errors.NotFound, errors.Conflict):
            log.info("already deleted")
        self._world.parents(key.kind).remove(parent)
