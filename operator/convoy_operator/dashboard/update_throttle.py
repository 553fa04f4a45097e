"""The interval between updates of an open page. The interval grows with the processor time that updates
take.
"""

from __future__ import annotations

MIN_SECONDS = 0.1
"""Minimum number of seconds between two updates of a page."""
CPU_SHARE = 0.5
"""Maximum share of one processor that the updates of all open pages together may use."""
_NEWEST_WEIGHT = 0.1
"""Weight of the newest update in the moving average. The weight is low, so a single slow update hardly
changes the interval.
"""


class UpdateThrottle:
    """Measures the mean processor time of an update and derives the interval from it. All pages share one
    throttle.
    """

    def __init__(self) -> None:
        self._mean = 0.0

    def record_cost(self, seconds: float) -> None:
        """Record the processor time in seconds that an update took."""
        self._mean += _NEWEST_WEIGHT * (seconds - self._mean)

    def interval(self, pages: int) -> float:
        """Return the seconds between the starts of two updates of a page while `pages` pages are open."""
        return max(MIN_SECONDS, self._mean * pages / CPU_SHARE)
