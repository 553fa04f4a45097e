"""The heartbeat of a rank: a small file that the rank writes at every step and the launcher's watchdog
reads.

A file is used instead of a message, because a rank that is stuck in a collective cannot respond. Its last
heartbeat must also stay readable after it died. Messages are sent once a second and may miss the last step;
the file does not.
"""
# ruff: noqa: PTH123 - PID 1 reads it every second

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass

SILENT = 0
"""The rank sends no heartbeats. The watchdog never judges it."""
STARTED = 1
"""Heartbeats are on, and the first step is not done. Compilation and data loading take their time."""
STEPPING = 2
FINISHED = 3
"""The main program, or its loop over `job.steps`, is over. The rest has the time limit of a step: a last
evaluation, exit handlers, threads that do not end.
"""

FIRST_STEP_FACTOR = 3
"""The first step may take this many times hangSeconds."""

_RECORD = struct.Struct("<QQQQQQQQ?")


@dataclass(frozen=True)
class Heartbeat:
    """The last heartbeat of a rank. Fields that end in `_ms` are Unix milliseconds unless stated otherwise;
    0 if unset.
    """

    state: int = SILENT
    at: float = 0.0
    """Time of the last heartbeat, in seconds of the system-wide monotonic clock."""
    step: int = 0
    """Last step that the rank finished in this incarnation."""
    step_ms: int = 0
    """End of that step."""
    first_step_ms: int = 0
    """End of the rank's first step in this incarnation."""
    checkpoint_ms: int = 0
    """Milliseconds that saves have stopped the rank's steps in this incarnation. This is a duration."""
    finished_ms: int = 0
    """End of the rank's main program; 0 while it may make more steps."""
    pid: int = 0
    """Process that makes the steps. The rank's first process may be a shell around it."""
    joined: bool = False
    """True if the program reports its steps itself (`convoy.join()`) and so saves by Convoy's rules."""


def hung(heartbeat: Heartbeat, now: float, hang_seconds: float) -> bool:
    """Return True if a rank with this heartbeat counts as hung at `now`."""
    if heartbeat.state == STARTED:
        return now - heartbeat.at > FIRST_STEP_FACTOR * hang_seconds
    return heartbeat.state in (STEPPING, FINISHED) and now - heartbeat.at > hang_seconds


def read(path: str) -> Heartbeat:
    """Return the heartbeat in the file. Without a valid one, its state is SILENT."""
    try:
        with open(path, "rb") as file:
            data = file.read(_RECORD.size)
    except OSError:
        return Heartbeat()
    if len(data) < _RECORD.size:
        return Heartbeat()
    state, nanoseconds, *others = _RECORD.unpack(data)
    return Heartbeat(state, nanoseconds / 1e9, *others)


class HeartbeatWriter:
    """Writes the heartbeats of a rank. Does nothing without a file, because telemetry must never end a
    training run.
    """

    def __init__(self, path: str, joined: bool = False) -> None:
        """`joined`: see `Heartbeat.joined`."""
        self._fd: int | None = None
        self._joined = joined
        self._state = SILENT
        self.last_step = 0
        """Newest step that was reported as done; 0 before the first step of this process."""
        self.step_ms = 0
        """End of that step, in Unix milliseconds; 0 before."""
        self.first_step_ms = 0
        """End of the first step of this process, in Unix milliseconds; 0 before."""
        self.checkpoint_seconds = 0.0
        """Seconds that saves have stopped the steps."""
        self._finished_ms = 0
        if path:
            try:
                self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            except OSError:
                self._fd = None

    def start(self) -> None:
        """Start the heartbeats. From here on the watchdog judges the rank."""
        self._write(STARTED)

    def step(self, number: int) -> bool:
        """Record that step `number` is done. A repeated number only renews the heartbeat, also after the
        last step.

        Return True for the first step of this process.
        """
        first = not self.first_step_ms
        further = number > self.last_step
        if further:
            self.last_step = number
            self.step_ms = int(time.time() * 1000)
            self.first_step_ms = self.first_step_ms or self.step_ms
        self._write(FINISHED if self._state == FINISHED and not further else STEPPING)
        return first and self.first_step_ms > 0

    def record_save(self, seconds: float) -> None:
        """Record that a save stopped the steps for so many seconds."""
        self.checkpoint_seconds += seconds
        self.touch()

    def touch(self) -> None:
        """Renew the heartbeat without a step, for example during a restore or a save."""
        self.extend(0.0)

    def extend(self, seconds: float) -> None:
        """Renew the heartbeat and allow `seconds` more until the next one. For a wait that has its own
        limit.
        """
        if self._state != SILENT:
            self._write(self._state, seconds)

    def finish(self) -> None:
        """Record that the loop over the steps is over."""
        self._write(FINISHED)

    def _write(self, state: int, allowed: float = 0.0) -> None:
        if state != FINISHED:
            self._finished_ms = 0
        elif self._state != FINISHED:
            self._finished_ms = int(time.time() * 1000)
        self._state = state
        if self._fd is None:
            return
        record = _RECORD.pack(
            state,
            time.monotonic_ns() + int(allowed * 1e9),
            self.last_step,
            self.step_ms,
            self.first_step_ms,
            int(self.checkpoint_seconds * 1000),
            self._finished_ms,
            os.getpid(),
            self._joined,
        )
        try:
            os.pwrite(self._fd, record, 0)
        except OSError:
            self._fd = None
