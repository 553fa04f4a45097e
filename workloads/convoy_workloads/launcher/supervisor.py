"""The launcher's one loop: what the agent asks, what the ranks do, what the kubelet signals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
import time
from typing import Any

from convoy_workloads.launcher import command, home, leftovers, stopping, system
from convoy_workloads.launcher.agent_link import AgentLink
from convoy_workloads.launcher.beats import Beats
from convoy_workloads.launcher.oom import OomWatch
from convoy_workloads.launcher.output import say
from convoy_workloads.launcher.port import RendezvousPort
from convoy_workloads.launcher.rank import EXITED, Rank
from convoy_workloads.launcher.rank_env import (
    Assignment,
    Container,
    parse_assignment,
    placement,
    rank_environment,
)
from convoy_workloads.launcher.starting import start_rank
from convoy_workloads.launcher.zygotes import Zygotes
from convoy_workloads.runtime import heartbeat
from convoy_workloads.runtime.errors import OTHER, PREEMPTED, worst
from convoy_workloads.runtime.frames import Message

SHUTDOWN_SECONDS = 5.0
"""Between SIGTERM and SIGKILL when the operator ends the launcher."""
GRACE_SECONDS = 25.0
"""Between SIGTERM and SIGKILL when the pod is to go, and for ranks that save their state when they are
replaced; below the kubelet's 30 s. `CONVOY_GRACE_SECONDS`."""
ABORT_SECONDS = 5.0
"""Between the stack trace of a hung rank and SIGKILL."""
LONELY_SECONDS = 60.0
"""How long, after all ranks ended, an agent that is away is waited for. `CONVOY_LONELY_SECONDS`."""
LEAVE_SECONDS = 2.0
"""For the ends of what the ranks have left running, when the launcher ends and is not PID 1."""
TICK_SECONDS = 0.5


def run() -> int:
    """Runs the launcher until it is told to end; its exit code."""

    for line in home.settle(os.environ):
        say(line)

    async def main() -> int:
        return (
            await Supervisor().run()
        )  # made on the loop: before Python 3.10 its events bind to the current one

    return asyncio.run(main())


class Supervisor:
    """All state of the launcher; everything happens on its event loop."""

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._grace = float(self._environment.get("CONVOY_GRACE_SECONDS") or GRACE_SECONDS)
        self._lonely = float(self._environment.get("CONVOY_LONELY_SECONDS") or LONELY_SECONDS)
        self._link = AgentLink(self._environment.get("CONVOY_SOCKET", ""), self._greeting, self._on_message)
        self._ranks: list[Rank] = []
        self._sessions: set[int] = set()
        """First processes of all ranks so far; each leads a session."""
        self._current: Assignment | None = None
        self._wanted: Assignment | None = None
        self._wake = asyncio.Event()
        self._port = RendezvousPort()
        self._zygotes = Zygotes(self._environment, self._on_exit)
        self._oom = OomWatch()
        self._beats = Beats()
        self._terminating = False
        self._ordered = False
        """Whether the exit code is the operator's to say."""
        self._immediate = False
        self._exit: asyncio.Future[int] | None = None

    async def run(self) -> int:
        """Serves until Shutdown, SIGTERM, or an agent that stays away when all is over."""
        loop = asyncio.get_running_loop()
        self._exit = loop.create_future()
        system.become_subreaper()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_terminate)
        self._zygotes.prewarm("python", "python3")
        tasks = [loop.create_task(job) for job in (self._link.run(), self._form(), self._watch())]
        try:
            waiting: list[asyncio.Future[Any]] = [self._exit, *tasks]
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a defect of a task ends the launcher loudly
            return self._exit.result()
        finally:
            for task in tasks:
                task.cancel()
            for rank in self._ranks:
                rank.kill()
            await self._link.flush()
            if os.getpid() != 1:  # with PID 1 the kernel ends all others
                await leftovers.clear(self._sessions, say, LEAVE_SECONDS)
            loop.remove_signal_handler(signal.SIGCHLD)  # the zygote's end may come after the loop's
            self._zygotes.stop()
            self._beats.remove()

    # What the agent says

    def _greeting(self) -> list[Message]:
        incarnation = self._current.incarnation if self._current else 0
        messages: list[Message] = [
            {
                "type": "hello",
                "role": "launcher",
                "incarnation": incarnation,
                "pid": os.getpid(),
                "python": platform.python_version(),
            }
        ]
        if self._port.picked:
            messages.append(self._port.message())
        return messages + [rank.report() for rank in self._ranks]

    def _on_message(self, message: Message) -> None:
        try:
            if message["type"] == "pickPort":
                if self._port.pick(int(message["incarnation"])):
                    self._link.send(self._port.message())
            elif message["type"] == "assignment":
                self._assign(parse_assignment(message))
            elif message["type"] == "shutdown":
                code, reason = int(message["exitCode"]), str(message.get("reason", ""))
                immediate = bool(message.get("immediate"))
                asyncio.get_running_loop().create_task(self._shut_down(code, reason, immediate))
        except (KeyError, TypeError, ValueError) as error:
            say(f"a malformed {message['type']} message: {type(error).__name__}: {error}")

    def _assign(self, assignment: Assignment) -> None:
        newest = self._wanted or self._current
        if self._terminating or (newest is not None and assignment.incarnation <= newest.incarnation):
            return
        self._wanted = assignment
        self._wake.set()

    async def _shut_down(self, code: int, reason: str, immediate: bool) -> None:
        """Also in the midst of an end that leaves more time: the ranks have what is shorter."""
        say(f"ends with {code}: {reason}" if reason else f"ends with {code}")
        self._terminating = self._ordered = True
        self._immediate = self._immediate or immediate
        await self._stop(0.0 if immediate else SHUTDOWN_SECONDS)
        self._finish(code)

    def _finish(self, code: int) -> None:
        if self._exit is not None and not self._exit.done():
            self._exit.set_result(code)

    # Ranks

    async def _form(self) -> None:
        """Brings up the newest incarnation asked for, after the one before is gone."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            assignment = self._wanted
            if assignment is None or assignment is self._current:
                continue
            if stuck := await stopping.replace(self._ranks, self._grace):
                self._give_up(stuck)
            if self._ranks:
                await leftovers.clear(self._sessions, say)
                self._sessions.clear()
            if self._terminating or assignment is not self._wanted:
                continue
            await self._start(assignment)

    async def _start(self, assignment: Assignment) -> None:
        self._current = assignment
        self._oom = OomWatch()
        self._port.release(assignment.incarnation)
        self._ranks = [
            Rank(assignment.incarnation, rank, self._beats.new(assignment.incarnation, rank))
            for rank in assignment.ranks
        ]
        container = Container(system.cpus(), system.interface(), system.library())
        began = time.monotonic()
        for local_rank, rank in enumerate(self._ranks):
            if self._terminating:
                rank.fail(128 + signal.SIGTERM, "the pod is ending", False)
                self._link.send(rank.report())
                continue
            self._link.send(rank.report())
            start = self._parsed(assignment, local_rank)
            environment = rank_environment(
                self._environment,
                assignment,
                local_rank,
                container,
                rank.beat,
                start.launch,
            )
            await start_rank(rank, start.of(local_rank), environment, self._zygotes)
            if self._immediate:
                rank.kill()
            elif self._terminating:
                rank.terminate()
            if rank.pid:
                self._sessions.add(rank.pid)
            self._link.send(rank.report())
        warm = sum(rank.warm for rank in self._ranks)
        say(
            f"incarnation {assignment.incarnation}: {len(self._ranks)} ranks ({warm} warm) started in "
            f"{time.monotonic() - began:.3f} s"
        )

    def _parsed(self, assignment: Assignment, local_rank: int) -> command.Start:
        """How a rank's command is started.

        The kubelet expands the container's own command only, and that is the launcher's.
        """
        known = {**self._environment, **placement(assignment, local_rank)}
        words = command.expand(assignment.command, known)
        return command.parse(words, self._environment, assignment.processes)

    async def _stop(self, grace: float) -> None:
        """Stops all ranks; gives up where that fails."""
        if stuck := await stopping.stop(self._ranks, grace):
            self._give_up(stuck)

    def _give_up(self, ranks: list[Rank]) -> None:
        """Ends the launcher, so that the pod is replaced."""
        names = ", ".join(f"{rank.rank} (process {rank.pid})" for rank in ranks)
        say(
            f"SIGKILL HAS NOT ENDED RANK {names} in {stopping.KILL_SECONDS:.0f} s: most likely a volume does "
            f"not answer. The launcher ends with {OTHER}: the pod must be replaced"
        )
        self._terminating = True
        self._finish(OTHER)

    # Ends

    def _reap(self) -> None:
        """Collects every dead child: cold ranks, the zygote, and whatever was left to PID 1."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if not self._zygotes.reaped(pid, status):
                    self._on_exit(pid, status)
        for rank in self._ranks:  # once for all that have ended, since each reads all of /proc
            if rank.lingers:
                rank.settle()
                self._report_end(rank)

    def _on_exit(self, pid: int, status: int) -> None:
        for rank in self._ranks:
            if rank.state == EXITED:
                continue
            if rank.pid == pid:
                rank.exited(status)
                if left := rank.abandoned():
                    say(
                        f"rank {rank.rank}: the command has ended, and with it what it left running in the "
                        f"background: {leftovers.describe(left)}. It has to wait for that (`wait` in a shell)"
                    )
                if rank.lingers:
                    say(f"rank {rank.rank}: its first process has ended, others go on")
            else:
                rank.member_ended(pid, status)
            self._report_end(rank)

    def _report_end(self, rank: Rank) -> None:
        if rank.state == EXITED:
            rank.oom = self._oom.ended(rank, time.monotonic())
            say(f"rank {rank.rank} of incarnation {rank.incarnation} ended: {rank.ending()}")
            self._link.send(rank.report())

    async def _watch(self) -> None:
        """Looks for hung ranks, ranks that vanished with their zygote, and an agent that stays away."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            self._oom.look(now)
            for rank in self._ranks:
                if rank.state != EXITED and rank.pid:
                    self._look_at(rank, now)
            over = bool(self._ranks) and all(rank.state == EXITED for rank in self._ranks)
            if over and not self._link.connected and not self._terminating:
                since = max(self._link.lost_at, self._ended_at())
                if now - since > self._lonely:
                    say(f"all ranks ended and the agent is away since {self._lonely:.0f} s")
                    self._finish(worst([rank.exit_code for rank in self._ranks]))

    def _ended_at(self) -> float:
        return max((rank.ended_at for rank in self._ranks), default=0.0)

    def _look_at(self, rank: Rank, now: float) -> None:
        if rank.lingers:
            rank.settle(tick=True)
            self._report_end(rank)
        elif not system.alive(rank.pid) and not self._zygotes.alive:
            rank.message = "the zygote died and its exit status is lost"
            self._on_exit(rank.pid, 1 << 8)
        elif rank.hung:
            if now - rank.aborted_at > ABORT_SECONDS:
                rank.kill()
            if now - rank.aborted_at > ABORT_SECONDS + stopping.KILL_SECONDS and not self._terminating:
                self._give_up([rank])
        elif self._current is not None and rank.beat:
            pulse = heartbeat.read(rank.beat)
            if rank.judge(pulse, now, self._current.hang_seconds):
                say(f"rank {rank.rank} hangs: {rank.message}")
            elif rank.note_finish(pulse):
                self._link.send(rank.report())

    def _on_terminate(self) -> None:
        if self._terminating:
            return
        self._terminating = True
        asyncio.get_running_loop().create_task(self._terminate())

    async def _terminate(self) -> None:
        """The pod is to go: the ranks may save their state first."""
        say(f"asked to end: the ranks have {self._grace:g} s")
        await self._stop(self._grace)
        codes = [rank.exit_code for rank in self._ranks]
        if not self._ordered:
            self._finish(self._code_of_stopped(codes))

    def _code_of_stopped(self, codes: list[int]) -> int:
        """The launcher's exit code when its container is stopped: a rank that had to end is no success."""
        if not codes:
            return 128 + signal.SIGTERM
        return worst(codes) or (PREEMPTED if any(rank.asked for rank in self._ranks) else 0)
