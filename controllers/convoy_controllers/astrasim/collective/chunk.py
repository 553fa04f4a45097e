"""A chunk of a collective on one rank."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from convoy_controllers.astrasim.collective.endpoint import Endpoint
from convoy_controllers.astrasim.collective.phase import Phase
from convoy_controllers.astrasim.network.transport import Transport


class Algorithm(Protocol):
    """Sends and receives the messages of a phase."""

    def start(self) -> None:
        """Start the phase."""


@dataclass(frozen=True, slots=True)
class Site:
    """The rank on which an algorithm runs, as the algorithm sees it."""

    rank: int
    transport: Transport
    endpoint: Endpoint


class Chunk:
    """A chunk and the phases that it has still to go through."""

    __slots__ = ("done", "phases", "priority", "queue", "started", "tag")

    def __init__(self, tag: int, priority: int, phases: Sequence[Phase], done: Callable[[], None]) -> None:
        self.tag = tag
        """Tag of the chunk's messages."""
        self.priority = priority
        self.phases = deque(phases)
        """The current phase, unless the chunk waits for its first one, and those after it."""
        self.done = done
        self.queue: int | None = None
        self.started = False
        """True if the current phase has started."""
