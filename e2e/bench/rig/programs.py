"""The rig's processes.

Each is recorded in the cluster's state file, so that `down` always finds and ends it.
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
    """The rig's processes by name, at most one of each name."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def log(self, name: str) -> Path:
        """Return the path of a process's output. Processes of the same name append to one file."""
        return self._cluster.folder / "logs" / f"{name}.log"

    def start(self, name: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> ProcessId:
        """Start a process under this name."""
        process = release(spawn(argv, identity=self._cluster.identity, log=self.log(name), env=env))
        with self._cluster.changing() as state:
            state.processes[name] = process
        return process

    def get(self, name: str) -> ProcessId | None:
        """Return the process of that name, or None if it does not run."""
        process = self._cluster.state().processes.get(name)
        return process if process is not None and process.alive else None

    def check(self, name: str) -> ProcessId:
        """Return the running process. Raise ClusterError with the end of its log if it has ended."""
        process = self.get(name)
        if process is None:
            raise ClusterError(f"{name} has ended:\n{tail(self.log(name))}")
        return process

    def kill(self, name: str) -> None:
        """Send SIGKILL. A process that has ended is not an error."""
        if process := self.get(name):
            end([process])

    def stop(self, name: str, deadline: float = 20.0) -> None:
        """Send SIGTERM, and SIGKILL after `deadline` seconds."""
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
        """True while the process runs."""
        return self._programs.get(self._name) is not None

    def stop(self) -> None:
        """Stop the process as a kubelet would: SIGTERM, then SIGKILL."""
        self._programs.stop(self._name)

    def memory_mb(self, *, peak: bool = False) -> float | None:
        """Return the resident memory in MB, or its peak. None if the process has ended."""
        process = self._programs.get(self._name)
        return memory_mb(process, "VmHWM" if peak else "VmRSS") if process else None

    def spent(self, since: float | None = 0.0) -> float | None:
        """Return the processor seconds used so far, minus `since`.

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
