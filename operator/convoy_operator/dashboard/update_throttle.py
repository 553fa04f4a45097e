"""The interval between updates of an open page. It grows with the processor time that updates take."""

from __future__ import annotations

MIN_SECONDS = 0.1
"""Shortest interval in seconds between two updates of a page."""
CPU_SHARE = 0.5
"""Largest share of one processor for the updates of all open pages together."""
_NEWEST_WEIGHT = 0.1
"""Weight of the newest update in the moving average. A single slow update hardly changes the interval."""


class UpdateThrottle:
    """The mean cost of an update, and the interval that follows from it. All pages share one throttle."""

    def __init__(self) -> None:
        self._mean = 0.0

    def record_cost(self, seconds: float) -> None:
        """Record the processor time of an update, in seconds."""
        self._mean += _NEWEST_WEIGHT * (seconds - self._mean)

    def interval(self, pages: int) -> float:
        """Return the seconds between the starts of two updates of a page while `pages` pages are open."""
        return max(MIN_SECONDS, self._mean * pages / CPU_SHARE)
