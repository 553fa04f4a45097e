"""One rank: its processes, its output and its exit."""

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
from convoy_workloads.launcher.output import TAIL
from convoy_workloads.launcher.output_filters import RemainingFilters
from convoy_workloads.launcher.process_tree import ProcessTree
from convoy_workloads.launcher.streams import Streams
from convoy_workloads.launcher.zygote_client import ZygoteClient
from convoy_workloads.runtime import heartbeat as heartbeats
from convoy_workloads.runtime.heartbeat import Heartbeat
from convoy_workloads.runtime.result import MAX_RESULT_BYTES

STARTING = "STARTING"
RUNNING = "RUNNING"
EXITED = "EXITED"


class Rank:
    """A rank of one incarnation. A rank is started once. The code that collects its exit calls
    `record_exit`.
    """

    def __init__(self, incarnation: int, rank: int, heartbeat_path: str, result_path: str = "") -> None:
        self.incarnation = incarnation
        self.rank = rank
        self.heartbeat_path = heartbeat_path
        """Path of the heartbeat file; empty if the rank has no heartbeat file."""
        self.result_path = result_path
        """Path of the file for the job's result; empty if the rank cannot set the result."""
        self.result = ""
        """The job's result as the program wrote it. Empty unless the rank ended with exit code 0."""
        self.state = STARTING
        self.pid = 0
        self.warm = False
        self.exit_code = 0
        self.signal = 0
        self.oom = False
        self.hung = False
        self.command_not_found = False
        self.message = ""
        """Message in which the launcher itself explains the exit; empty if there is none."""
        self.done = asyncio.Event()
        self.aborted_at = 0.0
        self.ended_at = 0.0
        """Time of the rank's end; 0 before the end. Times are in seconds of the monotonic clock.
        `aborted_at` has the same form.
        """
        self.killed = False
        """True if the launcher has sent SIGKILL."""
        self._started_ms = 0
        self._ended_ms = 0
        self._last_heartbeat = Heartbeat()
        """The last heartbeat, read at the rank's end."""
        self._finished_ms = 0
        self._first_ended = False
        self.termination_requested = False
        """True if SIGTERM was sent before the first process had ended."""
        self._remaining: ProcessTree | RemainingFilters | None = None
        """The rank's processes, if the rank got SIGTERM. If the rank ended without SIGTERM, the output
        filters that still run.
        """
        self._streams = Streams(incarnation, rank, stacks.DUMP_BYTES)
        self._process: subprocess.Popen[bytes] | None = None

    async def start_warm(
        self, zygote: ZygoteClient, request: Mapping[str, Any], write: Callable[[bytes], None]
    ) -> None:
        """Start the rank as a fork of the zygote. Raises ZygoteError if the zygote cannot fork it."""
        ends = self._streams.open(write)
        try:
            await zygote.fork(request, ends[0], ends[1], self._started_warm)
        except BaseException:
            self._streams.close()
            raise
        finally:
            for end in ends:
                os.close(end)

    def _started_warm(self, pid: int) -> None:
        self.pid = pid
        self.warm = True
        self._set_running()

    def start_cold(
        self, executable: str, argv: list[str], environment: Mapping[str, str], write: Callable[[bytes], None]
    ) -> None:
        """Start the rank as a new process in a session of its own. Raises OSError if the kernel cannot
        execute the file `executable`.
        """
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
        self._set_running()

    def _set_running(self) -> None:
        self._started_ms = _now_ms()
        self.state = RUNNING

    def fail(self, exit_code: int, message: str, command_not_found: bool) -> None:
        """Record that the rank could not be started, and why."""
        self.exit_code = exit_code
        self.message = message
        self.command_not_found = command_not_found
        self._set_exited()

    def record_exit(self, status: int) -> None:
        """Record the exit of the rank's first process.

        If the rank got no SIGTERM, this kills the rest of the session and ends the rank when the output
        filters have ended. If the rank got SIGTERM, it ends when all its processes have ended, because a
        program behind a shell may still be saving its state.
        """
        self._first_ended = True
        if self._process is not None:
            # Set this so that Popen does not wait for a process that was already collected.
            self._process.returncode = status
        if self.killed:
            self._signal(signal.SIGKILL, group=True)
            self._finish(status)
            return
        if isinstance(self._remaining, ProcessTree) and not self.hung:
            self._remaining.record_exit(self.pid, status)
            self._remaining.terminate_rest()
        else:
            self._remaining = RemainingFilters(self.pid, status)
        self.end_if_over()

    def record_member_exit(self, pid: int, status: int) -> None:
        """Record the exit of another process that the launcher has collected. The process may belong to
        this rank.
        """
        if self._remaining is not None:
            self._remaining.record_exit(pid, status)

    def end_if_over(self, tick: bool = False) -> None:
        """End the rank if its first process and all processes that it waits for have ended.

        `tick` is True once per tick of the launcher.
        """
        if self._remaining is None or not self.lingers:
            return
        if self._remaining.is_over():
            self._finish(self._remaining.status())
        elif tick:
            self._remaining.tick()

    def abandoned_processes(self) -> dict[int, bytes]:
        """Return the processes that were killed because they still ran after the rank's command had ended
        with status 0. The result has command lines by process id.

        Return an empty dict for a warm rank. A warm rank is the program itself, whose helpers end shortly
        after it.
        """
        left = self._remaining
        if not isinstance(left, RemainingFilters) or left.status() or self.warm or self.hung:
            return {}
        return left.killed

    @property
    def lingers(self) -> bool:
        """Return True if the first process has ended but the rank waits for its other processes."""
        return self._first_ended and self.state != EXITED

    @property
    def drained(self) -> bool:
        """Return True if the rank has ended after it had served and drained."""
        return self._last_heartbeat.state == heartbeats.DRAINING

    def _finish(self, status: int) -> None:
        self._streams.close()
        if os.WIFSIGNALED(status):
            self.signal = os.WTERMSIG(status)
            self.exit_code = 128 + self.signal
        else:
            self.exit_code = os.WEXITSTATUS(status)
        if self.hung and self.exit_code in (0, 128 + signal.SIGABRT):
            # The exit status shows no abort in two cases: a shell around the program has turned the signal
            # into an exit code, or it has continued after the abort. So set the status of an abort here.
            self.signal, self.exit_code = signal.SIGABRT, 128 + signal.SIGABRT
        if self.hung and (line := stacks.main_line(self._streams.tail.text())):
            self.message += f"; {line}"
        self._last_heartbeat = heartbeats.read(self.heartbeat_path)
        self._finished_ms = self._last_heartbeat.finished_ms
        if not self.exit_code:
            self.result = _read_result(self.result_path)
        self._set_exited()

    def _set_exited(self) -> None:
        self.state = EXITED
        self.ended_at = time.monotonic()
        self._ended_ms = _now_ms()
        self.done.set()

    def terminate(self) -> None:
        """Send SIGTERM, but only once, because a program may end at once after a second SIGTERM.

        All processes of a cold rank get SIGTERM, because a shell does not pass signals on.
        """
        if not self.pid or self.termination_requested or self._first_ended:
            return
        self.termination_requested = True
        self._remaining = tree = ProcessTree(self.pid, first_only=self.warm)
        tree.terminate()

    def abort_if_hung(self, heartbeat: Heartbeat, now: float, hang_seconds: float) -> bool:
        """Abort the rank if the heartbeat shows that the rank hangs. Return True if the rank was aborted.

        A rank that got SIGTERM is not aborted, because it has a grace period.
        """
        if self.termination_requested or not heartbeats.hung(heartbeat, now, hang_seconds):
            return False
        self.hung = True
        self.aborted_at = now
        seconds = f"{now - heartbeat.at:.0f} s"
        finished = heartbeat.state == heartbeats.FINISHED
        self.message = (
            f"has not ended {seconds} after its last step, {heartbeat.step}"
            if finished
            else f"no step for {seconds} after step {heartbeat.step}"
        )
        self.abort(heartbeat.pid)
        return True

    def record_finish(self, heartbeat: Heartbeat) -> bool:
        """Record the time at which the main program finished, as the heartbeat reports it. Return True if
        the recorded time has changed.
        """
        news = self._finished_ms != heartbeat.finished_ms
        self._finished_ms = heartbeat.finished_ms
        return news

    def abort(self, program: int = 0) -> None:
        """Send SIGABRT to the program, so that it prints the stack of each thread and ends.

        `program` is the id of the process that makes the steps. It differs from the rank's first process if
        that is a shell or another wrapper.
        """
        if program != self.pid and program in proc.descendants(proc.scan(), self.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(program, signal.SIGABRT)
            return
        self._signal(signal.SIGABRT, group=False)

    def kill(self) -> None:
        """Kill the rank and every process of its session."""
        if self.state == EXITED:
            return
        self.killed = True
        if self._remaining is not None:
            self._remaining.kill()
        if self._first_ended:
            return
        self._signal(signal.SIGKILL, group=True)
        # Signal the process itself too. A rank that was just forked may not have a session of its own yet.
        self._signal(signal.SIGKILL, group=False)

    def outcome(self) -> str:
        """Return a text for the log that says how the rank ended."""
        words = f"signal {self.signal}" if self.signal else f"exit code {self.exit_code}"
        return words + (", out of memory" if self.oom else "") + (", hung" if self.hung else "")

    def stderr(self) -> str:
        """Return the launcher's message and the end of the rank's stderr, together at most `TAIL` bytes.

        If the rank hung, return the main thread's stack from its stack dump instead of the end of stderr.
        The stack starts at the innermost call.
        """
        head = self.message.encode()[: TAIL // 2].decode(errors="ignore")
        room = max(0, TAIL - len(head.encode()) - 1)
        block = "\n".join(stacks.main_block(self._streams.tail.text())) if self.hung else ""
        rest = block.encode()[:room] if block else self._streams.tail.text(room).encode()
        return "\n".join(part for part in (head, rest.decode(errors="ignore")) if part)

    def report(self) -> dict[str, Any]:
        """Return the message of type `rank` that reports the rank's state to the agent."""
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
            "firstStepMs": self._last_heartbeat.first_step_ms,
            "step": self._last_heartbeat.step,
            "stepMs": self._last_heartbeat.step_ms,
            "checkpointMs": self._last_heartbeat.checkpoint_ms,
            "finishedMs": self._finished_ms,
            "terminationRequested": self.termination_requested,
            "result": self.result,
        }

    def _signal(self, number: int, group: bool) -> None:
        if not self.pid:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)


def _read_result(path: str) -> str:
    """Return the content of the result's file; empty if there is none. The operator refuses a result above
    the limit, so at most one byte more is read.
    """
    if not path:
        return ""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - PID 1 keeps its imports few
            return file.read(MAX_RESULT_BYTES + 1).decode(errors="replace")
    except OSError:
        return ""


def _now_ms() -> int:
    return int(time.time() * 1000)
