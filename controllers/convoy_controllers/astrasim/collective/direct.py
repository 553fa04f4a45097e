"""Direct algorithms: each rank sends to every other rank, up to a window of messages at once.

An all-reduce is a reduce-scatter and an all-gather. A rank starts the second half when it has received all
messages of the first.
"""

from __future__ import annotations

from collections.abc import Callable

from convoy_controllers.astrasim.collective.chunk import Site
from convoy_controllers.astrasim.collective.insertions import rounds
from convoy_controllers.astrasim.collective.phase import RingPhase
from convoy_controllers.astrasim.parameters import CollectiveType


class Direct:
    """A phase that sends to all peers."""

    __slots__ = (
        "_delay", "_finished", "_free", "_half", "_inserted", "_received", "_ring", "_rounds", "_sends",
        "_sent", "_site", "_size", "_step", "_tag", "_waits", "_window",
    )  # fmt: skip

    def __init__(self, site: Site, tag: int, phase: RingPhase, finished: Callable[[], None]) -> None:
        self._site = site
        self._tag = tag
        self._finished = finished
        self._ring = phase.ring
        ranks = len(phase.ring.members)
        self._step = 1 if phase.clockwise else -1
        self._size = phase.size if phase.type is CollectiveType.ALL_GATHER else phase.size // ranks
        self._half = ranks - 1
        self._waits = phase.type is CollectiveType.ALL_REDUCE
        """True if the second half waits for the first."""
        self._sends = self._half * (2 if self._waits else 1)
        self._window = self._half if phase.window is None else min(phase.window, self._half)
        self._rounds = rounds(phase, self._window)
        self._delay = site.endpoint.delay(phase.ring.group)
        self._inserted = self._sent = self._received = 0
        self._free = 0
        """Passes through the memory that have ended and sent no message."""

    def start(self) -> None:
        """Start the phase."""
        for _ in range(self._window):
            self._insert()

    def _insert(self) -> None:
        insertion = self._rounds.insertion(self._inserted)
        self._inserted += 1
        self._site.endpoint.insert(insertion, self._size, self._delay, self._ready)

    def _ready(self, _: None) -> None:
        self._free += 1
        if self._waits and self._sends - self._sent <= self._half:
            if self._received < self._half:
                return
            for _number in range(self._window):
                self._exchange()
        else:
            self._exchange()
        if self._sent == self._sends and self._free == self._window:
            self._finished()

    def _exchange(self) -> None:
        """Send the next message and post its receive, if the data is there."""
        if self._sent in {self._inserted, self._sends} or self._free == 0:
            return
        distance = self._step * (self._sent % self._half + 1)
        rank, size = self._site.rank, self._size
        self._sent += 1
        self._free -= 1
        self._site.transport.send((self._tag, rank, self._ring.peer(distance), size))
        self._site.transport.receive((self._tag, self._ring.peer(-distance), rank, size), self._arrived, None)

    def _arrived(self, _: None) -> None:
        self._received += 1
        self._insert()
