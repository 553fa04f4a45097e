"""One rank: its process, its output, its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any

from convoy_workloads.launcher.nursery import Nursery
from convoy_workloads.launcher.output import TAIL, LinePrefixer, Tail
from convoy_workloads.runtime import beat as beats
from convoy_workloads.runtime.beat import Pulse

STARTING = "STARTING"
RUNNING = "RUNNING"
EXITED = "EXITED"

_READ = 65536


class Rank:
    """A rank of one incarnation. Started once; whoever collects its exit calls `exited`."""

    def __init__(self, incarnation: int, rank: int, beat: str) -> None:
        self.incarnation = incarnation
        self.rank = rank
        self.beat = beat
        """Path of its pulse."""
        self.state = STARTING
        self.pid = 0
        self.warm = False
        self.exit_code = 0
        self.signal = 0
        self.oom = False
        self.hung = False
        self.command_not_found = False
        self.message = ""
        """What the launcher itself has to say about its end."""
        self.done = asyncio.Event()
        self.aborted_at = 0.0
        self.ended_at = 0.0
        """Seconds of the monotonic clock; 0 before. So for `aborted_at`."""
        self.killed = False
        """Whether the launcher itself has sent it SIGKILL."""
        self._started_ms = 0
        self._ended_ms = 0
        self._last = Pulse()
        """Its pulse as it was when it ended."""
        self._tail = Tail()
        self._streams: dict[int, _Stream] = {}
        self._process: subprocess.Popen[bytes] | None = None

    async def start_warm(
        self, nursery: Nursery, request: Mapping[str, Any], write: Callable[[bytes], None]
    ) -> None:
        """Forks it from the zygote; NurseryError when that cannot be done."""
        ends = self._open_streams(write)
        try:
            await nursery.fork(request, ends[0], ends[1], self._started_warm)
        except BaseException:
            self._close_streams()
            raise
        finally:
            for end in ends:
                os.close(end)

    def _started_warm(self, pid: int) -> None:
        self.pid = pid
        self.warm = True
        self._runs()

    def start_cold(
        self, executable: str, argv: list[str], environment: Mapping[str, str], write: Callable[[bytes], None]
    ) -> None:
        """Executes it in a session of its own; OSError when the kernel refuses."""
        ends = self._open_streams(write)
        try:
            self._process = subprocess.Popen(
                argv,
                executable=executable,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=ends[0],
                stderr=ends[1],
                start_new_session=True,
            )
        except BaseException:
            self._close_streams()
            raise
        finally:
            for end in ends:
                os.close(end)
        self.pid = self._process.pid
        self._runs()

    def _runs(self) -> None:
        self._started_ms = _now_ms()
        self.state = RUNNING

    def fail(self, exit_code: int, message: str, command_not_found: bool) -> None:
        """It never came to run."""
        self.exit_code = exit_code
        self.message = message
        self.command_not_found = command_not_found
        self._ended()

    def exited(self, status: int) -> None:
        """Takes in its wait status and the rest of its output, and ends what it left running."""
        if os.WIFSIGNALED(status):
            self.signal = os.WTERMSIG(status)
            self.exit_code = 128 + self.signal
        else:
            self.exit_code = os.WEXITSTATUS(status)
        if self._process is not None:
            self._process.returncode = status  # keeps Popen from waiting for a process that is gone
        self._signal(signal.SIGKILL, group=True)
        self._close_streams()
        self._last = beats.read(self.beat)
        self._ended()

    def _ended(self) -> None:
        self.state = EXITED
        self.ended_at = time.monotonic()
        self._ended_ms = _now_ms()
        self.done.set()

    def terminate(self) -> None:
        """Asks it to leave. Of a cold command all processes are asked: a shell does not pass signals on."""
        self._signal(signal.SIGTERM, group=not self.warm)

    def abort(self) -> None:
        """Makes it print the stack of every thread and die."""
        self._signal(signal.SIGABRT, group=False)

    def kill(self) -> None:
        """Kills it and every process it started in its session."""
        self.killed = True
        self._signal(signal.SIGKILL, group=True)
        self._signal(signal.SIGKILL, group=False)  # just forked, it may not lead its session yet

    def ending(self) -> str:
        """How it ended, in words for the log."""
        words = f"signal {self.signal}" if self.signal else f"exit code {self.exit_code}"
        return words + (", out of memory" if self.oom else "") + (", hung" if self.hung else "")

    def stderr(self) -> str:
        """What the launcher knows and the end of what it printed to stderr, at most `TAIL` bytes."""
        head = self.message.encode()[: TAIL // 2].decode(errors="ignore")
        room = TAIL - len(head.encode()) - 1
        tail = self._tail.text().encode()[-room:].decode(errors="ignore") if room > 0 else ""
        return "\n".join(part for part in (head, tail) if part)

    def report(self) -> dict[str, Any]:
        """Its `rank` message."""
        ended = self.state == EXITED
        return {
            "type": "rank",
            "incarnation": self.incarnation,
            "rank": self.rank,
            "state": self.state,
            "exitCode": self.exit_code,
            "signal": self.signal,
            "oom": self.oom,
            "hung": self.hung,
            "commandNotFound": self.command_not_found,
            "stderr": self.stderr() if ended and self.exit_code else "",
            "startedMs": self._started_ms,
            "endedMs": self._ended_ms,
            "firstStepMs": self._last.first_step_ms,
            "step": self._last.step,
            "stepMs": self._last.step_ms,
            "checkpointMs": self._last.checkpoint_ms,
        }

    def _signal(self, number: int, group: bool) -> None:
        if not self.pid:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)

    def _open_streams(self, write: Callable[[bytes], None]) -> list[int]:
        """Pipes for stdout and stderr; the rank's ends."""
        ends = []
        for tail in (None, self._tail):
            ours, theirs = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(ours, False)
            self._streams[ours] = _Stream(LinePrefixer(self.incarnation, self.rank), tail, write)
            asyncio.get_running_loop().add_reader(ours, self._read, ours)
            ends.append(theirs)
        return ends

    def _read(self, end: int) -> None:
        try:
            data = os.read(end, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._streams[end].feed(data)
        else:
            self._close_stream(end)

    def _close_streams(self) -> None:
        """Reads what is in the pipes and closes them, whatever grandchild still holds one."""
        for end in list(self._streams):
            for _ in range(64):
                try:
                    data = os.read(end, _READ)
                except OSError:
                    break
                if not data:
                    break
                self._streams[end].feed(data)
            self._close_stream(end)

    def _close_stream(self, end: int) -> None:
        stream = self._streams.pop(end, None)
        if stream is not None:
            asyncio.get_running_loop().remove_reader(end)
            os.close(end)
            stream.end()


def _now_ms() -> int:
    return int(time.time() * 1000)


async def ends(ranks: list[Rank], seconds: float) -> list[Rank]:
    """Waits for the ranks to end; those that have not after `seconds`."""
    left = [rank for rank in ranks if rank.state != EXITED]
    if left:
        waiting = [asyncio.ensure_future(rank.done.wait()) for rank in left]
        _, pending = await asyncio.wait(waiting, timeout=seconds)
        for one in pending:
            one.cancel()
    return [rank for rank in left if rank.state != EXITED]


class _Stream:
    """Output on its way to the container's log."""

    def __init__(self, prefixer: LinePrefixer, tail: Tail | None, write: Callable[[bytes], None]) -> None:
        self._prefixer = prefixer
        self._tail = tail
        self._write = write

    def feed(self, data: bytes) -> None:
        if self._tail is not None:
            self._tail.feed(data)
        lines = self._prefixer.feed(data)
        if lines:
            self._write(lines)

    def end(self) -> None:
        rest = self._prefixer.end()
        if rest:
            self._write(rest)
