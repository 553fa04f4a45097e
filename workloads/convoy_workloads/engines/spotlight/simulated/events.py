"""The virtual clock: events in the order of their times."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class EventKind(StrEnum):
    """Kind of an event."""

    START = "start"
    """A spot node starts."""
    BOOTED = "booted"
    NOTICE = "notice"
    END = "end"
    """A spot node ends."""
    FREE = "free"
    """A group has formed or copied weights."""
    FINISHED = "finished"
    """A group has finished a request."""
    RENEW = "renew"
    """A group renews its lease."""
    DEAL = "deal"
    """The share of a lost group is dealt out again. The token is the number of requests."""
    TRAINED = "trained"


class Event(NamedTuple):
    """An event. Of events at one time, the one that was added first comes first."""

    time: float
    order: int
    kind: EventKind
    name: str
    """Name of the node or group; empty for none."""
    token: int


class Clock:
    """The events that will happen, and the present time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[Event] = []
        self._order = 0

    def add(self, time: float, kind: EventKind, name: str = "", token: int = 0) -> None:
        """Add an event. One at infinity never happens."""
        if math.isfinite(time):
            self._order += 1
            heapq.heappush(self._events, Event(time, self._order, kind, name, token))

    @property
    def next_time(self) -> float:
        """Return the time of the next event in virtual seconds; infinity without one."""
        return self._events[0].time if self._events else math.inf

    def pop(self) -> Event:
        """Remove the next event, and set the clock to its time."""
        event = heapq.heappop(self._events)
        self.now = max(self.now, event.time)
        return event

    def state_dict(self) -> dict[str, Any]:
        """Return the time and the events."""
        return {"now": self.now, "order": self._order, "events": [list(one) for one in self._events]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the saved time and events."""
        self.now, self._order = state["now"], state["order"]
        self._events = [
            Event(time, order, EventKind(kind), name, token)
            for time, order, kind, name, token in state["events"]
        ]
