"""The virtual clock of every simulation: an ordered queue of timed events and one seeded random generator.

Events run in order of time, and events of the same moment in the order in which they were scheduled. The
same seed and the same calls give the same history. The kernel knows nothing of what is simulated.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""Start of the virtual time."""
MOST_AT_ONCE = 100_000
"""Events at one moment beyond which a simulation counts as endless."""

Action = Callable[[], None]


class Runaway(RuntimeError):
    """Events cause one another without end and the time does not advance."""


class Timer:
    """A scheduled event."""

    __slots__ = ("_action", "at")

    def __init__(self, at: float, action: Action) -> None:
        self.at = at
        self._action: Action | None = action

    def cancel(self) -> None:
        """Cancel the event. Does nothing if it has run."""
        self._action = None

    def fire(self) -> None:
        """Run the event, once."""
        action, self._action = self._action, None
        if action is not None:
            action()


class Kernel:
    """The clock and the event queue. `now` is in Unix seconds and never decreases."""

    def __init__(self, seed: int = 0) -> None:
        self.now = EPOCH.timestamp()
        self.rng = random.Random(seed)  # noqa: S311 - chance that can be repeated is the point
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    @property
    def time(self) -> datetime:
        """The current time, in UTC."""
        return datetime.fromtimestamp(self.now, UTC)

    def after(self, seconds: float, action: Action) -> Timer:
        """Schedule an action in so many seconds. With 0 it runs at this moment, after all events that are
        due already.
        """
        return self.at(self.now + max(0.0, seconds), action)

    def at(self, moment: float, action: Action) -> Timer:
        """Schedule an action at a time in Unix seconds. A past time counts as now."""
        timer = Timer(max(moment, self.now), action)
        heapq.heappush(self._heap, (timer.at, next(self._order), timer))
        return timer

    def about(self, seconds: float) -> float:
        """Return a random duration within 25 % of `seconds`."""
        return seconds * self.rng.uniform(0.75, 1.25) if seconds else 0.0

    def run(self, until: float) -> None:
        """Run all events due by `until` and set the clock to it. Raises Runaway if the events never end."""
        moment, count = self.now, 0
        while self._heap and self._heap[0][0] <= until:
            at, _, timer = heapq.heappop(self._heap)
            moment, count = (at, 0) if at > moment else (moment, count + 1)
            if count > MOST_AT_ONCE:
                raise Runaway(f"more than {MOST_AT_ONCE} events at {self.time:%H:%M:%S.%f}")
            self.now = at
            timer.fire()
        self.now = max(self.now, until)

    def drain(self) -> None:
        """Run all events that are due at this moment."""
        self.run(self.now)

    def play(self, steps: Iterator[float]) -> None:
        """Run a generator. It yields the seconds to pause before its next part."""

        def go_on() -> None:
            pause = next(steps, None)
            if pause is not None:
                self.after(pause, go_on)

        go_on()


class Channel:
    """A channel that delivers messages in order. Each message has a latency of its own."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._last = 0.0

    def send(self, seconds: float, arrives: Action) -> None:
        """Deliver a message in so many seconds, but not before the message sent before it."""
        self._last = max(self._last, self._kernel.now + seconds)
        self._kernel.at(self._last, arrives)
