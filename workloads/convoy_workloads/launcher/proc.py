"""Reads processes from /proc: parents, sessions, signal handlers and pipes.

If a value cannot be read, the functions return an empty value. The process has then just ended, or belongs
to another user.
"""
# ruff: noqa: PTH115, PTH119, PTH123, PTH208 - PID 1 keeps its imports few

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

ROOT = "/proc"
_ENDED = "ZX"
"""State letters of a process that has ended but that its parent has not collected."""


class Process(NamedTuple):
    """The fields of /proc/PID/stat (proc_pid_stat(5)) that the launcher needs."""

    pid: int
    name: str
    """Name of the process (`comm`), at most 15 characters."""
    state: str
    parent: int
    group: int
    session: int


def parse_stat(text: str) -> Process | None:
    """Return the process in the text of a `stat` file; None if the text is malformed.

    The parser accepts any character in the process name, including parentheses and blanks.
    """
    head, _, rest = text.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = rest.split()
    try:
        return Process(int(pid), name, fields[0], int(fields[1]), int(fields[2]), int(fields[3]))
    except (ValueError, IndexError):
        return None


def scan(root: str = ROOT, collector: int = 0) -> dict[int, Process]:
    """Return the processes that have not ended, by process id.

    Ended children of the process `collector` are also included, because `collector` must still collect
    them.
    """
    found = {}
    try:
        names = os.listdir(root)
    except OSError:
        return {}
    for name in names:
        if name.isdigit():
            process = parse_stat(_text(f"{root}/{name}/stat"))
            if process is not None and (process.state not in _ENDED or process.parent == collector):
                found[process.pid] = process
    return found


def children(table: Iterable[Process]) -> dict[int, list[int]]:
    """Return the ids of the children of each process, by id of the parent, in the order of `table`."""
    found: dict[int, list[int]] = {}
    for process in table:
        found.setdefault(process.parent, []).append(process.pid)
    return found


def descendants(table: Mapping[int, Process], pid: int) -> list[int]:
    """Return the ids of all descendants of the process `pid`, each parent before its children. `pid` itself
    is not included.
    """
    below = children(table.values())
    found = list(below.get(pid, ()))
    for one in found:
        found += below.get(one, ())
    return found


def arguments(pid: int, root: str = ROOT) -> tuple[bytes, ...]:
    """Return the words of a process's command line."""
    return tuple(_bytes(f"{root}/{pid}/cmdline").rstrip(b"\0").split(b"\0"))


def environment(pid: int, root: str = ROOT) -> tuple[bytes, ...]:
    """Return the `NAME=value` entries with which a process was executed; an empty tuple if the process has
    overwritten them.
    """
    return tuple(_bytes(f"{root}/{pid}/environ").rstrip(b"\0").split(b"\0"))


def program(pid: int, root: str = ROOT) -> str:
    """Return the file name of a process's executable."""
    path = _link(f"{root}/{pid}/exe") or os.fsdecode(arguments(pid, root)[0])
    return os.path.basename(path)


def handles(pid: int, number: int, root: str = ROOT) -> bool:
    """Return True if a process has a handler for the signal `number`, or a thread that waits for this
    signal.
    """
    lines = (line.partition(":") for line in _text(f"{root}/{pid}/status").splitlines())
    masks = [int(value, 16) for name, _, value in lines if name in ("SigBlk", "SigCgt")]
    return any(mask >> (number - 1) & 1 for mask in masks)


def cgroup(pid: int, root: str = ROOT) -> str:
    """Return the text of /proc/PID/cgroup: the cgroups of a process, as the launcher's cgroup namespace
    shows them.
    """
    return _text(f"{root}/{pid}/cgroup")


def read_pipe(pid: int, root: str = ROOT) -> str:
    """Return the pipe that is the standard input of a process; an empty text if the standard input is not a
    pipe.
    """
    source = _link(f"{root}/{pid}/fd/0")
    return source if source.startswith("pipe:") else ""


def written_pipes(pid: int, root: str = ROOT) -> frozenset[str]:
    """Return the pipes to which a process can write."""
    folder = f"{root}/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return frozenset()
    targets = {name: _link(f"{folder}/{name}") for name in names}
    return frozenset(
        target
        for name, target in targets.items()
        if target.startswith("pipe:") and _writable(f"{root}/{pid}/fdinfo/{name}")
    )


def _writable(path: str) -> bool:
    for line in _text(path).splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _text(path: str) -> str:
    return _bytes(path).decode(errors="replace")


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
