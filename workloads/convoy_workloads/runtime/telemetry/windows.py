"""The aggregation of a rank's steps into windows of aligned steps, about one per second.

A window's length is a power of two, and its last step is a multiple of the length. So windows of ranks with
different lengths cover multiples of each other and can be added up to the same steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from convoy_workloads.runtime.telemetry.communicators import Communicator, Transfers, messages

MIN_SECONDS = 1.0
"""Target for the shortest window. Shorter steps are combined."""
SHRINK = 4.0
"""Windows longer than this many times MIN_SECONDS become shorter again."""
MAX_STEPS = 4096
"""Most steps in one window."""
MAX_MICRO = 64
"""Most micro-batches of a step that are reported one by one. With more, none is reported."""


@dataclass
class TimeSpent:
    """Seconds of one or more steps by activity. The rest of `wall` is the host's own."""

    wall: float = 0.0
    compute: float = 0.0
    """The rank's own forward and backward passes, without waiting for others."""
    optimizer: float = 0.0
    data: float = 0.0
    """Waiting for input."""
    wait: float = 0.0
    """Waiting for a collective."""
    save: float = 0.0
    """Stopped by a save."""
    tokens: int = 0
    """Tokens of this rank alone; 0 if unknown."""
    micro: list[float] = field(default_factory=list)
    """Part of `compute` for each micro-batch; empty if a step has only one."""
    moved: dict[Communicator, Transfers] = field(default_factory=dict)

    def add(self, other: TimeSpent) -> None:
        """Add another step."""
        if not self.wall:
            self.micro = list(other.micro)
        elif len(self.micro) == len(other.micro):
            self.micro = [mine + its for mine, its in zip(self.micro, other.micro)]  # noqa: B905 - Python 3.9
        else:
            self.micro = []
        self.wall += other.wall
        self.compute += other.compute
        self.optimizer += other.optimizer
        self.data += other.data
        self.wait += other.wait
        self.save += other.save
        self.tokens += other.tokens
        self.add_moved(other.moved)

    def add_moved(self, moved: Mapping[Communicator, Transfers]) -> None:
        """Add collectives."""
        for communicator, one in moved.items():
            before = self.moved.get(communicator)
            self.moved[communicator] = before.merge(one) if before else one

    def message(self, first: int, last: int) -> dict[str, Any]:
        """Return the window in the form of the telemetry message. Values of 0 are left out."""
        found = {
            "wall": self.wall,
            "compute": self.compute,
            "optimizer": self.optimizer,
            "data": self.data,
            "wait": self.wait,
            "save": self.save,
        }
        said: dict[str, Any] = {name: round(value, 6) for name, value in found.items() if value > 0}
        if self.tokens > 0:
            said["tokens"] = self.tokens
        if 2 <= len(self.micro) <= MAX_MICRO:
            said["micro"] = [round(value, 6) for value in self.micro]
        if collectives := messages(self.moved):
            said["collectives"] = collectives
        return {"first": first, "last": last, **said}


class Windows:
    """The windows of one rank. Steps come in order. After a gap the window starts again."""

    def __init__(self) -> None:
        self.length = 1
        """Length of the open window in steps."""
        self._sum = TimeSpent()
        self._next = 0

    def step(self, number: int, spent: TimeSpent) -> dict[str, Any] | None:
        """Add one step. Return the message of the window that it completes, if any."""
        first = (number - 1) // self.length * self.length + 1
        if number == first:
            self._sum = TimeSpent()
        elif number != self._next:
            self._next = 0  # The first steps of this window are missing.
            return None
        self._next = number + 1
        self._sum.add(spent)
        if number != first + self.length - 1:
            return None
        self._adapt_length(number, self._sum.wall)
        return self._sum.message(first, number)

    def _adapt_length(self, last: int, wall: float) -> None:
        """Choose the length of the next window. The previous one ended with step `last` and took `wall`
        seconds.
        """
        while wall < MIN_SECONDS and self.length < MAX_STEPS and last % (2 * self.length) == 0:
            self.length *= 2
            wall *= 2
        while wall > SHRINK * MIN_SECONDS and self.length > 1:
            self.length //= 2
            wall /= 2
