"""How much one pod may ask of its agent."""

from __future__ import annotations

MAX_CONNECTIONS = 208
"""Of one pod: 64 ranks with three each, the launcher, and a few that are being replaced."""
MAX_LINES = 4
"""To memory, of one rank: two, and two that are being replaced."""
HELLO_SECONDS = 10.0
"""A connection that has not said hello by then is closed."""
FRAMES_PER_SECOND = 200.0
FRAMES_BURST = 400.0
BYTES_PER_FRAME = 4096
"""A longer frame counts as several."""
DIALS_PER_SECOND = 20.0
DIALS_BURST = 160.0
LOGS_PER_SECOND = 0.2
LOGS_BURST = 20.0
MAX_PARTIAL = 1024 * 1024
"""Bytes of unfinished frames over all connections of a pod."""
MAX_UNREAD = 1024 * 1024
"""Bytes a connection may leave unread before it is closed."""


class Bucket:
    """A token bucket that says how long to pause. Times are seconds of any one clock."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = now

    def take(self, cost: float, now: float) -> float:
        """Spends `cost`, into a debt of a burst at most; the seconds until the debt is paid."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate) - cost
        self._tokens = max(self._tokens, -self._burst)
        self._at = now
        return max(0.0, -self._tokens / self._rate)
