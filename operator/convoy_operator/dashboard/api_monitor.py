"""Whether the API server is there, and which watches are refused."""

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
"""Between two questions while it answers."""
OUTAGE_PROBE_SECONDS = 1.0
"""Between two while it does not."""
PROBE_TIMEOUT_SECONDS = 3.0
FAILURE_GRACE_SECONDS = 45.0
"""A watch that fails for so long, while the API server answers, is told of: reflectors wait 30 s at most."""
MOST_REASON = 160
"""Characters of a fault that are told."""
_REFUSALS = (errors.Forbidden, errors.NotFound)


@dataclass(frozen=True, slots=True)
class Failing:
    """A resource that cannot be listed or watched."""

    how: str
    why: str
    since: float
    refused: bool


class ApiMonitor:
    """Asks it every few seconds: a watch without news says nothing for a minute."""

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
        """None while it answers."""
        self.unwatched: dict[str, str] = {}
        """By resource, why it cannot be watched."""
        self.recovering: list[str] = []
        """Resources that are not watched again yet, since it was away."""
        self._failing: dict[str, Failing] = {}
        self._recovered_at = float("-inf")

    @property
    def lag(self) -> float:
        """Seconds since it was last heard from."""
        return self._clock() - self._last_answer

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.probe()
            await asyncio.sleep(OUTAGE_PROBE_SECONDS if self.unavailable_since else PROBE_SECONDS)

    async def probe(self) -> None:
        """Asks once."""
        try:
            # It asks for an object that need not be there: that it says so is an answer, too.
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
        """What failed before, `list` or `watch`, works: a list that works says nothing of the watch."""
        failing = self._failing.get(resource.plural)
        if failing is not None and failing.how == how:
            del self._failing[resource.plural]
            self.update()

    def record_failure(self, resource: Resource, how: str, fault: errors.ApiError) -> None:
        """`how`: `list` or `watch`. That a version is too old is no fault."""
        if isinstance(fault, errors.Gone):
            return
        before = self._failing.get(resource.plural)
        since = before.since if before is not None else self._clock()
        self._failing[resource.plural] = Failing(
            how, shortened(str(fault), MOST_REASON), since, isinstance(fault, _REFUSALS)
        )
        self.update()

    def update(self) -> None:
        """Tells of what is refused at once, of other faults when they last. An absence tells of them all."""
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
    """What a reflector asks, with its outcome noted."""

    def __init__(self, gateway: DashboardGateway, monitor: ApiMonitor) -> None:
        self._gateway = gateway
        self._monitor = monitor

    async def list(self, resource: Resource, selector: str = "") -> tuple[list[Object], str]:
        """See ApiGateway."""
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
        """See ApiGateway."""

        def opened() -> None:
            # Of a quiet resource nothing else tells so.
            self._monitor.record_success(resource, "watch")

        try:
            async for event in self._gateway.watch(resource, version, selector, opened):
                yield event
        except errors.ApiError as fault:
            self._monitor.record_failure(resource, "watch", fault)
            raise
