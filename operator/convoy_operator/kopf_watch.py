"""Kopf as the framework of the process: startup, login, and the watches of the custom resources.

Only kopf's event handlers are used. Kopf's create and update handlers would keep state in annotations. Its
timers and daemons would add finalizers, and such objects could not be deleted while the operator is down.
Its peering has no fencing. Kopf misses deletions that happen during a re-list, so the operator lists all
objects periodically.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

import kopf
import structlog

from convoy_controllers.cached import CachedObject
from convoy_controllers.controller import Controller
from convoy_controllers.controllers import CONTROLLERS
from convoy_operator import views
from convoy_operator.cache import Store
from convoy_operator.cluster_cache import ClusterCache
from convoy_operator.settings import Settings

log = structlog.get_logger(__name__)

_STOP_SECONDS = 5.0


def registry(
    cache: ClusterCache, controllers: Iterable[Controller[Any]] = CONTROLLERS
) -> kopf.OperatorRegistry:
    """Return kopf's handlers, which store every event of a custom resource in the cache."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.startup(registry=handlers)
    def startup(**_: Any) -> None:
        log.info("kopf starts")

    @kopf.on.cleanup(registry=handlers)
    def cleanup(**_: Any) -> None:
        log.info("kopf stops")

    def watch(group: str, version: str, plural: str, store: Store[CachedObject]) -> None:
        @kopf.on.event(group, version, plural, registry=handlers, id=f"{plural}-cache")
        async def update_store(event: Any, **_: Any) -> None:
            raw = event["object"]
            if event["type"] == "DELETED":
                store.remove(views.cached_object(raw))
            else:
                store.upsert(views.cached_object(raw))

    for controller in controllers:
        if controller.kind is not None and not controller.reflector:
            resource = controller.resource
            watch(resource.group, resource.version, resource.plural, cache.store(resource))
    return handlers


def kopf_settings(settings: Settings) -> kopf.OperatorSettings:
    """Return kopf's settings: no peering, no Events of its own, and a timeout for every call."""
    chosen = kopf.OperatorSettings()
    chosen.peering.standalone = True
    chosen.posting.enabled = False
    # Convert to int, because the API server rejects a decimal number such as 290.0.
    chosen.watching.server_timeout = int(settings.watch_seconds)
    chosen.watching.client_timeout = settings.watch_seconds + 10
    chosen.watching.connect_timeout = 10
    chosen.watching.chunk_size = settings.list_page
    chosen.networking.request_timeout = settings.request_seconds
    chosen.networking.connect_timeout = 10
    chosen.networking.error_backoffs = (0.2, 0.5, 1, 2, 3, 5, 8)
    chosen.networking.enforce_retry_after = True
    chosen.process.ultimate_exiting_timeout = 30
    return chosen


async def run(
    cache: ClusterCache,
    settings: Settings,
    ready: asyncio.Event,
    controllers: Iterable[Controller[Any]] = CONTROLLERS,
) -> None:
    """Run kopf until cancelled, or until SIGTERM or SIGINT, which kopf handles itself. Raises kopf's
    errors.

    This function spawns and ends kopf's tasks itself, because `kopf.operator` would cancel every task of
    the process.
    """
    tasks: Collection[asyncio.Task[None]] = await kopf.spawn_tasks(
        registry=registry(cache, controllers),
        settings=kopf_settings(settings),
        standalone=True,
        clusterwide=True,
        ready_flag=ready,
    )
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_STOP_SECONDS)
