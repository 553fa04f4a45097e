"""The reflector. It fills a store from a resource by LIST and WATCH, and lists again when that is
necessary.

Convoy has its own reflector because kopf uses 27 times the CPU per event and misses deletions during a
re-list.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog

from convoy_controllers.resources import Resource
from convoy_operator import errors
from convoy_operator.cache import Store, Versioned
from convoy_operator.gateway import ApiGateway
from convoy_operator.limits import backoff
from convoy_operator.metrics import Metrics

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Versioned)

_MIN_BACKOFF, _MAX_BACKOFF = 0.5, 30.0


@dataclass(frozen=True, slots=True)
class Source(Generic[T]):
    """A resource to read, and the store to fill from it."""

    resource: Resource
    store: Store[T]
    view: Callable[[Mapping[str, Any]], T]
    """Function that converts a raw object to an item of the store."""
    selector: str = ""
    """Label selector of the objects to read; empty for all objects."""


class Reflector(Generic[T]):
    """Keeps one store equal to its source."""

    def __init__(
        self,
        gateway: ApiGateway,
        source: Source[T],
        metrics: Metrics,
        *,
        resync_seconds: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateway = gateway
        self._resource = source.resource
        self._store = source.store
        self._view = source.view
        self._metrics = metrics
        self._selector = source.selector
        self._resync = resync_seconds
        self._clock = clock
        self._listed_at = float("-inf")
        self._version = ""
        """The resourceVersion from which to watch; empty if a LIST must come first."""
        self._watching: asyncio.Future[bool] | None = None
        self.synced = asyncio.Event()
        """Set when the store was filled for the first time."""

    async def run(self) -> None:
        """LIST, then WATCH from the LIST's version, until cancelled. Retry every failure after a back-off."""
        failures = 0
        while True:
            try:
                if not self._version or self._clock() - self._listed_at >= self._resync:
                    await self.list()
                    self._record_contact()
                    failures = 0
                if await self._follow():
                    failures = 0
            except errors.Gone:
                self._metrics.watch_errors.labels(self._resource.plural).inc()
                # The API server no longer has this version, so only a LIST can show the missed changes. This
                # is not a failure of the server. But wait a little, so that a server that always responds
                # like this is not called in a tight loop.
                self._version = ""
                failures = min(failures + 1, 2)
                await asyncio.sleep(backoff(failures, _MIN_BACKOFF / 4, _MAX_BACKOFF))
            except errors.ApiError as fault:
                self._metrics.watch_errors.labels(self._resource.plural).inc()
                failures += 1
                if not isinstance(fault, errors.Unavailable | errors.TooManyRequests):
                    self._version = ""
                wait = backoff(failures, _MIN_BACKOFF, _MAX_BACKOFF)
                log.warning(
                    "watch failed, will retry",
                    resource=self._resource.plural,
                    error=str(fault),
                    retry_seconds=wait,
                )
                await asyncio.sleep(wait)

    async def _follow(self) -> bool:
        """Watch until the server ends the watch, a LIST is due, or `list` is called. Return True if the
        watch yielded an event or was ended by `list`.
        """
        watching = self._watching = asyncio.ensure_future(self._watch())
        try:
            await asyncio.wait([watching])
        finally:
            watching.cancel()
        return True if watching.cancelled() else watching.result()

    async def _watch(self) -> bool:
        came = False
        async for kind, raw in self._gateway.watch(self._resource, self._version, self._selector):
            came = True
            self._version = raw["metadata"]["resourceVersion"]
            self._record_contact()
            self._apply(kind, raw)
            if self._clock() - self._listed_at >= self._resync:
                break
        return came

    async def list(self) -> None:
        """Make the store equal to a LIST. A running watch is cancelled and then restarted from the LIST's
        version.
        """
        floor = self._store.newest
        items, version = await self._gateway.list(self._resource, self._selector)
        self._metrics.relists.labels(self._resource.plural).inc()
        self._store.replace((self._view(raw) for raw in items), int(version), floor)
        self._listed_at = self._clock()
        self._version = version
        if self._watching is not None:
            self._watching.cancel()
        self.synced.set()

    def restart(self) -> None:
        """Make the next `run` begin with a LIST."""
        self._version = ""

    def _record_contact(self) -> None:
        self._metrics.watch_heard.labels(self._resource.plural).set_to_current_time()

    def _apply(self, kind: str, raw: Mapping[str, Any]) -> None:
        if kind in ("ADDED", "MODIFIED"):
            self._store.upsert(self._view(raw))
        elif kind == "DELETED":
            # With a selector, the deletion may only mean that the object lost the label. Then the object may
            # come back.
            self._store.remove(self._view(raw), final=not self._selector)
