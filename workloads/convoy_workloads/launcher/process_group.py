"""The processes of a rank that was asked to leave, until the last of them is over.

A command is often a shell or another wrapper around the program. Asked to leave, a shell dies at once, while
the program saves its state. So the rank lasts as long as a process of its session does, and its exit code is
that of its first process, unless the request has killed that one: then it is that of the last to end of those
that the first one ran.

Three kinds of processes need care. What a Python program has made for itself (workers of multiprocessing,
the resource tracker) says nothing of the program's end. A filter such as `tee` must outlive the program whose
output it reads. A program that its shell has put into a group or a session of its own (`timeout`, `setsid`)
is not reached by a signal to the rank's group.
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
    """A process of the rank at the time of the request."""

    process: Process
    program: str
    arguments: tuple[bytes, ...]
    handles: bool
    """True if it handles SIGTERM."""
    reads: str
    """The pipe that is its standard input; empty when that is none."""
    writes: frozenset[str]
    """Pipes that it can write to."""


Members = Mapping[int, Member]

_HELPER = (b"from multiprocessing.", b"--multiprocessing-fork")
"""Starts of a word on the command lines that multiprocessing makes (CPython 3.9 to 3.14)."""


def filters(members: Members) -> frozenset[int]:
    """Return those that read what others print, such as `tee`: at the end of that they end by themselves.

    Killed, they would take the program along at its next word, by SIGPIPE. One that handles SIGTERM knows
    what to do with it.
    """
    return frozenset(
        pid
        for pid, one in members.items()
        if one.reads
        and not one.handles
        and any(one.reads in other.writes for number, other in members.items() if number != pid)
    )


def heirs(members: Members) -> dict[int, list[int]]:
    """Return, for each process, those of its children whose end may stand for its own."""
    aside = filters(members)
    found: dict[int, list[int]] = {}
    for pid, one in members.items():
        parent = members.get(one.process.parent)
        if parent is not None and pid not in aside and _stands_for(one, parent):
            found.setdefault(parent.process.pid, []).append(pid)
    return found


def _stands_for(child: Member, parent: Member) -> bool:
    if not parent.program.startswith("python"):
        return True
    helper = any(word.startswith(_HELPER) for word in child.arguments)
    executed = child.arguments != parent.arguments
    return executed and not helper and child.process.session == parent.process.session


def family(first: int, below: Mapping[int, list[int]]) -> list[int]:
    """Return `first` and its heirs, theirs, and so on."""
    found = [first]
    for pid in found:
        found += below.get(pid, ())
    return found


def ending(
    first: int,
    below: Mapping[int, list[int]],
    ends: Mapping[int, int],
    apart: frozenset[int] = frozenset(),
) -> int:
    """Return the wait status that is the rank's.

    `below`: heirs; `ends`: wait statuses in the order of the ends, `first` among them; `apart`: those in
    other sessions, which count where there is no other.
    """
    own = _last_words(first, below, ends)
    own = [pid for pid in own if pid not in apart] or own
    unforced = [
        pid for pid in own if os.WTERMSIG(ends[pid]) != signal.SIGKILL or not os.WIFSIGNALED(ends[pid])
    ]
    order = list(ends)
    return ends[max(unforced or own, key=order.index)]


def _last_words(pid: int, below: Mapping[int, list[int]], ends: Mapping[int, int]) -> list[int]:
    """Return the processes that speak for `pid`: itself, unless the request has killed it."""
    if pid in ends and not _by_request(ends[pid]):
        return [pid]
    found = [one for heir in below.get(pid, ()) for one in _last_words(heir, below, ends)]
    return found or [one for one in (pid,) if one in ends]


def _by_request(status: int) -> bool:
    """Return true if SIGTERM ended it, or the child that a shell reports as its own end."""
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) == signal.SIGTERM
    return os.WEXITSTATUS(status) == 128 + signal.SIGTERM


class ProcessGroup:
    """One rank's processes from the request to leave on."""

    def __init__(self, first: int, alone: bool) -> None:
        """`alone`: the first process is the program itself, so only it is asked, and its end counts."""
        self._first = first
        self._alone = alone
        self._members = _members(first)
        self._filters = filters(self._members)
        self._heirs = {} if alone else heirs(self._members)
        self._family = frozenset(family(first, self._heirs))
        self._ends: dict[int, int] = {}
        self._asked: set[int] = set()
        self._waits_for_filters = False

    def request(self) -> None:
        """Sends SIGTERM to the rank's process group, or to a lone program."""
        group = {pid for pid, one in self._members.items() if one.process.group == self._first}
        if self._alone:
            _send(self._first, signal.SIGTERM)
            self._asked.add(self._first)
        elif group & self._filters:
            self._request(group - self._filters)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._first, signal.SIGTERM)
            self._asked |= group

    def request_rest(self) -> None:
        """Sends SIGTERM to those that the first process, now over, has left and that were not asked yet.

        What they have started since then is theirs: it may be a part of saving.
        """
        self._request(
            pid
            for pid, one in self._members.items()
            if pid not in self._filters and (one.process.session == self._first or pid in self._family)
        )

    def ended(self, pid: int, status: int) -> None:
        """Records the end of a process, if it is one of this rank's."""
        if pid in self._family:
            self._ends.setdefault(pid, status)

    def over(self) -> bool:
        """Return true if none of them is left."""
        return not self._left()

    def tick(self) -> None:
        """Ends filters that are left alone: somebody else holds the other end of their pipe."""
        left = self._left()
        alone = bool(left) and left <= self._filters
        if alone and self._waits_for_filters:
            self._request(left)
        self._waits_for_filters = alone

    def kill(self) -> None:
        """Sends SIGKILL to all that are left."""
        for pid in self._left():
            _send(pid, signal.SIGKILL)

    def status(self) -> int:
        """Return the wait status of the whole. The first process has ended."""
        apart = (pid for pid, one in self._members.items() if one.process.session != self._first)
        return ending(self._first, self._heirs, self._ends, frozenset(apart))

    def _left(self) -> set[int]:
        """Return those that live, or have ended with a status that the launcher has yet to collect."""
        table = proc.scan(collector=os.getpid())
        return {pid for pid, one in table.items() if self._holds(one)} - {self._first}

    def _holds(self, one: Process) -> bool:
        if one.session == self._first:
            return True
        known = self._members.get(one.pid)
        return one.pid in self._family and known is not None and known.process.session == one.session

    def _request(self, pids: Iterable[int]) -> None:
        living = proc.scan()
        for pid in sorted(set(pids) - self._asked):
            if pid in living and self._holds(living[pid]):
                _send(pid, signal.SIGTERM)
                self._asked.add(pid)


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
    if any(one.reads for one in found.values()):  # else thousands of descriptors are read for nothing
        found = {pid: one._replace(writes=proc.written_pipes(pid)) for pid, one in found.items()}
    return found


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
