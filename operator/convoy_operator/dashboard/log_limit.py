"""A limit of the logs that are read at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

MAX_LOGS, MAX_LOGS_PER_USER = 32, 4
"""Maximum number of logs read at the same time by all users together, and by one user."""


class LogLimitError(Exception):
    """The limit is reached. The text names the limit."""


class LogLimit:
    """The limit of all pages together and of each user."""

    def __init__(self, limit: int = MAX_LOGS, limit_each: int = MAX_LOGS_PER_USER) -> None:
        self._limit = limit
        self._limit_each = limit_each
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    @contextmanager
    def acquire(self, user: str) -> Iterator[None]:
        """Count one log of this user until the context exits. Raise LogLimitError at the limit."""
        if self._open[user] >= self._limit_each:
            raise LogLimitError(f"you are already reading {self._limit_each} logs; stop one first")
        if len(self) >= self._limit:
            raise LogLimitError(f"all users together are already reading {self._limit} logs; try again later")
        self._open[user] += 1
        try:
            yield
        finally:
            self._open[user] -= 1
            if not self._open[user]:
                del self._open[user]
