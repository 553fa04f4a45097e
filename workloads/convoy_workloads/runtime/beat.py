"""The pulse of a rank: a small file that the rank writes at every step and the launcher's watchdog reads.

A file, not a message: a rank stuck in a collective cannot answer, and its last pulse must stay readable after
it died.
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

_RECORD = struct.Struct("<QQQ")


@dataclass(frozen=True)
class Pulse:
    """State, steps done, and the last sign of life in seconds of the system-wide monotonic clock."""

    state: int = SILENT
    steps: int = 0
    at: float = 0.0


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
    state, steps, nanoseconds = _RECORD.unpack(data)
    return Pulse(state, steps, nanoseconds / 1e9)


class Beat:
    """The rank's side. Does nothing without a file; telemetry must never end a training run."""

    def __init__(self, path: str) -> None:
        self._fd: int | None = None
        self._steps = 0
        self._state = SILENT
        if path:
            try:
                self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            except OSError:
                self._fd = None

    def start(self) -> None:
        """Puts the rank under the watchdog's eye."""
        self._write(STARTED)

    def step(self) -> None:
        """One more step is done."""
        self._steps += 1
        self._write(STEPPING)

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
        try:
            os.pwrite(self._fd, _RECORD.pack(state, self._steps, time.monotonic_ns()), 0)
        except OSError:
            self._fd = None
