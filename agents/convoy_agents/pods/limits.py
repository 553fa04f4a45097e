"""Limits on the connections, frames and memory that one pod may use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

MAX_CONNECTIONS = 272
"""Maximum number of connections of one pod. 64 ranks have four connections each, and the launcher has one.
The rest is for connections that are being replaced.
"""
MAX_MEMORY_CONNECTIONS = 4
"""Maximum number of memory connections of one rank. A rank uses two, and may replace both before the
earlier ones are closed.
"""
HELLO_SECONDS = 10.0
"""Seconds after which the agent closes a connection that has sent no hello."""
FRAMES_PER_SECOND = 500.0
FRAMES_BURST = 2000.0
"""Frames that a pod's launcher and ranks together may send at once; their sustained rate is
FRAMES_PER_SECOND.

64 ranks that each report a step and a window every second need 200 frames per second. After a restart of
the agent they need 1,500 frames at once.
"""
MEMORY_FRAMES_PER_SECOND = 1000.0
MEMORY_FRAMES_BURST = 8000.0
"""Memory requests that all ranks of a pod together may send at once; their sustained rate is
MEMORY_FRAMES_PER_SECOND. A restore needs many, because the ranks request each shard.
"""
TRACE_FRAMES_PER_SECOND = 1000.0
TRACE_FRAMES_BURST = 2000.0
"""Frames that all ranks of a pod together may send with their traces; their sustained rate is
TRACE_FRAMES_PER_SECOND. A frame with a part of a file counts for its bytes (BYTES_PER_FRAME), so the rate is
4 MB/s.
"""
BYTES_PER_FRAME = 4096
"""Number of bytes that the rate limit counts as one frame. A longer frame counts as several frames."""
WINDOWS_PER_FRAME = 2
"""Number of step windows that cost as much as one additional frame, besides the cost of their bytes.
Windows cost more because they take longer to parse.
"""
DIALS_PER_SECOND = 20.0
DIALS_BURST = 160.0
LOGS_PER_SECOND = 0.2
LOGS_BURST = 20.0
MAX_PARTIAL = 1024 * 1024
"""Maximum bytes of unfinished frames on all connections of a pod together."""
MAX_UNREAD = 1024 * 1024
"""Maximum bytes that the other end of a connection may leave unread. Beyond that the agent closes the
connection.
"""


class TokenBucket:
    """A token bucket. Each `spend` returns the seconds that the caller must pause. All times are seconds of
    one clock.
    """

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = now

    def spend(self, cost: float, now: float) -> float:
        """Spend `cost` tokens, and return the seconds to wait until the balance is no longer negative. The
        debt is limited to `burst` tokens.
        """
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate) - cost
        self._tokens = max(self._tokens, -self._burst)
        self._at = now
        return max(0.0, -self._tokens / self._rate)


def weight(frame: Mapping[str, Any]) -> float:
    """Return the number of tokens that a frame costs, apart from the cost of its bytes (BYTES_PER_FRAME). A
    frame without step windows costs 1.
    """
    windows = frame.get("windows")
    return 1 + (len(windows) / WINDOWS_PER_FRAME if isinstance(windows, list) else 0)


class RateLimiter:
    """A rate limit that all connections of one kind (frames or memory) of one pod share. Every `wait` gives
    other tasks of the event loop a chance to run.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._clock = asyncio.get_running_loop().time
        self._bucket = TokenBucket(rate, burst, self._clock())
        self._queue = asyncio.Lock()

    async def wait(self, cost: float) -> None:
        """Spend `cost` and wait until the rate limit permits it. Concurrent calls are served in order of
        arrival.
        """
        async with self._queue:
            await asyncio.sleep(self._bucket.spend(cost, self._clock()))
