"""Notifications of changes, from the cache to the open pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic


class Subscription:
    """The notifications for one page. Changes that arrive before the page waits again become one
    notification.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._changed = asyncio.Event()
        self._since: float | None = None

    def notify(self) -> None:
        """Record a change."""
        if self._since is None:
            self._since = self._clock()
        self._changed.set()

    async def wait(self, seconds: float) -> float | None:
        """Wait up to `seconds` for a change. Return the monotonic time of the first change that the page
        has not seen, or None after the timeout.
        """
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return None
        since, self._since = self._since, None
        self._changed.clear()
        return since


class Feed:
    """The subscriptions of all open pages."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()

    def notify(self) -> None:
        """Notify every open page of a change."""
        for subscription in self._subscriptions:
            subscription.notify()

    @contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """Yield a new subscription, which ends when the context exits."""
        subscription = Subscription()
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def __len__(self) -> int:
        return len(self._subscriptions)
