"""The exports of a shard that are being read."""

from __future__ import annotations

import itertools

from convoy_workloads.engines.aperon.errors import InvalidInput
from convoy_workloads.engines.aperon.exported import Cursor
from convoy_workloads.engines.aperon.index import VectorIndex


class Exports:
    """Open exports by number. Each sees the records of the time when it was opened. Several threads may call
    the methods, but each export has one reader.
    """

    def __init__(self, index: VectorIndex) -> None:
        self._index = index
        self._cursors: dict[int, Cursor] = {}
        self._numbers = itertools.count(1)

    def open(self) -> list[int]:
        """Open an export. Return its number, and the number of its records."""
        number = next(self._numbers)
        cursor = Cursor(self._index.snapshot().state, self._index.settings.dimension)
        self._cursors[number] = cursor
        return [number, cursor.records]

    def next(self, number: int) -> bytes:
        """Return the next records; nothing after the last ones."""
        cursor = self._cursors.get(number)
        if cursor is None:
            raise InvalidInput("export", f"there is no export {number}")
        return cursor.next()

    def close(self, number: int) -> None:
        """End an export, so that its files can be deleted."""
        self._cursors.pop(number, None)
