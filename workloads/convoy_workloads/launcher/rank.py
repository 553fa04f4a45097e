"""One rank: its processes, its output, its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any

from convoy_workloads.launcher import proc, stacks
from convoy_workloads.launcher.drain import Drain
from convoy_workloads.launcher.nursery import Nursery
from convoy_workloads.launcher.output import TAIL
from convoy_workloads.launcher.process_group import ProcessGroup
from convoy_workloads.launcher.streams import Streams
from convoy_workloads.runtime import beat as beats
from convoy_workloads.runtime.beat import Pulse

STARTING = "STARTING"
RUNNING = "RUNNING"
EXITED = "EXITED"


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
        self._finished_ms = 0
        self._first_over = False
        self.asked = False
        """True once it was told to leave before its first process had ended."""
        self._left: ProcessGroup | Drain | None = None
        """Its processes since it was asked to leave, or what it has left since it ended unasked."""
        self._streams = Streams(incarnation, rank, stacks.DUMP_BYTES)
        self._process: subprocess.Popen[bytes] | None = None

    async def start_warm(
        self, nursery: Nursery, request: Mapping[str, Any], write: Callable[[bytes], None]
    ) -> None:
        """Forks it from the zygote; NurseryError when that cannot be done."""
        ends = self._streams.open(write)
        try:
            await nursery.fork(request, ends[0], ends[1], self._started_warm)
        except BaseException:
            self._streams.close()
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
        ends = self._streams.open(write)
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
            self._streams.close()
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
        """Records the end of its first process.

        The rank is over with it, and what it has left running is killed. A rank that was asked to leave is
        over when its other processes are: a program behind a shell still saves its state.
        """
        self._first_over = True
        if self._process is not None:
            self._process.returncode = status  # keeps Popen from waiting for a process that is gone
        if self.killed:
            self._signal(signal.SIGKILL, group=True)
            self._end(status)
            return
        if isinstance(self._left, ProcessGroup) and not self.hung:
            self._left.ended(self.pid, status)
            self._left.request_rest()
        else:
            self._left = Drain(self.pid, status)
        self.settle()

    def member_ended(self, pid: int, status: int) -> None:
        """Records the end of any other process that the launcher has collected. `settle` judges by it."""
        if self._left is not None:
            self._left.ended(pid, status)

    def settle(self, tick: bool = False) -> None:
        """Ends the rank if its first process is over and nothing is left that it has to wait for.

        `tick`: some time has passed since the call before.
        """
        if self._left is None or not self.lingers:
            return
        if self._left.over():
            self._end(self._left.status())
        elif tick:
            self._left.tick()

    def abandoned(self) -> dict[int, bytes]:
        """Return the command lines of what a command that ended well has left running, by process id.

        That was killed. A warm rank is the program itself, whose helpers end shortly after it.
        """
        left = self._left
        if not isinstance(left, Drain) or left.status() or self.warm or self.hung:
            return {}
        return left.killed

    @property
    def lingers(self) -> bool:
        """True if its first process has ended and something is left that it waits for."""
        return self._first_over and self.state != EXITED

    def _end(self, status: int) -> None:
        self._streams.close()
        if os.WIFSIGNALED(status):
            self.signal = os.WTERMSIG(status)
            self.exit_code = 128 + self.signal
        else:
            self.exit_code = os.WEXITSTATUS(status)
        if self.hung and self.exit_code in (0, 128 + signal.SIGABRT):
            # A shell around the program has made an exit code of the signal, or has gone on behind it.
            self.signal, self.exit_code = signal.SIGABRT, 128 + signal.SIGABRT
        if self.hung and (line := stacks.main_line(self._streams.tail.text())):
            self.message += f"; {line}"
        self._last = beats.read(self.beat)
        self._finished_ms = self._last.finished_ms
        self._ended()

    def _ended(self) -> None:
        self.state = EXITED
        self.ended_at = time.monotonic()
        self._ended_ms = _now_ms()
        self.done.set()

    def terminate(self) -> None:
        """Asks it to leave, once: a program may take a second request as one to end at once.

        Of a cold command all processes are asked: a shell does not pass signals on.
        """
        if not self.pid or self.asked or self._first_over:
            return
        self.asked = True
        self._left = group = ProcessGroup(self.pid, alone=self.warm)
        group.request()

    def judge(self, pulse: Pulse, now: float, hang_seconds: float) -> bool:
        """Aborts it if it hangs by this pulse; whether it does. One that leaves has its grace instead."""
        if self.asked or not beats.hung(pulse, now, hang_seconds):
            return False
        self.hung = True
        self.aborted_at = now
        seconds = f"{now - pulse.at:.0f} s"
        finished = pulse.state == beats.FINISHED
        self.message = (
            f"has not ended {seconds} after its last step, {pulse.step}"
            if finished
            else f"no step for {seconds} after step {pulse.step}"
        )
        self.abort(pulse.pid)
        return True

    def note_finish(self, pulse: Pulse) -> bool:
        """Records when its main program was over; whether that is news."""
        news = self._finished_ms != pulse.finished_ms
        self._finished_ms = pulse.finished_ms
        return news

    def abort(self, program: int = 0) -> None:
        """Makes it print the stack of every thread and die.

        `program`: the process that makes the steps, where a shell or another wrapper is the first one.
        """
        if program != self.pid and program in proc.descendants(proc.scan(), self.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(program, signal.SIGABRT)
            return
        self._signal(signal.SIGABRT, group=False)

    def kill(self) -> None:
        """Kills it and every process it started in its session."""
        if self.state == EXITED:
            return
        self.killed = True
        if self._left is not None:
            self._left.kill()
        if self._first_over:
            return
        self._signal(signal.SIGKILL, group=True)
        self._signal(signal.SIGKILL, group=False)  # just forked, it may not lead its session yet

    def ending(self) -> str:
        """How it ended, in words for the log."""
        words = f"signal {self.signal}" if self.signal else f"exit code {self.exit_code}"
        return words + (", out of memory" if self.oom else "") + (", hung" if self.hung else "")

    def stderr(self) -> str:
        """Return what the launcher knows and the end of what it printed to stderr, at most `TAIL` bytes.

        Of a stack dump the main thread's stack, from its innermost call on.
        """
        head = self.message.encode()[: TAIL // 2].decode(errors="ignore")
        room = max(0, TAIL - len(head.encode()) - 1)
        block = "\n".join(stacks.main_block(self._streams.tail.text())) if self.hung else ""
        rest = block.encode()[:room] if block else self._streams.tail.text(room).encode()
        return "\n".join(part for part in (head, rest.decode(errors="ignore")) if part)

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
            "finishedMs": self._finished_ms,
            "asked": self.asked,
        }

    def _signal(self, number: int, group: bool) -> None:
        if not self.pid:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)


def _now_ms() -> int:
    return int(time.time() * 1000)
