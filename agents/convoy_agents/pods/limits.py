"""Limits on the connections, frames and memory that one pod may use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

MAX_CONNECTIONS = 208
"""Maximum connections of one pod: 64 ranks with three each, the launcher, and some that are being replaced.
"""
MAX_MEMORY_CONNECTIONS = 4
"""Maximum memory connections of one rank: two, and two that are being replaced."""
HELLO_SECONDS = 10.0
"""Seconds until a connection without a hello is closed."""
FRAMES_PER_SECOND = 500.0
FRAMES_BURST = 2000.0
"""Limits for launcher and ranks together. 64 ranks that report a step and a window each second need 200
frames per second, and 1,500 at once after the agent restarts.
"""
MEMORY_FRAMES_PER_SECOND = 1000.0
MEMORY_FRAMES_BURST = 8000.0
"""Limits for the memory requests of all ranks together. During a restore, ranks request each shard."""
BYTES_PER_FRAME = 4096
"""Bytes that count as one frame. A longer frame counts as several."""
WINDOWS_PER_FRAME = 2
"""Step windows that count as one frame in addition to their bytes, because they take longer to parse."""
DIALS_PER_SECOND = 20.0
DIALS_BURST = 160.0
LOGS_PER_SECOND = 0.2
LOGS_BURST = 20.0
MAX_PARTIAL = 1024 * 1024
"""Maximum bytes of unfinished frames of all connections of a pod."""
MAX_UNREAD = 1024 * 1024
"""Maximum bytes that a connection may leave unread before it is closed."""


class TokenBucket:
    """A token bucket that computes pauses. All times are seconds of the same clock."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = now

    def spend(self, cost: float, now: float) -> float:
        """Spend `cost`, with a debt of at most `burst`. Return the seconds until the debt is paid."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate) - cost
        self._tokens = max(self._tokens, -self._burst)
        self._at = now
        return max(0.0, -self._tokens / self._rate)


def weight(frame: Mapping[str, Any]) -> float:
    """Return the cost of a frame in addition to the cost of its bytes."""
    windows = frame.get("windows")
    return 1 + (len(windows) / WINDOWS_PER_FRAME if isinstance(windows, list) else 0)


class RateLimiter:
    """Rate limit for a group of a pod's connections. It serves them in turn, and other tasks run in
    between.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._clock = asyncio.get_running_loop().time
        self._bucket = TokenBucket(rate, burst, self._clock())
        self._queue = asyncio.Lock()

    async def wait(self, cost: float) -> None:
        """Wait until `cost` is available. Requests are served in order of arrival."""
        async with self._queue:
            await asyncio.sleep(self._bucket.spend(cost, self._clock()))
