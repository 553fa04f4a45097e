"""The container's log: what ranks print, line by line and marked as theirs, and what the launcher says.

The end of what a rank prints is kept for reports.
"""

from __future__ import annotations

import os
import sys
import time

LONGEST_LINE = 16 * 1024
"""A longer line is broken, in bytes."""
TAIL = 2048
"""Bytes of stderr in a report."""
LONGEST_KEPT = 1000
"""Bytes of a line in a report: one fits beside the launcher's own words, which may be half of the report."""
_BEGINNING = 700
_GAP = b" ... "


def say(text: str) -> None:
    """One line of the launcher's own in the container's log."""
    print(f"convoy: {text}", file=sys.stderr, flush=True)


def write(data: bytes) -> None:
    """What ranks print to the container's log; lost when the log cannot be written."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(1, view) :]
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            return


class LinePrefixer:
    """Cuts a stream of bytes into whole lines and puts `[incarnation/rank] ` before each."""

    def __init__(self, incarnation: int, rank: int) -> None:
        self._prefix = f"[{incarnation}/{rank}] ".encode()
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """The lines completed by `data`. Of a line redrawn by carriage returns the last drawing is kept."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > LONGEST_LINE:
            lines.append(self._rest[:LONGEST_LINE])
            self._rest = self._rest[LONGEST_LINE:]
        return self._join(lines)

    def end(self) -> bytes:
        """The last line, when it was not ended."""
        rest, self._rest = self._rest, b""
        return self._join([rest]) if rest else b""

    def _join(self, lines: list[bytes]) -> bytes:
        return b"".join(self._prefix + _last_drawing(line) + b"\n" for line in lines)


def _last_drawing(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2]


class Tail:
    """The last lines of a stream. Of a long line its beginning and its end are kept."""

    def __init__(self, size: int = TAIL) -> None:
        self._size = size
        self._lines = b""
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Takes in what was printed."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = self._rest + lines[0]
            self._rest = b""
        ended = b"".join(_shortened(_last_drawing(line)) + b"\n" for line in lines)
        self._lines = (self._lines + ended)[-self._size :]
        rest = self._rest + rest
        self._rest = _shortened(rest[rest.rstrip(b"\r").rfind(b"\r") + 1 :])

    def text(self, size: int | None = None) -> str:
        """Return the kept text, or its last `size` bytes, from the first whole line on where there is one."""
        most = self._size if size is None else min(size, self._size)
        whole = self._lines + _last_drawing(self._rest)
        data = whole[max(0, len(whole) - most) :]
        if len(data) == most and b"\n" in data[:-1]:
            data = data.split(b"\n", 1)[1]
        return data.decode("utf-8", "ignore").strip()


def _shortened(line: bytes) -> bytes:
    """The line without its middle where it is long: an error's name stands at its beginning."""
    if len(line) <= LONGEST_KEPT:
        return line
    return line[:_BEGINNING] + _GAP + line[_BEGINNING + len(_GAP) - LONGEST_KEPT :]
