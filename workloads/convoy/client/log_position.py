"""The position in a log that is read several times, each time from its first line.

Each line has the time at which the pod's node received it. A clock may be set back, and several lines may
have the same time. So a later line may have an earlier time, or the same time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)(?: |$)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class LogPosition:
    """The position of the last line of a log that was shown. Times are Unix times in nanoseconds."""

    newest: int = 0
    """Newest time of the lines that were shown."""
    last: int = 0
    """Time of the last line that was shown."""
    repeats: int = 0
    """Number of consecutive lines with the time `last` at the end of the shown lines; 0 before the first
    line.
    """
    to_skip: int = 0
    """Number of lines with the time `last` that this read must still skip; 0 if the read skips nothing."""

    def rewind(self) -> None:
        """Record that the next line is the first line of the log again."""
        self.to_skip = self.repeats

    def is_new(self, at: int) -> bool:
        """Record the next line, which has the time `at`. Return True if the line has not been shown yet.

        Lines are skipped until `repeats` lines with the time `last` were skipped, or until a line is newer
        than `newest`. The second case occurs if a log rotation has removed the lines shown last. If the clock
        was also set back before that rotation, unseen lines are skipped until a line is newer than `newest`.
        """
        if self.to_skip and at <= self.newest:
            self.to_skip -= at == self.last
            return False
        self.to_skip = 0
        self.repeats = self.repeats + 1 if at == self.last else 1
        self.last, self.newest = at, max(at, self.newest)
        return True


def split_timestamp(line: str) -> tuple[int | None, str]:
    """Return the time in front of a log line (RFC 3339), as Unix time in nanoseconds, and the rest of the
    line. Return (None, line) if the line has no time.
    """
    found = _STAMP.match(line)
    if found is None:
        return None, line
    try:
        whole = datetime.fromisoformat(found[1] + found[3]) - _EPOCH
    except ValueError:  # The date is not valid, so the program itself wrote this text.
        return None, line
    # The container runtime writes nanoseconds, which `datetime` does not support.
    return whole // timedelta(seconds=1) * 10**9 + int((found[2] or "").ljust(9, "0")), line[found.end() :]
