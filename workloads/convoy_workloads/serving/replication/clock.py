"""A hybrid logical clock: Kulkarni et al., "Logical Physical Clocks", OPODIS 2014.

A time is one number: milliseconds since 1970 in the upper 48 bits, and a counter in the lower 16. Each time
is larger than all times that the process has made or received before, and close to the time of day, however
wrong the clocks of other machines are.
"""

from __future__ import annotations

import time
from collections.abc import Callable

COUNTER_BITS = 16
LARGEST = 2**63 - 1
"""The largest time that is accepted from others, in the year 6429. This process may make larger ones."""


def milliseconds() -> int:
    """Return the time of day in milliseconds."""
    return time.time_ns() // 1_000_000


class HybridClock:
    """The clock of one process."""

    def __init__(self, now: Callable[[], int] = milliseconds) -> None:
        """`now` returns the time of day in milliseconds. It may go back."""
        self._now = now
        self.latest = 0
        """The largest time that was made or received."""

    def next(self) -> int:
        """Return a time that is later than all earlier results."""
        # A counter that overflows adds a millisecond, so the time still grows.
        self.latest = max(self._now() << COUNTER_BITS, self.latest + 1)
        return self.latest

    def observe(self, received: int) -> None:
        """Record a time that another process has made."""
        self.latest = max(self.latest, received)
