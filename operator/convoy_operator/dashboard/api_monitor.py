"""A monitor of the API server's availability and of the dashboard's watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic

from convoy_controllers.resources import Resource
from convoy_operator import errors
from convoy_operator.dashboard.core.formatting import shortened
from convoy_operator.dashboard.gateway import DashboardGateway
from convoy_operator.gateway import Object

PROBE_SECONDS = 5.0
"""Seconds between two probes while the API server answers."""
OUTAGE_PROBE_SECONDS = 1.0
"""Seconds between two probes while the API server does not answer."""
PROBE_TIMEOUT_SECONDS = 3.0
FAILURE_GRACE_SECONDS = 45.0
"""Seconds for which a list or watch may fail before pages report the failure. The time is longer than the
30 s within which a reflector retries. Outages of the whole API server do not count.
"""
MAX_REASON = 160
"""Maximum number of characters of an error that pages show."""
_REFUSALS = (errors.Forbidden, errors.NotFound)


@dataclass(frozen=True, slots=True)
class Failing:
    """A failing list or watch of a resource."""

    how: str
    why: str
    since: float
    refused: bool


class ApiMonitor:
    """Finds outages of the API server by a probe every few seconds.

    Watches cannot show an outage quickly: a watch without changes receives nothing for up to a minute.
    """

    def __init__(
        self,
        gateway: DashboardGateway,
        changed: Callable[[], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._gateway = gateway
        self._changed = changed
        self._clock = clock
        self._last_answer = clock()
        self.unavailable_since: datetime | None = None
        """Start of the outage; None while the API server answers."""
        self.unwatched: dict[str, str] = {}
        """The error of each failing list or watch that pages report, by resource."""
        self.recovering: list[str] = []
        """Resources whose watch has not resumed since the end of the last outage."""
        self._failing: dict[str, Failing] = {}
        self._recovered_at = float("-inf")

    @property
    def lag(self) -> float:
        """Return the seconds since the API server last answered a probe."""
        return self._clock() - self._last_answer

    async def run(self) -> None:
        """Probe the API server until cancelled."""
        while True:
            await self.probe()
            await asyncio.sleep(OUTAGE_PROBE_SECONDS if self.unavailable_since else PROBE_SECONDS)

    async def probe(self) -> None:
        """Send one probe and record its outcome."""
        try:
            # Any response proves that the API server is available, even NotFound or Forbidden.
            await asyncio.wait_for(self._gateway.probe(), PROBE_TIMEOUT_SECONDS)
        except (errors.Unavailable, errors.TooManyRequests, TimeoutError):
            if self.unavailable_since is None:
                self.unavailable_since = datetime.now(UTC)
                self._changed()
                self.update()
            return
        except errors.ApiError:
            pass
        self._last_answer = self._clock()
        if self.unavailable_since is not None:
            self.unavailable_since = None
            self._recovered_at = self._last_answer
            self._changed()
        self.update()

    def record_success(self, resource: Resource, how: str) -> None:
        """Record that a list or a watch works (`how` is `list` or `watch`). A list that succeeds does not
        prove that the watch works.
        """
        failing = self._failing.get(resource.plural)
        if failing is not None and failing.how == how:
            del self._failing[resource.plural]
            self.update()

    def record_failure(self, resource: Resource, how: str, fault: errors.ApiError) -> None:
        """Record an error of a list or a watch (`how` is `list` or `watch`). An expired resource version is
        ignored, because it is no failure.
        """
        if isinstance(fault, errors.Gone):
            return
        before = self._failing.get(resource.plural)
        since = before.since if before is not None else self._clock()
        self._failing[resource.plural] = Failing(
            how, shortened(str(fault), MAX_REASON), since, isinstance(fault, _REFUSALS)
        )
        self.update()

    def update(self) -> None:
        """Publish the failing lists and watches. Publish at once those that the API server refuses (such as
        Forbidden), and the others after `FAILURE_GRACE_SECONDS`.

        During an outage publish only the refused ones, because the outage explains all other errors.
        """
        now, here = self._clock(), self.unavailable_since is None
        refused, recovering = {}, []
        for plural, one in sorted(self._failing.items()):
            if one.refused or (here and now - max(one.since, self._recovered_at) >= FAILURE_GRACE_SECONDS):
                refused[plural] = one.why
            elif here and one.since <= self._recovered_at:
                recovering.append(plural)
        if (refused, recovering) != (self.unwatched, self.recovering):
            self.unwatched, self.recovering = refused, recovering
            self._changed()


class MonitoredGateway:
    """A gateway for reflectors that records the outcome of each list and watch."""

    def __init__(self, gateway: DashboardGateway, monitor: ApiMonitor) -> None:
        self._gateway = gateway
        self._monitor = monitor

    async def list(self, resource: Resource, selector: str = "") -> tuple[list[Object], str]:
        """See `ApiGateway.list`."""
        try:
            found = await self._gateway.list(resource, selector)
        except errors.ApiError as fault:
            self._monitor.record_failure(resource, "list", fault)
            raise
        self._monitor.record_success(resource, "list")
        return found

    async def watch(
        self, resource: Resource, version: str, selector: str = ""
    ) -> AsyncIterator[tuple[str, Object]]:
        """See `ApiGateway.watch`."""

        def opened() -> None:
            # Record the success here. A watch of a resource that does not change yields no event, so an event
            # would be too late to show that the watch works.
            self._monitor.record_success(resource, "watch")

        try:
            async for event in self._gateway.watch(resource, version, selector, opened):
                yield event
        except errors.ApiError as fault:
            self._monitor.record_failure(resource, "watch", fault)
            raise
