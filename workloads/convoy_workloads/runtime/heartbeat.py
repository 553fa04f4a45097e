"""The pulse of a rank: a small file that the rank writes at every step and the launcher's watchdog reads.

A file, not a message: a rank stuck in a collective cannot answer, and its last pulse must stay readable after
it died. It says which step was the last, which messages, sent once a second, leave open.
"""
# ruff: noqa: PTH123 - PID 1 reads it every second

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass

SILENT = 0
"""No telemetry: this rank is never judged."""
STARTED = 1
"""Telemetry is on, the first step is not done: compilation and data loading take their time."""
STEPPING = 2
FINISHED = 3
"""Its main program, or its loop over `job.steps`, is over. What follows is bounded as a step is: a last
evaluation, exit handlers, threads that do not end."""

FIRST_STEP_FACTOR = 3
"""How many times hangSeconds the first step may take."""

_RECORD = struct.Struct("<QQQQQQQQ?")


@dataclass(frozen=True)
class Heartbeat:
    """What a rank has left behind. Times in ms are Unix time; 0 before there is one."""

    state: int = SILENT
    at: float = 0.0
    """Last sign of life, in seconds of the system-wide monotonic clock."""
    step: int = 0
    """Last step that it ended in this incarnation."""
    step_ms: int = 0
    """When it ended."""
    first_step_ms: int = 0
    """When its first step of this incarnation ended."""
    checkpoint_ms: int = 0
    """For which saving has held up its steps in this incarnation."""
    finished_ms: int = 0
    """When its main program was over; 0 while it may make more steps."""
    pid: int = 0
    """The process that makes the steps: a shell around it may be the rank's first process."""
    joined: bool = False
    """True if the program itself reports its steps (`convoy.join()`), and so saves by Convoy's rules."""


def hung(heartbeat: Heartbeat, now: float, hang_seconds: float) -> bool:
    """Whether a rank with this pulse counts as hung at `now`."""
    if heartbeat.state == STARTED:
        return now - heartbeat.at > FIRST_STEP_FACTOR * hang_seconds
    return heartbeat.state in (STEPPING, FINISHED) and now - heartbeat.at > hang_seconds


def read(path: str) -> Heartbeat:
    """The pulse in the file; SILENT when there is none."""
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
    """The rank's side. Does nothing without a file; telemetry must never end a training run."""

    def __init__(self, path: str, joined: bool = False) -> None:
        """`joined`: as in `Pulse`."""
        self._fd: int | None = None
        self._joined = joined
        self._state = SILENT
        self.last_step = 0
        """The newest step that was said to be done; 0 before the first of this process."""
        self.step_ms = 0
        """When it was; Unix milliseconds, 0 before. So for the next."""
        self.first_step_ms = 0
        """When the first one was."""
        self.checkpoint_seconds = 0.0
        """For which saving has held up the steps."""
        self._finished_ms = 0
        if path:
            try:
                self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            except OSError:
                self._fd = None

    def start(self) -> None:
        """Puts the rank under the watchdog's eye."""
        self._write(STARTED)

    def step(self, number: int) -> bool:
        """Step `number` is done; reported again it is a sign of life, after the last step too.

        Returns whether it is the first of this process.
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
        """Saving has kept the next step waiting for so long."""
        self.checkpoint_seconds += seconds
        self.touch()

    def touch(self) -> None:
        """Alive, but not stepping: a restore or a checkpoint."""
        self.extend(0.0)

    def extend(self, seconds: float) -> None:
        """A sign of life, and so many seconds more until the next one: for a wait that has a limit itself."""
        if self._state != SILENT:
            self._write(self._state, seconds)

    def finish(self) -> None:
        """The loop is over."""
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
