"""From windows, as they come in from the ranks, to tables. No clock: later windows tell what is late."""

from __future__ import annotations

from dataclasses import dataclass, field

from convoy_controllers.guard.telemetry import Table, Window, joined, tabulate

PATIENCE = 4
"""Later windows begun after which those still silent are left out."""
MOST_TIMES = 8
"""As long as another rank's may a window be, to be put together with those."""

Span = tuple[int, int]
"""First and last step."""


@dataclass(slots=True)
class _Open:
    """A span that waits for ranks. One whose windows are shorter has several."""

    span: Span
    windows_by_rank: dict[int, list[Window]] = field(default_factory=dict)
    complete: int = 0
    """Ranks that have told of all of it."""

    def add(self, window: Window) -> bool:
        """Whether it tells something that its rank has not told before."""
        mine = self.windows_by_rank.setdefault(window.rank, [])
        if any(one.first <= window.last and window.first <= one.last for one in mine):
            return False
        mine.append(window)
        self.complete += self._covers(mine)
        return True

    def absorb(self, inner: _Open) -> None:
        """Takes over what ranks have told of a part of it."""
        for windows in inner.windows_by_rank.values():
            for window in windows:
                self.add(window)

    def windows(self) -> list[Window]:
        """Of those ranks that have told of all of it."""
        return [joined(mine) for mine in self.windows_by_rank.values() if self._covers(mine)]

    def _covers(self, mine: list[Window]) -> bool:
        return sum(one.steps for one in mine) == self.span[1] - self.span[0] + 1


class WindowCollector:
    """The windows of ONE incarnation of a job; at most `patience` incomplete ones are kept.

    Ranks that fold their steps into windows of different lengths are put together under the longest of them.
    It changes in place, since a job has 10,000 ranks; what comes out depends on what came in alone.
    """

    def __init__(self, size: int, incarnation: int = 0, patience: int = PATIENCE) -> None:
        self.dropped = 0
        """Windows that were late, came twice, or made no sense."""
        self._patience = patience
        self.reset(incarnation, size)

    def reset(self, incarnation: int, size: int) -> None:
        """Another incarnation, with `size` ranks: nothing of the one before is kept."""
        self._incarnation, self._size = incarnation, size
        self._done = 0
        self._open: dict[Span, _Open] = {}

    @property
    def open(self) -> int:
        """Windows that wait for ranks."""
        return len(self._open)

    def add(self, incarnation: int, window: Window) -> tuple[Table, ...]:
        """One more window; gives the tables that are ready now, oldest first."""
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
        """The span that a window belongs to, its own or a longer one; aligned spans lie within each other or
        apart. None when others' are too short to be put together with it.
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
        """An incomplete window holds up those after it only as long as patience lasts."""
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
