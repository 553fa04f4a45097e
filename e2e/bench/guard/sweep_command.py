"""Command line of the bench: `python -m e2e.bench guard-sweep`."""

from __future__ import annotations

from typing import Annotated

import typer

from convoy_workloads.bench import figures
from e2e.bench.guard import sweep


def run(fleets: Annotated[int, typer.Option(min=1, help="Fleets per seed.")] = sweep.FLEETS) -> None:
    """Compare how Convoy and rules of other projects find slow nodes in synthetic fleets.

    A complete run replaces docs/bench/guard_sweep.json.
    """
    found = figures.Figures()
    sweep.bench(sweep.SEEDS, fleets, found)
    figures.publish(found, sweep.NAME, sweep.COMMAND, whole=fleets >= sweep.FLEETS)
