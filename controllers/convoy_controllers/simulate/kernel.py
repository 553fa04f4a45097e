"""The virtual clock of all simulations: an ordered queue of timed events and a seeded random generator.

Events run in the order of their times. Events with the same time run in the order in which they were
scheduled. The same seed and the same calls give the same history. The kernel knows nothing about the
simulated system.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""Start of the virtual time."""
MAX_AT_ONCE = 100_000
"""Maximum number of events at one moment. A simulation with more counts as endless."""

Action = Callable[[], None]


class Runaway(RuntimeError):
    """Raised when events cause further events without end while the time does not advance."""


class Timer:
    """A scheduled event."""

    __slots__ = ("_action", "at")

    def __init__(self, at: float, action: Action) -> None:
        self.at = at
        self._action: Action | None = action

    def cancel(self) -> None:
        """Cancel the event. Do nothing if the event has already run."""
        self._action = None

    def fire(self) -> None:
        """Run the event, unless it is cancelled or has already run."""
        action, self._action = self._action, None
        if action is not None:
            action()


class Kernel:
    """The clock and the event queue. `now` is the virtual time in Unix seconds and never decreases."""

    def __init__(self, seed: int = 0) -> None:
        self.now = EPOCH.timestamp()
        self.rng = random.Random(seed)  # noqa: S311 - chance that can be repeated is the point
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    @property
    def time(self) -> datetime:
        """The virtual time, in UTC."""
        return datetime.fromtimestamp(self.now, UTC)

    def after(self, seconds: float, action: Action) -> Timer:
        """Schedule an action `seconds` from now. With 0, it runs after all events that are already due."""
        return self.at(self.now + max(0.0, seconds), action)

    def at(self, moment: float, action: Action) -> Timer:
        """Schedule an action at a time in Unix seconds. A time in the past counts as the present."""
        timer = Timer(max(moment, self.now), action)
        heapq.heappush(self._heap, (timer.at, next(self._order), timer))
        return timer

    def about(self, seconds: float) -> float:
        """Return a random number of seconds within 25 % of `seconds`."""
        return seconds * self.rng.uniform(0.75, 1.25) if seconds else 0.0

    def run(self, until: float) -> None:
        """Run all events up to the Unix time `until` and set the clock to it. Raises Runaway if they never
        end.
        """
        moment, count = self.now, 0
        while self._heap and self._heap[0][0] <= until:
            at, _, timer = heapq.heappop(self._heap)
            moment, count = (at, 0) if at > moment else (moment, count + 1)
            if count > MAX_AT_ONCE:
                raise Runaway(f"more than {MAX_AT_ONCE} events at {self.time:%H:%M:%S.%f}")
            self.now = at
            timer.fire()
        self.now = max(self.now, until)

    def drain(self) -> None:
        """Run all events that are due at the present time."""
        self.run(self.now)

    def play(self, steps: Iterator[float]) -> None:
        """Run a generator. Each value that it yields is the seconds to wait before its next part."""

        def go_on() -> None:
            pause = next(steps, None)
            if pause is not None:
                self.after(pause, go_on)

        go_on()


class Channel:
    """A channel that delivers messages in the order in which they are sent. Each message has its own
    latency.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._last = 0.0

    def send(self, seconds: float, arrives: Action) -> None:
        """Deliver a message after `seconds`, but not before the message that was sent before it."""
        self._last = max(self._last, self._kernel.now + seconds)
        self._kernel.at(self._last, arrives)
