"""From windows, as they come in from the ranks, to tables. No clock: what is late is told by later
windows.
"""

from __future__ import annotations

from convoy_controllers.guard.telemetry import Table, Window, tabulate

PATIENCE = 4
"""Later windows begun after which those still silent are left out."""

Span = tuple[int, int]
"""First and last step."""


class Gather:
    """The windows of ONE incarnation of a job; at most `patience` incomplete ones are kept.

    It changes in place, since a job has 10,000 ranks; what comes out depends on what came in alone.
    """

    def __init__(self, size: int, incarnation: int = 0, patience: int = PATIENCE) -> None:
        self.dropped = 0
        """Windows that were late, came twice, or made no sense."""
        self._patience = patience
        self.begin(incarnation, size)

    def begin(self, incarnation: int, size: int) -> None:
        """Another incarnation, with `size` ranks: nothing of the one before is kept."""
        self._incarnation, self._size = incarnation, size
        self._done = 0
        self._open: dict[Span, dict[int, Window]] = {}

    @property
    def open(self) -> int:
        """Windows that wait for ranks."""
        return len(self._open)

    def take(self, incarnation: int, window: Window) -> tuple[Table, ...]:
        """One more window; gives the tables that are ready now, oldest first."""
        span = (window.first, window.last)
        told = self._open.get(span, {})
        if (
            incarnation != self._incarnation
            or window.rank in told
            or not self._sound(window)
            or self._crossing(span)
        ):
            self.dropped += 1
            return ()
        told[window.rank] = window
        self._open[span] = told
        return self._ready() if len(told) in (1, self._size) else ()

    def _sound(self, window: Window) -> bool:
        times = (window.wall, window.compute, window.optimizer, window.data, window.wait, window.save)
        return (
            0 <= window.rank < self._size
            and self._done < window.first <= window.last
            and all(0 <= time < float("inf") for time in times)
            and all(0 < time < float("inf") for time in window.micro)
            and all(0 <= one.seconds < float("inf") for one in window.collectives)
        )

    def _crossing(self, span: Span) -> bool:
        """Whether it shares steps with an open window of another length: its rank is not heard for these."""
        return any(span != other and span[0] <= other[1] and other[0] <= span[1] for other in self._open)

    def _ready(self) -> tuple[Table, ...]:
        """An incomplete window holds up those after it only as long as patience lasts."""
        spans = sorted(self._open)
        tables = []
        for number, span in enumerate(spans):
            later = len(spans) - 1 - number
            if len(self._open[span]) < self._size and later < self._patience:
                break
            tables.append(tabulate(list(self._open.pop(span).values()), self._size))
            self._done = span[1]
        return tuple(tables)
