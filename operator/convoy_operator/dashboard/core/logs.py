"""The end of a log: the lines of one rank, told apart by what the launcher puts before them."""

from __future__ import annotations

import re
from collections import deque

from convoy_operator.dashboard.core.formatting import counted, visible

PREFIX = re.compile(r"^\[(\d+)/(\d+)\] ")
"""`[incarnation/rank] ` before every line that a rank writes."""
MOST_LINES = 500
MOST_LENGTH = 2000
"""Characters of a line that are shown."""
MOST_TEXT = 131_072
"""Characters of all lines together: while a log is followed they are sent twice a second."""
FIRST_READ, READ_MORE, MOST_READ = 500, 8, 32_000
"""Lines of a pod that are read at first, how many times as many when too few of them are of the rank, and at
most: many ranks may write to one log."""


class Tail:
    """The last lines of a stream of text."""

    def __init__(self, rank: int | None = None) -> None:
        """`rank`: whose lines are kept, beside those of the launcher; None keeps all."""
        self._rank = rank
        self._lines: deque[str] = deque()
        self._length = 0
        self._rest = ""
        self.seen = 0
        """Lines that came, of whomever."""
        self.own = 0
        """Of them, those of the rank."""

    def add(self, text: str) -> None:
        """Takes what has come; it need not end with a line."""
        *lines, rest = (self._rest + text).split("\n")
        # The beginning of a line says whose it is, and is all of it that is shown.
        self._rest = rest[: MOST_LENGTH + 1]
        for line in lines:
            self._add_line(line)

    def end(self) -> None:
        """Nothing more comes."""
        if self._rest:
            self._add_line(self._rest)
            self._rest = ""

    def _add_line(self, line: str) -> None:
        self.seen += 1
        found = PREFIX.match(line)
        if found is None or self._rank is None or int(found[2]) == self._rank:
            self.own += found is not None or self._rank is None
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

    def lines_to_read(self, asked: int) -> int | None:
        """After the last `asked` lines of a pod were read: how many to read in their place; None: enough."""
        whole, enough = self.seen < asked, self.own >= MOST_LINES or len(self.text) > MOST_TEXT // 2
        if whole or enough or asked >= MOST_READ:
            return None
        return min(MOST_READ, asked * READ_MORE)

    def summary(self, asked: int) -> str:
        """What was read, when the last `asked` lines of a pod were asked for."""
        part = "all" if self.seen < asked else "the last"
        if self._lines:
            return f"{counted(len(self._lines), 'line')}, from {part} {self.seen:,} of its pod"
        return "nothing was written" if not self.seen else f"no line of it in {part} {self.seen:,} of its pod"
