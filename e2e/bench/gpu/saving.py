"""Measures the stall of saves of a state on a GPU. A real agent runs in this process, the rank in another."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from tests.integration.agents.memory_job import MemoryJob

from convoy_workloads.bench.figures import Figures, Metric
from e2e.bench.gpu.saving_rank import BYTES, DIFFERENT, METHODS, OURS, PINNED, Task
from e2e.bench.tiercheck.saving.memory import LOOPBACK, UID, Measurements, hub_at, node, run_rank

PARAMETERS = 90_000_000
ROUNDS = 5
PROGRAM = "e2e.bench.gpu.saving_rank"
_UNITS = {BYTES: "bytes", DIFFERENT: "count"}


def add(figures: Figures, small: bool) -> None:
    """Add the rows."""
    parameters, rounds = (2_000_000, 2) if small else (PARAMETERS, ROUNDS)
    found = Measurements()
    try:
        with tempfile.TemporaryDirectory(prefix="cv-") as root:
            asyncio.run(_measure(Path(root), Task(parameters, rounds, root), found))
    finally:
        for kind, values in found.values.items():
            for value in values:
                figures.add(_metric(kind), value)
        for kind, why in found.missing.items():
            figures.add_unmeasured(_metric(kind), why)


def _metric(kind: str) -> Metric:
    baseline = f"saving: {PINNED}" if kind in METHODS and kind != PINNED else ""
    if kind == DIFFERENT:
        return Metric(f"equality: {kind}", "count", 0.0)
    target = 0.25 if kind == OURS else None
    return Metric(f"saving: {kind}", _UNITS.get(kind, "seconds"), target, baseline)


async def _measure(root: Path, task: Task, found: Measurements) -> None:
    async with hub_at(LOOPBACK) as hub, node(root / "nodes", hub, 100 * task.parameters) as host:
        job = MemoryJob(hub, root)
        for incarnation in (1, 2):
            await job.form(incarnation, [(UID, host)])
            await run_rank(root, incarnation, [PROGRAM, task.text(incarnation == 2)], found)
