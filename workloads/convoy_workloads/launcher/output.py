"""The container's log: the launcher's own lines, and the ranks' lines with the rank's mark.

The end of a rank's stderr is kept for its report.
"""

from __future__ import annotations

import os
import sys
import time

LONGEST_LINE = 16 * 1024
"""Bytes after which a line is broken."""
TAIL = 2048
"""Bytes of stderr in a report."""
LONGEST_KEPT = 1000
"""Bytes of one line in a report. A line of this length fits beside the launcher's own message, which may
take half of the report.
"""
_HEAD = 700
_GAP = b" ... "


def log(text: str) -> None:
    """Write one line of the launcher's own to the container's log."""
    print(f"convoy: {text}", file=sys.stderr, flush=True)


def write(data: bytes) -> None:
    """Write output of ranks to the container's log. Output is lost if the log cannot be written."""
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
        """Return the lines that `data` completes. Of a line redrawn by carriage returns only the last
        drawing is kept.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > LONGEST_LINE:
            lines.append(self._rest[:LONGEST_LINE])
            self._rest = self._rest[LONGEST_LINE:]
        return self._join(lines)

    def end(self) -> bytes:
        """Return the last line if it has no line end."""
        rest, self._rest = self._rest, b""
        return self._join([rest]) if rest else b""

    def _join(self, lines: list[bytes]) -> bytes:
        return b"".join(self._prefix + _last_drawing(line) + b"\n" for line in lines)


def _last_drawing(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2]


class Tail:
    """The last lines of a stream. A long line keeps its beginning and its end."""

    def __init__(self, size: int = TAIL) -> None:
        self._size = size
        self._lines = b""
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Add output."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = self._rest + lines[0]
            self._rest = b""
        ended = b"".join(_shortened(_last_drawing(line)) + b"\n" for line in lines)
        self._lines = (self._lines + ended)[-self._size :]
        rest = self._rest + rest
        self._rest = _shortened(rest[rest.rstrip(b"\r").rfind(b"\r") + 1 :])

    def text(self, size: int | None = None) -> str:
        """Return the kept text, or its last `size` bytes from the first whole line on, if there is one."""
        most = self._size if size is None else min(size, self._size)
        whole = self._lines + _last_drawing(self._rest)
        data = whole[max(0, len(whole) - most) :]
        if len(data) == most and b"\n" in data[:-1]:
            data = data.split(b"\n", 1)[1]
        return data.decode("utf-8", "ignore").strip()


def _shortened(line: bytes) -> bytes:
    """Return the line, without its middle if it is long. The beginning names the error."""
    if len(line) <= LONGEST_KEPT:
        return line
    return line[:_HEAD] + _GAP + line[_HEAD + len(_GAP) - LONGEST_KEPT :]
