"""Rate limits and the retry budget of the API client, and a decaying average of usage."""

from __future__ import annotations

import asyncio
import math
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from time import monotonic

FLOW: ContextVar[Hashable] = ContextVar("flow", default=None)
"""Key of the queue in which requests wait for the rate limit: the key under reconcile, or None for the
operator's other requests.
"""


class TokenBucket:
    """A token bucket. At most `burst` tokens are available at once, and `rate` new ones come per second.
    With a rate of 0 there is no limit.
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = monotonic) -> None:
        self._rate = rate
        self._burst = max(1, burst)
        self._clock = clock
        self._tokens = float(self._burst)
        self._at = clock()

    def reserve(self, cost: float = 1.0) -> float:
        """Reserve `cost` tokens, including future ones. Return the seconds until they are available."""
        if self._rate <= 0:
            return 0.0
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        self._tokens -= cost
        return max(0.0, -self._tokens / self._rate)

    @property
    def debt(self) -> float:
        """Return the seconds until all reserved tokens are available."""
        if self._rate <= 0:
            return 0.0
        return max(0.0, -self._tokens / self._rate - (self._clock() - self._at))

    def refund(self) -> None:
        """Put back one reserved token that was not used."""
        self._tokens = min(self._burst, self._tokens + 1)


class Usage:
    """Average usage per second. Past usage decays exponentially with a half-life of `half` seconds."""

    def __init__(self, half: float, clock: Callable[[], float] = monotonic) -> None:
        self._mean = half / math.log(2)
        self._clock = clock
        self._sum = 0.0
        self._at = clock()

    def add(self, amount: float) -> None:
        """Add an amount that has just been used."""
        self._sum = self._left() + amount
        self._at = self._clock()

    @property
    def rate(self) -> float:
        """Return the recent usage per second."""
        return self._left() / self._mean

    def _left(self) -> float:
        return self._sum * math.exp((self._at - self._clock()) / self._mean)


class FairQueue:
    """Distributes the tokens of a bucket fairly. Flows take turns, so no flow has to wait for all requests
    of a huge job.

    The API server's Priority and Fairness (KEP-1040) works in the same way. Here every request costs one
    token.
    """

    def __init__(self, bucket: TokenBucket) -> None:
        self._bucket = bucket
        self._queues: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self) -> float:
        """Wait for a token in the queue of the current `FLOW`. Return the seconds of the wait."""
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
        """Grant the available tokens, and set a timer for the next one."""
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
        """Give one token to the first waiter of the next flow. If there is no waiter, refund the token."""
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
    """A budget for retries, which keeps retries from overloading a server that is down. The budget starts
    with `floor` retries, which is also its maximum. Each first attempt of a request adds `share` of a
    retry.
    """

    def __init__(self, share: float = 0.1, floor: float = 20.0) -> None:
        self._share = share
        self._capacity = floor
        self._left = floor

    def request(self) -> None:
        """Count a first attempt, which adds to the budget."""
        self._left = min(self._capacity, self._left + self._share)

    def spend(self) -> bool:
        """Spend one retry. Return False if the budget is used up."""
        if self._left < 1:
            return False
        self._left -= 1
        return True


def backoff(attempt: int, minimum: float, maximum: float, rng: random.Random | None = None) -> float:
    """Return the seconds to wait before a retry; `attempt` is the number of earlier failures in a row. The
    wait grows exponentially from `minimum` to `maximum`. A random part of up to half of the wait is
    subtracted.
    """
    ceiling = min(maximum, minimum * 2.0 ** min(attempt, 32))
    return ceiling * (0.5 + 0.5 * (rng or random).random())
