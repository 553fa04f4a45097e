"""How often an open page is brought up to date: as often as a person sees it, while that is cheap."""

from __future__ import annotations

LEAST_SECONDS = 0.1
"""Seconds between two updates of a page, at least."""
CPU_SHARE = 0.5
"""Of a processor, at most, for the updates of all open pages together."""
_NEWEST_WEIGHT = 0.1
"""Of the newest update in the mean: what is costly once in a while slows nobody down."""


class UpdateThrottle:
    """One for all pages: what their updates cost, and how far apart they are therefore."""

    def __init__(self) -> None:
        self._mean = 0.0

    def record_cost(self, seconds: float) -> None:
        """An update took so much time of the processor."""
        self._mean += _NEWEST_WEIGHT * (seconds - self._mean)

    def interval(self, pages: int) -> float:
        """Seconds from the beginning of one update of a page to that of its next, with so many pages open."""
        return max(LEAST_SECONDS, self._mean * pages / CPU_SHARE)
