"""The last lines of one rank in the log of its pod. The launcher puts a prefix with the rank before each
line.
"""

from __future__ import annotations

import re
from collections import deque

from convoy_operator.dashboard.core.formatting import counted, visible

PREFIX = re.compile(r"^\[(\d+)/(\d+)\] ")
"""Matches the prefix `[incarnation/rank] ` that the launcher puts before each line of a rank."""
MAX_LINES = 500
MAX_LENGTH = 2000
"""Maximum number of characters of a line that a page shows."""
MAX_TEXT = 131_072
"""Maximum number of characters of all shown lines together. The limit is low because a followed log is sent
to the page twice a second.
"""
FIRST_READ, READ_MORE, MAX_READ = 500, 8, 32_000
"""The first attempt reads the last FIRST_READ lines of the log. Each further attempt reads READ_MORE times as
many lines as the attempt before it, and at most MAX_READ.

Many ranks may write to the log of one pod, so the first attempt may find too few lines of the rank.
"""


class Tail:
    """The last lines of a log that is read in pieces."""

    def __init__(self, rank: int | None = None) -> None:
        """Keep the lines of `rank` and of the launcher. If `rank` is None, keep all lines."""
        self._rank = rank
        self._lines: deque[str] = deque()
        self._length = 0
        self._rest = ""
        self.seen = 0
        """Number of lines read."""
        self.own = 0
        """Number of lines read that `rank` wrote."""

    def add(self, text: str) -> None:
        """Add a piece of the log. The piece may end within a line."""
        *lines, rest = (self._rest + text).split("\n")
        # Drop all but the first characters of an unfinished line. They contain the rank's prefix, and pages
        # show no more than these characters of a line.
        self._rest = rest[: MAX_LENGTH + 1]
        for line in lines:
            self._add_line(line)

    def end(self) -> None:
        """Add the rest of the log: a last line without a line break."""
        if self._rest:
            self._add_line(self._rest)
            self._rest = ""

    def _add_line(self, line: str) -> None:
        self.seen += 1
        found = PREFIX.match(line)
        if found is None or self._rank is None or int(found[2]) == self._rank:
            self.own += found is not None or self._rank is None
            line = visible(line.rstrip("\r"))
            line = line[:MAX_LENGTH] + ("…" if len(line) > MAX_LENGTH else "")
            self._lines.append(line)
            self._length += len(line)
            while len(self._lines) > MAX_LINES or self._length > MAX_TEXT:
                self._length -= len(self._lines.popleft())

    @property
    def text(self) -> str:
        """Return the kept lines."""
        return "\n".join(self._lines)

    def lines_to_read(self, requested: int) -> int | None:
        """Return the number of lines to read in the next attempt, or None if no further attempt is needed.

        `requested` is the number of lines that the last attempt asked for.
        """
        whole, enough = self.seen < requested, self.own >= MAX_LINES or len(self.text) > MAX_TEXT // 2
        if whole or enough or requested >= MAX_READ:
            return None
        return min(MAX_READ, requested * READ_MORE)

    def summary(self, requested: int) -> str:
        """Describe the result of an attempt to read the last `requested` lines of a pod."""
        if not self.seen:
            return "the log is empty"
        part = "" if self.seen < requested else "last "
        read = f"the {part}{self.seen:,} {'line' if self.seen == 1 else 'lines'} of its pod"
        if self._lines:
            return f"{counted(len(self._lines), 'line')}, from {read}"
        return f"no lines of this rank in {read}"
