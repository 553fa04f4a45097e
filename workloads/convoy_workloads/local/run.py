"""Runs a TrainingJob on this machine. It forms the job, restarts it within its budget and shows its
progress.
"""

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
from convoy_crds.job_result import ResultRefused, parse_result
from convoy_crds.layout import command, independent_slots, slots, world_size
from convoy_crds.params import params_error
from convoy_crds.trainingjob import ALL_ROLES_COMPLETE, TrainingJob
from convoy_workloads.local.environment import GRACE_SECONDS, pod_environment
from convoy_workloads.local.errors import LocalError
from convoy_workloads.local.folders import Folders
from convoy_workloads.local.independents import Independents
from convoy_workloads.local.pod import Pod
from convoy_workloads.local.restart_budget import RestartBudget
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
"""Seconds to wait after a rank has failed. Other ranks that fail for the same reason end in this time. Then
the run chooses the rank whose exit code explains the failure best.
"""
SHUTDOWN_SECONDS = 15.0
NOT_RETRYABLE = frozenset({BAD_PARAMS, BAD_DATA, NOT_FOUND, NOT_EXECUTABLE})
"""Exit codes after which the job would fail in the same way after a restart."""


def run_local(
    job: TrainingJob,
    engine: Engine | None = None,
    checkpoint_dir: Path | None = None,
    out: TextIO | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> LocalEnd:
    """Run `job` as processes of this machine until it ends. Return its exit code and its result.

    - `engine`: the Engine that `spec.engine.name` names.
    - `checkpoint_dir`: folder from which the job restores and in which it saves. Only one run at a time may
      use it. Without it, the job saves to a temporary folder, which is deleted at the end.
    - `out`: file for the ranks' output, the progress and the loss curve at the end; default: stdout.
    - `environment`: variables of the machine; default: those of this process.
    - `folder`: working directory of the ranks; default: the current directory.

    After Ctrl-C or SIGTERM the ranks may save their state, and the job ends with exit code 75. Call this
    function in the main thread, because it handles these two signals.

    Raises LocalError if the manifest cannot run, or if another run uses the checkpoint folder.
    """
    try:
        commands = [command(job, engine, slot) for slot in slots(job)]
        for slot in independent_slots(job):
            command(job, engine, slot)
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
                folders = Folders(Path(scratch), checkpoints, lock, folder or Path.cwd())
                run = _Run(job, engine, commands, folders, out or sys.stdout, dict(environment or os.environ))
                code = asyncio.run(run.run())
        except InUse as error:
            raise LocalError(str(error)) from error
    run.summary()
    return LocalEnd(code, run.result)


@dataclass(frozen=True)
class LocalEnd:
    """The end of a local run."""

    exit_code: int
    result: dict[str, Any] | None = None
    """The result that the program set. None if it set none, or if the job failed."""


class _Run:
    """State of one local run. It makes the decisions that the operator and agents make in a cluster."""

    def __init__(
        self,
        job: TrainingJob,
        engine: Engine | None,
        commands: list[tuple[str, ...]],
        folders: Folders,
        out: TextIO,
        environment: dict[str, str],
    ) -> None:
        self._job = job
        self._engine = engine if job.spec.engine else None
        self._out = out
        self._screen = Screen(out, self._interrupt)
        self._write_line = self._screen.write_line
        self._world = world_size(slots(job))
        self._pods = [
            Pod(slot, command, folders.scratch, self._on_message, self._screen.rank_line, folders.lock)
            for slot, command in zip(slots(job), commands, strict=True)
        ]
        self._environment = environment
        self._folders = folders
        self._independents = Independents(job, self._engine, folders, environment, self._write_line)
        # Continue the numbering of incarnations after the highest number in the checkpoint folder. No other
        # place stores that number.
        self._incarnation = newest_incarnation(folders.checkpoints)
        self._port: asyncio.Future[int] | None = None
        self._exits: dict[int, Message] = {}
        self._changed = asyncio.Event()
        self._interrupted = False
        self._budget = RestartBudget(job.spec.recovery)
        self._curve: list[tuple[float, float]] = []
        self.result: dict[str, Any] | None = None
        """The result that the program set; None before the job has succeeded."""
        self._undeclared: set[str] = set()
        """Names of metrics about which a warning was already shown, because the Engine does not declare
        them.
        """

    async def run(self) -> int:
        """Run the job until it ends. Return its exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt)
        try:
            for pod in self._pods:
                environment = pod_environment(
                    self._job, pod.slot.role, self._environment, self._folders.checkpoints
                )
                await pod.start(environment, self._folders.start)
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.gather(*(pod.connected.wait() for pod in self._pods))
            code = await self._run_until_over()
            if not code:
                self._read_result()
            await self._end(code)
            return code
        except TimeoutError:
            self._write_line(
                f"the launchers did not start within {CONNECT_SECONDS:.0f} s; see their output above"
            )
            return 1
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            await asyncio.gather(self._independents.close(), *(pod.close() for pod in self._pods))

    def summary(self) -> None:
        """Print the loss curve of the run."""
        drawn = curve(self._curve, title="loss by step")
        if drawn:
            print(drawn, file=self._out, flush=True)

    async def _run_until_over(self) -> int:
        """Form incarnations until the job succeeds, is interrupted, or has no restart left in its budget.
        Return the job's exit code.
        """
        while True:
            await self._form_ranks()
            code = await self._wait()
            if code is not None:
                return code
            _, code, step = self._cause()
            if why := self._budget.record_failure(time.monotonic(), code, step):
                self._write_line(why)
                return code or 1

    async def _form_ranks(self) -> None:
        self._incarnation += 1
        self._exits.clear()
        self._screen.reset()
        self._port = asyncio.get_running_loop().create_future()
        self._pods[0].send({"type": "pickPort", "incarnation": self._incarnation})
        async with asyncio.timeout(FORM_SECONDS):
            port = await self._port
        self._write_line(f"incarnation {self._incarnation}: {self._world} ranks")
        for pod in self._pods:
            pod.send(
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
        self._independents.group_formed(self._incarnation)

    async def _wait(self) -> int | None:
        """Wait until the job ends or a rank fails. Return the job's exit code, or None if a rank has failed
        and a restart may help.
        """
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._interrupted:
                return await self._stop_early()
            if self._succeeded():
                return 0
            if not any(exit_["exitCode"] for exit_ in self._exits.values()):
                continue
            await asyncio.sleep(SETTLE_SECONDS)
            rank, code, _ = self._cause()
            self._write_line(f"rank {rank} ended with exit code {code}")
            if self._interrupted:
                return await self._stop_early()
            return code if code in NOT_RETRYABLE else None

    def _cause(self) -> tuple[int, int, int]:
        """Return the rank whose exit code explains the failure best, with its exit code and its last step."""
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

    def _read_result(self) -> None:
        """Read the result that rank 0 left, and print it."""
        text = str(self._exits.get(0, {}).get("result", ""))
        if not text:
            return
        try:
            self.result = parse_result(text)
            self._write_line(f"result: {text}")
        except ResultRefused as error:
            self._write_line(f"the job's result is not stored: {error}")

    async def _stop_early(self) -> int:
        self._write_line(f"interrupted: the ranks have {GRACE_SECONDS} s to save their state")
        for pod in self._pods:
            pod.signal(signal.SIGTERM)
        drained = asyncio.create_task(self._independents.drain())
        codes = await asyncio.gather(*(pod.wait(GRACE_SECONDS + 5) for pod in self._pods))
        await drained
        return worst([PREEMPTED if code is None else code for code in codes])

    async def _end(self, code: int) -> None:
        for pod in self._pods:
            pod.send({"type": "shutdown", "exitCode": code, "reason": "the job is over"})
        waits = (pod.wait(SHUTDOWN_SECONDS) for pod in self._pods)
        await asyncio.gather(self._independents.drain(), *waits)

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
            self._warn_undeclared(message.get("metrics", {}))

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

    def _warn_undeclared(self, figures: Mapping[str, Any]) -> None:
        if self._engine is None:
            return
        fresh = figures.keys() - {one.name for one in self._engine.spec.metrics} - self._undeclared
        if fresh:
            self._undeclared |= fresh
            name = self._engine.metadata.name
            self._write_line(
                f"Engine {name} does not declare these metrics, so a cluster drops them: "
                f"{', '.join(sorted(fresh))}"
            )
