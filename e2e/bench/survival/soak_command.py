"""`python -m e2e.bench soak`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from convoy_workloads.bench import figures
from e2e.bench.survival import soak
from e2e.cluster.errors import ClusterError


def run(
    minutes: Annotated[float, typer.Option(min=1, help="Of churn; 5 more to calm down.")] = 30.0,
    seed: Annotated[int, typer.Option(help="Of the faults.")] = 1,
) -> None:
    """Jobs that come and go while everything fails; half an hour of it is written to docs/bench/soak.json."""
    found = figures.Figures()
    try:
        soak.bench(minutes, seed, found)
    except ClusterError as error:
        sys.exit(str(error))
    figures.publish(found, soak.NAME, soak.COMMAND, whole=minutes >= 30)
