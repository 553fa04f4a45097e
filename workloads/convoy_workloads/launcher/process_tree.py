"""Follows the processes of a rank from SIGTERM until the last of them has ended.

A rank's command is often a shell or another wrapper around the program. After SIGTERM a shell ends at once,
while the program still saves its state. So the rank lasts as long as any process of its session. The rank's
exit code is the exit code of its first process. There is one exception: if SIGTERM has killed the first
process, the exit codes of its successors count instead. Of several successors, the one that ended last
counts.

Three kinds of processes need care:

- The exit codes of a Python program's helpers (workers of multiprocessing, the resource tracker) do not
  show how the program ended.
- A filter such as `tee` must outlive the program whose output it reads.
- A program in a process group or session of its own (`timeout`, `setsid`) does not get a signal to the
  rank's group.
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
    """A process of the rank, as it was when SIGTERM was sent."""

    process: Process
    program: str
    arguments: tuple[bytes, ...]
    handles_sigterm: bool
    """True if the process has a handler for SIGTERM, so that SIGTERM does not simply kill it."""
    read_pipe: str
    """The pipe that is the standard input of the process; empty if the standard input is not a pipe."""
    written_pipes: frozenset[str]
    """Pipes to which the process can write."""


Members = Mapping[int, Member]

_HELPER = (b"from multiprocessing.", b"--multiprocessing-fork")
"""Beginnings of words by which the command lines of multiprocessing's helpers are recognized (CPython 3.9
to 3.14).
"""


def filters(members: Members) -> frozenset[int]:
    """Return the ids of processes, such as `tee`, that read the output of other processes. A filter ends at
    the end of its input.

    A filter must get no SIGTERM: if SIGTERM killed it, the program would die of SIGPIPE at its next output.
    A process that handles SIGTERM is not returned, because SIGTERM does not kill it.
    """
    return frozenset(
        pid
        for pid, one in members.items()
        if one.read_pipe
        and not one.handles_sigterm
        and any(one.read_pipe in other.written_pipes for number, other in members.items() if number != pid)
    )


def successors(members: Members) -> dict[int, list[int]]:
    """Return the successors of each process, by process id. A successor is a child whose exit may count as
    the exit of its parent.
    """
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
    """Return the wait status that counts as the rank's status.

    `first` is the id of the first process. `below` has the ids of the successors by process id. `statuses`
    has the wait status of each ended process, in the order in which the processes ended; `first` must be
    among them. `others` has the ids of processes in other sessions, whose statuses count only if no other
    status counts.
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
    """Return the processes whose status counts for `pid`: `pid` itself or, if SIGTERM has killed it, its
    successors.
    """
    if pid in statuses and not _ended_by_sigterm(statuses[pid]):
        return [pid]
    found = [one for child in below.get(pid, ()) for one in _deciding(child, below, statuses)]
    return found or [one for one in (pid,) if one in statuses]


def _ended_by_sigterm(status: int) -> bool:
    """Return True if SIGTERM ended the process, or if a shell has passed on the status of a child that
    SIGTERM ended.
    """
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) == signal.SIGTERM
    return os.WEXITSTATUS(status) == 128 + signal.SIGTERM


class ProcessTree:
    """The processes of one rank, from the time at which SIGTERM is sent."""

    def __init__(self, first: int, first_only: bool) -> None:
        """Record the rank's processes. `first` is the id of the first process.

        `first_only` is True if the first process is the program itself. Then only this process gets
        SIGTERM, and only its status counts.
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
        """Send SIGTERM to the rank's process group. With `first_only`, send SIGTERM only to the first
        process.
        """
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
        """Send SIGTERM to those processes of the rank that have not got it yet. Call this once the first
        process has ended.

        Processes that were started after the first SIGTERM do not get it, because they may be saving the
        state.
        """
        self._terminate(
            pid
            for pid, one in self._members.items()
            if pid not in self._filters and (one.process.session == self._first or pid in self._lineage)
        )

    def record_exit(self, pid: int, status: int) -> None:
        """Record the exit status of a process if the process belongs to this rank."""
        if pid in self._lineage:
            self._statuses.setdefault(pid, status)

    def is_over(self) -> bool:
        """Return True if all processes of the rank have ended."""
        return not self._living()

    def tick(self) -> None:
        """Count a tick of the launcher. If only filters still run, at this tick and at the previous one,
        terminate them: another process holds their pipe open.
        """
        left = self._living()
        alone = bool(left) and left <= self._filters
        if alone and self._waits_for_filters:
            self._terminate(left)
        self._waits_for_filters = alone

    def kill(self) -> None:
        """Send SIGKILL to all processes of the rank that still run."""
        for pid in self._living():
            _send(pid, signal.SIGKILL)

    def status(self) -> int:
        """Return the wait status that counts as the rank's status. The first process must have ended."""
        others = (pid for pid, one in self._members.items() if one.process.session != self._first)
        return rank_status(self._first, self._successors, self._statuses, frozenset(others))

    def _living(self) -> set[int]:
        """Return the rank's processes that still run, or whose status the launcher has not yet collected.
        The first process is not included.
        """
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
    # Read the written pipes only if a process reads a pipe, because there may be thousands of descriptors.
    if any(one.read_pipe for one in found.values()):
        found = {pid: one._replace(written_pipes=proc.written_pipes(pid)) for pid, one in found.items()}
    return found


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
