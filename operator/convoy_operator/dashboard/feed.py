"""Wakes the open pages when something has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic


class Subscription:
    """One page's: it rings until the page has looked."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._changed = asyncio.Event()
        self._since: float | None = None

    def notify(self) -> None:
        """Something has changed."""
        if self._since is None:
            self._since = self._clock()
        self._changed.set()

    async def wait(self, seconds: float) -> float | None:
        """Waits for a change for so long; since when the oldest unseen one is there, None without any."""
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return None
        since, self._since = self._since, None
        self._changed.clear()
        return since


class Feed:
    """All pages' bells."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()

    def notify(self) -> None:
        """Rings all."""
        for subscription in self._subscriptions:
            subscription.notify()

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """A bell, for as long as it is heard."""
        subscription = Subscription()
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def __len__(self) -> int:
        return len(self._subscriptions)
