"""Starts processes that outlive this tool, and kills only these.

A process is found by its pid and start time, or by the mark in its environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from e2e.cluster.run import wait_for

# Environment variable that marks every process of a cluster. `down` searches for this mark. It thus also
# finds a process whose pid was not stored because the tool was killed first.
MARK = "CONVOY_LOCAL_CLUSTER"


@dataclass(frozen=True)
class ProcessId:
    """Identity of a process. A pid may be reused, but not with the same start time (`started`, ticks since
    boot).
    """

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """True if the process runs and is not a zombie."""
        return identify(self.pid) == self


def identify(pid: int) -> ProcessId | None:
    """Return the process with this pid; None if it does not exist or has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        # The second field is the program's name in parentheses. The name may contain spaces and parentheses.
        words = stat[stat.rindex(")") + 2 :].split()
        # If the first thread is a zombie, other threads may still hold sockets open, so the process counts as
        # alive.
        if words[0] in "ZX" and len(list(Path(f"/proc/{pid}/task").iterdir())) <= 1:
            return None
    except (FileNotFoundError, ProcessLookupError):
        return None
    return ProcessId(pid, int(words[19]))


def spawn(
    argv: Sequence[str | os.PathLike[str]],
    *,
    identity: str,
    log: Path,
    env: Mapping[str, str] | None = None,
    stdin: IO[bytes] | int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a process in its own session, with the cluster's mark. Its output is appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            [os.fspath(word) for word in argv],
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(env or {}), MARK: identity},
            cwd="/",
        )


def release(process: subprocess.Popen[bytes]) -> ProcessId:
    """Stop tracking a child that will outlive this process. Return its identity."""
    found = identify(process.pid)
    # Set an exit status, so that Python does not warn "still running" when it collects the object.
    process.returncode = process.poll() or 0
    return found or ProcessId(process.pid, 0)


def marked(identity: str) -> list[ProcessId]:
    """Return all processes of the machine that have this cluster's mark."""
    wanted = f"{MARK}={identity}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0") and (process := identify(int(entry.name))):
            found.append(process)
    return found


def end(processes: Iterable[ProcessId], *, deadline: float = 30.0) -> None:
    """Kill these processes and wait until they have ended. It is no error if a process has already ended."""
    alive = [process for process in processes if process.alive]
    for process in alive:
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue

    def all_ended() -> bool:
        for process in alive:
            # A process that is not a child of this one is reaped by its parent or by init.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)
        return not any(process.alive for process in alive)

    wait_for(all_ended, deadline=deadline, what=f"end of processes {[p.pid for p in alive]}", every=0.02)
