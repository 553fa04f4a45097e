"""Clean-up of a rank's session after its first process has ended by itself: kill all but output filters.

A filter such as the `tee` of `exec > >(tee log)` still holds the rank's last output, often its error. It
ends by itself at the end of its input. A filter whose input another process holds open is killed soon.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable

from convoy_workloads.launcher import proc
from convoy_workloads.launcher.proc import Process

_TICKS = 2
"""Ticks of the launcher that a filter gets: at least half a second."""


class RemainingFilters:
    """The filters that one rank has left."""

    def __init__(self, first: int, status: int) -> None:
        """Kill the rest of the session of `first`, except processes that read a pipe.

        `status`: the wait status of `first`.
        """
        self._first = first
        self._status = status
        left = self._living()
        self._filters = {pid for pid in left if proc.read_pipe(pid)}
        self.killed = {pid: _name(left[pid]) for pid in left.keys() - self._filters}
        """Command lines of the killed processes, by id."""
        self._ticks = 0
        if self._filters:
            self._kill(self.killed)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(first, signal.SIGKILL)

    def status(self) -> int:
        """Return the wait status of the rank."""
        return self._status

    def record_exit(self, pid: int, status: int) -> None:
        """Do nothing: no result depends on how a filter ends."""

    def is_over(self) -> bool:
        """Return True if all filters have ended."""
        return not self._filters or not self._filters & self._living().keys()

    def tick(self) -> None:
        """Count a tick of the launcher; kill the filters that have used up theirs."""
        self._ticks += 1
        if self._ticks >= _TICKS:
            self.kill()

    def kill(self) -> None:
        """Kill the filters."""
        self._kill(self._filters & self._living().keys())

    def _living(self) -> dict[int, Process]:
        return {pid: one for pid, one in proc.scan().items() if one.session == self._first}

    def _kill(self, pids: Iterable[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _name(process: Process) -> bytes:
    return b" ".join(proc.arguments(process.pid)) or process.name.encode()
