"""A child process with a deadline. It may hang, die, flood its pipe or outlive SIGKILL: the agent goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import structlog

from convoy_agents.guard.sweep import cgroup, memory

MOST_OUTPUT = 256 * 1024
"""Bytes of stdout that are a result; more is none."""
MOST_STDERR = 2048
"""Bytes of its end that are kept."""
KILL_SECONDS = 2.0
"""From SIGKILL until a child counts as stuck in the kernel."""
MOST_STUCK = 4
"""Children that may be stuck before no more are started."""
_READ = 64 * 1024
_PIPE_READS = 2

log = structlog.get_logger()


class Stop(Enum):
    """Why a child was killed."""

    DEADLINE = auto()
    FLOOD = auto()
    """It wrote more than a result has."""


class TooManyStuckError(Exception):
    """Children of earlier probes never ended: another one would only join them."""


@dataclass(frozen=True, slots=True)
class ChildExit:
    """How a child ended."""

    code: int | None
    """Exit code, or the signal below zero; None when not even SIGKILL ended it."""
    output: bytes
    stderr: str
    """Its end."""
    stop: Stop | None = None
    oom: bool = False
    """The kernel killed something of the agent's container for its memory meanwhile."""


class Children:
    """Starts children, and remembers those that are stuck until they end after all."""

    def __init__(self) -> None:
        self._stuck: list[subprocess.Popen[bytes]] = []

    @property
    def stuck(self) -> int:
        """Children that SIGKILL has not ended."""
        self._stuck = [child for child in self._stuck if child.poll() is None]
        return len(self._stuck)

    async def run(self, argv: Sequence[str], env: Mapping[str, str], seconds: float) -> ChildExit:
        """Runs it to its end or deadline. When cancelled, the child is killed first.

        OSError when it cannot be started, TooManyStuckError.
        """
        if self.stuck >= MOST_STUCK:
            raise TooManyStuckError(f"{self.stuck} children of earlier probes are stuck in the kernel")
        killed_before = memory.oom_kills()
        with cgroup.Group() as group:
            child = _Child(argv, env, group)
            stop: Stop | None = None
            try:
                stop = await child.wait(seconds)
            finally:
                # All of its group: what it has started must not outlive it.
                child.kill()
                try:
                    await child.wait_exit(KILL_SECONDS)
                finally:
                    code = child.close()
                    if code is None:
                        self._stuck.append(child.process)
                        log.error("probe outlives SIGKILL", pid=child.process.pid)
        oom = memory.oom_kills() > killed_before
        return ChildExit(code, bytes(child.output), child.stderr.decode(errors="replace"), stop, oom)


class _Child:
    """Its pipes and its end, as events of the loop: nothing here waits in a thread."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], group: cgroup.Group) -> None:
        self.output, self.stderr = bytearray(), bytearray()
        self._group = group
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.process = subprocess.Popen(
            group.command(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env=dict(env),
            start_new_session=True,
        )
        assert self.process.stdout and self.process.stderr  # noqa: S101
        self._out, self._err = self.process.stdout.fileno(), self.process.stderr.fileno()
        self._ended = False
        try:
            self._handle = os.pidfd_open(self.process.pid)
        except OSError:
            self.process.kill()
            raise
        for pipe in (self._out, self._err):
            os.set_blocking(pipe, False)
            self._loop.add_reader(pipe, self._read, pipe)
        self._loop.add_reader(self._handle, self._exited)

    async def wait(self, seconds: float) -> Stop | None:
        """Waits until it ended, or why it must."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._ended:
                    if len(self.output) > MOST_OUTPUT:
                        return Stop.FLOOD
                    self._changed.clear()
                    await self._changed.wait()
                return None
        return Stop.DEADLINE

    def kill(self) -> None:
        """SIGKILL for it and all that it has started. Until `close` has reaped it, its number is its own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._group.kill()

    async def wait_exit(self, seconds: float) -> None:
        """Waits for its end, for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._ended:
                    self._changed.clear()
                    await self._changed.wait()

    def close(self) -> int | None:
        """Reads what is left of an ended child, lets go of it; its exit code."""
        for pipe in (self._out, self._err):
            # What a pipe holds, and not to its end: whoever else has it open may go on writing.
            for _ in range(_PIPE_READS):
                if not self._read(pipe):
                    break
            self._loop.remove_reader(pipe)
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                stream.close()
        return self.process.poll() if self._ended else None

    def _exited(self) -> None:
        self._ended = True
        self._loop.remove_reader(self._handle)
        self._changed.set()

    def _read(self, pipe: int) -> bool:
        try:
            data = os.read(pipe, _READ)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(pipe)
            return False
        if pipe == self._out:
            self.output += data[: MOST_OUTPUT + 1 - len(self.output)]
            if len(self.output) > MOST_OUTPUT:
                self._changed.set()
        else:
            self.stderr[:] = (self.stderr + data)[-MOST_STDERR:]
        return True
