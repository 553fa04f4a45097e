"""A limit of the logs that are read at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

MAX_LOGS, MAX_LOGS_PER_READER = 32, 4
"""Largest numbers of logs read at a time: by all readers together, and by one reader."""


class LogLimitError(Exception):
    """The limit is reached. The text names the limit."""


class LogLimit:
    """The limit of all pages together and of each reader."""

    def __init__(self, limit: int = MAX_LOGS, limit_each: int = MAX_LOGS_PER_READER) -> None:
        self._limit = limit
        self._limit_each = limit_each
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    @contextmanager
    def acquire(self, reader: str) -> Iterator[None]:
        """Count one log of this reader until the context exits. Raise LogLimitError at the limit."""
        if self._open[reader] >= self._limit_each:
            raise LogLimitError(f"you are already reading {self._limit_each} logs; stop one first")
        if len(self) >= self._limit:
            raise LogLimitError(
                f"all readers together are already reading {self._limit} logs; try again later"
            )
        self._open[reader] += 1
        try:
            yield
        finally:
            self._open[reader] -= 1
            if not self._open[reader]:
                del self._open[reader]
