"""The choice of a queue for each phase of a chunk.

Each dimension has the same number of queues. An all-reduce that visits a dimension twice uses the first half
of its queues on the way up and the second half on the way down, so that the two cannot block each other.
"""

from __future__ import annotations


class QueueIds:
    """The queues of one rank in one dimension. Each method assigns queues in turns."""

    def __init__(self, first: int, count: int) -> None:
        self._first = first
        self._count = count
        self._next = 0
        self._next_up = 0
        self._next_down = count // 2

    def any(self) -> tuple[int, bool]:
        """Return a queue and True for clockwise. The second half of the queues is anticlockwise."""
        chosen = self._next
        self._next = (chosen + 1) % self._count
        return self._first + chosen, self._count == 1 or chosen < self._count // 2

    def up(self) -> tuple[int, bool]:
        """Return a queue of the first half, clockwise."""
        chosen = self._next_up
        self._next_up = chosen + 1 if chosen + 1 < self._count // 2 else 0
        return self._first + chosen, True

    def down(self) -> tuple[int, bool]:
        """Return a queue of the second half, anticlockwise."""
        chosen = self._next_down
        self._next_down = chosen + 1 if chosen + 1 < self._count else self._count // 2
        return self._first + chosen, False
