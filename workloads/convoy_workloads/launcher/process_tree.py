"""The processes of a rank after SIGTERM, until the last of them has ended.

A rank's command is often a shell or another wrapper around the program. After SIGTERM a shell dies at once,
while the program still saves its state. So the rank lasts as long as any process of its session. Its exit
code is that of its first process. If SIGTERM has killed the first process, the exit code is that of its
successor that ended last.

Three kinds of processes need care:

- Helpers of a Python program (workers of multiprocessing, the resource tracker) do not show how the program
  ended.
- A filter such as `tee` must outlive the program whose output it reads.
- A program in a process group or session of its own (`timeout`, `setsid`) does not get a signal to
  the rank's group.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from convoy_workloads.launcher import proc
from convoy_workloads.launcher.proc import Process


class Member(NamedTuple):
    """A process of the rank at the time of the SIGTERM."""

    process: Process
    program: str
    arguments: tuple[bytes, ...]
    handles_sigterm: bool
    """True if the process handles SIGTERM."""
    read_pipe: str
    """The pipe that is the standard input; empty if it is not a pipe."""
    written_pipes: frozenset[str]
    """Pipes to which the process can write."""


Members = Mapping[int, Member]

_HELPER = (b"from multiprocessing.", b"--multiprocessing-fork")
"""Beginnings of words on the command lines that multiprocessing makes (CPython 3.9 to 3.14)."""


def filters(members: Members) -> frozenset[int]:
    """Return the processes that read the output of others, such as `tee`. They end at the end of their
    input.

    If a filter is killed, the program dies of SIGPIPE at its next output. A filter that handles SIGTERM
    does not count: it may get the signal.
    """
    return frozenset(
        pid
        for pid, one in members.items()
        if one.read_pipe
        and not one.handles_sigterm
        and any(one.read_pipe in other.written_pipes for number, other in members.items() if number != pid)
    )


def successors(members: Members) -> dict[int, list[int]]:
    """Return, for each process, the children whose end may stand for its own."""
    aside = filters(members)
    found: dict[int, list[int]] = {}
    for pid, one in members.items():
        parent = members.get(one.process.parent)
        if parent is not None and pid not in aside and _replaces(one, parent):
            found.setdefault(parent.process.pid, []).append(pid)
    return found


def _replaces(child: Member, parent: Member) -> bool:
    if not parent.program.startswith("python"):
        return True
    helper = any(word.startswith(_HELPER) for word in child.arguments)
    executed = child.arguments != parent.arguments
    return executed and not helper and child.process.session == parent.process.session


def lineage(first: int, below: Mapping[int, list[int]]) -> list[int]:
    """Return `first`, its successors, their successors, and so on."""
    found = [first]
    for pid in found:
        found += below.get(pid, ())
    return found


def rank_status(
    first: int,
    below: Mapping[int, list[int]],
    statuses: Mapping[int, int],
    others: frozenset[int] = frozenset(),
) -> int:
    """Return the wait status that counts for the rank.

    `below`: successors by process. `statuses`: wait statuses in the order in which the processes ended,
    `first` among them. `others`: processes in other sessions, which count only if no other process does.
    """
    own = _deciding(first, below, statuses)
    own = [pid for pid in own if pid not in others] or own
    unforced = [
        pid
        for pid in own
        if os.WTERMSIG(statuses[pid]) != signal.SIGKILL or not os.WIFSIGNALED(statuses[pid])
    ]
    order = list(statuses)
    return statuses[max(unforced or own, key=order.index)]


def _deciding(pid: int, below: Mapping[int, list[int]], statuses: Mapping[int, int]) -> list[int]:
    """Return the processes whose status counts for `pid`: itself, unless SIGTERM has killed it."""
    if pid in statuses and not _ended_by_sigterm(statuses[pid]):
        return [pid]
    found = [one for child in below.get(pid, ()) for one in _deciding(child, below, statuses)]
    return found or [one for one in (pid,) if one in statuses]


def _ended_by_sigterm(status: int) -> bool:
    """Return True if SIGTERM ended the process, or ended the child whose status a shell has passed on."""
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) == signal.SIGTERM
    return os.WEXITSTATUS(status) == 128 + signal.SIGTERM


class ProcessTree:
    """The processes of one rank, from SIGTERM on."""

    def __init__(self, first: int, first_only: bool) -> None:
        """Record the rank's processes.

        `first_only`: the first process is the program itself, so only it gets SIGTERM and its status
        counts.
        """
        self._first = first
        self._first_only = first_only
        self._members = _members(first)
        self._filters = filters(self._members)
        self._successors = {} if first_only else successors(self._members)
        self._lineage = frozenset(lineage(first, self._successors))
        self._statuses: dict[int, int] = {}
        self._terminated: set[int] = set()
        self._waits_for_filters = False

    def terminate(self) -> None:
        """Send SIGTERM to the rank's process group, or with `first_only` to its first process."""
        group = {pid for pid, one in self._members.items() if one.process.group == self._first}
        if self._first_only:
            _send(self._first, signal.SIGTERM)
            self._terminated.add(self._first)
        elif group & self._filters:
            self._terminate(group - self._filters)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._first, signal.SIGTERM)
            self._terminated |= group

    def terminate_rest(self) -> None:
        """Send SIGTERM to the processes that outlive the first one and have not got it yet.

        Processes started since the first SIGTERM do not get it: they may be part of saving the state.
        """
        self._terminate(
            pid
            for pid, one in self._members.items()
            if pid not in self._filters and (one.process.session == self._first or pid in self._lineage)
        )

    def record_exit(self, pid: int, status: int) -> None:
        """Record the exit of a process, if it belongs to this rank."""
        if pid in self._lineage:
            self._statuses.setdefault(pid, status)

    def is_over(self) -> bool:
        """Return True if no process of the rank is left."""
        return not self._living()

    def tick(self) -> None:
        """Terminate filters that are the only processes left for two ticks: another process holds their
        pipe open.
        """
        left = self._living()
        alone = bool(left) and left <= self._filters
        if alone and self._waits_for_filters:
            self._terminate(left)
        self._waits_for_filters = alone

    def kill(self) -> None:
        """Send SIGKILL to all processes that are left."""
        for pid in self._living():
            _send(pid, signal.SIGKILL)

    def status(self) -> int:
        """Return the wait status that counts for the rank. The first process must have ended."""
        others = (pid for pid, one in self._members.items() if one.process.session != self._first)
        return rank_status(self._first, self._successors, self._statuses, frozenset(others))

    def _living(self) -> set[int]:
        """Return the processes that live, or whose status the launcher has yet to collect."""
        table = proc.scan(collector=os.getpid())
        return {pid for pid, one in table.items() if self._contains(one)} - {self._first}

    def _contains(self, one: Process) -> bool:
        if one.session == self._first:
            return True
        known = self._members.get(one.pid)
        return one.pid in self._lineage and known is not None and known.process.session == one.session

    def _terminate(self, pids: Iterable[int]) -> None:
        living = proc.scan()
        for pid in sorted(set(pids) - self._terminated):
            if pid in living and self._contains(living[pid]):
                _send(pid, signal.SIGTERM)
                self._terminated.add(pid)


def _members(first: int) -> dict[int, Member]:
    table = proc.scan()
    below = set(proc.descendants(table, first))
    found = {
        pid: Member(
            process,
            proc.program(pid),
            proc.arguments(pid),
            proc.handles(pid, signal.SIGTERM),
            proc.read_pipe(pid),
            frozenset(),
        )
        for pid, process in table.items()
        if pid == first or pid in below or process.session == first
    }
    # else thousands of descriptors would be read for nothing
    if any(one.read_pipe for one in found.values()):
        found = {pid: one._replace(written_pipes=proc.written_pipes(pid)) for pid, one in found.items()}
    return found


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
