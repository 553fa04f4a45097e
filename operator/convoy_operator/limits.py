"""Two budgets of the API client: requests per second, and retries per request."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from time import monotonic


class TokenBucket:
    """At most `burst` at once and `rate` per second after that; waiters go in order. Rate 0 never waits."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = monotonic) -> None:
        self._rate = rate
        self._burst = max(1, burst)
        self._clock = clock
        self._tokens = float(self._burst)
        self._at = clock()

    def reserve(self) -> float:
        """Takes a token, perhaps of the future; seconds to wait until it is there."""
        if self._rate <= 0:
            return 0.0
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    def refund(self) -> None:
        """Gives a token back that was not used."""
        self._tokens = min(self._burst, self._tokens + 1)

    async def take(self) -> float:
        """Waits for a token; the seconds waited."""
        wait = self.reserve()
        if wait > 0:
            try:
                await asyncio.sleep(wait)
            except asyncio.CancelledError:
                self.refund()
                raise
        return wait


class RetryBudget:
    """Retries are at most a tenth of the requests, after the first `floor`: a down server is not hammered."""

    def __init__(self, share: float = 0.1, floor: float = 20.0) -> None:
        self._share = share
        self._most = floor
        self._left = floor

    def request(self) -> None:
        """Counts a first try."""
        self._left = min(self._most, self._left + self._share)

    def spend(self) -> bool:
        """Whether one more retry may be made."""
        if self._left < 1:
            return False
        self._left -= 1
        return True


def backoff(attempt: int, least: float, most: float, rng: random.Random | None = None) -> float:
    """Seconds to wait after the `attempt`-th failure (from 0): doubling, with the last half at random."""
    ceiling = min(most, least * 2.0 ** min(attempt, 32))
    return ceiling * (0.5 + 0.5 * (rng or random).random())
