"""The shell of the process is kopf's: start-up, login, watches of the custom resources.

Events only. kopf's create and update handlers keep their state in annotations, its timers and daemons add
finalizers that make objects undeletable while the operator is away, and its peering has no fencing: none of
them is used. What kopf's watches lose (it never hears of deletions across a re-list) the resync repairs.
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
    """The handlers: every event of a custom resource goes into its store."""
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
    """kopf as we run it: no peering, no events of its own, deadlines on everything."""
    chosen = kopf.OperatorSettings()
    chosen.peering.standalone = True
    chosen.posting.enabled = False
    chosen.watching.server_timeout = int(settings.watch_seconds)  # sent as it is; 290.0 is refused
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
    """Runs kopf until cancelled, or until SIGTERM or SIGINT, which it takes for itself; raises its errors.

    Its tasks are spawned and ended here: `kopf.operator` would cancel every task of the process with its own.
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
