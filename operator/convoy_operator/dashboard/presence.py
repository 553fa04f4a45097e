"""Whether the API server is there, and which watches are refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from time import monotonic

from convoy_operator import errors
from convoy_operator.dashboard.gateway import DashboardGateway
from convoy_operator.gateway import Object
from convoy_operator.resources import GUARD_POLICIES, Resource

BEAT_SECONDS = 5.0
"""Between two questions while it answers."""
ANXIOUS_SECONDS = 1.0
"""Between two while it does not."""
ANSWER_SECONDS = 3.0


class Presence:
    """Asks it every few seconds: a watch without news says nothing for a minute."""

    def __init__(self, gateway: DashboardGateway, changed: Callable[[], None]) -> None:
        self._gateway = gateway
        self._changed = changed
        self._heard = monotonic()
        self.away_since: datetime | None = None
        """None while it answers."""
        self.refused: dict[str, str] = {}
        """By resource, why it cannot be watched."""

    @property
    def lag(self) -> float:
        """Seconds since it was last heard from."""
        return monotonic() - self._heard

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._beat()
            await asyncio.sleep(ANXIOUS_SECONDS if self.away_since else BEAT_SECONDS)

    async def _beat(self) -> None:
        try:
            # An object that need not be there: that it says so is an answer, too.
            await asyncio.wait_for(self._gateway.get(GUARD_POLICIES, None, "default"), ANSWER_SECONDS)
        except (errors.Unavailable, errors.TooManyRequests, TimeoutError):
            if self.away_since is None:
                self.away_since = datetime.now(UTC)
                self._changed()
            return
        except errors.ApiError:
            pass
        self._heard = monotonic()
        if self.away_since is not None:
            self.away_since = None
            self._changed()

    def note(self, resource: Resource, fault: errors.ApiError | None) -> None:
        """A watch works, or is refused."""
        before = self.refused.get(resource.plural)
        after = str(fault) if isinstance(fault, errors.Forbidden | errors.NotFound) else None
        if fault is not None and after is None:
            return
        if after is None:
            self.refused.pop(resource.plural, None)
        else:
            self.refused[resource.plural] = after
        if before != after:
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
            self._presence.note(resource, fault)
            raise
        self._presence.note(resource, None)
        return found

    async def watch(
        self, resource: Resource, version: str, selector: str = ""
    ) -> AsyncIterator[tuple[str, Object]]:
        """See ApiGateway."""
        try:
            async for event in self._gateway.watch(resource, version, selector):
                yield event
        except errors.ApiError as fault:
            self._presence.note(resource, fault)
            raise
