"""The rig's processes, each entered in the cluster's state file, so that `down` ends them in any case."""

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
    """Started by name, one of each."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def log(self, name: str) -> Path:
        """Return the path of its output, which follows that of earlier processes of the name."""
        return self._cluster.folder / "logs" / f"{name}.log"

    def start(self, name: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> ProcessId:
        """Starts it."""
        process = release(spawn(argv, identity=self._cluster.identity, log=self.log(name), env=env))
        with self._cluster.changing() as state:
            state.processes[name] = process
        return process

    def get(self, name: str) -> ProcessId | None:
        """The process of that name, if it was started and lives."""
        process = self._cluster.state().processes.get(name)
        return process if process is not None and process.alive else None

    def check(self, name: str) -> ProcessId:
        """The living process; ClusterError, with the end of its log, when it has ended."""
        process = self.get(name)
        if process is None:
            raise ClusterError(f"{name} has ended:\n{tail(self.log(name))}")
        return process

    def kill(self, name: str) -> None:
        """SIGKILL; no error when it is gone."""
        if process := self.get(name):
            end([process])

    def stop(self, name: str, deadline: float = 20.0) -> None:
        """SIGTERM, and SIGKILL when that takes too long."""
        process = self.get(name)
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        try:
            wait_for(lambda: not process.alive, deadline=deadline, what=f"end of {name}", every=0.05)
        except ClusterError:
            end([process])
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)


class ConvoyProcess:
    """A part of Convoy that runs as one of the rig's processes."""

    def __init__(self, programs: Programs, name: str) -> None:
        self._programs = programs
        self._name = name

    @property
    def alive(self) -> bool:
        """True while its process runs."""
        return self._programs.get(self._name) is not None

    def stop(self) -> None:
        """Ends it as a kubelet would."""
        self._programs.stop(self._name)

    def memory_mb(self, *, peak: bool = False) -> float | None:
        """Its resident memory in MB, now or at most so far; None when it has ended."""
        process = self._programs.get(self._name)
        return memory_mb(process, "VmHWM" if peak else "VmRSS") if process else None

    def spent(self, since: float | None = 0.0) -> float | None:
        """Processor seconds it has used beyond those; None when it has ended."""
        process = self._programs.get(self._name)
        return cpu_seconds(process) - since if process and since is not None else None


def memory_mb(process: ProcessId, field: str = "VmRSS") -> float:
    """Resident memory in MB: now, or at most so far (`VmHWM`)."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ClusterError(f"process {process.pid} says nothing of {field}")


def cpu_seconds(process: ProcessId) -> float:
    """Processor time it has used."""
    stat = Path(f"/proc/{process.pid}/stat").read_text()
    words = stat[stat.rindex(")") + 2 :].split()
    return (int(words[11]) + int(words[12])) / _TICKS
