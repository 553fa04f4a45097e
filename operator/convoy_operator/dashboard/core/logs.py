"""The end of a log: the lines of one rank, told apart by what the launcher puts before them."""

from __future__ import annotations

import re
from collections import deque

from convoy_operator.dashboard.core.words import visible

PREFIX = re.compile(r"^\[(\d+)/(\d+)\] ")
"""`[incarnation/rank] ` before every line that a rank writes."""
MOST_LINES = 500
MOST_LENGTH = 2000
"""Characters of a line that are shown."""
MOST_TEXT = 131_072
"""Characters of all lines together: while a log is followed they are sent twice a second."""


class Tail:
    """The last lines of a stream of text."""

    def __init__(self, rank: int | None = None) -> None:
        """`rank`: whose lines are kept, beside those of the launcher; None keeps all."""
        self._rank = rank
        self._lines: deque[str] = deque()
        self._length = 0
        self._rest = ""

    def add(self, text: str) -> None:
        """Takes what has come; it need not end with a line."""
        *lines, self._rest = (self._rest + text).split("\n")
        self._rest = self._rest[-MOST_LENGTH * 2 :]
        for line in lines:
            self._take(line)

    def end(self) -> None:
        """Nothing more comes."""
        if self._rest:
            self._take(self._rest)
            self._rest = ""

    def _take(self, line: str) -> None:
        found = PREFIX.match(line)
        if found is None or self._rank is None or int(found[2]) == self._rank:
            line = visible(line.rstrip("\r"))
            line = line[:MOST_LENGTH] + ("…" if len(line) > MOST_LENGTH else "")
            self._lines.append(line)
            self._length += len(line)
            while len(self._lines) > MOST_LINES or self._length > MOST_TEXT:
                self._length -= len(self._lines.popleft())

    @property
    def text(self) -> str:
        """The lines."""
        return "\n".join(self._lines)
