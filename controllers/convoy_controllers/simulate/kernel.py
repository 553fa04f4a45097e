"""The virtual clock of every simulation: timed events in one order, and one seeded source of chance.

Events run by time, those of one moment in the order in which they were asked for. The same seed and the same
calls give the same history. Nothing here knows what is simulated.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""Where clocks begin."""
MOST_AT_ONCE = 100_000
"""Events of one moment; more of them never end."""

Action = Callable[[], None]


class Runaway(RuntimeError):
    """Events cause one another without time going on."""


class Timer:
    """An event that has been asked for."""

    __slots__ = ("_action", "at")

    def __init__(self, at: float, action: Action) -> None:
        self.at = at
        self._action: Action | None = action

    def cancel(self) -> None:
        """It will not happen. Without effect once it has."""
        self._action = None

    def fire(self) -> None:
        """It happens, once."""
        action, self._action = self._action, None
        if action is not None:
            action()


class Kernel:
    """`now` is in Unix seconds and only grows."""

    def __init__(self, seed: int = 0) -> None:
        self.now = EPOCH.timestamp()
        self.rng = random.Random(seed)  # noqa: S311 - chance that can be repeated is the point
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    @property
    def time(self) -> datetime:
        """The moment, aware."""
        return datetime.fromtimestamp(self.now, UTC)

    def after(self, seconds: float, action: Action) -> Timer:
        """Lets something happen in so many seconds; at this moment, after what is due already, for 0."""
        return self.at(self.now + max(0.0, seconds), action)

    def at(self, moment: float, action: Action) -> Timer:
        """Lets something happen at a moment, in Unix seconds; one that has passed is now."""
        timer = Timer(max(moment, self.now), action)
        heapq.heappush(self._heap, (timer.at, next(self._order), timer))
        return timer

    def about(self, seconds: float) -> float:
        """A duration as it happens to be this time: up to a quarter more or less."""
        return seconds * self.rng.uniform(0.75, 1.25) if seconds else 0.0

    def run(self, until: float) -> None:
        """Lets happen all that is due by then, and moves the clock there. Runaway for what never ends."""
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
        """Lets happen all that is due at this moment."""
        self.run(self.now)

    def play(self, steps: Iterator[float]) -> None:
        """Runs a generator with the pauses, in seconds, that it yields. One that was closed ends there."""

        def go_on() -> None:
            pause = next(steps, None)
            if pause is not None:
                self.after(pause, go_on)

        go_on()


class Channel:
    """Messages that arrive in the order in which they were sent, each after its own time on the way."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._last = 0.0

    def send(self, seconds: float, arrives: Action) -> None:
        """Lets a message arrive in so many seconds, but not before the one sent before it."""
        self._last = max(self._last, self._kernel.now + seconds)
        self._kernel.at(self._last, arrives)
