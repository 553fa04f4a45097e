"""Pipes that carry a rank's stdout and stderr to the container's log."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from convoy_workloads.launcher.output import LinePrefixer, Tail

_READ = 65536
_MOST_READS = 64
"""Maximum number of reads from a pipe while it is closed. The limit is needed because another process may
hold the pipe open and write without end.
"""


class Streams:
    """The two pipes of a rank. The event loop reads them while they are open."""

    def __init__(self, incarnation: int, rank: int, tail: int) -> None:
        """Create the object without pipes. `tail` is the number of bytes of stderr to keep."""
        self.tail = Tail(tail)
        self._incarnation = incarnation
        self._rank = rank
        self._open: dict[int, _Stream] = {}

    def open(self, write: Callable[[bytes], None]) -> list[int]:
        """Open the pipes. Return the descriptors for the rank's stdout and stderr."""
        ends = []
        for tail in (None, self.tail):
            ours, theirs = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(ours, False)
            self._open[ours] = _Stream(LinePrefixer(self._incarnation, self._rank), tail, write)
            asyncio.get_running_loop().add_reader(ours, self._read, ours)
            ends.append(theirs)
        return ends

    def close(self) -> None:
        """Read the data that is still in the pipes, then close this process's ends. Other processes may
        still have the other ends open.
        """
        for end in list(self._open):
            for _ in range(_MOST_READS):
                try:
                    data = os.read(end, _READ)
                except OSError:
                    break
                if not data:
                    break
                self._open[end].feed(data)
            self._close(end)

    def _read(self, end: int) -> None:
        try:
            data = os.read(end, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._open[end].feed(data)
        else:
            self._close(end)

    def _close(self, end: int) -> None:
        stream = self._open.pop(end, None)
        if stream is not None:
            asyncio.get_running_loop().remove_reader(end)
            os.close(end)
            stream.end()


class _Stream:
    """One of a rank's two output streams, which passes its lines to the container's log."""

    def __init__(self, prefixer: LinePrefixer, tail: Tail | None, write: Callable[[bytes], None]) -> None:
        self._prefixer = prefixer
        self._tail = tail
        self._write = write

    def feed(self, data: bytes) -> None:
        if self._tail is not None:
            self._tail.feed(data)
        lines = self._prefixer.feed(data)
        if lines:
            self._write(lines)

    def end(self) -> None:
        rest = self._prefixer.end()
        if rest:
            self._write(rest)
