"""Builds one operator replica from its parts and runs them. Some parts run in every replica, others only in
the leader.
"""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from kubernetes.aio.client import ApiClient

from convoy_controllers.cached import CachedObject
from convoy_controllers.controller import Controller
from convoy_controllers.controllers import CONTROLLERS
from convoy_controllers.keys import Key
from convoy_controllers.servingjob.controller import managed as serves
from convoy_controllers.trainingjob.controller import managed
from convoy_crds import (
    checkpointstore,
    engine,
    guardpolicy,
    healthsweep,
    nodehealth,
    servingjob,
    spotpool,
    trainingjob,
)
from convoy_crds.kind import Kind
from convoy_crds.terms import LEASE_NAME
from convoy_operator import catalogue, errors, http, kopf_watch
from convoy_operator.client import KubernetesGateway
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.connection import connect, package_version
from convoy_operator.discovery import Discovery
from convoy_operator.events import EventRecorder
from convoy_operator.forecasts.simulator import Simulator
from convoy_operator.gauges import show_engine_metrics, show_fleet, show_jobs, show_serving
from convoy_operator.goodput_meter import GoodputMeter
from convoy_operator.hub import ca
from convoy_operator.hub.assembly import assemble
from convoy_operator.hub.ca import Authority
from convoy_operator.hub.command_router import route
from convoy_operator.hub.context import HubContext
from convoy_operator.hub.enrolment import Enrolment
from convoy_operator.hub.server import HubServer
from convoy_operator.hub.sessions import Sessions
from convoy_operator.leader import Elector, LeaseLock, Watchdog, identity_of
from convoy_operator.limits import backoff
from convoy_operator.metrics import Metrics
from convoy_operator.node_labeler import NodeLabeler
from convoy_operator.pod_events import PodEvents
from convoy_operator.price_traces import PriceTraces
from convoy_operator.queue import WorkQueue
from convoy_operator.reader import ClusterReader
from convoy_operator.reconcile import ReconcileContext, Reconciler
from convoy_operator.recovery_meter import RecoveryMeter
from convoy_operator.reflectors import Reflectors
from convoy_operator.refusals import Refusals
from convoy_operator.run_until_first_exit import run_until_first_exit
from convoy_operator.serving_meter import ServingMeter
from convoy_operator.settings import Settings
from convoy_operator.sweeps import OrderGarbageCollector, SweepMeter
from convoy_operator.triggers import Triggers

log = structlog.get_logger(__name__)


GOODPUT_SECONDS = 15.0
"""Seconds between two counts of the jobs' goodput; Prometheus usually scrapes at the same interval."""
NODE_BURST = 1000
"""Minimum burst of the gateway for NodeHealth and node requests. `settings.burst` applies if it is larger.
After the burst, `settings.qps` limits the requests.
"""
URGENT_QPS = 50.0
"""Maximum number of urgent node requests per second: patches of node labels, and reads of the Leases of
silent nodes.
"""
URGENT_CONNECTIONS = 8
"""Maximum number of connections to the API server for urgent node requests. No other request uses these
connections.
"""
LEASE_CONNECTIONS = 2
"""Maximum number of connections to the API server for the leader's Lease. No other request uses these
connections.

There are two: the connection of a cancelled call may still be closing when the next call starts.
"""


class Operator:
    """All parts of one operator replica, and the code that starts and stops them."""

    def __init__(
        self,
        settings: Settings,
        client: ApiClient,
        aside: ApiClient,
        lease: ApiClient,
        controllers: Sequence[Controller[Any]] = CONTROLLERS,
    ) -> None:
        """Build all parts of a replica.

        `aside` is the client for urgent node requests, so that these requests never wait behind requests
        for the pods of a huge job. `lease` is the client for the Lease alone, so that renewals never wait
        behind patches of node labels.
        """
        self.settings = settings
        self.controllers = controllers
        self.metrics = metrics = Metrics(package_version(), controllers)
        self.gateway = gateway = KubernetesGateway(client, settings, metrics)
        urgent = KubernetesGateway(aside, replace(settings, qps=min(settings.qps, URGENT_QPS)), metrics)
        self.cache = cache = ClusterCache(controllers)
        self.queue: WorkQueue[Key] = WorkQueue(
            settings.backoff_min_seconds,
            settings.backoff_max_seconds,
            on_wait=metrics.queue_seconds.observe,
            # A new leader enqueues every object, so a standby queues nothing.
            open=False,
        )
        self.recorder = EventRecorder(gateway, metrics, settings.name)
        hub_context = HubContext(
            cache=cache, queue=self.queue, gateway=urgent, metrics=metrics, settings=settings
        )
        self.hub = hub = assemble(
            hub_context,
            progress_delay=lambda key: self.reconciler.progress_delay(key),  # noqa: PLW0108 - made below
        )
        refusals = Refusals(settings.backoff_min_seconds, settings.backoff_max_seconds)
        traces = PriceTraces(cache, gateway, settings.namespace)
        self.discovery = Discovery(gateway, (one for one in (*cache.labelled, *cache.whole) if one.optional))
        self.simulator = Simulator(self.queue.add)
        self.reader = reader = ClusterReader(
            cache,
            hub.reader,
            refusals.standing,
            checkpoint_defaults=settings.checkpoint_defaults(),
            network=settings.network(),
            price_trace=traces.find,
            served=lambda: self.discovery.served,
            forecasts=self.simulator.results,
        )
        Triggers(cache, reader, self.queue, settings.debounce_seconds, controllers)
        self.pod_events = PodEvents(gateway, cache, self.queue.add)
        # Many nodes can fail at the same time, and all of them must get their status and taints at once. So
        # this gateway has a token bucket of its own, which requests about other objects do not empty.
        marking = KubernetesGateway(client, replace(settings, burst=max(settings.burst, NODE_BURST)), metrics)
        reconcile_context = ReconcileContext(
            gateway=gateway,
            node_gateway=marking,
            cache=cache,
            queue=self.queue,
            recorder=self.recorder,
            metrics=metrics,
            settings=settings,
            pod_events=self.pod_events,
            simulate=self.simulator.request,
            send=partial(route, hub),
            unsettled=hub.monitor.unsettled,
            lookups={
                checkpointstore.KIND.name: hub.stores.resolve,
                spotpool.KIND.name: traces.resolve,
            },
            meters={
                trainingjob.KIND.name: RecoveryMeter(metrics, cache, hub.reader.slots),
                servingjob.KIND.name: ServingMeter(metrics, cache, reader.memory),
                healthsweep.KIND.name: SweepMeter(cache, metrics),
            },
        )
        self.reconciler = Reconciler(reconcile_context, reader, refusals, controllers)
        hub.detectors.on_suspicion = partial(self._wake, guardpolicy.KIND)
        hub.notices.on_news = partial(self._wake, spotpool.KIND)
        hub.sweeps.on_news = partial(self._wake, healthsweep.KIND)
        self.order_collector = OrderGarbageCollector(reader, hub.sweeps)
        self.labeler = NodeLabeler(urgent, cache, hub.monitor, settings.agent_unready_seconds)
        self.reflectors = Reflectors(
            gateway, cache, metrics, settings.resync_seconds, controllers, self.discovery
        )
        self.discovery.on_change = partial(self._wake, trainingjob.KIND, servingjob.KIND)
        identity = identity_of(settings.name, uuid.uuid4().hex[:8], settings.hub_address)
        self.watchdog = Watchdog(settings.lease_seconds - 1.0)
        self.elector = Elector(
            LeaseLock(LEASE_NAME, settings.namespace, identity, lease, settings.renew_seconds / 2),
            lease_seconds=settings.lease_seconds,
            renew_seconds=settings.renew_seconds,
            retry_seconds=settings.retry_seconds,
            watchdog=self.watchdog,
        )
        self.goodput = GoodputMeter(metrics.goodput_seconds)
        cache.jobs.listen(self._job_changed)
        self.leads = False
        self.server: HubServer | None = None
        self.kopf_ready = asyncio.Event()

    async def run(self) -> None:
        """Run all parts until cancelled. If one part ends, cancel the others: then the replica ends too."""
        bind, metrics = self.settings.http_bind, http.metrics_pages(self.metrics.registry, self._refresh)
        await run_until_first_exit(
            [
                http.serve(metrics, bind, self.settings.metrics_port),
                http.serve(http.probe_pages(self._checks()), bind, self.settings.probe_port),
                self._serve(),
            ]
        )

    async def _serve(self) -> None:
        """Run the parts that must not start before the certificate authority is loaded.

        `run` serves the probe pages outside of this method, so that probes get a response while the replica
        still waits for the authority.
        """
        authority = await self._authority()
        self.hub.tokens.start(authority)
        self.server = self._hub_server(authority)
        await self.server.start()
        self.watchdog.start()
        parts: list[Awaitable[None]] = [
            self.discovery.run(),
            self.reflectors.run(),
            self.recorder.run(),
            kopf_watch.run(self.cache, self.settings, self.kopf_ready, self.controllers),
            self.elector.run(self._lead),
        ]
        try:
            await run_until_first_exit(parts)
        finally:
            self.watchdog.stop()
            await self.server.stop()

    async def _lead(self) -> None:
        """Run the parts that only the leader runs, until cancelled or until one of them ends."""
        # LIST all cached resources again before the first decision. The caches may be out of date: the
        # watches may still be connected to an API server that failed together with the previous leader.
        await self.discovery.first()
        await self.reflectors.list_all()
        self.queue.open = True
        self.hub.monitor.start_leading()
        now = datetime.now(UTC)
        self.goodput.start_leading(self.cache.jobs, min(self.elector.previous_renewal or now, now))
        self.leads = True
        self.metrics.leader.set(1)
        self._enqueue_all()
        try:
            await run_until_first_exit(
                [
                    *(self.reconciler.work() for _ in range(self.settings.workers)),
                    self.hub.run(),
                    self.hub.monitor.run(),
                    self.labeler.run(),
                    self.pod_events.run(),
                    self.simulator.run(),
                    self.order_collector.run(),
                    self._resync(),
                    self._count_goodput(),
                    self._catalogue(),
                ]
            )
        finally:
            self.leads = self.queue.open = False
            self.metrics.leader.set(0)

    async def _catalogue(self) -> None:
        """Apply the objects that come with the chart, then wait until cancelled."""
        if self.settings.engines_dir:
            await catalogue.install(self.gateway, Path(self.settings.engines_dir))
        if self.settings.default_policy:
            await catalogue.install_policy(self.gateway, self.settings.default_policy)
        await asyncio.Event().wait()

    async def _count_goodput(self) -> None:
        """Count the jobs' goodput periodically, so that the count does not depend on scrapes of the
        metrics.
        """
        while True:
            self.goodput.count(self.cache.jobs, datetime.now(UTC))
            await asyncio.sleep(GOODPUT_SECONDS)

    async def _resync(self) -> None:
        """List the custom resources periodically, and enqueue every object."""
        while True:
            await asyncio.sleep(self.settings.resync_seconds)
            await self.reflectors.list_kopf()
            self._enqueue_all()

    def _enqueue_all(self) -> None:
        for controller in self.controllers:
            for item in self.cache.store(controller.resource):
                self.queue.add(controller.key(item.namespace, item.name), high=False)

    def _wake(self, *kinds: Kind[Any]) -> None:
        """Enqueue the unfinished objects of these kinds, because something has changed that their next plans
        use: an agent's report, or the APIs that the cluster serves.
        """
        for kind in kinds:
            for item in self.reader.live(kind):
                if not item.status.get("completionTime"):
                    key = Key(kind.name, item.namespace, item.name)
                    self.queue.add(key, self.settings.debounce_seconds)

    async def _authority(self) -> Authority:
        """Return the CA. Retry while the API server does not respond, or the CA's Secret does not exist."""
        attempt = 0
        while True:
            try:
                return await ca.load_or_make(
                    self.gateway, self.settings.namespace, may_make=self.settings.ca_maker == "Operator"
                )
            except errors.ApiError as fault:
                wait = backoff(attempt, 0.5, 15.0)
                log.warning(
                    "certificate authority not available, will retry",
                    error=str(fault),
                    retry_seconds=round(wait, 1),
                )
                await asyncio.sleep(wait)
                attempt += 1

    def _hub_server(self, authority: Authority) -> HubServer:
        enrolment = Enrolment(self.gateway, authority, self.metrics, self.settings)
        sessions = Sessions(
            self.hub,
            self.metrics,
            leads=lambda: self.leads,
            leader_address=lambda: self.elector.address,
            renewals=lambda: self.elector.renewals,
            own_address=self.settings.hub_address,
        )
        return HubServer(self.settings, authority, enrolment, sessions, self.metrics)

    def _checks(self) -> http.Checks:
        return {
            "authority": lambda: self.server is not None,
            "kopf": self.kopf_ready.is_set,
            "pods": self.reflectors.pods.synced.is_set,
            "nodes": self.reflectors.nodes.synced.is_set,
            "lease": self.elector.observed.is_set,
        }

    def _job_changed(self, before: CachedObject | None, after: CachedObject | None, own: bool) -> None:
        if self.leads and before is not None and (after is None or after.uid != before.uid):
            self.goodput.remove(before, datetime.now(UTC))

    def _refresh(self) -> None:
        """Set the gauges that are computed at each scrape. Only the leader counts jobs, NodeHealths and
        breakers, so a sum over all replicas counts each of them once.
        """
        if self.leads:
            self.goodput.count(self.cache.jobs, datetime.now(UTC))
        counted = [job.raw for job in self.cache.jobs if managed(job.raw)] if self.leads else []
        show_jobs(self.metrics, (raw.get("status") or {} for raw in counted))
        servers = [job.raw for job in self.cache.objects(servingjob.KIND)] if self.leads else []
        show_serving(self.metrics, (raw.get("status") or {} for raw in servers if serves(raw)))
        self.metrics.kinds.show(self.cache.objects, self.reader, self.leads)
        engines = self.cache.objects(engine.KIND)
        show_engine_metrics(self.metrics, (one.raw for one in engines), counted)
        show_fleet(
            self.metrics,
            self.reader.all(nodehealth.KIND) if self.leads else (),
            self.reader.all(guardpolicy.KIND) if self.leads else (),
        )
        self.metrics.queue_depth.set(self.queue.depth if self.leads else 0)


async def run(settings: Settings) -> int:
    """Run one replica until SIGTERM or SIGINT; return the exit code."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    few = replace(settings, connections=URGENT_CONNECTIONS)
    fewest = replace(settings, connections=LEASE_CONNECTIONS)
    async with (
        await connect(settings) as client,
        await connect(few) as aside,
        await connect(fewest) as lease,
    ):
        operator = Operator(settings, client, aside, lease)
        for number in (signal.SIGTERM, signal.SIGINT):
            # These handlers are needed only until kopf starts. Kopf installs its own signal handlers, and
            # `kopf_watch.run` returns on a signal.
            loop.add_signal_handler(number, stop.set)
        work = asyncio.create_task(operator.run())
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for task in (work, stopped):
            task.cancel()
        try:
            await work
        except asyncio.CancelledError:
            pass
        except Exception:
            log.exception("operator failed, the process exits")
            return 1
        log.info("operator stopped")
        return 0
