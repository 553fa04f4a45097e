"""The end of a rank's session after its first process has ended unasked: all is killed but filters.

A filter such as the `tee` of `exec > >(tee log)` holds the last words of the rank, often its error. At the
end of them it ends by itself; one whose pipe somebody else holds open is killed soon.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable

from convoy_workloads.launcher import proc
from convoy_workloads.launcher.proc import Process

_TICKS = 2
"""Ticks of the launcher that a filter is given: half a second at least."""


class Drain:
    """The filters that one rank has left."""

    def __init__(self, first: int, status: int) -> None:
        """Kills what is left of the session of `first`, but for what reads a pipe.

        `status`: the wait status that `first` has ended with.
        """
        self._first = first
        self._status = status
        left = self._living()
        self._filters = {pid for pid in left if proc.read_pipe(pid)}
        self.killed = {pid: _name(left[pid]) for pid in left.keys() - self._filters}
        """The others, and their command lines."""
        self._ticks = 0
        if self._filters:
            self._kill(self.killed)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(first, signal.SIGKILL)

    def status(self) -> int:
        """Return the wait status of the whole."""
        return self._status

    def ended(self, pid: int, status: int) -> None:
        """Nothing depends on how a filter ends."""

    def over(self) -> bool:
        """Return true if all filters have ended."""
        return not self._filters or not self._filters & self._living().keys()

    def tick(self) -> None:
        """Some time has passed: kills those that have had enough of it."""
        self._ticks += 1
        if self._ticks >= _TICKS:
            self.kill()

    def kill(self) -> None:
        """Kills them."""
        self._kill(self._filters & self._living().keys())

    def _living(self) -> dict[int, Process]:
        return {pid: one for pid, one in proc.scan().items() if one.session == self._first}

    def _kill(self, pids: Iterable[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _name(process: Process) -> bytes:
    return b" ".join(proc.arguments(process.pid)) or process.name.encode()
