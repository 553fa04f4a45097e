"""A reconciler for tests, with an API server in memory and a cluster cache that the test fills."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from convoy_controllers.controller import Controller
from convoy_controllers.controllers import CONTROLLERS
from convoy_controllers.keys import Key
from convoy_controllers.testing.hub import FakeHub
from convoy_crds import healthsweep, trainingjob
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.events import EventRecorder
from convoy_operator.metrics import Metrics
from convoy_operator.pod_events import PodEvents
from convoy_operator.queue import WorkQueue
from convoy_operator.reader import ClusterReader
from convoy_operator.reconcile import ReconcileContext, Reconciler
from convoy_operator.recovery_meter import RecoveryMeter
from convoy_operator.refusals import Refusals
from convoy_operator.settings import Settings
from convoy_operator.sweeps import SweepMeter
from convoy_operator.triggers import Triggers

from .conftest import FakeApi


class Operator:
    """The cluster cache, the queue and the reconciler of some controllers. The test sets their clocks."""

    def __init__(
        self,
        api: FakeApi,
        hub: Any = None,
        controllers: Iterable[Controller[Any]] = CONTROLLERS,
        send: Callable[[Any], None] | None = None,
        node_api: FakeApi | None = None,
        **settings: Any,
    ) -> None:
        self.api = api
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.time = 0.0
        self.wait = 0.0
        """Seconds until the fake hub knows which agents are present."""
        self.sent: list[Any] = []
        self.controllers = tuple(controllers)
        self.hub = hub if hub is not None else FakeHub()
        self.cache = ClusterCache(self.controllers)
        self.queue: WorkQueue[Key] = WorkQueue()
        self.metrics = Metrics()
        self.recorder = EventRecorder(api, self.metrics, "test")
        self.settings = Settings(**settings)
        self.refusals = Refusals(
            self.settings.backoff_min_seconds, self.settings.backoff_max_seconds, lambda: self.time
        )
        self.reader = ClusterReader(
            self.cache, self.hub, self.refusals.standing, lambda: self.now, lambda: self.time
        )
        context = ReconcileContext(
            gateway=api,
            node_gateway=node_api or api,
            cache=self.cache,
            queue=self.queue,
            recorder=self.recorder,
            metrics=self.metrics,
            settings=self.settings,
            pod_events=PodEvents(api, self.cache, self.queue.add),
            send=send or self.sent.append,
            unsettled=lambda nodes: self.wait,
            meters={
                trainingjob.KIND.name: RecoveryMeter(self.metrics, self.cache, self.hub.slots),
                healthsweep.KIND.name: SweepMeter(self.cache, self.metrics),
            },
            clock=lambda: self.time,
        )
        self.reconciler = Reconciler(context, self.reader, self.refusals, self.controllers)

    def trigger(self, debounce: float = 0.1) -> Triggers:
        """Connect the cache to the queue: a change of the cache queues the keys that it affects."""
        return Triggers(self.cache, self.reader, self.queue, debounce, self.controllers)

    async def reconcile_all(self, *kinds: str) -> None:
        """Reconcile every object of the given kinds, one kind after the other. Without kinds, reconcile all
        kinds.
        """
        for controller in self.controllers:
            if not kinds or controller.resource.kind in kinds:
                for item in list(self.cache.store(controller.resource)):
                    await self.reconciler.handle(controller.key(item.namespace, item.name))
