"""Whether the API server is there, and which watches are refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic

from convoy_controllers.resources import Resource
from convoy_operator import errors
from convoy_operator.dashboard.core.words import shortened
from convoy_operator.dashboard.gateway import DashboardGateway
from convoy_operator.gateway import Object

BEAT_SECONDS = 5.0
"""Between two questions while it answers."""
ANXIOUS_SECONDS = 1.0
"""Between two while it does not."""
ANSWER_SECONDS = 3.0
LASTING_SECONDS = 45.0
"""A watch that fails for so long, while the API server answers, is told of: reflectors wait 30 s at most."""
MOST_WHY = 160
"""Characters of a fault that are told."""
_REFUSALS = (errors.Forbidden, errors.NotFound)


@dataclass(frozen=True, slots=True)
class Failing:
    """A resource that cannot be listed or watched."""

    how: str
    why: str
    since: float
    refused: bool


class Presence:
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
        self._heard = clock()
        self.away_since: datetime | None = None
        """None while it answers."""
        self.refused: dict[str, str] = {}
        """By resource, why it cannot be watched."""
        self.behind: list[str] = []
        """Resources that are not watched again yet, since it was away."""
        self._failing: dict[str, Failing] = {}
        self._back = float("-inf")

    @property
    def lag(self) -> float:
        """Seconds since it was last heard from."""
        return self._clock() - self._heard

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.beat()
            await asyncio.sleep(ANXIOUS_SECONDS if self.away_since else BEAT_SECONDS)

    async def beat(self) -> None:
        """Asks once."""
        try:
            # It asks for an object that need not be there: that it says so is an answer, too.
            await asyncio.wait_for(self._gateway.answers(), ANSWER_SECONDS)
        except (errors.Unavailable, errors.TooManyRequests, TimeoutError):
            if self.away_since is None:
                self.away_since = datetime.now(UTC)
                self._changed()
                self.look()
            return
        except errors.ApiError:
            pass
        self._heard = self._clock()
        if self.away_since is not None:
            self.away_since = None
            self._back = self._heard
            self._changed()
        self.look()

    def works(self, resource: Resource, how: str) -> None:
        """What failed before, `list` or `watch`, works: a list that works says nothing of the watch."""
        failing = self._failing.get(resource.plural)
        if failing is not None and failing.how == how:
            del self._failing[resource.plural]
            self.look()

    def fails(self, resource: Resource, how: str, fault: errors.ApiError) -> None:
        """`how`: `list` or `watch`. That a version is too old is no fault."""
        if isinstance(fault, errors.Gone):
            return
        before = self._failing.get(resource.plural)
        since = before.since if before is not None else self._clock()
        self._failing[resource.plural] = Failing(
            how, shortened(str(fault), MOST_WHY), since, isinstance(fault, _REFUSALS)
        )
        self.look()

    def look(self) -> None:
        """Tells of what is refused at once, of other faults when they last. An absence tells of them all."""
        now, here = self._clock(), self.away_since is None
        refused, behind = {}, []
        for plural, one in sorted(self._failing.items()):
            if one.refused or (here and now - max(one.since, self._back) >= LASTING_SECONDS):
                refused[plural] = one.why
            elif here and one.since <= self._back:
                behind.append(plural)
        if (refused, behind) != (self.refused, self.behind):
            self.refused, self.behind = refused, behind
            self._changed()


class NotedGateway:
    """What a reflector asks, with its outcome noted."""

    def __init__(self, gateway: DashboardGateway, presence: Presence) -> None:
        self._gateway = gateway
        self._presence = presence

    async def list(self, resource: Resource, selector: str = "") -> tuple[list[Object], str]:
        """See ApiGateway."""
        try:
            found = await self._gateway.list(resource, selector)
        except errors.ApiError as fault:
            self._presence.fails(resource, "list", fault)
            raise
        self._presence.works(resource, "list")
        return found

    async def watch(
        self, resource: Resource, version: str, selector: str = ""
    ) -> AsyncIterator[tuple[str, Object]]:
        """See ApiGateway."""

        def opened() -> None:
            # Of a quiet resource nothing else tells so.
            self._presence.works(resource, "watch")

        try:
            async for event in self._gateway.watch(resource, version, selector, opened):
                yield event
        except errors.ApiError as fault:
            self._presence.fails(resource, "watch", fault)
            raise
