"""Wakes the open pages when something has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic


class Bell:
    """One page's: it rings until the page has looked."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._rung = asyncio.Event()
        self._since: float | None = None

    def ring(self) -> None:
        """Something has changed."""
        if self._since is None:
            self._since = self._clock()
        self._rung.set()

    async def wait(self, seconds: float) -> float | None:
        """Waits for a change for so long; since when the oldest unseen one is there, None without any."""
        try:
            await asyncio.wait_for(self._rung.wait(), seconds)
        except TimeoutError:
            return None
        since, self._since = self._since, None
        self._rung.clear()
        return since


class Feed:
    """All pages' bells."""

    def __init__(self) -> None:
        self._bells: set[Bell] = set()

    def ring(self) -> None:
        """Rings all."""
        for bell in self._bells:
            bell.ring()

    @contextmanager
    def bell(self) -> Iterator[Bell]:
        """A bell, for as long as it is heard."""
        bell = Bell()
        self._bells.add(bell)
        try:
            yield bell
        finally:
            self._bells.discard(bell)

    def __len__(self) -> int:
        return len(self._bells)
