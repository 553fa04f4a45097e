"""Cleans up a rank's session after the rank's first process has ended without SIGTERM. It kills all
processes of the session except output filters.

An output filter, such as the `tee` of `exec > >(tee log)`, may still hold the rank's last output, which is
often the error. A filter ends at the end of its input. If another process keeps that input open, the filter
is killed after `_TICKS` ticks.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable

from convoy_workloads.launcher import proc
from convoy_workloads.launcher.proc import Process

_TICKS = 2
"""Number of the launcher's ticks that a filter may still run: at least half a second."""


class RemainingFilters:
    """The output filters of one rank that still run after the rank's first process has ended."""

    def __init__(self, first: int, status: int) -> None:
        """Kill the processes in the session of `first`, except processes that read from a pipe.

        `first` is the id of the rank's first process. `status` is the wait status of that process.
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
        """Return the wait status of the rank's first process, which is the status of the rank."""
        return self._status

    def record_exit(self, pid: int, status: int) -> None:
        """Do nothing, because the exit status of a filter does not change the rank's status."""

    def is_over(self) -> bool:
        """Return True if all filters have ended."""
        return not self._filters or not self._filters & self._living().keys()

    def tick(self) -> None:
        """Count a tick of the launcher. At the tick number `_TICKS`, kill the filters that still run."""
        self._ticks += 1
        if self._ticks >= _TICKS:
            self.kill()

    def kill(self) -> None:
        """Kill the filters that still run."""
        self._kill(self._filters & self._living().keys())

    def _living(self) -> dict[int, Process]:
        return {pid: one for pid, one in proc.scan().items() if one.session == self._first}

    def _kill(self, pids: Iterable[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _name(process: Process) -> bytes:
    return b" ".join(proc.arguments(process.pid)) or process.name.encode()
