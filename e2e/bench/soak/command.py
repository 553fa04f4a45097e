"""Command line of the bench: `python -m e2e.bench soak`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from convoy_workloads.bench import figures
from e2e.bench.soak import bench as soak
from e2e.cluster.errors import ClusterError


def run(
    minutes: Annotated[
        float, typer.Option(min=1, help="Minutes of faults. The jobs get 5 more minutes to end.")
    ] = 30.0,
    seed: Annotated[int, typer.Option(help="Seed of the random faults.")] = 1,
) -> None:
    """Run jobs on a cluster while random faults hit nodes, pods, processes and the API server.

    A run of 30 minutes or more replaces docs/bench/soak.json.
    """
    found = figures.Figures()
    try:
        soak.bench(minutes, seed, found)
    except ClusterError as error:
        sys.exit(str(error))
    figures.publish(found, soak.NAME, soak.COMMAND, whole=minutes >= 30)
