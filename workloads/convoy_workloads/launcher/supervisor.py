"""The launcher's event loop. It handles messages of the agent, exits of ranks and signals of the kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
import time
from typing import Any

from convoy_workloads.launcher import command, orphans, stopping, system, user_defaults
from convoy_workloads.launcher.agent_link import AgentLink
from convoy_workloads.launcher.heartbeat_files import HeartbeatFiles
from convoy_workloads.launcher.kept_listener import KEPT_SECONDS, KeptListener
from convoy_workloads.launcher.oom import OomDetector
from convoy_workloads.launcher.output import log
from convoy_workloads.launcher.port import RendezvousPort
from convoy_workloads.launcher.probes import ProbeServer
from convoy_workloads.launcher.rank import EXITED, Rank
from convoy_workloads.launcher.rank_env import (
    Assignment,
    Container,
    parse_assignment,
    placement,
    rank_environment,
)
from convoy_workloads.launcher.starting import start_rank
from convoy_workloads.launcher.termination_log import leave_result
from convoy_workloads.launcher.zygote_manager import ZygoteManager
from convoy_workloads.runtime import heartbeat
from convoy_workloads.runtime.errors import OTHER, PREEMPTED, worst
from convoy_workloads.runtime.frames import Message

SHUTDOWN_SECONDS = 5.0
"""Seconds from SIGTERM to SIGKILL when the operator shuts the launcher down."""
GRACE_SECONDS = 25.0
"""Seconds from SIGTERM to SIGKILL if the pod ends, or if a replaced rank saves its state. The value is
below the kubelet's 30 s. `CONVOY_GRACE_SECONDS` overrides it.
"""
ABORT_SECONDS = 5.0
"""Seconds from the abort of a hung rank to SIGKILL. In this time the rank prints its stacks."""
AGENT_WAIT_SECONDS = 60.0
"""Seconds for which the launcher still waits for a connection to the agent after all ranks have ended.
`CONVOY_AGENT_WAIT_SECONDS` overrides it.
"""
ORPHAN_SECONDS = 2.0
"""Seconds to wait for the end of the orphans that the launcher kills when it exits. Only a launcher that is
not PID 1 kills them.
"""
TICK_SECONDS = 0.5


def run() -> int:
    """Run the launcher until the pod must end. Return the launcher's exit code."""

    for line in user_defaults.apply_defaults(os.environ):
        log(line)

    async def main() -> int:
        # Create the Supervisor inside the loop, because asyncio events before Python 3.10 belong to the loop
        # that is current when they are created.
        return await Supervisor().run()

    return asyncio.run(main())


class Supervisor:
    """The state of the launcher. All methods run on the launcher's event loop."""

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._grace = float(self._environment.get("CONVOY_GRACE_SECONDS") or GRACE_SECONDS)
        self._term_delay = float(self._environment.get("CONVOY_TERM_DELAY_SECONDS") or 0)
        self._agent_wait = float(self._environment.get("CONVOY_AGENT_WAIT_SECONDS") or AGENT_WAIT_SECONDS)
        self._link = AgentLink(
            self._environment.get("CONVOY_SOCKET", ""), self._hello_messages, self._on_message
        )
        self._ranks: list[Rank] = []
        self._sessions: set[int] = set()
        """Ids of the first processes of the ranks started so far. Each of these processes leads a session."""
        self._current: Assignment | None = None
        self._requested: Assignment | None = None
        self._wake = asyncio.Event()
        self._port = RendezvousPort()
        self._zygotes = ZygoteManager(self._environment, self._on_exit)
        self._oom = OomDetector()
        self._heartbeats = HeartbeatFiles()
        self._listener = KeptListener()
        self._probes = ProbeServer(self._environment, lambda: self._ranks, lambda: self._terminating)
        self._terminating = False
        self._exit_code_ordered = False
        """True if the operator has sent the exit code with which the launcher must exit."""
        self._immediate = False
        self._exit: asyncio.Future[int] | None = None

    async def run(self) -> int:
        """Run until the agent sends a shutdown message, SIGTERM arrives, or the agent stays disconnected
        after all ranks have ended. Return the exit code.
        """
        loop = asyncio.get_running_loop()
        self._exit = loop.create_future()
        system.become_subreaper()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_terminate)
        if error := await self._probes.start():
            log(error)
            return OTHER
        if self._environment.get("CONVOY_SERVING_PORT"):
            self._listener.start(self._heartbeats.listener_path)
        self._zygotes.prewarm("python", "python3")
        tasks = [
            loop.create_task(job)
            for job in (self._link.run(), self._form_incarnations(), self._check_periodically())
        ]
        try:
            waiting: list[asyncio.Future[Any]] = [self._exit, *tasks]
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # This raises the error of a task that has failed.
            if (code := self._exit.result()) == 0:
                leave_result("".join(rank.result for rank in self._ranks))
            return code
        finally:
            for task in tasks:
                task.cancel()
            for rank in self._ranks:
                rank.kill()
            await self._link.flush()
            if os.getpid() != 1:  # If PID 1 exits, the kernel kills all other processes.
                await orphans.kill_all(self._sessions, log, ORPHAN_SECONDS)
            # The zygote may end after the event loop has closed. So remove the handler, which needs the loop.
            loop.remove_signal_handler(signal.SIGCHLD)
            self._probes.close()
            self._listener.close()
            self._zygotes.stop()
            self._heartbeats.remove()

    # Messages of the agent

    def _hello_messages(self) -> list[Message]:
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
            log(
                f"ignored a malformed {message['type']} message of the agent: {type(error).__name__}: {error}"
            )

    def _assign(self, assignment: Assignment) -> None:
        newest = self._requested or self._current
        if self._terminating or (newest is not None and assignment.incarnation <= newest.incarnation):
            return
        self._requested = assignment
        self._wake.set()

    async def _shut_down(self, code: int, reason: str, immediate: bool) -> None:
        """Stop the ranks and make the launcher exit with `code`. If the ranks are already being stopped
        with a longer grace period, this shortens that period.
        """
        log(f"the operator ends the launcher with exit code {code}" + (f": {reason}" if reason else ""))
        self._terminating = self._exit_code_ordered = True
        self._immediate = self._immediate or immediate
        await self._stop(0.0 if immediate else SHUTDOWN_SECONDS)
        self._set_exit_code(code)

    def _set_exit_code(self, code: int) -> None:
        if self._exit is not None and not self._exit.done():
            self._exit.set_result(code)

    # Start and stop of ranks

    async def _form_incarnations(self) -> None:
        """Start each newly requested incarnation after the previous incarnation has ended."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            assignment = self._requested
            if assignment is None or assignment is self._current:
                continue
            if stuck := await stopping.replace(self._ranks, self._grace):
                self._give_up(stuck)
            if self._ranks:
                await orphans.kill_all(self._sessions, log)
                self._sessions.clear()
            if self._terminating or assignment is not self._requested:
                continue
            await self._start(assignment)

    async def _start(self, assignment: Assignment) -> None:
        self._current = assignment
        self._oom = OomDetector()
        self._port.release(assignment.incarnation)
        self._ranks = [
            Rank(
                assignment.incarnation,
                rank,
                self._heartbeats.create(assignment.incarnation, rank),
                "" if rank else self._heartbeats.result_path(assignment.incarnation),
            )
            for rank in assignment.ranks
        ]
        container = Container(system.cpus(), system.interface(), system.library())
        started_at = time.monotonic()
        for local_rank, rank in enumerate(self._ranks):
            if self._terminating:
                rank.fail(128 + signal.SIGTERM, "the pod is ending", False)
                self._link.send(rank.report())
                continue
            self._link.send(rank.report())
            start = self._parse_command(assignment, local_rank)
            environment = rank_environment(
                self._environment,
                assignment,
                local_rank,
                container,
                rank.heartbeat_path,
                start.launch,
            )
            environment["CONVOY_RESULT"] = rank.result_path
            environment["CONVOY_KEPT_LISTENER"] = self._listener.path
            await start_rank(rank, start.for_rank(local_rank), environment, self._zygotes)
            if self._immediate:
                rank.kill()
            elif self._terminating:
                rank.terminate()
            if rank.pid:
                self._sessions.add(rank.pid)
            self._link.send(rank.report())
        warm = sum(rank.warm for rank in self._ranks)
        log(
            f"incarnation {assignment.incarnation}: {len(self._ranks)} ranks ({warm} warm) started in "
            f"{time.monotonic() - started_at:.3f} s"
        )

    def _parse_command(self, assignment: Assignment, local_rank: int) -> command.Start:
        """Return how to start a rank's command. References to variables in the command are expanded.

        The kubelet expands only the command of the container, which is the launcher's command, so the
        launcher expands the rank's command.
        """
        known = {**self._environment, **placement(assignment, local_rank)}
        words = command.expand(assignment.command, known)
        return command.parse(words, self._environment, assignment.processes)

    async def _stop(self, grace: float) -> None:
        """Stop all ranks. Make the launcher exit if some ranks survive SIGKILL."""
        if stuck := await stopping.stop(self._ranks, grace):
            self._give_up(stuck)

    def _give_up(self, ranks: list[Rank]) -> None:
        """Make the launcher exit, because SIGKILL has not ended `ranks`. The operator then replaces the
        pod.
        """
        names = ", ".join(f"{rank.rank} (process {rank.pid})" for rank in ranks)
        log(
            f"SIGKILL has not ended rank {names} within {stopping.KILL_SECONDS:.0f} s, most likely because a "
            f"volume does not respond. The launcher exits with {OTHER}, so that the pod is replaced"
        )
        self._terminating = True
        self._set_exit_code(OTHER)

    # Exits of ranks

    def _reap(self) -> None:
        """Collect every child that has exited: cold ranks, the zygote, and adopted orphans."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if not self._zygotes.handle_exit(pid, status):
                    self._on_exit(pid, status)
        # Do this once, after all exits were collected, because each call of `end_if_over` reads all of /proc.
        for rank in self._ranks:
            if rank.lingers:
                rank.end_if_over()
                self._report_end(rank)

    def _on_exit(self, pid: int, status: int) -> None:
        for rank in self._ranks:
            if rank.state == EXITED:
                continue
            if rank.pid == pid:
                rank.record_exit(status)
                if left := rank.abandoned_processes():
                    log(
                        f"rank {rank.rank}: the command has ended, so the processes that it left running in "
                        f"the background were killed: {orphans.describe(left)}. Let the command wait for "
                        "them (`wait` in a shell)"
                    )
                if rank.lingers:
                    log(f"rank {rank.rank}: its first process has ended, but its other processes still run")
            else:
                rank.record_member_exit(pid, status)
            self._report_end(rank)

    def _report_end(self, rank: Rank) -> None:
        if rank.state == EXITED:
            rank.oom = self._oom.caused_end(rank, time.monotonic())
            log(f"rank {rank.rank} of incarnation {rank.incarnation} ended: {rank.outcome()}")
            self._link.send(rank.report())
            self._listener.expect_successor(0.0 if self._terminating else KEPT_SECONDS)

    async def _check_periodically(self) -> None:
        """At every tick, abort ranks that hang, and end ranks whose zygote has died. If all ranks have
        ended and the agent stays disconnected, make the launcher exit.
        """
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic()
            self._oom.poll(now)
            for rank in self._ranks:
                if rank.state != EXITED and rank.pid:
                    self._check_rank(rank, now)
            over = bool(self._ranks) and all(rank.state == EXITED for rank in self._ranks)
            if over and not self._link.connected and not self._terminating:
                since = max(self._link.lost_at, self._ended_at())
                if now - since > self._agent_wait:
                    log(
                        f"all ranks have ended and the agent has been disconnected for "
                        f"{self._agent_wait:.0f} s, so the launcher exits"
                    )
                    self._set_exit_code(worst([rank.exit_code for rank in self._ranks]))

    def _ended_at(self) -> float:
        return max((rank.ended_at for rank in self._ranks), default=0.0)

    def _check_rank(self, rank: Rank, now: float) -> None:
        if rank.lingers:
            rank.end_if_over(tick=True)
            self._report_end(rank)
        elif not system.alive(rank.pid) and not self._zygotes.alive:
            rank.message = "the zygote died, so the rank's exit status is unknown"
            self._on_exit(rank.pid, 1 << 8)
        elif rank.hung:
            if now - rank.aborted_at > ABORT_SECONDS:
                rank.kill()
            if now - rank.aborted_at > ABORT_SECONDS + stopping.KILL_SECONDS and not self._terminating:
                self._give_up([rank])
        elif self._current is not None and rank.heartbeat_path:
            latest = heartbeat.read(rank.heartbeat_path)
            if rank.abort_if_hung(latest, now, self._current.hang_seconds):
                log(f"rank {rank.rank} hangs: {rank.message}")
            elif rank.record_finish(latest):
                self._link.send(rank.report())

    def _on_terminate(self) -> None:
        if self._terminating:
            return
        self._terminating = True
        asyncio.get_running_loop().create_task(self._terminate())

    async def _terminate(self) -> None:
        """Stop the ranks because the pod ends. The ranks may save their state before they end."""
        grace = self._grace
        if self._term_delay:
            log(f"SIGTERM: the ranks serve for another {self._term_delay:g} s, until all proxies know")
            await stopping.wait_for(self._ranks, self._term_delay)
            grace = max(1.0, grace - self._term_delay)
        log(f"SIGTERM: the ranks get {grace:g} s to save their state")
        await self._stop(grace)
        codes = [rank.exit_code for rank in self._ranks]
        if not self._exit_code_ordered:
            self._set_exit_code(self._stopped_exit_code(codes))

    def _stopped_exit_code(self, codes: list[int]) -> int:
        """Return the launcher's exit code after SIGTERM. The code is not 0 if any rank got SIGTERM while it
        was running, because its work is not complete. A rank that served has no work left after its drain.
        """
        if not codes:
            return 128 + signal.SIGTERM
        interrupted = any(rank.termination_requested and not rank.drained for rank in self._ranks)
        return worst(codes) or (PREEMPTED if interrupted else 0)
