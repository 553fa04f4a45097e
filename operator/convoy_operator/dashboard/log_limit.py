"""How many logs are read at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

MOST, MOST_EACH = 32, 4
"""Of all readers together, and of one of them."""


class LogLimitError(Exception):
    """Too many logs are read already; its text says whose."""


class LogLimit:
    """One for all pages."""

    def __init__(self, most: int = MOST, each: int = MOST_EACH) -> None:
        self._most = most
        self._each = each
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    @contextmanager
    def acquire(self, reader: str) -> Iterator[None]:
        """Reading one log, while it is entered; raises NoSeatError."""
        if self._open[reader] >= self._each:
            raise LogLimitError(f"you read {self._each} logs already: stop one of them first")
        if len(self) >= self._most:
            raise LogLimitError(
                f"{self._most} logs are read already, by all readers together: try again later"
            )
        self._open[reader] += 1
        try:
            yield
        finally:
            self._open[reader] -= 1
            if not self._open[reader]:
                del self._open[reader]
