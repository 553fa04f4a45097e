"""A pipe that connects a function of this process with the standard input of a program."""

from __future__ import annotations

import io
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from e2e.cluster.errors import ClusterError

Writer = Callable[[IO[bytes]], object]
"""A function that writes a program's input to a binary file. The file cannot seek."""
_GRACE = 10.0
"""Seconds that a writer may take to end after its program has ended."""


class _UnreadError(Exception):
    """The program does not read the rest of its input: it has ended, or its deadline is over."""


class _Pipe(io.RawIOBase):
    """The writing end of a pipe. A write fails at `end`, a time of the monotonic clock."""

    def __init__(self, handle: int, end: float) -> None:
        os.set_blocking(handle, False)
        self._handle, self._end = handle, end
        self._room = select.poll()
        self._room.register(handle, select.POLLOUT)

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        """Write the first part of `data` for which the pipe has room. Return its number of bytes."""
        if not self._room.poll(max(0.0, self._end - time.monotonic()) * 1000):
            raise _UnreadError
        try:
            return os.write(self._handle, data)  # type: ignore[arg-type]
        except BrokenPipeError:
            raise _UnreadError from None

    def close(self) -> None:
        if not self.closed:
            os.close(self._handle)
        super().close()


@contextmanager
def written_by(write: Writer, deadline: float) -> Iterator[int]:
    """Yield the reading end of a pipe into which a thread writes with `write`. The block runs the program.

    The program may end before it has read everything; its exit code says whether that is an error. At the
    end of the block, raises the error of `write`, if any: the program's input was then incomplete.
    """
    reading, writing = os.pipe()
    failures: list[BaseException] = []

    def work() -> None:
        pipe = _Pipe(writing, time.monotonic() + deadline)
        try:
            file = io.BufferedWriter(pipe, 1 << 18)
            write(file)
            file.flush()
        except _UnreadError:
            pass
        except BaseException as error:
            failures.append(error)
        finally:
            pipe.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield reading
    finally:
        os.close(reading)
        thread.join(_GRACE)
        if failures:
            raise failures[0] from None
    if thread.is_alive():
        raise ClusterError(f"the writer of a program's input did not end within {_GRACE:g} s")
