"""The event queue. Events of the same time run in the order in which they were scheduled."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import islice
from typing import Any

Event = tuple[Callable[[Any], None], Any]


class BudgetExhausted(Exception):
    """Raised when a run has played as many events as its budget allows."""


class ClockStopped(Exception):
    """Raised for an event at time 0: the clock starts at 0 and each event must move it forward."""


class Clock:
    """The time, and the events that are due later."""

    __slots__ = ("_before_next", "_due", "_times", "events", "now")

    def __init__(self) -> None:
        self.now = 0
        self.events = 0
        """Number of events played, and work that was charged."""
        self._before_next: list[Callable[[], None]] = []
        self._times: list[int] = []
        self._due: dict[int, list[Event]] = {}

    def at(self, time: int, call: Callable[[Any], None], argument: Any) -> None:
        """Schedule a call."""
        due = self._due.get(time)
        if due is None:
            self._due[time] = [(call, argument)]
            heappush(self._times, time)
        else:
            due.append((call, argument))

    def before_next(self, call: Callable[[], None]) -> None:
        """Run a call once, after the events of the present time and before the time moves on."""
        self._before_next.append(call)

    def charge(self, work: int) -> None:
        """Count work as events, so that a budget bounds it."""
        self.events += work

    def run(self, budget: int) -> None:
        """Play events until none is left. Raises BudgetExhausted after `budget` events."""
        times, all_due = self._times, self._due
        self._end_present()
        if times and times[0] <= self.now:
            raise ClockStopped
        while times:
            self.now = time = heappop(times)
            due = all_due[time]
            left = max(0, budget - self.events)
            # A call may schedule another one for now. The loop also plays such calls.
            for call, argument in islice(due, left):
                call(argument)
            self.events += min(len(due), left)
            if len(due) > left:
                raise BudgetExhausted
            del all_due[time]
            if self._before_next:
                self._end_present()
            if self.events >= budget and times:
                raise BudgetExhausted

    def _end_present(self) -> None:
        calls, self._before_next = self._before_next, []
        for call in calls:
            call()


class RankEvents:
    """The events of one rank. Those of the same time run together, in the place of the first one.

    Without this, ranks that use the same link at the same time would use it in another order.
    """

    __slots__ = ("_clock", "_due", "_run_call")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[int, list[Event]] = {}
        self._run_call = self._run

    def after(self, delay: int, call: Callable[[Any], None], argument: Any) -> None:
        """Schedule a call `delay` ns from now."""
        clock = self._clock
        time = clock.now + delay
        due = self._due.get(time)
        if due is None:
            self._due[time] = [(call, argument)]
            clock.at(time, self._run_call, time)
        else:
            due.append((call, argument))

    def _run(self, time: int) -> None:
        # A call may schedule another one for now. The loop also plays such calls.
        for call, argument in self._due[time]:
            call(argument)
        del self._due[time]
