"""Helper processes of faults. They run in a container's control groups, so their processor time and memory
count for the container.

A helper ends when its standard input ends. So it never outlives the agent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from convoy_agents.faults.pod_processes import Container

STOP_SECONDS = 5.0
"""Seconds to wait for the end of a killed helper."""


class Helper:
    """A process that waits for a line before it begins its work."""

    def __init__(self, program: str, *arguments: str, pass_fds: tuple[int, ...] = ()) -> None:
        read, self._stdin = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", program, *arguments],
                stdin=read,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=pass_fds,
            )
        except OSError:
            os.close(self._stdin)
            raise
        finally:
            os.close(read)

    @property
    def pid(self) -> int:
        """Return the process's number."""
        return self._process.pid

    def run_in(self, container: Container, *controllers: str) -> None:
        """Move the process into the container's groups, and let it begin. Raises TargetGone after the
        container's end.
        """
        container.enter(self.pid, *controllers)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._stdin, b"\n")

    def wait(self, seconds: float) -> int | None:
        """Wait for the process's end and return its exit code; None if it still runs after `seconds`."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    @property
    def running(self) -> bool:
        """Return True until the process has ended."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Kill the process and wait for its end."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1


def start_time(proc: Path, pid: int) -> str:
    """Return the start of a process, by which it differs from a later one with the same number; empty if it
    does not run.
    """
    with contextlib.suppress(OSError, IndexError):
        return (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]
    return ""


def family(proc: Path, pid: int) -> list[int]:
    """Return a process and its children. The list is empty if the process does not run."""
    try:
        children = (proc / str(pid) / "task" / str(pid) / "children").read_text()
    except OSError:
        return []
    return [pid, *map(int, children.split())]


def cpu_seconds(proc: Path, pid: int) -> float:
    """Return the processor time of a process in seconds; 0 if it does not run."""
    with contextlib.suppress(OSError, IndexError):
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def kill_left(proc: Path, pid: int, started: str) -> None:
    """Kill a helper that an earlier agent left, unless another process has its number."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if started and start_time(proc, pid) == started:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)
