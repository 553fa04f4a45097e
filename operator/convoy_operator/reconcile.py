"""The operator's reconcile loop. It gets a key, observes the object, makes a plan, and executes the plan's
children, status, Events and commands.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import structlog
from pydantic import ValidationError

from convoy_controllers.cached import CachedObject
from convoy_controllers.children import Apply, Check, Child, Create
from convoy_controllers.commands import Command
from convoy_controllers.controller import Controller
from convoy_controllers.controllers import CONTROLLERS
from convoy_controllers.keys import Key
from convoy_controllers.merge_patch import merge_patch
from convoy_controllers.placement.forecast.case import Case
from convoy_controllers.plan import Plan
from convoy_controllers.progress_throttle import ProgressThrottle
from convoy_controllers.workers.refusal import Refusal
from convoy_operator import errors, invalid, views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.dry_runs import DryRuns
from convoy_operator.events import EventRecorder
from convoy_operator.executor import Executor
from convoy_operator.gateway import ApiGateway
from convoy_operator.limits import FLOW
from convoy_operator.metrics import Metrics
from convoy_operator.pod_events import PodEvents
from convoy_operator.queue import WorkQueue
from convoy_operator.reader import ClusterReader
from convoy_operator.refusals import Refusals
from convoy_operator.settings import Settings

log = structlog.get_logger(__name__)

_DEADLINE_SECONDS = 600.0
"""Timeout of one reconcile in seconds. Ten thousand creates at the default rate take a sixth of this time."""
_COMMANDS_AT_ONCE = 16
"""Number of commands to send before other tasks get a turn."""


class PlanMeter(Protocol):
    """Measures the plans for objects of one kind."""

    def before_status_write(self, parent: CachedObject, plan: Plan) -> None:
        """Record that the operator is about to store the plan's status."""
        ...

    def after_reconcile(self, parent: CachedObject) -> None:
        """Update the measurements of an object after its plan was executed without an error."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileContext:
    """The objects that the Reconciler uses and does not create."""

    gateway: ApiGateway
    """Gateway for all requests except those of the controllers of node objects."""
    node_gateway: ApiGateway
    """Gateway for the controllers of node objects. It has a rate limit of its own. So nodes that fail at
    the same time get their status and taints at once, even if other controllers send many requests.
    """
    cache: ClusterCache
    queue: WorkQueue[Key]
    recorder: EventRecorder
    metrics: Metrics
    settings: Settings
    pod_events: PodEvents
    simulate: Callable[[Key, Sequence[Case]], None] = lambda key, cases: None
    """Function that simulates the steps of an object's plan in the background."""
    send: Callable[[Command], None]
    """Function that sends a command to an agent if the agent is connected. A plan may repeat a command,
    because a repeated command has no effect.
    """
    unsettled: Callable[[set[str]], float]
    """Function that receives node names. It returns the seconds until the hub can tell which of these
    nodes' agents are connected; 0 if it can tell already.
    """
    lookups: Mapping[str, Callable[[CachedObject], Awaitable[None]]] = field(default_factory=dict)
    """For some kinds, by kind: a function that reads further data from the API server before an object of
    the kind is observed.
    """
    meters: Mapping[str, PlanMeter] = field(default_factory=dict)
    """The PlanMeter of each kind whose plans are measured, by kind."""
    clock: Callable[[], float] = time.monotonic
    processor: Callable[[], float] = time.process_time
    """Function that returns the processor seconds that this process has used."""


class Reconciler:
    """Gets keys from the queue, makes a plan for each object, and executes the plan."""

    def __init__(
        self,
        context: ReconcileContext,
        reader: ClusterReader,
        refusals: Refusals,
        controllers: Iterable[Controller[Any]] = CONTROLLERS,
    ) -> None:
        """Build one executor per controller. `refusals` must be the object that `reader` reads."""
        self._context = context
        self._cache = context.cache
        self._queue = context.queue
        self._metrics = context.metrics
        self._clock = context.clock
        self._reader = reader
        self._refusals = refusals
        self._controllers = {one.resource.kind: one for one in controllers}
        settings = context.settings
        self._executors = {
            kind: Executor(
                self._gateway(one),
                context.cache,
                context.recorder,
                context.metrics,
                settings.parallel_creates,
                context.clock,
            )
            for kind, one in self._controllers.items()
        }
        self._dry_runs = DryRuns(context.gateway)
        self._throttle: ProgressThrottle[Key] = ProgressThrottle(
            settings.progress_seconds, settings.progress_writes_per_second
        )
        for store in context.cache.kinds.values():
            store.listen(self._removed)

    def _gateway(self, controller: Controller[Any]) -> ApiGateway:
        return self._context.node_gateway if controller.reflector else self._context.gateway

    async def work(self) -> None:
        """Run one worker until cancelled."""
        while True:
            key = await self._queue.get()
            FLOW.set(key)
            try:
                await self.handle(key)
            finally:
                self._queue.done(key)
                self._metrics.queue_depth.set(self._queue.depth)

    def progress_delay(self, key: Key) -> float:
        """Return the seconds until the operator may write the object's progress to its status again."""
        return self._throttle.turn(key, self._cache.active, self._clock())

    async def handle(self, key: Key) -> None:
        """Reconcile the object of one key. If that fails, log the error and retry the key later."""
        controller = self._controllers[key.kind]
        began = self._context.processor()
        with (
            structlog.contextvars.bound_contextvars(object=str(key)),
            self._metrics.reconcile_seconds.labels(key.kind).time(),
        ):
            try:
                async with asyncio.timeout(_DEADLINE_SECONDS):
                    requeue = await self._reconcile(controller, key)
            except errors.Conflict as fault:
                wait = self._queue.retry(key)
                self._metrics.reconcile_errors.labels(key.kind, "conflict").inc()
                log.info(
                    "object changed during the reconcile, will retry",
                    error=str(fault),
                    retry_seconds=round(wait, 2),
                )
            except (errors.ApiError, TimeoutError) as fault:
                wait = self._queue.retry(key)
                self._metrics.reconcile_errors.labels(key.kind, "api").inc()
                log.warning(
                    "a request of the reconcile failed, will retry",
                    error=str(fault),
                    retry_seconds=round(wait, 2),
                )
            except Exception as fault:
                wait = self._queue.retry(key)
                self._metrics.reconcile_errors.labels(key.kind, "bug").inc()
                log.exception("reconcile failed because of a bug, will retry", retry_seconds=round(wait, 2))
                await self._report_bug(controller, key, fault)
            else:
                self._queue.reset_backoff(key)
                if controller.pace is not None:
                    self._queue.rest(key, controller.pace.pause_seconds(self._context.processor() - began))
                if requeue is not None:
                    self._queue.add(key, max(requeue, 0.05))

    async def _report_bug(self, controller: Controller[Any], key: Key, fault: Exception) -> None:
        """Report an internal fault by an Event. If the object has no phase yet, also report the fault in
        its status.
        """
        parent = self._cache.store(controller.resource).get(key.namespace, key.name)
        if not isinstance(parent, CachedObject):
            return
        why = f"{type(fault).__name__}: {fault}"[:512]
        plan = invalid.failed(controller.validity, parent.raw, why)
        self._record(controller, parent, plan)
        try:
            await self._store(controller, key, parent, plan)
        except errors.ApiError as refusal:
            log.warning("storing the failure in the status failed", error=str(refusal))

    async def _reconcile(self, controller: Controller[Any], key: Key) -> float | None:
        """Reconcile one object. Return the seconds until it must be reconciled again even if nothing
        changes; None if it must be reconciled only after a change.
        """
        parent = self._cache.store(controller.resource).get(key.namespace, key.name)
        if parent is None:
            self._throttle.drop(key)
            return None
        if unsettled := self._context.unsettled(set(controller.waits_for(self._reader, key))):
            return unsettled
        if (lookup := self._context.lookups.get(key.kind)) is not None:
            await lookup(parent)
        plan = await self._plan(controller, key, parent)
        waits = [plan.requeue_after]
        # Count the planned pods before anything else runs, so that no other plan chooses the same room.
        with self._cache.usage.creating(plan.manifests):
            if plan.status_first:
                parent, wait = await self._store(controller, key, parent, plan)
                waits.append(wait)
                # Record the Events now. If a child fails, the next plan finds the status already stored and
                # contains no Events.
                self._record(controller, parent, plan)
                plan = replace(plan, events=())
            refused = await self._children(controller, parent, plan)
        if refused:
            log.warning("API server refused children, see the object's status", names=refused)
            # Plan again, and store the status only after that, so that one write contains the refusals too. A
            # write before and a write after the refusals would change the status twice in every attempt.
            plan = replace(await self._plan(controller, key, parent), status_first=False)
            waits.append(plan.requeue_after)
        waits += [self._retry(parent, plan), self._executors[key.kind].field_conflicts.wait(parent.uid)]
        if not plan.status_first:
            parent, wait = await self._store(controller, key, parent, plan)
            waits.append(wait)
        self._context.pod_events.request(key, plan.inspect)
        self._context.simulate(key, plan.simulate)
        if plan.memory is not None and self._cache.store(controller.resource).by_uid(parent.uid):
            self._reader.keep_memory(parent.uid, plan.memory)
        if (meter := self._context.meters.get(key.kind)) is not None:
            meter.after_reconcile(parent)
        self._record(controller, parent, plan)
        await self._send(plan.commands)
        if plan.delete_parent:
            await self._delete(controller, parent)
            return None
        return min((wait for wait in waits if wait is not None), default=None)

    async def _plan(self, controller: Controller[Any], key: Key, parent: Any) -> Plan:
        now = self._reader.now()
        if controller.kind is not None:
            if not controller.manages(parent.raw):
                return Plan()
            try:
                self._reader.read(controller.kind, parent)
            except ValidationError as error:
                log.warning("object is invalid, see its status", error=str(error))
                return invalid.plan(controller.validity, parent.raw, error, now)
        observed = controller.observe(self._reader, key)
        if observed is None:
            return Plan()
        if controller.in_thread:
            return await asyncio.to_thread(controller.plan, observed, now)
        return controller.plan(observed, now)

    async def _children(self, controller: Controller[Any], parent: Any, plan: Plan) -> Mapping[str, Refusal]:
        """Execute the plan's children. Return the refusals of the API server by child name."""
        executor = self._executors[controller.resource.kind]
        generation = parent.generation if isinstance(parent, CachedObject) else 0
        children = [child for child in plan.children if not isinstance(child, Create)]
        standing = self._refusals.standing(parent.uid, generation)
        optional = {c.name for c in plan.children if isinstance(c, Apply | Create) and not c.required}
        blocked = any(one.required for one in standing.values())
        # While the back-off of refused children has not ended, create no child at all. After the back-off,
        # create all children together. Optional children hold up no others.
        children = [
            one for one in children if not _creates_object(one) or not (blocked or one.name in standing)
        ]
        creations = [one for one in plan.creations if not (blocked or one.name in standing)]
        refused = dict(await executor.execute(parent, children))
        await executor.prune(parent, plan.prune, plan.children)
        for required in (True, False):
            part = [one for one in creations if one.required is required]
            if part and refused.keys() <= optional:
                fault = await self._dry_run(controller, parent, part)
                refused |= fault or await executor.execute(parent, part)
        refused = {name: replace(one, required=name not in optional) for name, one in refused.items()}
        if not refused and not (creations or any(map(_creates_object, children))):
            return {}
        if refused and self._cache.store(controller.resource).by_uid(parent.uid):
            self._refusals.record(parent.uid, generation, {**standing, **refused})
        elif not standing:
            self._refusals.clear(parent.uid)
        return refused

    async def _dry_run(
        self, controller: Controller[Any], parent: Any, creations: Sequence[Create]
    ) -> Mapping[str, Refusal]:
        tried = [child.manifest for child in creations if child.dry_run]
        if not tried or controller.kind is None:
            return {}
        model = self._reader.read(controller.kind, parent)

        def explain(manifest: Mapping[str, Any], fault: errors.Invalid) -> Refusal | None:
            return controller.explain(model, manifest, fault.message, fault.causes)

        return await self._dry_runs.refused(parent.namespace, tried, explain)

    def _retry(self, parent: Any, plan: Plan) -> float | None:
        """Return the seconds until the refused children may be retried. Return None if no child was
        refused, or if the plan no longer contains a child to create.
        """
        wait = self._refusals.wait(parent.uid)
        if wait == 0 and not any(map(_creates_object, plan.children)):
            self._refusals.clear(parent.uid)
            return None
        return wait

    def _removed(self, before: CachedObject | None, after: CachedObject | None, own: bool) -> None:
        if before is not None and (after is None or after.uid != before.uid):
            self._refusals.clear(before.uid)
            for executor in self._executors.values():
                executor.field_conflicts.drop(before.uid)

    def _record(self, controller: Controller[Any], parent: Any, plan: Plan) -> None:
        for event in plan.events:
            self._context.recorder.record(controller.resource, dict(parent.raw), event)

    async def _send(self, commands: Sequence[Command]) -> None:
        for number, command in enumerate(commands, 1):
            self._context.send(command)
            if number % _COMMANDS_AT_ONCE == 0:
                # Let other tasks run: serialising all commands of a huge Strict job takes about a second.
                await asyncio.sleep(0)

    async def _store(
        self, controller: Controller[Any], key: Key, parent: Any, plan: Plan
    ) -> tuple[Any, float | None]:
        """Store the plan's status if it differs from the object's status.

        Return the object as the API server stored it, or the unchanged object if nothing was stored. If
        only the progress differs and the operator may not write it yet, also return the seconds to wait.
        """
        patch = merge_patch(parent.status, plan.status) if plan.status is not None else {}
        if not patch:
            return parent, None
        if controller.progress and (
            wait := self._throttle.wait(
                key, parent.status, patch, self._cache.active, self._clock(), controller.progress
            )
        ):
            return parent, wait
        if (meter := self._context.meters.get(key.kind)) is not None:
            meter.before_status_write(parent, plan)
        store = self._cache.kinds[controller.resource.kind]
        try:
            raw = await self._gateway(controller).patch_status(
                controller.resource, parent.namespace or None, parent.name, str(parent.version), patch
            )
        except errors.NotFound:
            store.remove(parent)
            raise
        self._throttle.record_write(key, self._clock())
        stored = views.cached_object(raw)
        store.upsert(stored, own=True)
        return stored, None

    async def _delete(self, controller: Controller[Any], parent: CachedObject) -> None:
        try:
            await self._gateway(controller).delete(
                controller.resource, parent.namespace or None, parent.name, uid=parent.uid
            )
        except (errors.NotFound, errors.Conflict):
            log.info("object is already deleted")
        self._cache.store(controller.resource).remove(parent)


def _creates_object(child: Child) -> bool:
    """Return True if a child creates an object, or checks one to create later. The API server may refuse
    such a child.
    """
    return isinstance(child, Create | Check) or (isinstance(child, Apply) and not child.subresource)
