"""How much one pod may ask of its agent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

MAX_CONNECTIONS = 208
"""Of one pod: 64 ranks with three each, the launcher, and a few that are being replaced."""
MAX_MEMORY_CONNECTIONS = 4
"""To memory, of one rank: two, and two that are being replaced."""
HELLO_SECONDS = 10.0
"""A connection that has not said hello by then is closed."""
FRAMES_PER_SECOND = 500.0
FRAMES_BURST = 2000.0
"""Of its launcher and ranks together: 64 ranks that tell of a step and of a window each second need 200, and
after an agent's restart 1500 at once.
"""
MEMORY_FRAMES_PER_SECOND = 1000.0
MEMORY_FRAMES_BURST = 8000.0
"""About memory, of all ranks together. While they restore they ask for each shard."""
BYTES_PER_FRAME = 4096
"""A longer frame counts as several."""
WINDOWS_PER_FRAME = 2
"""Windows of steps in a frame count as frames: they take longer to read than their bytes say."""
DIALS_PER_SECOND = 20.0
DIALS_BURST = 160.0
LOGS_PER_SECOND = 0.2
LOGS_BURST = 20.0
MAX_PARTIAL = 1024 * 1024
"""Bytes of unfinished frames over all connections of a pod."""
MAX_UNREAD = 1024 * 1024
"""Bytes a connection may leave unread before it is closed."""


class TokenBucket:
    """A token bucket that says how long to pause. Times are seconds of any one clock."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = now

    def spend(self, cost: float, now: float) -> float:
        """Spends `cost`, into a debt of a burst at most; the seconds until the debt is paid."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate) - cost
        self._tokens = max(self._tokens, -self._burst)
        self._at = now
        return max(0.0, -self._tokens / self._rate)


def weight(frame: Mapping[str, Any]) -> float:
    """As how many a frame counts, besides its bytes."""
    windows = frame.get("windows")
    return 1 + (len(windows) / WINDOWS_PER_FRAME if isinstance(windows, list) else 0)


class RateLimiter:
    """What all connections of a pod may say together; they take turns, and others have one in between."""

    def __init__(self, rate: float, burst: float) -> None:
        self._clock = asyncio.get_running_loop().time
        self._bucket = TokenBucket(rate, burst, self._clock())
        self._queue = asyncio.Lock()

    async def wait(self, cost: float) -> None:
        """Waits until so much more may be said. Whoever came before goes before."""
        async with self._queue:
            await asyncio.sleep(self._bucket.spend(cost, self._clock()))
