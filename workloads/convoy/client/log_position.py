"""The position in a log that is read several times, each time from its first line.

Each line has the time at which its node received it. The clock may be set back, and several lines may have
the same time. So the times do not order the lines of one read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)(?: |$)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class LogPosition:
    """The last line of a log that was shown. Times are nanoseconds since 1970."""

    newest: int = 0
    last: int = 0
    """Time of the line shown last."""
    repeats: int = 0
    """Number of lines shown last that all have the time `last`; 0 before the first line."""
    to_skip: int = 0
    """Number of those lines that are still to be skipped; 0 if nothing is skipped."""

    def rewind(self) -> None:
        """Start to read the log from its first line again."""
        self.to_skip = self.repeats

    def is_new(self, at: int) -> bool:
        """Return True if the next line, with time `at`, was not shown before.

        Lines are skipped until `repeats` lines of time `last` were skipped, or until a line is newer than
        `newest`. The second case occurs if a log rotation has removed the lines shown last. If the clock was
        set back before that rotation, new lines are skipped too until a line is newer than `newest`.
        """
        if self.to_skip and at <= self.newest:
            self.to_skip -= at == self.last
            return False
        self.to_skip = 0
        self.repeats = self.repeats + 1 if at == self.last else 1
        self.last, self.newest = at, max(at, self.newest)
        return True


def split_timestamp(line: str) -> tuple[int | None, str]:
    """Return the time in front of a log line (RFC 3339) and the rest; (None, line) if there is no time."""
    found = _STAMP.match(line)
    if found is None:
        return None, line
    try:
        whole = datetime.fromisoformat(found[1] + found[3]) - _EPOCH
    except ValueError:  # no valid date: the program's own text
        return None, line
    # The container runtime writes nanoseconds, which `datetime` does not support.
    return whole // timedelta(seconds=1) * 10**9 + int((found[2] or "").ljust(9, "0")), line[found.end() :]
