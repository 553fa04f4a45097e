"""The reflectors that fill the cluster cache. The list of controllers determines the resources."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import structlog

from convoy_controllers.cached import CachedObject, Node, OtherPod, Pod
from convoy_controllers.controller import Controller
from convoy_controllers.controllers import CONTROLLERS
from convoy_controllers.resources import NODES, PODS, Resource
from convoy_crds.terms import LABEL_JOB, LABEL_MANAGED, OPERATOR
from convoy_operator import errors, views
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.discovery import Discovery
from convoy_operator.gateway import ApiGateway
from convoy_operator.limits import backoff
from convoy_operator.metrics import Metrics
from convoy_operator.reflector import Reflector, Source
from convoy_operator.run_until_first_exit import run_until_first_exit

log = structlog.get_logger(__name__)


class Reflectors:
    """One reflector for each cached resource.

    Kopf watches the custom resources that users write. The reflectors of these resources only LIST.
    """

    def __init__(
        self,
        gateway: ApiGateway,
        cache: ClusterCache,
        metrics: Metrics,
        resync_seconds: float,
        controllers: Iterable[Controller[Any]] = CONTROLLERS,
        discovery: Discovery | None = None,
    ) -> None:
        """Without `discovery`, no optional resource is watched."""
        self._cache = cache
        self._discovery = discovery
        self.pods: Reflector[Pod] = Reflector(
            gateway,
            Source(PODS, cache.pods, views.pod, LABEL_JOB),
            metrics,
            resync_seconds=resync_seconds,
        )
        self.nodes: Reflector[Node] = Reflector(
            gateway, Source(NODES, cache.nodes, views.node), metrics, resync_seconds=resync_seconds
        )
        self._kinds: list[Reflector[CachedObject]] = []
        self._kopf: list[Reflector[CachedObject]] = []
        for one in controllers:
            if one.kind is not None:
                reflector: Reflector[CachedObject] = Reflector(
                    gateway,
                    Source(one.resource, cache.store(one.resource), views.cached_object),
                    metrics,
                    resync_seconds=resync_seconds,
                )
                (self._kinds if one.reflector else self._kopf).append(reflector)
        self._others: Reflector[OtherPod] = Reflector(
            gateway,
            Source(PODS, cache.other_pods, views.other_pod, f"!{LABEL_JOB}"),
            metrics,
            resync_seconds=resync_seconds,
        )
        applied = {
            resource: Reflector(
                gateway,
                Source(resource, store, views.cached_object, f"{LABEL_MANAGED}={OPERATOR}"),
                metrics,
                resync_seconds=resync_seconds,
            )
            for resource, store in cache.labelled.items()
        }
        applied |= {
            resource: Reflector(
                gateway,
                Source(resource, store, views.cached_object),
                metrics,
                resync_seconds=resync_seconds,
            )
            for resource, store in cache.whole.items()
        }
        self._labelled = [one for resource, one in applied.items() if not resource.optional]
        self._optional: dict[Resource, Reflector[CachedObject]] = {
            resource: one for resource, one in applied.items() if resource.optional
        }

    async def run(self) -> None:
        """Watch all cached resources except those that kopf watches, until cancelled or until one watch
        fails.
        """
        watched: list[Reflector[Any]] = [self.pods, self.nodes, *self._kinds, *self._labelled]
        parts = [one.run() for one in watched]
        parts += [self._follow(resource, one) for resource, one in self._optional.items()]
        await run_until_first_exit([*parts, self._follow_others()])

    async def _follow(self, resource: Resource, reflector: Reflector[CachedObject]) -> None:
        """Watch an optional resource while the API server serves it. Empty its store when the API is gone."""
        if self._discovery is None:
            await asyncio.Event().wait()
            return
        while True:
            await self._discovery.until(resource, served=True)
            await run_until_first_exit([reflector.run(), self._discovery.until(resource, served=False)])
            self._cache.store(resource).clear()
            reflector.restart()

    async def _follow_others(self) -> None:
        """Watch the pods of others from the moment at which a plan needs to know the room on nodes."""
        await self._cache.others_wanted.wait()
        await run_until_first_exit([self._others.run(), self._report_others()])

    async def _report_others(self) -> None:
        await self._others.synced.wait()
        self._cache.others_known = True
        await asyncio.Event().wait()

    async def list_kopf(self) -> None:
        """LIST the resources that kopf watches, because kopf misses deletions that happen during a list of
        its own.
        """
        for reflector in self._kopf:
            await _listed(reflector)

    async def list_all(self) -> None:
        """LIST every cached resource."""
        served = self._discovery.served if self._discovery is not None else frozenset()
        optional = [one for resource, one in self._optional.items() if resource in served]
        for reflector in (*self._kopf, *self._kinds, *self._labelled, *optional):
            await _listed(reflector)
        await asyncio.gather(_listed(self.pods), _listed(self.nodes))


async def _listed(reflector: Reflector[Any]) -> None:
    """LIST one resource. Retry until the LIST succeeds, because the caller must not make decisions without
    its result.
    """
    attempt = 0
    while True:
        try:
            await reflector.list()
        except errors.ApiError as fault:
            wait = backoff(attempt, 0.5, 15.0)
            log.warning("list failed", error=str(fault), retry_seconds=round(wait, 1))
            await asyncio.sleep(wait)
            attempt += 1
        else:
            return
