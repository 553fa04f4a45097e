"""The pods of Independent roles in a local run. Each runs its program beside the process group, and restarts
it within its own budget.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Mapping

from convoy_crds import terms
from convoy_crds.engine import Engine
from convoy_crds.layout import Slot, command, independent_slots, slots
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_independent import Budget
from convoy_workloads.local.environment import GRACE_SECONDS, pod_environment
from convoy_workloads.local.folders import Folders
from convoy_workloads.local.pod import Pod
from convoy_workloads.runtime.frames import Message

FORM_SECONDS = 30.0
"""Seconds within which a launcher must connect, and must pick its port."""
MAX_PAUSE_SECONDS = 60.0
"""Maximum back-off before a restart, in seconds."""


class Independents:
    """All pods of the job's Independent roles."""

    def __init__(
        self,
        job: TrainingJob,
        engine: Engine | None,
        folders: Folders,
        environment: Mapping[str, str],
        write_line: Callable[[str], None],
    ) -> None:
        """Create the pods without starting them. Raises ValueError if a role has no command."""
        self._job = job
        self._file = folders.scratch / terms.MEMBERS_FILE
        self._pods = [
            _IndependentPod(job, slot, command(job, engine, slot), folders, write_line)
            for slot in independent_slots(job)
        ]
        self._environments = {
            pod.slot.pod: self._environment(pod.slot, folders, environment) for pod in self._pods
        }
        self._lives: list[asyncio.Task[None]] = []

    def group_formed(self, incarnation: int) -> None:
        """Report an incarnation of the process group to the pods. The first one starts them."""
        members = [
            {
                "role": slot.role,
                "replica": slot.replica,
                "rank": slot.rank_offset,
                "processes": slot.processes,
                "address": "127.0.0.1",
            }
            for slot in slots(self._job)
        ]
        fresh = self._file.with_name(self._file.name + ".new")
        fresh.write_text(json.dumps({"incarnation": incarnation, "members": members}) + "\n")
        fresh.rename(self._file)
        if not self._lives:
            self._lives = [
                asyncio.create_task(pod.live(self._environments[pod.slot.pod])) for pod in self._pods
            ]

    async def drain(self) -> None:
        """End all programs. They get SIGTERM and the grace period."""
        for life in self._lives:
            life.cancel()
        await asyncio.gather(*(pod.drain() for pod in self._pods))

    async def close(self) -> None:
        """Kill what still runs."""
        for life in self._lives:
            life.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)
        await asyncio.gather(*(pod.close() for pod in self._pods))

    def _environment(self, slot: Slot, folders: Folders, base: Mapping[str, str]) -> dict[str, str]:
        role = next(one for one in self._job.spec.roles if one.name == slot.role)
        own = folders.scratch / slot.pod
        own.mkdir()
        return {
            **pod_environment(self._job, slot.role, base, own),
            terms.ENV_MEMBERS_FILE: str(self._file),
            terms.ENV_ROLE_REPLICAS: str(role.replicas),
        }


class _IndependentPod:
    """One pod of an Independent role."""

    def __init__(
        self,
        job: TrainingJob,
        slot: Slot,
        words: tuple[str, ...],
        folders: Folders,
        write_line: Callable[[str], None],
    ) -> None:
        role = next(one for one in job.spec.roles if one.name == slot.role)
        self.slot = slot
        self._job = job
        self._budget = role.budget or Budget()
        self._folder = folders.start
        self._write_line = write_line
        self._pod = Pod(slot, words, folders.scratch, self._on_message, self._on_line, folders.lock)
        self._incarnation = 0
        self._port: asyncio.Future[int] | None = None
        self._exit: asyncio.Future[int] | None = None

    async def live(self, environment: Mapping[str, str]) -> None:
        """Run the program until it exits with code 0 or its budget is spent."""
        failures = 0
        try:
            await self._pod.start(environment, self._folder)
            async with asyncio.timeout(FORM_SECONDS):
                await self._pod.connected.wait()
            while code := await self._run_program():
                failures += 1
                if failures > self._budget.max_restarts:
                    self._write_line(f"{self.slot.pod} is given up: exit code {code}, its budget is spent")
                    break
                pause = min(2.0 ** min(failures - 2, 10), MAX_PAUSE_SECONDS) if failures > 1 else 0.0
                self._write_line(f"{self.slot.pod} ended with exit code {code}: it restarts in {pause:g} s")
                await asyncio.sleep(pause)
            self._pod.send({"type": "shutdown", "exitCode": 0, "reason": "the program has ended"})
        except TimeoutError:
            self._write_line(f"{self.slot.pod}: its launcher did not respond within {FORM_SECONDS:.0f} s")

    async def drain(self) -> None:
        """Send SIGTERM to the launcher, and wait for its end for the grace period."""
        self._pod.signal(signal.SIGTERM)
        await self._pod.wait(GRACE_SECONDS + 5)

    async def close(self) -> None:
        """Kill the launcher if it still runs."""
        await self._pod.close()

    async def _run_program(self) -> int:
        """Start the program, wait for its end and return its exit code."""
        loop = asyncio.get_running_loop()
        self._incarnation += 1
        self._port, self._exit = loop.create_future(), loop.create_future()
        self._pod.send({"type": "pickPort", "incarnation": self._incarnation})
        async with asyncio.timeout(FORM_SECONDS):
            port = await self._port
        metadata = self._job.metadata
        self._pod.send(
            {
                "type": "assignment",
                "incarnation": self._incarnation,
                "slot": 0,
                "rankOffset": 0,
                "processes": 1,
                "worldSize": 1,
                "masterAddr": "127.0.0.1",
                "masterPort": port,
                "hangSeconds": self._job.spec.recovery.hang_seconds,
                "command": list(self._pod.command),
                "slots": 1,
                "role": self.slot.role,
                "replica": self.slot.replica,
                "job": f"{metadata.namespace or 'default'}/{metadata.name}",
            }
        )
        return await self._exit

    def _on_message(self, pod: Pod, rank: int | None, message: Message) -> None:
        if message.get("incarnation") != self._incarnation:
            return
        if message["type"] == "portPicked" and self._port is not None and not self._port.done():
            self._port.set_result(int(message["port"]))
        ended = message["type"] == "rank" and message["state"] == "EXITED"
        if ended and self._exit is not None and not self._exit.done():
            self._exit.set_result(int(message["exitCode"]))

    def _on_line(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\n")
        self._write_line(f"{self.slot.pod} {text}")
