"""Measures what one save and one restore use, in the rank's process and in the agent's."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.integration.agents.memory_job import MemoryJob

from e2e.bench.tiercheck.saving import usage
from e2e.bench.tiercheck.saving.memory import PROGRAM, UID, Measurements, hub_at, node, run_rank
from e2e.bench.tiercheck.saving.messages import AGENT, BEGIN, DONE
from e2e.bench.tiercheck.saving.rank import Task

_REPEATS = 3


async def measure(root: Path, parameters: int) -> dict[str, list[float]]:
    """Return what saves and restores use, by operation, process and kind of usage. The first values belong
    to the first save.
    """
    await asyncio.to_thread(root.mkdir)
    found = Measurements()
    async with hub_at() as hub, node(root / "nodes", hub, 28 * parameters * 3) as host:
        job = MemoryJob(hub, root)
        before: dict[str, float] = {}

        def on_value(kind: str) -> None:
            nonlocal before
            if kind.endswith(BEGIN):
                before = usage.used()
            elif kind.endswith(DONE):
                for name, value in usage.since(before).items():
                    found.add(f"{kind.removesuffix(DONE)}, {AGENT}: {name}", value)

        for incarnation in range(1, 2 + _REPEATS):
            await job.form(incarnation, [(UID, host)])
            task = Task(parameters, 0, str(root), parts=["profile"])
            await run_rank(root, incarnation, [PROGRAM, task.text()], found, on_value)
    return {name: values for name, values in found.values.items() if not name.endswith((BEGIN, DONE))}
