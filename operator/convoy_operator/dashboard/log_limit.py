"""The limit of the logs that are read at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

MAX_LOGS, MAX_LOGS_PER_USER = 32, 4
"""Maximum number of logs read at the same time by all users together, and by one user."""


class LogLimitError(Exception):
    """Raised when too many logs are open. The message names the limit that is reached."""


class LogLimit:
    """Limits the number of logs that all pages together and each user read at the same time."""

    def __init__(self, limit: int = MAX_LOGS, limit_each: int = MAX_LOGS_PER_USER) -> None:
        self._limit = limit
        self._limit_each = limit_each
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    @contextmanager
    def acquire(self, user: str) -> Iterator[None]:
        """Count one open log of this user until the context exits.

        Raises LogLimitError if a limit is reached.
        """
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
