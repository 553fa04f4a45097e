"""The aggregation of a rank's steps into windows, about one per second.

The number of steps in a window is a power of two, and the number of its last step is a multiple of that
power. So a longer window of one rank covers the same steps as several shorter windows of another rank, and
both can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from convoy_workloads.runtime.telemetry.communicators import Communicator, Transfers, messages

MIN_SECONDS = 1.0
"""Target for the minimum duration of a window, in seconds. Shorter steps are combined."""
SHRINK = 4.0
"""If a window lasts longer than `SHRINK * MIN_SECONDS`, it ends early, and the next window has fewer steps.
"""
MAX_STEPS = 4096
"""Maximum number of steps in one window."""
MAX_MICRO = 64
"""Maximum number of micro-batches that are reported one by one. If a step has more, none is reported."""


@dataclass
class TimeSpent:
    """Seconds that one or more steps spend on each activity. `wall` is the total duration of the steps. The
    part of `wall` that no other field contains is work of the host.
    """

    wall: float = 0.0
    compute: float = 0.0
    """Seconds in the rank's own forward and backward passes, without the time that it waits for other
    ranks.
    """
    optimizer: float = 0.0
    data: float = 0.0
    """Seconds for which the training waited for its input data."""
    wait: float = 0.0
    """Seconds for which the training waited for collectives."""
    save: float = 0.0
    """Seconds for which a save stopped the training."""
    tokens: int = 0
    """Number of tokens that this rank alone processed; 0 if unknown."""
    micro: list[float] = field(default_factory=list)
    """Seconds of `compute` in each micro-batch. Empty if a step has only one micro-batch, or if the steps
    have different numbers of micro-batches.
    """
    moved: dict[Communicator, Transfers] = field(default_factory=dict)
    exchanges: bool = False
    """True if the rank exchanged data with single ranks in each step, as pipeline stages do."""

    def add(self, other: TimeSpent) -> None:
        """Add the times, tokens and collectives of another step."""
        self.exchanges = other.exchanges and (self.exchanges or not self.wall)
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
        """Add the collectives `moved` to the summaries of each communicator."""
        for communicator, one in moved.items():
            before = self.moved.get(communicator)
            self.moved[communicator] = before.merge(one) if before else one

    def message(self, first: int, last: int) -> dict[str, Any]:
        """Return the telemetry message of a window with the steps `first` to `last`. Times of 0 are left
        out.
        """
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
        if self.exchanges:
            said["exchanges"] = True
        return {"first": first, "last": last, **said}


class Windows:
    """Collects the steps of one rank into windows.

    Steps must come in order. If a step is missing, the window that would contain the step is dropped.
    """

    def __init__(self) -> None:
        self.length = 1
        """Number of steps in the open window."""
        self._sum = TimeSpent()
        self._next = 0

    def step(self, number: int, spent: TimeSpent) -> dict[str, Any] | None:
        """Add one step. Return the message of the window that the step completes; None if it completes no
        window.
        """
        first = (number - 1) // self.length * self.length + 1
        if number == first:
            self._sum = TimeSpent()
        elif number != self._next:
            self._next = 0  # The first steps of this window are missing, so drop the window.
            return None
        self._next = number + 1
        self._sum.add(spent)
        count = number - first + 1
        # If the steps became much longer, end the window early: the rest of it could take minutes. Any power
        # of two up to the length is still aligned.
        late = self._sum.wall > SHRINK * MIN_SECONDS and not count & (count - 1)
        if count != self.length and not late:
            return None
        self.length = count
        self._adapt_length(number, self._sum.wall)
        return self._sum.message(first, number)

    def _adapt_length(self, last: int, wall: float) -> None:
        """Choose the number of steps in the next window.

        `last`: number of the last step in the window that was just completed. `wall`: seconds that this
        completed window took.
        """
        while wall < MIN_SECONDS and self.length < MAX_STEPS and last % (2 * self.length) == 0:
            self.length *= 2
            wall *= 2
        while wall > SHRINK * MIN_SECONDS and self.length > 1:
            self.length //= 2
            wall /= 2
