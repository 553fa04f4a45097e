"""`make bench-tiercheck`: what saving costs the training, beside a plain copy and what others do."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
from pathlib import Path

from tests.integration.agents.harness import Authority, FakeHub, Host
from tests.integration.agents.memory_job import MemoryJob

from convoy_agents.csi import mounts
from e2e.bench.figures import Figures, Metric
from e2e.cluster import files
from e2e.cluster.progress import Progress

NAME, COMMAND = "tiercheck", "make bench-tiercheck"
PARAMETERS = 90_000_000
"""With AdamW's two moments in fp32: 1.08 GB."""
ROUNDS = 10
UID = "bench-0000"
STEP_SECONDS = (0.5, 2.0, 5.0)
"""Of matrix products that a step consists of besides the optimizer's own."""
_SECONDS = 900.0

COPY = "copy of the state into warm memory"
OURS = "full save, stall"
JOURNAL = "journal of one step, stall"


def bench(parameters: int, rounds: int, figures: Figures) -> None:
    """Runs it on this machine: a real agent in this process, the rank in another."""
    asyncio.run(_bench(parameters, rounds, figures, Progress()))


async def _bench(parameters: int, rounds: int, figures: Figures, progress: Progress) -> None:
    with tempfile.TemporaryDirectory(prefix="cv-") as name:
        root = Path(name)
        hub = FakeHub(Authority())
        await hub.start()
        host = Host(root / "nodes", "one", hub, memory=28 * parameters * 3)
        await host.start()
        try:
            job = MemoryJob(hub, root)
            await job.form(1, [(UID, host)])
            progress.say("saving in every way, in turns")
            before = resource.getrusage(resource.RUSAGE_SELF)
            found = await _rank(root, 1, parameters, rounds)
            after = resource.getrusage(resource.RUSAGE_SELF)
            saved = len(found["save in memory"]) + len(found["first save in memory"])
            seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            await job.form(2, [(UID, host)])
            progress.say("restoring")
            again = await _rank(root, 2, parameters, rounds)
            _tell(figures, found, again, seconds / saved / found["bytes"][0] * 1e9)
        finally:
            await host.stop()
            await hub.stop()
            for mount in mounts.table():
                if Path(mount.target).is_relative_to(root):
                    mounts.unmount(Path(mount.target))


async def _rank(root: Path, incarnation: int, parameters: int, rounds: int) -> dict[str, list[float]]:
    """Runs the rank's program; seconds by kind."""
    folder = root / "saves"
    folder.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{files.CHECKOUT}:{files.CHECKOUT / 'workloads'}",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "CONVOY_INCARNATION": str(incarnation),
        "CONVOY_CHECKPOINT_SECONDS": "3600",
        "CONVOY_CHECKPOINT_TIERS": "local",
        "CONVOY_SOCKET": str(root / f"{UID[:8]}-{incarnation}" / "agent.sock"),
    }
    arguments = ["-m", "e2e.bench.saves", str(parameters), str(rounds), str(folder)]
    arguments += [f"{length:g}" for length in STEP_SECONDS]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=environment, stdout=asyncio.subprocess.PIPE
    )
    found: dict[str, list[float]] = {}
    async with asyncio.timeout(_SECONDS):
        assert process.stdout is not None
        async for line in process.stdout:
            one = json.loads(line)
            found.setdefault(one["kind"], []).append(one["seconds"])
        if await process.wait():
            raise RuntimeError(f"the rank ended with {process.returncode}")
    return found


def _tell(
    figures: Figures, found: dict[str, list[float]], again: dict[str, list[float]], seconds_per_gb: float
) -> None:
    seconds = {
        COPY: found["copy"],
        OURS: found["save in memory"],
        "first full save, stall": found["first save in memory"],
        "full save, until it is committed": found["committed"],
        "torch.distributed.checkpoint save": found["dcp sync"],
        "torch.distributed.checkpoint async_save, thread, stall": found["dcp thread"],
        "torch.distributed.checkpoint async_save, process, stall": found["dcp process"],
        "restore from local memory": again["restore from memory"],
        "copy of the state at the restore": again["copy"],
        JOURNAL: _journalled(found),
        **{kind: values for kind, values in found.items() if kind.startswith("steps of ")},
    }
    figures.add(Metric("size of the state", "GB"), found["bytes"][0] / 1e9)
    for name, values in seconds.items():
        for value in values:
            figures.add(Metric(name, "s", baseline=COPY if name != COPY else ""), value)
    middle = {name: middle_of(values) for name, values in seconds.items()}
    ratios: dict[str, tuple[float, float | None]] = {
        "full save, stall / copy": (middle[OURS] / middle[COPY], 1.15),
        "full save, stall / async_save thread": (
            middle[OURS] / middle["torch.distributed.checkpoint async_save, thread, stall"],
            0.25,
        ),
        "full save, stall / async_save process": (
            middle[OURS] / middle["torch.distributed.checkpoint async_save, process, stall"],
            0.5,
        ),
        "restore from local memory / copy": (
            middle["restore from local memory"] / middle["copy of the state at the restore"],
            1.3,
        ),
    }
    segment, whole = found["segment bytes"], found["full save bytes"]
    ratios["journal segment of one step / full save, bytes"] = (middle_of(segment) / middle_of(whole), 0.3)
    ratios["journal of one step, stall / full save, stall"] = (middle[JOURNAL] / middle[OURS], 1 / 3)
    for length in STEP_SECONDS:
        steps = f"steps of {length:g} s"
        slower = middle[f"{steps} with a save after each"] / middle[f"{steps} without saves"]
        # What is asked of steps of at least 5 s.
        ratios[f"{steps}, with a save after each / without"] = (slower, 1.03 if length >= 5 else None)
    for name, (value, target) in ratios.items():
        figures.add(Metric(name, "x", target), value)
    figures.add(Metric("agent, processor time per GB saved", "s"), seconds_per_gb)


def middle_of(values: list[float]) -> float:
    """The upper median."""
    return sorted(values)[len(values) // 2]


def _journalled(found: dict[str, list[float]]) -> list[float]:
    """What a step that is journalled and saved takes longer than one that is neither."""
    plain = middle_of(found["step"])
    steps, saves = found["step with its gradients written"], found["segment"]
    return [step - plain + save for step, save in zip(steps, saves, strict=False)]
