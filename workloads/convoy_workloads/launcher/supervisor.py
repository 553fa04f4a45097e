"""The launcher's one loop: what the agent asks, what the ranks do, what the kubelet signals."""
# ruff: noqa: PTH100, PTH109, PTH118, PTH120, PTH123 - links stay unresolved: a venv's interpreter is one

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import shutil
import signal
import socket
import sys
import tempfile
import time
from typing import Any

from convoy_workloads.launcher import command, system
from convoy_workloads.launcher.agent_link import AgentLink
from convoy_workloads.launcher.nursery import Nursery, NurseryError
from convoy_workloads.launcher.oom import OomCounter
from convoy_workloads.launcher.rank import EXITED, Rank
from convoy_workloads.launcher.rank_env import Assignment, parse_assignment, rank_environment
from convoy_workloads.runtime import beat
from convoy_workloads.runtime.errors import OTHER, worst
from convoy_workloads.runtime.frames import Message

REPLACE_SECONDS = 5.0
"""Between SIGTERM and SIGKILL for ranks of an incarnation that has been replaced."""
GRACE_SECONDS = 25.0
"""Between SIGTERM and SIGKILL when the pod is to go; below the kubelet's 30 s. `CONVOY_GRACE_SECONDS`."""
ABORT_SECONDS = 5.0
"""Between the stack trace of a hung rank and SIGKILL."""
KILL_SECONDS = 10.0
"""A rank that SIGKILL has not ended by then waits in the kernel, mostly for a network file system that is
gone. Nothing in this pod can end it."""
LONELY_SECONDS = 60.0
"""How long, after all ranks ended, an agent that is away is waited for. `CONVOY_LONELY_SECONDS`."""
TICK_SECONDS = 0.5
ZYGOTES = 4
"""Zygotes started in this container's life; then ranks start cold."""
ENTRY = "convoy_launch.py"


def say(text: str) -> None:
    """One line of the launcher's own in the container's log."""
    print(f"convoy: {text}", file=sys.stderr, flush=True)


def run() -> int:
    """Runs the launcher until it is told to end; its exit code."""

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
        self._current: Assignment | None = None
        self._wanted: Assignment | None = None
        self._wake = asyncio.Event()
        self._port: socket.socket | None = None
        self._port_incarnation = 0
        self._port_number = 0
        self._nursery: Nursery | None = None
        self._zygotes = 0
        self._oom: OomCounter | None = None
        self._beats = _scratch()
        self._terminating = False
        self._exit: asyncio.Future[int] | None = None

    async def run(self) -> int:
        """Serves until Shutdown, SIGTERM, or an agent that stays away when all is over."""
        loop = asyncio.get_running_loop()
        self._exit = loop.create_future()
        system.become_subreaper()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_terminate)
        self._prewarm("python", "python3")
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
            loop.remove_signal_handler(signal.SIGCHLD)  # the zygote's end may come after the loop's
            if self._nursery is not None:
                self._nursery.stop()
            if self._beats:
                shutil.rmtree(self._beats, ignore_errors=True)

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
        if self._port_incarnation:
            messages.append(self._port_picked())
        return messages + [rank.report() for rank in self._ranks]

    def _on_message(self, message: Message) -> None:
        try:
            if message["type"] == "pickPort":
                self._pick_port(int(message["incarnation"]))
            elif message["type"] == "assignment":
                self._assign(parse_assignment(message))
            elif message["type"] == "shutdown":
                asyncio.get_running_loop().create_task(
                    self._shut_down(int(message["exitCode"]), str(message.get("reason", "")))
                )
        except (KeyError, TypeError, ValueError) as error:
            say(f"a malformed {message['type']} message: {type(error).__name__}: {error}")

    def _assign(self, assignment: Assignment) -> None:
        newest = self._wanted or self._current
        if self._terminating or (newest is not None and assignment.incarnation <= newest.incarnation):
            return
        self._wanted = assignment
        self._wake.set()

    def _pick_port(self, incarnation: int) -> None:
        """Picks and holds a free port, so that nothing else takes it before rank 0 listens."""
        if incarnation > self._port_incarnation:
            self._release_port()
            self._port = system.hold_port()
            self._port_number = self._port.getsockname()[1]
            self._port_incarnation = incarnation
        if incarnation == self._port_incarnation:
            self._link.send(self._port_picked())

    def _port_picked(self) -> Message:
        return {"type": "portPicked", "incarnation": self._port_incarnation, "port": self._port_number}

    def _release_port(self) -> None:
        if self._port is not None:
            self._port.close()
            self._port = None

    async def _shut_down(self, code: int, reason: str) -> None:
        say(f"ends with {code}: {reason}" if reason else f"ends with {code}")
        self._terminating = True
        await self._stop(self._ranks, REPLACE_SECONDS)
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
            await self._stop(self._ranks, REPLACE_SECONDS)
            if self._terminating or assignment is not self._wanted:
                continue
            await self._start(assignment)

    async def _start(self, assignment: Assignment) -> None:
        self._current = assignment
        self._oom = OomCounter()
        if assignment.incarnation == self._port_incarnation:
            self._release_port()
        self._ranks = [
            Rank(assignment.incarnation, rank, self._new_beat(assignment.incarnation, rank))
            for rank in assignment.ranks
        ]
        start = command.parse(assignment.command)
        if start.per_node not in (None, assignment.processes):
            say(
                f"WARNING: torchrun is told to start {start.per_node} processes per node, but "
                f"{assignment.processes} are started: spec.roles[].processesPerReplica decides"
            )
        cpus, interface = system.cpus(), system.interface()
        began = time.monotonic()
        for local_rank, rank in enumerate(self._ranks):
            if self._terminating:
                rank.fail(128 + signal.SIGTERM, "the pod is ending", False)
                continue
            self._link.send(rank.report())
            environment = rank_environment(
                self._environment, assignment, local_rank, cpus, interface, rank.beat, system.library()
            )
            await self._start_rank(rank, start, environment)
            if self._terminating:
                rank.terminate()
            self._link.send(rank.report())
        warm = sum(rank.warm for rank in self._ranks)
        say(
            f"incarnation {assignment.incarnation}: {len(self._ranks)} ranks ({warm} warm) started in "
            f"{time.monotonic() - began:.3f} s"
        )

    async def _start_rank(self, rank: Rank, start: command.Start, environment: dict[str, str]) -> None:
        try:
            executable = command.resolve(start.argv[0], environment.get("PATH", os.defpath))
        except command.CommandError as error:
            say(str(error))
            rank.fail(error.exit_code, str(error), True)
            return
        nursery = self._nursery_for(executable) if start.warm else None
        if nursery is not None:
            request = {
                "kind": start.kind,
                "target": start.target,
                "arguments": list(start.arguments),
                "environment": environment,
                "folder": os.getcwd(),
            }
            try:
                await rank.start_warm(nursery, request, _write)
                return
            except NurseryError as error:
                say(f"rank {rank.rank} starts cold: {error}")
        try:
            rank.start_cold(executable, list(start.argv), environment, _write)
        except OSError as error:
            message = f"{executable} cannot be executed: {error.strerror}"
            say(message)
            rank.fail(126, message, True)

    def _new_beat(self, incarnation: int, rank: int) -> str:
        if not self._beats:
            return ""
        path = os.path.join(self._beats, f"{incarnation}-{rank}")
        with contextlib.suppress(OSError), open(path, "wb"):
            return path
        return ""

    async def _stop(self, ranks: list[Rank], grace: float) -> None:
        """Asks the ranks to leave and, after `grace` seconds, makes them; where that fails, gives up."""
        for rank in ranks:
            if rank.state != EXITED:
                rank.terminate()
        left = await _ends(ranks, grace)
        while left:
            killed = [rank for rank in left if rank.pid]  # the others are about to start: not stuck
            for rank in killed:
                rank.kill()
            left = await _ends(left, KILL_SECONDS)
            stuck = [rank for rank in left if rank in killed]
            if stuck:
                self._give_up(stuck)
                return

    def _give_up(self, ranks: list[Rank]) -> None:
        """Ends the launcher, so that the pod is replaced."""
        names = ", ".join(f"{rank.rank} (process {rank.pid})" for rank in ranks)
        say(
            f"SIGKILL HAS NOT ENDED RANK {names} in {KILL_SECONDS:.0f} s: most likely a volume does not "
            f"answer. The launcher ends with {OTHER}: the pod must be replaced"
        )
        self._terminating = True
        self._finish(OTHER)

    # Zygotes

    def _prewarm(self, *names: str) -> None:
        """Starts a zygote before the first assignment: importing torch takes longer than forming the job."""
        for name in names:
            with contextlib.suppress(command.CommandError):
                self._new_nursery(command.resolve(name, self._environment.get("PATH", os.defpath)))
                return

    def _nursery_for(self, executable: str) -> Nursery | None:
        """A zygote of this interpreter; None when there can be none."""
        if self._nursery is not None and self._nursery.alive and _same(self._nursery.python, executable):
            return self._nursery
        return self._new_nursery(executable)

    def _new_nursery(self, executable: str) -> Nursery | None:
        if self._zygotes >= ZYGOTES or not system.can_fork_warm():
            return None
        if self._nursery is not None:
            self._nursery.stop()
        self._zygotes += 1
        nursery = Nursery(executable, system.entry(), self._on_exit)
        try:
            nursery.start(self._environment, system.library())
        except NurseryError as error:
            say(str(error))
            return None
        self._nursery = nursery
        return nursery

    # Ends

    def _reap(self) -> None:
        """Collects every dead child: cold ranks, the zygote, and whatever was left to PID 1."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._nursery is not None and pid == self._nursery.pid:
                self._nursery.reaped(status)
            else:
                self._on_exit(pid, status)

    def _on_exit(self, pid: int, status: int) -> None:
        for rank in self._ranks:
            if rank.pid == pid and rank.state != EXITED:
                rank.exited(status)
                if rank.signal == signal.SIGKILL and self._oom is not None:
                    rank.oom = self._oom.take() > 0
                say(f"rank {rank.rank} of incarnation {rank.incarnation} ended: {_ending(rank)}")
                self._link.send(rank.report())

    async def _watch(self) -> None:
        """Looks for hung ranks, ranks that vanished with their zygote, and an agent that stays away."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
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
        if not system.alive(rank.pid) and (self._nursery is None or not self._nursery.alive):
            rank.message = "the zygote died and its exit status is lost"
            self._on_exit(rank.pid, 1 << 8)
        elif rank.hung:
            if now - rank.aborted_at > ABORT_SECONDS:
                rank.kill()
            if now - rank.aborted_at > ABORT_SECONDS + KILL_SECONDS and not self._terminating:
                self._give_up([rank])
        elif self._current is not None and rank.beat:
            pulse = beat.read(rank.beat)
            if beat.hung(pulse, now, self._current.hang_seconds):
                rank.hung = True
                rank.aborted_at = now
                rank.message = f"no step for {now - pulse.at:.0f} s after step {pulse.steps}"
                say(f"rank {rank.rank} hangs: {rank.message}")
                rank.abort()

    def _on_terminate(self) -> None:
        if self._terminating:
            return
        self._terminating = True
        asyncio.get_running_loop().create_task(self._terminate())

    async def _terminate(self) -> None:
        """The pod is to go: the ranks may save their state first."""
        say(f"asked to end: the ranks have {self._grace:g} s")
        await self._stop(self._ranks, self._grace)
        codes = [rank.exit_code for rank in self._ranks]
        self._finish(worst(codes) if codes else 128 + signal.SIGTERM)


async def _ends(ranks: list[Rank], seconds: float) -> list[Rank]:
    """Waits for the ranks to end; those that have not after `seconds`."""
    left = [rank for rank in ranks if rank.state != EXITED]
    if left:
        waiting = [asyncio.ensure_future(rank.done.wait()) for rank in left]
        _, pending = await asyncio.wait(waiting, timeout=seconds)
        for one in pending:
            one.cancel()
    return [rank for rank in left if rank.state != EXITED]


def _ending(rank: Rank) -> str:
    words = f"signal {rank.signal}" if rank.signal else f"exit code {rank.exit_code}"
    return words + (", out of memory" if rank.oom else "") + (", hung" if rank.hung else "")


def _same(one: str, other: str) -> bool:
    """Whether two paths run the same interpreter with the same packages.

    `python` and `python3` of one folder do. A venv's link to the system's interpreter has its own packages.
    """
    one, other = os.path.abspath(one), os.path.abspath(other)
    beside = os.path.dirname(one) == os.path.dirname(other)
    return one == other or (beside and os.path.realpath(one) == os.path.realpath(other))


def _write(data: bytes) -> None:
    """To the container's log, whole lines at a time."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(1, view) :]
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            return


def _scratch() -> str:
    """A folder in memory where there is one; empty when nothing is writable, then no rank is judged."""
    for parent in ("/dev/shm", None):  # noqa: S108 - mkdtemp makes a folder of our own there
        with contextlib.suppress(OSError):
            return tempfile.mkdtemp(prefix="convoy-", dir=parent)
    return ""


__all__: list[Any] = ["Supervisor", "run"]
