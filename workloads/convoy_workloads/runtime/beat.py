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
"""The loop is over: what follows may take as long as it likes."""

FIRST_STEP_FACTOR = 3
"""How many times hangSeconds the first step may take."""

_RECORD = struct.Struct("<QQQQQQ")


@dataclass(frozen=True)
class Pulse:
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


def hung(pulse: Pulse, now: float, hang_seconds: float) -> bool:
    """Whether a rank with this pulse counts as hung at `now`."""
    if pulse.state == STARTED:
        return now - pulse.at > FIRST_STEP_FACTOR * hang_seconds
    return pulse.state == STEPPING and now - pulse.at > hang_seconds


def read(path: str) -> Pulse:
    """The pulse in the file; SILENT when there is none."""
    try:
        with open(path, "rb") as file:
            data = file.read(_RECORD.size)
    except OSError:
        return Pulse()
    if len(data) < _RECORD.size:
        return Pulse()
    state, nanoseconds, step, step_ms, first_step_ms, checkpoint_ms = _RECORD.unpack(data)
    return Pulse(state, nanoseconds / 1e9, step, step_ms, first_step_ms, checkpoint_ms)


class Beat:
    """The rank's side. Does nothing without a file; telemetry must never end a training run."""

    def __init__(self, path: str) -> None:
        self._fd: int | None = None
        self._state = SILENT
        self.last_step = 0
        """The newest step that was said to be done; 0 before the first of this process."""
        self.step_ms = 0
        """When it was; Unix milliseconds, 0 before. So for the next."""
        self.first_step_ms = 0
        """When the first one was."""
        self.checkpoint_seconds = 0.0
        """For which saving has held up the steps."""
        if path:
            try:
                self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            except OSError:
                self._fd = None

    def start(self) -> None:
        """Puts the rank under the watchdog's eye."""
        self._write(STARTED)

    def step(self, number: int) -> bool:
        """Step `number` is done; said again it is a sign of life. Whether it is the first of this process."""
        first = not self.first_step_ms
        if number > self.last_step:
            self.last_step = number
            self.step_ms = int(time.time() * 1000)
            self.first_step_ms = self.first_step_ms or self.step_ms
        self._write(STEPPING)
        return first and self.first_step_ms > 0

    def held_up(self, seconds: float) -> None:
        """Saving has kept the next step waiting for so long."""
        self.checkpoint_seconds += seconds
        self.touch()

    def touch(self) -> None:
        """Alive, but not stepping: a restore or a checkpoint."""
        if self._state != SILENT:
            self._write(self._state)

    def finish(self) -> None:
        """The loop is over."""
        self._write(FINISHED)

    def _write(self, state: int) -> None:
        self._state = state
        if self._fd is None:
            return
        record = _RECORD.pack(
            state,
            time.monotonic_ns(),
            self.last_step,
            self.step_ms,
            self.first_step_ms,
            int(self.checkpoint_seconds * 1000),
        )
        try:
            os.pwrite(self._fd, record, 0)
        except OSError:
            self._fd = None
