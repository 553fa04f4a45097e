"""The heartbeat of a rank: a small file that the rank writes at every step and the launcher reads. A rank
that serves writes it at every iteration of its compute loop, also if there is no request.

A file is used instead of a message for three reasons. A rank that is stuck in a collective cannot respond
to messages. The last heartbeat must stay readable after the rank has died. Messages are sent once a second,
so they may miss the last step.
"""
# ruff: noqa: PTH123 - PID 1 reads the file every second

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass

SILENT = 0
"""State of a rank that sends no heartbeats. The watchdog never reports such a rank as hung."""
STARTED = 1
"""State of a rank that sends heartbeats and has not finished its first step.

Compilation and data loading make the first step long, so it has a longer time limit (`FIRST_STEP_FACTOR`).
"""
STEPPING = 2
FINISHED = 3
"""State of a rank whose main program, or whose loop over `job.steps`, is over.

Last evaluations, exit handlers and remaining threads still run in this state. They have the time limit of a
step.
"""
SERVING = 4
"""State of a rank that has loaded its model, has passed its self-test and accepts requests."""
DRAINING = 5
"""State of a rank that has served and is about to end. It is alive, but not ready for new requests."""

_TIMED = frozenset({STEPPING, FINISHED, SERVING, DRAINING})
"""States in which a heartbeat is due at least every `hangSeconds`."""
FIRST_STEP_FACTOR = 3
"""Time limit of the first step as a multiple of `hangSeconds`, the limit of each later step."""

_RECORD = struct.Struct("<QQQQQQQQ?")


@dataclass(frozen=True)
class Heartbeat:
    """The last heartbeat of a rank.

    Fields that end in `_ms` are Unix times in milliseconds unless stated otherwise, and 0 if unset.
    """

    state: int = SILENT
    at: float = 0.0
    """Time of the last heartbeat, in seconds of the system-wide monotonic clock. `HeartbeatWriter.extend`
    sets a later time.
    """
    step: int = 0
    """Last step that the rank finished in this incarnation."""
    step_ms: int = 0
    """Unix time in milliseconds when the rank finished `step`."""
    first_step_ms: int = 0
    """Unix time in milliseconds when the rank finished its first step in this incarnation."""
    checkpoint_ms: int = 0
    """Duration in milliseconds for which saves have stopped the rank's steps in this incarnation."""
    finished_ms: int = 0
    """Unix time in milliseconds when the rank's main program ended; 0 while the rank may make more steps."""
    pid: int = 0
    """Id of the process that makes the steps. The rank's first process may be a shell that started this
    process.
    """
    joined: bool = False
    """True if the program reports its steps itself (`convoy.join()`) and so follows Convoy's rules for
    saves.
    """


def hung(heartbeat: Heartbeat, now: float, hang_seconds: float) -> bool:
    """Return True if, at the monotonic time `now`, the last heartbeat of a rank is older than the time
    limit of its state.
    """
    if heartbeat.state == STARTED:
        return now - heartbeat.at > FIRST_STEP_FACTOR * hang_seconds
    return heartbeat.state in _TIMED and now - heartbeat.at > hang_seconds


def ready(heartbeat: Heartbeat, now: float, stall_seconds: float) -> bool:
    """Return True if the rank accepts requests, and its last heartbeat is at most `stall_seconds` older than
    the monotonic time `now`.
    """
    return heartbeat.state == SERVING and now - heartbeat.at <= stall_seconds


def read(path: str) -> Heartbeat:
    """Return the heartbeat in the file. Without a valid heartbeat the returned state is SILENT."""
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
    """Writes the heartbeats of a rank. If the heartbeat file cannot be opened or written, the error is
    ignored, because telemetry must never end a training.
    """

    def __init__(self, path: str, joined: bool = False) -> None:
        """Open the heartbeat file at `path`. `joined`: see `Heartbeat.joined`."""
        self._fd: int | None = None
        self._joined = joined
        self.state = SILENT
        """State that the last heartbeat reported."""
        self.at = 0.0
        """Time of the last heartbeat, in seconds of the system-wide monotonic clock."""
        self.last_step = 0
        """Newest step that was reported as done; 0 before the first step of this process."""
        self.step_ms = 0
        """Unix time in milliseconds when `last_step` was done; 0 before the first step of this process."""
        self.first_step_ms = 0
        """Unix time in milliseconds when the first step of this process was done; 0 before that step."""
        self.checkpoint_seconds = 0.0
        """Total seconds for which saves have stopped the steps of this process."""
        self._finished_ms = 0
        if path:
            try:
                self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            except OSError:
                self._fd = None

    def start(self) -> None:
        """Start the heartbeats. After this call the watchdog checks whether the rank hangs."""
        self._write(STARTED)

    def step(self, number: int) -> bool:
        """Record that step `number` is done. Return True for the first step of this process.

        If `number` does not exceed `last_step`, the call only renews the heartbeat, even after `finish`.
        """
        first = not self.first_step_ms
        further = number > self.last_step
        if further:
            self.last_step = number
            self.step_ms = int(time.time() * 1000)
            self.first_step_ms = self.first_step_ms or self.step_ms
        self._write(FINISHED if self.state == FINISHED and not further else STEPPING)
        return first and self.first_step_ms > 0

    def record_save(self, seconds: float) -> None:
        """Record that a save stopped the steps for `seconds`."""
        self.checkpoint_seconds += seconds
        self.touch()

    def touch(self) -> None:
        """Renew the heartbeat without a step, for example during a restore or a save."""
        self.extend(0.0)

    def extend(self, seconds: float) -> None:
        """Renew the heartbeat, and allow `seconds` more than usual until the next heartbeat.

        Use this before a wait that has its own time limit.
        """
        if self.state != SILENT:
            self._write(self.state, seconds)

    def serve(self) -> None:
        """Record that the rank accepts requests."""
        self._write(SERVING)

    def drain(self) -> None:
        """Record that the rank has served and is about to end."""
        self._write(DRAINING)

    def finish(self) -> None:
        """Record that the main program, or its loop over `job.steps`, is over."""
        self._write(FINISHED)

    def _write(self, state: int, allowed: float = 0.0) -> None:
        if state != FINISHED:
            self._finished_ms = 0
        elif self.state != FINISHED:
            self._finished_ms = int(time.time() * 1000)
        self.state = state
        now = time.monotonic_ns()
        self.at = now / 1e9
        if self._fd is None:
            return
        record = _RECORD.pack(
            state,
            now + int(allowed * 1e9),
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
