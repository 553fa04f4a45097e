"""Collects the ranks' windows into tables. The collector needs no clock: a window counts as late once
enough windows of later steps have arrived.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from convoy_controllers.guard.telemetry import Table, Window, joined, tabulate

PATIENCE = 4
"""Number of later spans that must exist before an incomplete span is made into a table. The table lacks the
ranks whose windows are missing.
"""
MOST_TIMES = 8
"""Maximum ratio between the lengths of two ranks' windows that are combined."""

Span = tuple[int, int]
"""First and last step of a range of steps."""


@dataclass(slots=True)
class _Open:
    """A span of steps that waits for windows of ranks. A rank with shorter windows contributes several
    windows.
    """

    span: Span
    windows_by_rank: dict[int, list[Window]] = field(default_factory=dict)
    complete: int = 0
    """Number of ranks that have reported the whole span."""

    def add(self, window: Window) -> bool:
        """Add a window. Return False if the same rank has already reported one of the window's steps."""
        mine = self.windows_by_rank.setdefault(window.rank, [])
        if any(one.first <= window.last and window.first <= one.last for one in mine):
            return False
        mine.append(window)
        self.complete += self._covers(mine)
        return True

    def absorb(self, inner: _Open) -> None:
        """Add all windows of the span `inner`, which lies within this span."""
        for windows in inner.windows_by_rank.values():
            for window in windows:
                self.add(window)

    def windows(self) -> list[Window]:
        """Return one window for each rank that has reported the whole span, joined from its windows."""
        return [joined(mine) for mine in self.windows_by_rank.values() if self._covers(mine)]

    def _covers(self, mine: list[Window]) -> bool:
        return sum(one.steps for one in mine) == self.span[1] - self.span[0] + 1


class WindowCollector:
    """Collects the windows of ONE incarnation of a job. At most `patience` incomplete spans are stored.

    Ranks may report windows of different lengths. These are combined into the span of the longest window.
    The collector is mutable, because a job may have 10,000 ranks. The tables depend only on the windows and
    their order.
    """

    def __init__(self, size: int, incarnation: int = 0, patience: int = PATIENCE) -> None:
        self.dropped = 0
        """Number of windows that arrived too late, arrived twice, or were invalid."""
        self._patience = patience
        self.reset(incarnation, size)

    def reset(self, incarnation: int, size: int) -> None:
        """Start another incarnation with `size` ranks, and drop all windows of the previous incarnation."""
        self._incarnation, self._size = incarnation, size
        self._done = 0
        self._open: dict[Span, _Open] = {}

    @property
    def open(self) -> int:
        """Return the number of spans that wait for windows of ranks."""
        return len(self._open)

    def add(self, incarnation: int, window: Window) -> tuple[Table, ...]:
        """Add a rank's window. Return the tables that are ready after this window, oldest first."""
        before = len(self._open)
        found = self._find_span(window) if incarnation == self._incarnation and self._valid(window) else None
        if found is None or not found.add(window):
            self.dropped += 1
            return ()
        return self._ready() if len(self._open) > before or found.complete == self._size else ()

    def _valid(self, window: Window) -> bool:
        times = (window.wall, window.compute, window.optimizer, window.data, window.wait, window.save)
        aligned = window.first <= window.last and window.last % window.steps == 0
        return (
            0 <= window.rank < self._size
            and self._done < window.first
            and aligned
            and not window.steps & (window.steps - 1)
            and all(0 <= time < float("inf") for time in times)
            and all(0 < time < float("inf") for time in window.micro)
            and all(0 <= one.seconds < float("inf") for one in window.collectives)
        )

    def _find_span(self, window: Window) -> _Open | None:
        """Return the open span that contains the window, or open the window's own span.

        Return None if the window is too long or too short to be combined with the other ranks' windows (see
        `MOST_TIMES`). Aligned spans are either nested or disjoint, so at most one open span contains the
        window.
        """
        span = (window.first, window.last)
        outer = next((one for at, one in self._open.items() if at[0] <= span[0] and span[1] <= at[1]), None)
        if outer is not None:
            return outer if outer.span[1] - outer.span[0] < MOST_TIMES * window.steps else None
        inner = [one for at, one in self._open.items() if span[0] <= at[0] and at[1] <= span[1]]
        if any(window.steps > MOST_TIMES * (one.span[1] - one.span[0] + 1) for one in inner):
            return None
        found = self._open[span] = _Open(span)
        for one in inner:
            found.absorb(self._open.pop(one.span))
        return found

    def _ready(self) -> tuple[Table, ...]:
        """Return the tables of the spans that are complete or have `patience` later spans, oldest first."""
        spans = sorted(self._open)
        tables = []
        for number, span in enumerate(spans):
            later = len(spans) - 1 - number
            if self._open[span].complete < self._size and later < self._patience:
                break
            windows = self._open.pop(span).windows()
            self._done = span[1]
            if windows:
                tables.append(tabulate(windows, self._size))
        return tuple(tables)
