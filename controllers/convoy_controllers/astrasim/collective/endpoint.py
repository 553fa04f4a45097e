"""The delay at a rank between the arrival of data and the message that depends on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from convoy_controllers.astrasim.clock import Clock, RankEvents
from convoy_controllers.astrasim.collective.insertions import Insertion
from convoy_controllers.astrasim.collective.shared_bus import MemorySystem
from convoy_controllers.astrasim.parameters import System

GROUP_DELAY = 10
"""Delay in ns of a communication group that is smaller than the cluster."""


class Endpoint:
    """The endpoint of one rank."""

    __slots__ = ("_bandwidth", "_bus", "events", "fixed")

    def __init__(self, clock: Clock, events: RankEvents, system: System) -> None:
        self.events = events
        self.fixed = None if system.shared_bus else system.endpoint_delay
        """Delay in ns outside small groups; None if the shared bus determines the delay."""
        self._bandwidth = system.memory_bandwidth * 1_000_000_000
        self._bus = MemorySystem(clock, events, system.shared_bus) if system.shared_bus else None

    def reduction(self, size: int) -> int:
        """Return the ns of a reduction of `size` bytes: two reads and a write of the memory."""
        return 3 * int(size / self._bandwidth * 1e9)

    def delay(self, group: bool) -> int | None:
        """Return the fixed delay of a phase; None if the shared bus determines the delay."""
        return GROUP_DELAY if group else self.fixed

    def insert(self, insertion: Insertion, size: int, delay: int | None, done: Callable[[Any], None]) -> None:
        """Pass data through the memory, reduce it if needed, then call `done`."""

        def reduced(_: None) -> None:
            self.events.after(self.reduction(size), done, None)

        call = reduced if insertion.reduced else done
        if delay is not None:
            self.events.after(delay, call, None)
        elif self._bus is not None:
            self._bus.transfer(insertion, size, call)
