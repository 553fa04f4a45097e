"""Command line of the bench: `python -m e2e.bench guard`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from convoy_workloads.bench import figures
from e2e.bench.guard import burst, fleet, jobs, large, replay, small_jobs, speed, storm, telemetry, trace_file
from e2e.bench.kit.options import require_known

PARTS: dict[str, Callable[[int, figures.Figures], None]] = {
    "replay": lambda _, found: replay.bench(found),
    "jobs": jobs.bench,
    "small": small_jobs.bench,
    "fleet": fleet.bench,
    "storm": storm.bench,
    "speed": lambda _, found: speed.bench(found),
    "telemetry": lambda _, found: telemetry.bench(found),
    "burst": lambda _, found: burst.bench(found),
    "large": lambda _, found: large.bench(found),
}
"""Parts of the bench by name. Each gets the number of seeds and the figures to which it adds."""


def run(
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds of each synthetic job.")] = 50,
    only: Annotated[
        list[str] | None, typer.Option(help=f"Part: {', '.join(PARTS)}. Repeatable. Default: all.")
    ] = None,
    replay_file: Annotated[
        Path | None,
        typer.Option("--replay", help="Replay this .npz file, in the form of tests/data/straggler."),
    ] = None,
    slow: Annotated[
        str | None,
        typer.Option(
            help="STAGE,REPLICA,FACTOR,STEP: slow down one rank of the replayed file from a step on."
        ),
    ] = None,
) -> None:
    """Measure the guard on traces, synthetic jobs, fleets and storms.

    A complete run replaces docs/bench/guard.json. With --replay, print the detector's findings in one trace
    instead.
    """
    if replay_file is not None:
        try:
            for line in trace_file.replay(replay_file, slow):
                print(line)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        return
    if slow is not None:
        raise typer.BadParameter("--slow needs --replay FILE.npz")
    require_known(only, PARTS)
    found = figures.Figures()
    for name in only or PARTS:
        PARTS[name](seeds, found)
    figures.publish(found, "guard", "make bench-guard", whole=not only and seeds >= 50)
