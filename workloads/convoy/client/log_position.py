"""Where a log goes on that is read from its first line again: what was shown before is passed over.

Lines carry the time at which their node has got them. A clock may be set back, and a time may come twice, so
times say nothing within one reading.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)(?: |$)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class LogPosition:
    """How far a log was shown. Times are nanoseconds since 1970."""

    newest: int = 0
    last: int = 0
    """Time of the last line that was shown."""
    repeats: int = 0
    """Lines that were shown last and have that time; 0 before the first line."""
    to_skip: int = 0
    """Of these, how many have still to come by; 0 when nothing is passed over."""

    def rewind(self) -> None:
        """The log is read from its first line again."""
        self.to_skip = self.repeats

    def is_new(self, at: int) -> bool:
        """Whether the next line, which has this time, was not shown before.

        What was shown ends with the lines of the last time. A log that was rotated meanwhile may not have
        them any more: then it ends before the first line that is newer than all. Until that comes, a clock
        that was set back before the rotation hides lines.
        """
        if self.to_skip and at <= self.newest:
            self.to_skip -= at == self.last
            return False
        self.to_skip = 0
        self.repeats = self.repeats + 1 if at == self.last else 1
        self.last, self.newest = at, max(at, self.newest)
        return True


def split_timestamp(line: str) -> tuple[int | None, str]:
    """The time before a line of a log (RFC 3339), None where there is none, and the line without it."""
    found = _STAMP.match(line)
    if found is None:
        return None, line
    try:
        whole = datetime.fromisoformat(found[1] + found[3]) - _EPOCH
    except ValueError:  # no such day or hour: somebody's text
        return None, line
    # The runtime tells nanoseconds, which `datetime` does not have.
    return whole // timedelta(seconds=1) * 10**9 + int((found[2] or "").ljust(9, "0")), line[found.end() :]
