"""Folds what a rank did step by step into windows of aligned steps, about one a second.

A window's length is a power of two and its last step a multiple of it. So the windows of ranks that chose
different lengths cover whole multiples of each other, and can be added up to the same steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from convoy_workloads.runtime.telemetry.communicators import Communicator, Transfers, messages

LEAST_SECONDS = 1.0
"""A window is to take no less: short steps are folded."""
SHRINK = 4.0
"""Windows longer than so many times LEAST_SECONDS become shorter again."""
MAX_STEPS = 4096
"""Of one window."""
MAX_MICRO = 64
"""Micro-batches of a step that are told one by one; with more of them none is."""


@dataclass
class TimeSpent:
    """Seconds of one or more steps, by what they went to. What is left of `wall` is the host's own."""

    wall: float = 0.0
    compute: float = 0.0
    """Own forward and backward passes, without waiting for others."""
    optimizer: float = 0.0
    data: float = 0.0
    """Waiting for input."""
    wait: float = 0.0
    """Held up by a collective."""
    save: float = 0.0
    """Held up by checkpoints."""
    tokens: int = 0
    """Of this rank alone; 0 for unknown."""
    micro: list[float] = field(default_factory=list)
    """Of `compute`, each micro-batch's; empty where a step has one."""
    moved: dict[Communicator, Transfers] = field(default_factory=dict)

    def add(self, other: TimeSpent) -> None:
        """Takes another step in."""
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
        """Takes collectives in."""
        for communicator, one in moved.items():
            before = self.moved.get(communicator)
            self.moved[communicator] = before.merge(one) if before else one

    def message(self, first: int, last: int) -> dict[str, Any]:
        """As the agent is told; what is 0 is left out."""
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
    """One rank's. Steps come in order; after a gap the window begins anew."""

    def __init__(self) -> None:
        self.length = 1
        """Of the window that is open, in steps."""
        self._sum = TimeSpent()
        self._next = 0

    def step(self, number: int, spent: TimeSpent) -> dict[str, Any] | None:
        """Takes in one step; the window that it completes, as the agent is told."""
        first = (number - 1) // self.length * self.length + 1
        if number == first:
            self._sum = TimeSpent()
        elif number != self._next:
            self._next = 0  # its first steps were not seen
            return None
        self._next = number + 1
        self._sum.add(spent)
        if number != first + self.length - 1:
            return None
        self._adapt_length(number, self._sum.wall)
        return self._sum.message(first, number)

    def _adapt_length(self, last: int, wall: float) -> None:
        """Chooses the next window's length from what the one that ended with step `last` took."""
        while wall < LEAST_SECONDS and self.length < MAX_STEPS and last % (2 * self.length) == 0:
            self.length *= 2
            wall *= 2
        while wall > SHRINK * LEAST_SECONDS and self.length > 1:
            self.length //= 2
            wall /= 2
