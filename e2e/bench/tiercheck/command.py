"""Command line of the bench: `python -m e2e.bench tiercheck`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from convoy_workloads.bench import figures
from e2e.bench.kit.options import require_known
from e2e.bench.tiercheck import bench
from e2e.cluster.errors import ClusterError


def run(
    only: Annotated[
        list[str] | None, typer.Option(help=f"Part: {', '.join(bench.ALL)}. Repeatable. Default: all.")
    ] = None,
    parameters: Annotated[
        int,
        typer.Option(
            min=1_000_000, help="Parameters of the model. Its state has three times as many values."
        ),
    ] = bench.PARAMETERS,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of saves with every method.")] = bench.ROUNDS,
    step: Annotated[
        list[float] | None,
        typer.Option(min=0, help="Length of a step in seconds. Repeatable. Default: the published lengths."),
    ] = None,
) -> None:
    """Measure saving and restoring, compared with other libraries.

    A complete run replaces docs/bench/tiercheck.json.
    """
    require_known(only, bench.ALL)
    lengths = tuple(step or bench.STEP_SECONDS)
    options = bench.Options(tuple(only or bench.ALL), parameters, rounds, lengths)
    found, whole = figures.Figures(), False
    try:
        bench.bench(options, found)
        whole = not only and not step and parameters >= bench.PARAMETERS and rounds >= 5
    except ClusterError as error:
        sys.exit(str(error))
    finally:
        figures.publish(found, bench.NAME, bench.COMMAND, whole)
