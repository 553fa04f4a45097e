"""Budgets: requests per second and retries of the API client, and what somebody has used lately."""

from __future__ import annotations

import asyncio
import math
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from time import monotonic

FLOW: ContextVar[Hashable] = ContextVar("flow", default=None)
"""For whose sake requests are made: the key that is being reconciled, None for the operator itself."""


class TokenBucket:
    """At most `burst` at once and `rate` per second after that. Rate 0 never waits."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = monotonic) -> None:
        self._rate = rate
        self._burst = max(1, burst)
        self._clock = clock
        self._tokens = float(self._burst)
        self._at = clock()

    def reserve(self, cost: float = 1.0) -> float:
        """Takes a token, or `cost` of them, perhaps of the future; seconds to wait until they are there."""
        if self._rate <= 0:
            return 0.0
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        self._tokens -= cost
        return max(0.0, -self._tokens / self._rate)

    @property
    def debt(self) -> float:
        """Seconds until all tokens of the future that were taken are there."""
        if self._rate <= 0:
            return 0.0
        return max(0.0, -self._tokens / self._rate - (self._clock() - self._at))

    def refund(self) -> None:
        """Gives a token back that was not used."""
        self._tokens = min(self._burst, self._tokens + 1)


class Usage:
    """How much of something is used in a second, as a mean that forgets by half in `half` seconds."""

    def __init__(self, half: float, clock: Callable[[], float] = monotonic) -> None:
        self._mean = half / math.log(2)
        self._clock = clock
        self._sum = 0.0
        self._at = clock()

    def add(self, amount: float) -> None:
        """So much was used just now."""
        self._sum = self._left() + amount
        self._at = self._clock()

    @property
    def rate(self) -> float:
        """Per second, lately."""
        return self._left() / self._mean

    def _left(self) -> float:
        return self._sum * math.exp((self._at - self._clock()) / self._mean)


class FairQueue:
    """Waiters for a bucket's tokens: flows take turns, so nobody stands behind all requests of a huge job.

    Fair queueing as the API server's own priority and fairness has it (KEP-1040), by equal requests.
    """

    def __init__(self, bucket: TokenBucket) -> None:
        self._bucket = bucket
        self._queues: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self) -> float:
        """Waits for a token in the line of `FLOW`; the seconds waited."""
        loop = asyncio.get_running_loop()
        began, turn = loop.time(), loop.create_future()
        self._queues.setdefault(FLOW.get(), deque()).append(turn)
        self._serve()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._grant()
            raise
        return loop.time() - began

    def _serve(self) -> None:
        """Gives out what tokens there are, and comes back for the next one."""
        while self._queues and self._timer is None:
            if wait := self._bucket.reserve():
                self._timer = asyncio.get_running_loop().call_later(wait, self._due)
            else:
                self._grant()

    def _due(self) -> None:
        self._timer = None
        self._grant()
        self._serve()

    def _grant(self) -> None:
        """A token goes to the first of the flow whose turn it is, or back."""
        while self._queues:
            flow, waiting = self._queues.popitem(last=False)
            while waiting and waiting[0].cancelled():
                waiting.popleft()
            if waiting:
                waiting.popleft().set_result(None)
                if waiting:
                    self._queues[flow] = waiting
                return
        self._bucket.refund()


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
