"""A table of numbers in bounded memory that always keeps its first and its newest row."""

from __future__ import annotations

from array import array
from dataclasses import dataclass


@dataclass(slots=True)
class Downsampled:
    """Columns of equal length. When they are full, every other row is removed.

    The first row and the newest row are always kept.
    """

    columns: tuple[array[float], ...]
    max_rows: int
    """Maximum number of rows."""
    stride: int = 1
    """Number of added rows for each row that is kept."""
    _skipped: int = 0

    def append(self, *values: float) -> None:
        """Add a row."""
        rows = len(self.columns[0])
        if rows and self._skipped + 1 < self.stride:
            # Until `stride` rows have been added since the last kept row, each added row replaces the row
            # before it.
            self._skipped += 1
            if rows > 1:
                for column in self.columns:
                    column.pop()
        else:
            self._skipped = 0
        for column, value in zip(self.columns, values, strict=True):
            column.append(value)
        if len(self.columns[0]) > self.max_rows:
            self._thin()

    def _thin(self) -> None:
        last = len(self.columns[0]) - 1
        for column in self.columns:
            # Select rows by index. Values cannot be compared, because an absent loss is NaN, which does not
            # equal itself.
            column[:] = array(
                "d", (value for place, value in enumerate(column) if place % 2 == 0 or place == last)
            )
        self.stride *= 2
        self._skipped = 0
