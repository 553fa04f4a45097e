"""Rows of numbers in bounded memory, true at both ends."""

from __future__ import annotations

from array import array
from dataclasses import dataclass


@dataclass(slots=True)
class Downsampled:
    """Columns of one length. When they are full, every other row goes.

    The first row stays, and the newest row is always there.
    """

    columns: tuple[array[float], ...]
    most: int
    """Rows."""
    stride: int = 1
    """One of so many rows is kept."""
    _skipped: int = 0

    def append(self, *values: float) -> None:
        """Add a row."""
        rows = len(self.columns[0])
        if rows and self._skipped + 1 < self.stride:
            # The newest row is replaced until it is the stride's turn.
            self._skipped += 1
            if rows > 1:
                for column in self.columns:
                    column.pop()
        else:
            self._skipped = 0
        for column, value in zip(self.columns, values, strict=True):
            column.append(value)
        if len(self.columns[0]) > self.most:
            self._thin()

    def _thin(self) -> None:
        last = len(self.columns[0]) - 1
        for column in self.columns:
            # By place and not by value: a loss that was not told equals nothing, itself included.
            column[:] = array(
                "d", (value for place, value in enumerate(column) if place % 2 == 0 or place == last)
            )
        self.stride *= 2
        self._skipped = 0
