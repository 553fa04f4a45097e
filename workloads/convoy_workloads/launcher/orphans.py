"""Finds and kills processes that ranks of earlier incarnations have left running in sessions of their own.

Experiment trackers, profilers and daemons outlive the rank that started them. They hold ports and the
memory of accelerators. The launcher adopts orphans, as PID 1 or as a subreaper. So every process that a
rank has left is a descendant of the launcher.

PID 1 also has descendants that no rank has started. A process started by `kubectl exec` has a parent
outside the container, but PID 1 adopts the orphans of that process. Such orphans have the container's
environment without the variables of a rank. Processes of a debug container that shares the process
namespace are in another cgroup. If the pod shares its process namespace, the launcher is a subreaper and
has only its own descendants.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from convoy_workloads.launcher import proc
from convoy_workloads.launcher.proc import Process
from convoy_workloads.launcher.zygote import ZYGOTE_FD

WAIT_SECONDS = 10.0
"""Maximum number of seconds to wait until killed processes have ended. A process that takes longer is
blocked in the kernel.
"""
POLL_SECONDS = 0.02
MAX_NAMED = 5
"""Maximum number of processes to name in the log. The log gives the number of further processes."""
MAX_CHARACTERS = 80
"""Maximum number of characters of a command line in the log."""

_CONTAINER = b"CONVOY_SOCKET="
_RANK = (b"CONVOY_INCARNATION=", f"{ZYGOTE_FD}=".encode())
"""Beginnings of variables that only ranks and zygotes have. For a forked rank, /proc shows the environment
of the zygote.
"""


def select(table: Mapping[int, Process], launcher: int, is_exempt: Callable[[int], bool]) -> list[int]:
    """Return the ids of all processes that ranks have left running.

    `launcher` is the id of the launcher. Processes in its own session are the zygote and the zygote's
    helpers, so they are not included. `is_exempt` is called for each child of the launcher in another
    session. If it returns True, the child and its descendants are not included.
    """
    own = table[launcher].session
    children = proc.children(table.values())
    found: list[int] = []
    for child in children.get(launcher, ()):
        if table[child].session != own and is_exempt(child):
            continue
        found += [child, *proc.descendants(table, child)]
    return [pid for pid in found if table[pid].session != own]


def is_foreign(environment: Iterable[bytes], cgroup: str, own_cgroup: str) -> bool:
    """Return True if a child of PID 1 was not started by a rank but by `kubectl exec` or in a debug
    container.

    If a process has cleared its environment, or has overwritten it with a title, return False.
    """
    paths = _paths(cgroup)
    if not all(paths.get(name, "..").startswith(own) for name, own in _paths(own_cgroup).items()):
        return True
    names = [word for word in environment if word.startswith((_CONTAINER, *_RANK))]
    return bool(names) and not any(name.startswith(_RANK) for name in names)


def _paths(cgroup: str) -> dict[str, str]:
    """Return the path of each cgroup hierarchy, by name of the hierarchy. Each path ends with a slash. The
    name of the version 2 hierarchy is empty.

    On hosts with version 1, version 2 may also be mounted without containing any container. In a cgroup
    namespace, the path of another container begins with `/../`.
    """
    fields = [line.split(":", 2) for line in cgroup.splitlines()]
    found = {name: path.rstrip("/") + "/" for _, name, path in fields}
    return {name: path.replace("/../", "../", 1) for name, path in found.items()}


def find(rank_sessions: Collection[int] = ()) -> dict[int, Process]:
    """Return the processes that ranks have left running.

    `rank_sessions` has the ids of ranks' sessions. Every process in these sessions is included, even if its
    environment does not show that a rank started it.
    """
    table, launcher = proc.scan(), os.getpid()
    if launcher not in table:
        return {}
    own_cgroup = proc.cgroup(launcher)

    def is_exempt(pid: int) -> bool:
        if launcher != 1 or table[pid].session in rank_sessions:
            return False
        return is_foreign(proc.environment(pid), proc.cgroup(pid), own_cgroup)

    return {pid: table[pid] for pid in select(table, launcher, is_exempt)}


def describe(found: Mapping[int, bytes]) -> str:
    """Return a text for the log that lists processes. `found` has command lines by process id."""
    names = [f"{pid} ({_shorten(words)})" for pid, words in list(found.items())[:MAX_NAMED]]
    more = len(found) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def _shorten(words: bytes) -> str:
    text = " ".join(words.replace(b"\0", b" ").decode(errors="replace").split())
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    return printable[:MAX_CHARACTERS] + ("..." if len(printable) > MAX_CHARACTERS else "")


async def kill_all(
    rank_sessions: Collection[int], report: Callable[[str], None], seconds: float = WAIT_SECONDS
) -> None:
    """Kill the processes that ranks have left running, and wait at most `seconds` until they have ended.
    `report` gets a sentence that names them.

    `rank_sessions` has the ids of ranks' sessions. The launcher has already killed the processes in these
    sessions with their ranks. So this function waits for their end but does not name them as killed.
    """
    deadline = time.monotonic() + seconds
    named: dict[int, bytes] = {}
    found, again = find(rank_sessions), False
    while (found or again) and time.monotonic() < deadline:
        # A daemon that forks while /proc is read may be missed, so scan again after killing such processes.
        # Processes in a rank's session were killed at once and cannot be missed.
        again = any(process.session not in rank_sessions for process in found.values())
        for pid, process in found.items():
            if process.session not in rank_sessions:
                named.setdefault(pid, b" ".join(proc.arguments(pid)) or process.name.encode())
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(POLL_SECONDS)  # The event loop collects the ended processes during this pause.
        found = find(rank_sessions)
    if named:
        report(f"killed processes that earlier ranks had left running: {describe(named)}")
    if found:
        stuck = {pid: b" ".join(proc.arguments(pid)) or one.name.encode() for pid, one in found.items()}
        report(
            "WARNING: processes of earlier ranks survive SIGKILL, most likely blocked on a volume: "
            + describe(stuck)
        )
