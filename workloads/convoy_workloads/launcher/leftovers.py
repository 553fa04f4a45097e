"""Processes that the ranks of earlier incarnations have left behind, in sessions of their own.

Experiment trackers, profilers and daemons outlive the rank that started them, and hold ports and the memory
of accelerators. The launcher takes in orphans, as PID 1 or as a subreaper, so whatever ranks have left is
below it in the tree of processes.

Below PID 1 there are others as well. What `kubectl exec` starts has its parent outside of the container, but
its orphans come to PID 1 too: they have the container's environment without a rank's variables. Those of a
debug container that shares the process namespace are in another cgroup. Where the pod shares its process
namespace the launcher is a subreaper, and only its own are below it.
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

CLEAR_SECONDS = 10.0
"""Longest wait for the ends of what was killed: what takes longer waits in the kernel."""
POLL_SECONDS = 0.02
MOST_NAMED = 5
"""Processes that the log names; the rest are counted."""
MOST_CHARACTERS = 80
"""Length of a command line in the log."""

_CONTAINER = b"CONVOY_SOCKET="
_RANK = (b"CONVOY_INCARNATION=", f"{ZYGOTE_FD}=".encode())
"""Variables that a rank was executed with, and a zygote, whose environment a forked rank still shows."""


def below(table: Mapping[int, Process], launcher: int, spares: Callable[[int], bool]) -> list[int]:
    """Return the ids of all that ranks have left.

    Processes of the launcher's own session are its zygote and what that runs. `spares` is called for each
    child of the launcher; what it spares keeps its descendants.
    """
    own = table[launcher].session
    children = proc.children(table.values())
    found: list[int] = []
    for child in children.get(launcher, ()):
        if table[child].session != own and spares(child):
            continue
        found += [child, *proc.descendants(table, child)]
    return [pid for pid in found if table[pid].session != own]


def is_foreign(environment: Iterable[bytes], cgroup: str, own_cgroup: str) -> bool:
    """Return true if a child of PID 1 is no rank's: of `kubectl exec`, or of a debug container.

    A daemon may have cleared its environment, or overwritten it with a title: then it is a rank's.
    """
    paths = _paths(cgroup)
    if not all(paths.get(name, "..").startswith(own) for name, own in _paths(own_cgroup).items()):
        return True
    names = [word for word in environment if word.startswith((_CONTAINER, *_RANK))]
    return bool(names) and not any(name.startswith(_RANK) for name in names)


def _paths(cgroup: str) -> dict[str, str]:
    """Return each hierarchy's path with a slash at its end; version 2's hierarchy has no name.

    Version 2 may be mounted beside version 1 and hold no container. In a cgroup namespace another
    container's path begins with `/../`.
    """
    fields = [line.split(":", 2) for line in cgroup.splitlines()]
    found = {name: path.rstrip("/") + "/" for _, name, path in fields}
    return {name: path.replace("/../", "../", 1) for name, path in found.items()}


def left(ours: Collection[int] = ()) -> dict[int, Process]:
    """Return what the ranks have left; sessions of `ours` are theirs, whatever their environment."""
    table, launcher = proc.scan(), os.getpid()
    if launcher not in table:
        return {}
    own_cgroup = proc.cgroup(launcher)

    def spares(pid: int) -> bool:
        if launcher != 1 or table[pid].session in ours:
            return False
        return is_foreign(proc.environment(pid), proc.cgroup(pid), own_cgroup)

    return {pid: table[pid] for pid in below(table, launcher, spares)}


def describe(found: Mapping[int, bytes]) -> str:
    """Name processes, given by command line, for the log."""
    names = [f"{pid} ({_shorten(words)})" for pid, words in list(found.items())[:MOST_NAMED]]
    more = len(found) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def _shorten(words: bytes) -> str:
    text = " ".join(words.replace(b"\0", b" ").decode(errors="replace").split())
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    return printable[:MOST_CHARACTERS] + ("..." if len(printable) > MOST_CHARACTERS else "")


async def clear(ours: Collection[int], report: Callable[[str], None], seconds: float = CLEAR_SECONDS) -> None:
    """Kills what the ranks have left and waits until it has ended, `seconds` at most.

    `ours`: the first processes of ranks. What dies in their sessions was killed with them: it is waited for
    and not reported.
    """
    deadline = time.monotonic() + seconds
    named: dict[int, bytes] = {}
    found, again = left(ours), False
    while (found or again) and time.monotonic() < deadline:
        # A daemon that forks while /proc is read is missed; those of a rank's session died at once.
        again = any(process.session not in ours for process in found.values())
        for pid, process in found.items():
            if process.session not in ours:
                named.setdefault(pid, b" ".join(proc.arguments(pid)) or process.name.encode())
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(POLL_SECONDS)  # the loop collects those that end
        found = left(ours)
    if named:
        report(f"cleared what earlier ranks had left running: {describe(named)}")
    if found:
        stuck = {pid: b" ".join(proc.arguments(pid)) or one.name.encode() for pid, one in found.items()}
        report(f"WARNING: SIGKILL has not ended what earlier ranks have left: {describe(stuck)}")
