"""Starts and ends the rig's processes.

Each process is recorded in the cluster's state file, so that `down` always finds and ends it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.processes import ProcessId, end, release, spawn
from e2e.cluster.run import tail, wait_for

_TICKS = os.sysconf("SC_CLK_TCK")


class Programs:
    """The rig's processes by name. Each name has at most one process."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def log(self, name: str) -> Path:
        """Return the path of the file with a process's output. Processes of the same name append to the
        same file.
        """
        return self._cluster.folder / "logs" / f"{name}.log"

    def start(self, name: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> ProcessId:
        """Start a process and record it under this name."""
        process = release(spawn(argv, identity=self._cluster.identity, log=self.log(name), env=env))
        with self._cluster.changing() as state:
            state.processes[name] = process
        return process

    def get(self, name: str) -> ProcessId | None:
        """Return the process with this name; None if it does not run."""
        process = self._cluster.state().processes.get(name)
        return process if process is not None and process.alive else None

    def check(self, name: str) -> ProcessId:
        """Return the process with this name. If it does not run, raise ClusterError with its log."""
        process = self.get(name)
        if process is None:
            raise ClusterError(f"{name} has ended:\n{tail(self.log(name))}")
        return process

    def kill(self, name: str) -> None:
        """Send SIGKILL to a process. It is no error if the process has ended."""
        if process := self.get(name):
            end([process])

    def stop(self, name: str, deadline: float = 20.0) -> None:
        """Send SIGTERM to a process, and SIGKILL if it still runs after `deadline` seconds."""
        process = self.get(name)
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        try:
            wait_for(lambda: not process.alive, deadline=deadline, what=f"{name} to end", every=0.05)
        except ClusterError:
            end([process])
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)


class ConvoyProcess:
    """A component of Convoy that runs as one of the rig's processes."""

    def __init__(self, programs: Programs, name: str) -> None:
        self._programs = programs
        self._name = name

    @property
    def alive(self) -> bool:
        """True if the process runs."""
        return self._programs.get(self._name) is not None

    def stop(self) -> None:
        """Stop the process as a kubelet would: SIGTERM, then SIGKILL."""
        self._programs.stop(self._name)

    def memory_mb(self, *, peak: bool = False) -> float | None:
        """Return the resident memory in MB, or with `peak` its peak. None if the process has ended."""
        process = self._programs.get(self._name)
        return memory_mb(process, "VmHWM" if peak else "VmRSS") if process else None

    def spent(self, since: float | None = 0.0) -> float | None:
        """Return the processor seconds that the process has used, minus `since`.

        None if the process has ended or `since` is None.
        """
        process = self._programs.get(self._name)
        return cpu_seconds(process) - since if process and since is not None else None


def memory_mb(process: ProcessId, field: str = "VmRSS") -> float:
    """Return the resident memory in MB: the current value (`VmRSS`) or the peak (`VmHWM`)."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ClusterError(f"/proc/{process.pid}/status has no field {field}")


def cpu_seconds(process: ProcessId) -> float:
    """Return the processor seconds that a process has used."""
    stat = Path(f"/proc/{process.pid}/stat").read_text()
    words = stat[stat.rindex(")") + 2 :].split()
    return (int(words[11]) + int(words[12])) / _TICKS
