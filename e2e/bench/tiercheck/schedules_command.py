"""`python -m e2e.bench schedules`."""

from __future__ import annotations

from typing import Annotated

import typer

from convoy_workloads.bench import figures
from e2e.bench.tiercheck import schedules


def run(count: Annotated[int, typer.Option(min=500, help="Schedules.")] = schedules.COUNT) -> None:
    """The checkpoint protocol under random schedules; 100,000 are written to docs/bench/schedules.json."""
    found = figures.Figures()
    schedules.bench(count, found)
    figures.publish(found, schedules.NAME, schedules.COMMAND, whole=count >= schedules.COUNT)
