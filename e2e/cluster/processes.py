"""Starts processes that outlive this tool, and ends exactly these, by pid and start time or by their mark."""

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

# Every process of a cluster has this variable in its environment. So `down` finds even a process whose pid
# was never stored, because the tool was killed right after starting the process.
MARK = "CONVOY_LOCAL_CLUSTER"


@dataclass(frozen=True)
class ProcessId:
    """The identity of a process. A pid is reused, but never with the same start time (ticks since boot)."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """True if the process runs. A zombie does not."""
        return identify(self.pid) == self


def identify(pid: int) -> ProcessId | None:
    """Return the process with this pid; None if there is none or it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        # The second field is the program's name in parentheses. The name may contain spaces and parentheses.
        words = stat[stat.rindex(")") + 2 :].split()
        # The first thread may be a zombie while other threads still hold sockets open.
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
    """Start a process in its own session, marked as part of the cluster. Its output is appended to `log`."""
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
    # Avoids the "still running" warning when the object is garbage collected.
    process.returncode = process.poll() or 0
    return found or ProcessId(process.pid, 0)


def marked(identity: str) -> list[ProcessId]:
    """Return all processes of the machine that carry the mark of this cluster."""
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
    """Kill these processes and wait until they have ended. Processes that have already ended are no error."""
    alive = [process for process in processes if process.alive]
    for process in alive:
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue

    def all_ended() -> bool:
        for process in alive:
            # If the process is no child of this one, its parent or the machine's init reaps it.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)
        return not any(process.alive for process in alive)

    wait_for(all_ended, deadline=deadline, what=f"end of processes {[p.pid for p in alive]}", every=0.02)
