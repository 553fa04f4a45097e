"""Runs a TrainingJob here and now: forms it, restarts it within its budget, shows how it learns."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from convoy_crds.engine import Engine
from convoy_crds.layout import command, slots, world_size
from convoy_crds.params import params_error
from convoy_crds.trainingjob import ALL_ROLES_COMPLETE, TrainingJob
from convoy_workloads.local.budget import Budget
from convoy_workloads.local.environment import GRACE_SECONDS, pod_environment
from convoy_workloads.local.pod import Pod
from convoy_workloads.local.screen import Screen
from convoy_workloads.plot import curve
from convoy_workloads.runtime import metrics
from convoy_workloads.runtime.errors import (
    BAD_DATA,
    BAD_PARAMS,
    NOT_EXECUTABLE,
    NOT_FOUND,
    PREEMPTED,
    worst,
)
from convoy_workloads.runtime.folder.storage import InUse, locked, newest_incarnation
from convoy_workloads.runtime.frames import Message

CONNECT_SECONDS = 30.0
FORM_SECONDS = 30.0
SETTLE_SECONDS = 0.5
"""After the first failure: time for the other ranks' ends, so that no victim is taken for the cause."""
SHUTDOWN_SECONDS = 15.0
HOPELESS = frozenset({BAD_PARAMS, BAD_DATA, NOT_FOUND, NOT_EXECUTABLE})
"""Exit codes after which starting again would not help."""


class LocalError(Exception):
    """The manifest cannot run here; the message names the field and what to do."""


def run_local(
    job: TrainingJob,
    engine: Engine | None = None,
    checkpoint_dir: Path | None = None,
    out: TextIO | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> int:
    """Runs `job` as processes of this machine until it ends; the exit code of the job.

    `engine`: the entry that `spec.engine.name` names. `checkpoint_dir`: the job continues from what it finds
    there and leaves its checkpoints there; without it they live as long as this call. One run at a time uses
    it. `out` (default: stdout) gets what the ranks print, how far they are and, at the end, the loss curve.
    `folder` (default: the current one): the ranks' working directory, from which relative paths of their
    command are taken. Ctrl-C and SIGTERM let the ranks save their state; the job then ends with 75.

    LocalError: the manifest cannot be run, or not with this folder. Main thread only, since it takes those
    signals.
    """
    try:
        commands = [command(job, engine, slot) for slot in slots(job)]
    except ValueError as error:
        raise LocalError(str(error)) from error
    if job.spec.engine and engine:
        wrong = params_error(engine.spec.params_schema, job.spec.engine.params)
        if engine.spec.params_schema and wrong:
            raise LocalError(f"{wrong[0]}: {wrong[1]}")
    with tempfile.TemporaryDirectory(prefix="convoy-") as scratch:
        checkpoints = (checkpoint_dir or Path(scratch) / "checkpoints").resolve()
        checkpoints.mkdir(parents=True, exist_ok=True)
        try:
            with locked(checkpoints) as lock:
                places = _Places(Path(scratch), checkpoints, lock, folder or Path.cwd())
                run = _Run(job, engine, commands, places, out or sys.stdout, dict(environment or os.environ))
                code = asyncio.run(run.run())
        except InUse as error:
            raise LocalError(str(error)) from error
    run.summary()
    return code


@dataclass(frozen=True)
class _Places:
    """Folders of a run."""

    scratch: Path
    checkpoints: Path
    lock: int
    """An open file that keeps other runs out of `checkpoints`, also while launchers of this one live on."""
    start: Path
    """The ranks' working directory."""


class _Run:
    """State of one run; a stand-in for operator and agents, deciding as they do, for this machine only."""

    def __init__(
        self,
        job: TrainingJob,
        engine: Engine | None,
        commands: list[tuple[str, ...]],
        places: _Places,
        out: TextIO,
        environment: dict[str, str],
    ) -> None:
        self._job = job
        self._engine = engine if job.spec.engine else None
        self._out = out
        self._screen = Screen(out, self._interrupt)
        self._say = self._screen.say
        self._world = world_size(slots(job))
        self._pods = [
            Pod(slot, command, places.scratch, self._on_message, self._screen.rank_line, places.lock)
            for slot, command in zip(slots(job), commands, strict=True)
        ]
        self._environment = environment
        self._places = places
        # Nobody else counts incarnations here: goes on from those that the folder has seen.
        self._incarnation = newest_incarnation(places.checkpoints)
        self._port: asyncio.Future[int] | None = None
        self._exits: dict[int, Message] = {}
        self._changed = asyncio.Event()
        self._interrupted = False
        self._budget = Budget(job.spec.recovery)
        self._curve: list[tuple[float, float]] = []
        self._undeclared: set[str] = set()
        """Metrics of which the screen has said that the Engine does not declare them."""

    async def run(self) -> int:
        """The job's life; its exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt)
        try:
            for pod in self._pods:
                environment = pod_environment(
                    self._job, pod.slot.role, self._environment, self._places.checkpoints
                )
                await pod.start(environment, self._places.start)
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.gather(*(pod.connected.wait() for pod in self._pods))
            code = await self._live()
            await self._end(code)
            return code
        except TimeoutError:
            self._say("the launchers did not come up in time")
            return 1
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            await asyncio.gather(*(pod.close() for pod in self._pods))

    def summary(self) -> None:
        """The loss curve."""
        drawn = curve(self._curve, title="loss by step")
        if drawn:
            print(drawn, file=self._out, flush=True)

    async def _live(self) -> int:
        """Incarnation after incarnation, until the job is done, lost, or asked to leave."""
        while True:
            await self._form()
            code = await self._wait()
            if code is not None:
                return code
            _, code, step = self._culprit()
            if why := self._budget.spend(time.monotonic(), code, step):
                self._say(why)
                return code or 1

    async def _form(self) -> None:
        self._incarnation += 1
        self._exits.clear()
        self._screen.form()
        self._port = asyncio.get_running_loop().create_future()
        self._pods[0].tell({"type": "pickPort", "incarnation": self._incarnation})
        async with asyncio.timeout(FORM_SECONDS):
            port = await self._port
        self._say(f"incarnation {self._incarnation}: {self._world} ranks")
        for pod in self._pods:
            pod.tell(
                {
                    "type": "assignment",
                    "incarnation": self._incarnation,
                    "slot": pod.slot.index,
                    "rankOffset": pod.slot.rank_offset,
                    "processes": pod.slot.processes,
                    "worldSize": self._world,
                    "masterAddr": "127.0.0.1",
                    "masterPort": port,
                    "hangSeconds": self._job.spec.recovery.hang_seconds,
                    "command": list(pod.command),
                    "slots": len(self._pods),
                    "role": pod.slot.role,
                    "replica": pod.slot.replica,
                    "job": f"{self._job.metadata.namespace or 'default'}/{self._job.metadata.name}",
                }
            )

    async def _wait(self) -> int | None:
        """The job's exit code, or None when the process group has to be formed again."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._interrupted:
                return await self._leave()
            if self._succeeded():
                return 0
            if not any(exit_["exitCode"] for exit_ in self._exits.values()):
                continue
            await asyncio.sleep(SETTLE_SECONDS)
            rank, code, _ = self._culprit()
            self._say(f"rank {rank} ended with {code}")
            if self._interrupted:
                return await self._leave()
            return code if code in HOPELESS else None

    def _culprit(self) -> tuple[int, int, int]:
        """The rank whose end tells most of those that ended: its number, exit code and last step."""
        codes = {rank: int(exit_["exitCode"]) for rank, exit_ in self._exits.items()}
        code = worst(list(codes.values()))
        rank = next(rank for rank, its in codes.items() if its == code)
        return rank, code, int(self._exits[rank].get("step") or 0)

    def _succeeded(self) -> bool:
        success = self._job.spec.success
        deciding = [
            rank
            for pod in self._pods
            if success in (ALL_ROLES_COMPLETE, pod.slot.role)
            for rank in range(pod.slot.rank_offset, pod.slot.rank_offset + pod.slot.processes)
        ]
        return all(rank in self._exits and self._exits[rank]["exitCode"] == 0 for rank in deciding)

    async def _leave(self) -> int:
        self._say("asked to leave: the ranks save their state")
        for pod in self._pods:
            pod.signal(signal.SIGTERM)
        codes = await asyncio.gather(*(pod.wait(GRACE_SECONDS + 5) for pod in self._pods))
        return worst([PREEMPTED if code is None else code for code in codes])

    async def _end(self, code: int) -> None:
        for pod in self._pods:
            pod.tell({"type": "shutdown", "exitCode": code, "reason": "the job is over"})
        await asyncio.gather(*(pod.wait(SHUTDOWN_SECONDS) for pod in self._pods))

    def _interrupt(self) -> None:
        self._interrupted = True
        self._changed.set()

    def _on_message(self, pod: Pod, rank: int | None, message: Message) -> None:
        kind = message["type"]
        if kind == "portPicked" and message["incarnation"] == self._incarnation:
            if self._port is not None and not self._port.done():
                self._port.set_result(int(message["port"]))
        elif kind == "rank" and message["state"] == "EXITED" and message["incarnation"] == self._incarnation:
            self._exits[int(message["rank"])] = message
            self._changed.set()
        elif kind == "progress" and rank == 0:
            self._show(message)
            self._note_undeclared(message.get("metrics", {}))

    def _show(self, message: Mapping[str, Any]) -> None:
        total = message.get("totalSteps")
        words = [f"step {message['step']}" + (f"/{total}" if total else "")]
        if "loss" in message:
            words.append(f"loss {message['loss']:.4f}")
            self._curve = [point for point in self._curve if point[0] < message["step"]]
            self._curve.append((message["step"], message["loss"]))
        if message.get("diverged"):
            words.append("loss nan")
        figures: Mapping[str, Mapping[str, Any]] = message.get("metrics", {})
        words += metrics.words({name: one["value"] for name, one in figures.items()})
        if "samplesPerSecond" in message:
            words.append(f"{message['samplesPerSecond']:.1f} samples/s")
        self._screen.progress("  ".join(words))

    def _note_undeclared(self, figures: Mapping[str, Any]) -> None:
        if self._engine is None:
            return
        fresh = figures.keys() - {one.name for one in self._engine.spec.metrics} - self._undeclared
        if fresh:
            self._undeclared |= fresh
            name = self._engine.metadata.name
            self._say(
                f"a cluster drops metrics that Engine {name} does not declare: {', '.join(sorted(fresh))}"
            )
