"""Command line of the bench: `python -m e2e.bench schedules`."""

from __future__ import annotations

from typing import Annotated

import typer

from convoy_workloads.bench import figures
from e2e.bench.tiercheck import schedules


def run(
    count: Annotated[int, typer.Option(min=500, help="Number of schedules to play.")] = schedules.COUNT,
) -> None:
    """Play random schedules of the checkpoint protocol.

    A run of 100,000 replaces docs/bench/schedules.json.
    """
    found = figures.Figures()
    schedules.bench(count, found)
    figures.publish(found, schedules.NAME, schedules.COMMAND, whole=count >= schedules.COUNT)
