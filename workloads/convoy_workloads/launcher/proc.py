"""Processes as /proc shows them: whose child each is, in which session, and with what signals and pipes.

What cannot be read (a process that has just ended, or one of another user) reads as empty: callers decide on
what is left.
"""
# ruff: noqa: PTH115, PTH119, PTH123, PTH208 - PID 1 keeps its imports few

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

ROOT = "/proc"
_ENDED = "ZX"
"""States of a process that has ended: its parent has not collected it yet."""


class Process(NamedTuple):
    """One line of /proc/PID/stat (proc_pid_stat(5)), as far as it concerns the launcher."""

    pid: int
    name: str
    """Its `comm`, at most 15 characters."""
    state: str
    parent: int
    group: int
    session: int


def parse_stat(text: str) -> Process | None:
    """Return the process in the text of a `stat` file; None when it is none. The name may hold anything."""
    head, _, rest = text.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = rest.split()
    try:
        return Process(int(pid), name, fields[0], int(fields[1]), int(fields[2]), int(fields[3]))
    except (ValueError, IndexError):
        return None


def scan(root: str = ROOT, collector: int = 0) -> dict[int, Process]:
    """Return the living processes by their ids.

    Those that have ended are left out, but for children of `collector`, which has yet to collect them.
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
    """Return the ids of each parent's children, in the order of the table."""
    found: dict[int, list[int]] = {}
    for process in table:
        found.setdefault(process.parent, []).append(process.pid)
    return found


def descendants(table: Mapping[int, Process], pid: int) -> list[int]:
    """Return the ids of all processes below `pid`, parents first, `pid` itself left out."""
    below = children(table.values())
    found = list(below.get(pid, ()))
    for one in found:
        found += below.get(one, ())
    return found


def arguments(pid: int, root: str = ROOT) -> tuple[bytes, ...]:
    """Return its command line."""
    return tuple(_bytes(f"{root}/{pid}/cmdline").rstrip(b"\0").split(b"\0"))


def environment(pid: int, root: str = ROOT) -> tuple[bytes, ...]:
    """Return `NAME=value` as it was executed with; empty as well when it has overwritten them."""
    return tuple(_bytes(f"{root}/{pid}/environ").rstrip(b"\0").split(b"\0"))


def program(pid: int, root: str = ROOT) -> str:
    """Return the name of its executable, without the folder."""
    path = _link(f"{root}/{pid}/exe") or os.fsdecode(arguments(pid, root)[0])
    return os.path.basename(path)


def handles(pid: int, number: int, root: str = ROOT) -> bool:
    """Return true if it has a handler for this signal, or leaves the signal to a thread that waits for it."""
    lines = (line.partition(":") for line in _text(f"{root}/{pid}/status").splitlines())
    masks = [int(value, 16) for name, _, value in lines if name in ("SigBlk", "SigCgt")]
    return any(mask >> (number - 1) & 1 for mask in masks)


def cgroup(pid: int, root: str = ROOT) -> str:
    """Return its cgroups as the launcher's own namespace shows them."""
    return _text(f"{root}/{pid}/cgroup")


def read_pipe(pid: int, root: str = ROOT) -> str:
    """Return the pipe that is its standard input; empty when that is none."""
    source = _link(f"{root}/{pid}/fd/0")
    return source if source.startswith("pipe:") else ""


def written_pipes(pid: int, root: str = ROOT) -> frozenset[str]:
    """Return the pipes that it can write to."""
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
