"""Writes the container's log: the launcher's own lines, and the ranks' lines, each with its rank in front.

The module also keeps the end of a rank's stderr for the rank's report.
"""

from __future__ import annotations

import os
import sys
import time

LONGEST_LINE = 16 * 1024
"""Maximum number of bytes in a line of a rank. A longer line is split."""
TAIL = 2048
"""Number of bytes of stderr that a report contains."""
LONGEST_KEPT = 1000
"""Maximum number of bytes that a report keeps of one line. A line of this length fits into the report even
if the launcher's own message takes half of the report.
"""
_HEAD = 700
_GAP = b" ... "


def log(text: str) -> None:
    """Write one line of the launcher itself to the container's log."""
    print(f"convoy: {text}", file=sys.stderr, flush=True)


def write(data: bytes) -> None:
    """Write output of ranks to the container's log. The output is lost if the log cannot be written."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(1, view) :]
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            return


class LinePrefixer:
    """Splits a stream of bytes into whole lines and puts `[incarnation/rank] ` in front of each line."""

    def __init__(self, incarnation: int, rank: int) -> None:
        self._prefix = f"[{incarnation}/{rank}] ".encode()
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return the lines that end in `data`, each with the prefix. If a program has redrawn a line by
        carriage returns, only the last drawing of the line is returned.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > LONGEST_LINE:
            lines.append(self._rest[:LONGEST_LINE])
            self._rest = self._rest[LONGEST_LINE:]
        return self._join(lines)

    def end(self) -> bytes:
        """Return the incomplete last line of the stream, with the prefix and a line end; empty if there is
        none.
        """
        rest, self._rest = self._rest, b""
        return self._join([rest]) if rest else b""

    def _join(self, lines: list[bytes]) -> bytes:
        return b"".join(self._prefix + _last_drawing(line) + b"\n" for line in lines)


def _last_drawing(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2]


class Tail:
    """The last lines of a stream, for the report of a rank. Of a long line, only the beginning and the end
    are kept.
    """

    def __init__(self, size: int = TAIL) -> None:
        self._size = size
        self._lines = b""
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Add `data`, the next bytes of the stream."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = self._rest + lines[0]
            self._rest = b""
        ended = b"".join(_shortened(_last_drawing(line)) + b"\n" for line in lines)
        self._lines = (self._lines + ended)[-self._size :]
        rest = self._rest + rest
        self._rest = _shortened(rest[rest.rstrip(b"\r").rfind(b"\r") + 1 :])

    def text(self, size: int | None = None) -> str:
        """Return the kept text. With `size`, return at most its last `size` bytes, without the partial line
        at the start.
        """
        most = self._size if size is None else min(size, self._size)
        whole = self._lines + _last_drawing(self._rest)
        data = whole[max(0, len(whole) - most) :]
        if len(data) == most and b"\n" in data[:-1]:
            data = data.split(b"\n", 1)[1]
        return data.decode("utf-8", "ignore").strip()


def _shortened(line: bytes) -> bytes:
    """Return the line; leave out the middle of a long line. The beginning stays, because it names the
    error.
    """
    if len(line) <= LONGEST_KEPT:
        return line
    return line[:_HEAD] + _GAP + line[_HEAD + len(_GAP) - LONGEST_KEPT :]
