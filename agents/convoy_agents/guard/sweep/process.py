"""Child processes with a deadline. A child cannot harm the agent if it hangs, dies, floods its pipes or
survives SIGKILL.
"""

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

MAX_OUTPUT = 256 * 1024
"""Maximum bytes that a child may write to stdout. A child that writes more is killed."""
MAX_STDERR = 2048
"""Number of bytes at the end of a child's stderr that the agent keeps."""
KILL_SECONDS = 2.0
"""Seconds to wait after SIGKILL. A child that is still alive then counts as stuck in the kernel."""
MAX_STUCK = 4
"""Maximum number of stuck children. At the limit no more children are started."""
_READ = 64 * 1024
_PIPE_READS = 2

log = structlog.get_logger()


class Stop(Enum):
    """The reason why the agent killed a child."""

    DEADLINE = auto()
    FLOOD = auto()
    """The child wrote more than MAX_OUTPUT bytes to stdout."""


class TooManyStuckError(Exception):
    """MAX_STUCK children of earlier probes are stuck, so another child would probably get stuck as well."""


@dataclass(frozen=True, slots=True)
class ChildExit:
    """The exit code and the output of a child."""

    code: int | None
    """The exit code; minus the signal's number if a signal killed the child; None if the child survived
    SIGKILL.
    """
    output: bytes
    stderr: str
    """The last MAX_STDERR bytes of stderr, as text."""
    stop: Stop | None = None
    oom: bool = False
    """True if during the run the kernel killed any process of the agent's container because memory ran out.
    """


class Children:
    """Runs children, and remembers those that are stuck in the kernel."""

    def __init__(self) -> None:
        self._stuck: list[subprocess.Popen[bytes]] = []

    @property
    def stuck(self) -> int:
        """Return the number of children that survived SIGKILL and are still alive."""
        self._stuck = [child for child in self._stuck if child.poll() is None]
        return len(self._stuck)

    async def run(self, argv: Sequence[str], env: Mapping[str, str], seconds: float) -> ChildExit:
        """Run a child until it exits or its deadline passes, kill all its processes, and return its exit.
        `seconds` is the time until the deadline. If the task is cancelled, the child is killed first.

        Raises OSError if the child cannot be started, and TooManyStuckError if MAX_STUCK children are
        stuck.
        """
        if self.stuck >= MAX_STUCK:
            raise TooManyStuckError(
                f"{self.stuck} children of earlier probes are stuck in the kernel; reboot the node"
            )
        killed_before = memory.oom_kills()
        with cgroup.Group() as group:
            child = _Child(argv, env, group)
            stop: Stop | None = None
            try:
                stop = await child.wait(seconds)
            finally:
                # Kill the whole group even if the child has exited, because its descendants may still run.
                child.kill()
                try:
                    await child.wait_exit(KILL_SECONDS)
                finally:
                    code = child.close()
                    if code is None:
                        self._stuck.append(child.process)
                        log.error("probe survived SIGKILL", pid=child.process.pid)
        oom = memory.oom_kills() > killed_before
        return ChildExit(code, bytes(child.output), child.stderr.decode(errors="replace"), stop, oom)


class _Child:
    """One child process. Its pipes and its exit are events of the event loop, so it needs no threads."""

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
        """Wait until the child exits, and return None. If the child must be killed instead, return the
        reason.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._ended:
                    if len(self.output) > MAX_OUTPUT:
                        return Stop.FLOOD
                    self._changed.clear()
                    await self._changed.wait()
                return None
        return Stop.DEADLINE

    def kill(self) -> None:
        """Kill the child and its descendants with SIGKILL. This is safe after the child's exit, because its
        pid stays reserved until `close`.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._group.kill()

    async def wait_exit(self, seconds: float) -> None:
        """Wait at most `seconds` until the child exits."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._ended:
                    self._changed.clear()
                    await self._changed.wait()

    def close(self) -> int | None:
        """Read the remaining output, release all resources, and return the exit code; None if the child has
        not exited.
        """
        for pipe in (self._out, self._err):
            # Limit the number of reads, because another process that inherited the pipe may keep writing.
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
            self.output += data[: MAX_OUTPUT + 1 - len(self.output)]
            if len(self.output) > MAX_OUTPUT:
                self._changed.set()
        else:
            self.stderr[:] = (self.stderr + data)[-MAX_STDERR:]
        return True
