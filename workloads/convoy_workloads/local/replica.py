"""A replica of a local run: a group of pods that starts, restarts and drains as one."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from convoy_crds.layout import Slot
from convoy_crds.servingjob import ServingJob, ServingRole
from convoy_crds.trainingjob import Recovery
from convoy_workloads.local.errors import LocalError
from convoy_workloads.local.pod import Pod
from convoy_workloads.local.ports import HOST, free_port
from convoy_workloads.local.restart_budget import RestartBudget
from convoy_workloads.local.screen import Screen
from convoy_workloads.local.serving_environment import LocalFiles, serving_environment
from convoy_workloads.runtime.errors import BAD_DATA, BAD_PARAMS, NOT_EXECUTABLE, NOT_FOUND, worst
from convoy_workloads.runtime.frames import Message
from convoy_workloads.serving.peers import endpoints

CONNECT_SECONDS = 30.0
SETTLE_SECONDS = 0.5
"""Seconds to wait after a rank has failed, so that the exits of its peers are known too."""
POLL_SECONDS = 0.1
BACK_OFF_SECONDS = (0.5, 10.0)
"""First and longest pause before a restart. The pause doubles with each restart."""
NOT_RETRYABLE = frozenset({BAD_PARAMS, BAD_DATA, NOT_FOUND, NOT_EXECUTABLE})
"""Exit codes after which the replica would fail in the same way after a restart."""


@dataclass(frozen=True)
class Machine:
    """The parts of this machine that a local run uses."""

    environment: Mapping[str, str]
    folder: Path
    """Working directory of the ranks."""
    files: LocalFiles


@dataclass(frozen=True)
class ReplicaPlan:
    """The facts that define a replica."""

    job: ServingJob
    role: ServingRole
    number: int
    """Number of the replica within its role, from 0."""
    command: tuple[str, ...]
    port: int
    serves: bool
    """True if clients send their requests to this replica."""
    machine: Machine
    peers: tuple[str, ...] | None = None
    """Addresses of the other replicas; None if the Engine's replicas do not talk to each other."""

    @property
    def name(self) -> str:
        """Return the name of the replica for messages."""
        return f"replica {self.number} of role {self.role.name}"


class Replica:
    """Runs the ranks of one serving replica as local processes, and restarts them."""

    def __init__(self, plan: ReplicaPlan, folder: Path, lock: int, screen: Screen) -> None:
        """`folder`: a new folder for the sockets. `lock`: see Pod."""
        self._plan = plan
        self._folder = folder
        self._screen = screen
        self._incarnation = 0
        self._port: asyncio.Future[int] | None = None
        self._exits: dict[int, int] = {}
        self._changed = asyncio.Event()
        recovery = plan.job.spec.recovery
        self._budget = RestartBudget(
            Recovery(max_restarts=recovery.max_restarts, window_seconds=recovery.window_seconds)
        )
        base = f"{plan.job.metadata.name}-{plan.role.name}-{plan.number}"
        size = plan.role.group_size
        self._pods = [
            Pod(
                Slot(index, plan.role.name, plan.number, f"{base}-{index}", index, 1, index),
                plan.command,
                folder,
                self._on_message,
                screen.rank_line,
                lock,
            )
            for index in range(size)
        ]
        # The port of a launcher must be known before the launcher starts.
        self._probes = [free_port() for _ in range(size)] if plan.role.engine else []

    async def start(self) -> None:
        """Start the launchers. Raises LocalError if they do not start."""
        plan = self._plan
        self._folder.mkdir()
        machine = plan.machine
        for index, pod in enumerate(self._pods):
            ports = (plan.port, self._probes[index] if self._probes else 0)
            environment = serving_environment(plan.job, plan.role, machine.environment, machine.files, ports)
            await pod.start(environment, machine.folder)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.gather(*(pod.connected.wait() for pod in self._pods))
        except TimeoutError as error:
            raise LocalError(
                f"the launchers did not start within {CONNECT_SECONDS:.0f} s; see their output above"
            ) from error

    async def serve(self) -> int:
        """Form the group again and again. Return the exit code when no restart is left."""
        pause = BACK_OFF_SECONDS[0]
        while True:
            await self._form()
            watching = asyncio.ensure_future(self._report_readiness())
            try:
                await self._changed.wait()
            finally:
                watching.cancel()
            await asyncio.sleep(SETTLE_SECONDS)
            code = worst(list(self._exits.values()))
            rank = next(rank for rank, its in self._exits.items() if its == code)
            self._screen.write_line(f"{self._plan.name}: rank {rank} ended with exit code {code}")
            if code in NOT_RETRYABLE:
                return code
            if why := self._budget.record_failure(time.monotonic(), code, 0):
                self._screen.write_line(f"{self._plan.name}: {why}")
                return code or 1
            await asyncio.sleep(pause)
            pause = min(2 * pause, BACK_OFF_SECONDS[1])

    async def end(self, seconds: float) -> int:
        """Let the replica drain within `seconds`. Return its exit code."""
        for pod in self._pods:
            pod.signal(signal.SIGTERM)
        codes = await asyncio.gather(*(pod.wait(seconds) for pod in self._pods))
        return worst([1 if code is None else code for code in codes])

    async def close(self) -> None:
        """Kill the launchers that still run."""
        await asyncio.gather(*(pod.close() for pod in self._pods))

    async def _form(self) -> None:
        self._incarnation += 1
        self._exits.clear()
        self._changed.clear()
        plan = self._plan
        self._port = asyncio.get_running_loop().create_future()
        self._pods[0].send({"type": "pickPort", "incarnation": self._incarnation})
        async with asyncio.timeout(CONNECT_SECONDS):
            port = await self._port
        for pod in self._pods:
            pod.send(
                {
                    "type": "assignment",
                    "incarnation": self._incarnation,
                    "slot": pod.slot.index,
                    "rankOffset": pod.slot.rank_offset,
                    "processes": 1,
                    "worldSize": len(self._pods),
                    "masterAddr": HOST,
                    "masterPort": port,
                    "hangSeconds": plan.job.spec.recovery.hang_seconds,
                    "command": list(pod.command),
                    "slots": len(self._pods),
                    "role": plan.role.name,
                    "replica": plan.number,
                    "job": f"{plan.job.metadata.namespace or 'default'}/{plan.job.metadata.name}",
                }
            )

    async def _report_readiness(self) -> None:
        """Write a line whenever the replica starts or stops being ready."""
        if not self._probes:
            return
        before = False
        while True:
            ready = all(await asyncio.gather(*(is_ready(port) for port in self._probes)))
            if ready and not before and self._plan.serves:
                address = f"http://{HOST}:{self._plan.port}"
                self._screen.write_line(f"{self._plan.name} is ready: {address}")
            elif ready != before:
                self._screen.write_line(f"{self._plan.name} is {'' if ready else 'not '}ready")
            before = ready
            await asyncio.sleep(POLL_SECONDS)

    def _on_message(self, pod: Pod, rank: int | None, message: Message) -> None:
        if message.get("incarnation") != self._incarnation:
            return
        if message["type"] == "portPicked" and self._port is not None and not self._port.done():
            self._port.set_result(int(message["port"]))
        elif message["type"] == "hello" and rank == 0 and self._plan.peers is not None:
            own = f"{HOST}:{self._plan.port}"
            pod.send_to_rank(0, endpoints(self._incarnation, own, self._plan.peers))
        elif message["type"] == "rank" and message["state"] == "EXITED":
            self._exits[int(message["rank"])] = int(message["exitCode"])
            self._changed.set()


async def is_ready(port: int) -> bool:
    """Return True if the launcher with this probe port reports that its ranks are ready."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(b"GET /ready HTTP/1.1\r\nHost: launcher\r\n\r\n")
                return b" 200 " in await reader.readline()
            finally:
                writer.close()
    return False
