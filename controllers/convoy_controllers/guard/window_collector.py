"""Collects the ranks' windows into tables. Needs no clock: windows of later steps show that an earlier one
is late.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from convoy_controllers.guard.telemetry import Table, Window, joined, tabulate

PATIENCE = 4
"""Later windows after which the ranks still missing from a window are left out."""
MOST_TIMES = 8
"""Largest ratio between the lengths of two ranks' windows that can be combined."""

Span = tuple[int, int]
"""First and last step."""


@dataclass(slots=True)
class _Open:
    """A span that waits for ranks. A rank with shorter windows contributes several."""

    span: Span
    windows_by_rank: dict[int, list[Window]] = field(default_factory=dict)
    complete: int = 0
    """Number of ranks that have reported the whole span."""

    def add(self, window: Window) -> bool:
        """Add a window. Return False if its rank has already reported one of its steps."""
        mine = self.windows_by_rank.setdefault(window.rank, [])
        if any(one.first <= window.last and window.first <= one.last for one in mine):
            return False
        mine.append(window)
        self.complete += self._covers(mine)
        return True

    def absorb(self, inner: _Open) -> None:
        """Add all windows of a span that lies within this one."""
        for windows in inner.windows_by_rank.values():
            for window in windows:
                self.add(window)

    def windows(self) -> list[Window]:
        """Return one joined window of each rank that has reported the whole span."""
        return [joined(mine) for mine in self.windows_by_rank.values() if self._covers(mine)]

    def _covers(self, mine: list[Window]) -> bool:
        return sum(one.steps for one in mine) == self.span[1] - self.span[0] + 1


class WindowCollector:
    """Collects the windows of ONE incarnation of a job. It stores at most `patience` incomplete spans.

    Ranks may report windows of different lengths; these are combined under the longest. The collector is
    mutable, since a job may have 10,000 ranks. Its result depends on its input alone.
    """

    def __init__(self, size: int, incarnation: int = 0, patience: int = PATIENCE) -> None:
        self.dropped = 0
        """Number of windows that came late or twice, or were invalid."""
        self._patience = patience
        self.reset(incarnation, size)

    def reset(self, incarnation: int, size: int) -> None:
        """Start another incarnation with `size` ranks, and drop everything of the one before."""
        self._incarnation, self._size = incarnation, size
        self._done = 0
        self._open: dict[Span, _Open] = {}

    @property
    def open(self) -> int:
        """Return the number of spans that wait for ranks."""
        return len(self._open)

    def add(self, incarnation: int, window: Window) -> tuple[Table, ...]:
        """Add a window. Return the tables that are complete, oldest first."""
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
        """Return the span of a window: its own or a longer one. None if the other ranks' spans are too
        short.

        Aligned spans are either nested or disjoint.
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
        """Return the tables that are ready. An incomplete span delays at most `patience` later ones."""
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
