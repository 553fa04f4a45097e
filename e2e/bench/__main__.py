"""`python -m e2e.bench NAME`."""

from __future__ import annotations

import asyncio
import datetime
import sys
from typing import Annotated

import typer

from e2e.bench import dashboard, figures, guard_sweep, scale, schedules, soak, survival, tiercheck
from e2e.bench.guard import burst as guard_burst
from e2e.bench.guard import fleet as guard_fleet
from e2e.bench.guard import jobs as guard_jobs
from e2e.bench.guard import large as guard_large
from e2e.bench.guard import replay as guard_replay
from e2e.bench.guard import speed as guard_speed
from e2e.bench.guard import storm as guard_storm
from e2e.bench.guard import telemetry as guard_telemetry
from e2e.cluster.errors import ClusterError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Benches on local clusters.")


@app.command(name="scale")
def scale_(
    only: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(scale.ALL)}; default: all.")] = None,
    rate: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(scale.RATES)}; default: all.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Of each measurement.")] = 5,
    nodes: Annotated[int, typer.Option(min=10, max=250, help="Fake nodes.")] = 100,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds to wait before each step for a machine left alone.")
    ] = 0.0,
) -> None:
    """A thousand workers on fake nodes; a run of everything is written to docs/bench/scale.json."""
    for given, known in ((only, scale.ALL), (rate, scale.RATES)):
        if unknown := sorted(set(given or ()) - set(known)):
            raise typer.BadParameter(f"{', '.join(unknown)}: known are {', '.join(known)}")
    options = scale.Options(only or scale.ALL, rate or tuple(scale.RATES), repeats, nodes, patience)
    found = figures.Figures()
    whole = options == scale.Options(repeats=repeats, patience=patience)
    try:
        scale.bench(options, found)
    except asyncio.CancelledError:
        whole = False
    except ClusterError as error:
        sys.exit(str(error))
    _tell(found, scale.NAME, scale.COMMAND, whole)


@app.command(name="survival")
def survival_(
    only: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(survival.SCENARIOS)}; default: all.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Of each fault.")] = 5,
    stock: Annotated[bool, typer.Option(help="Also Kubernetes' own path, once (6 minutes).")] = True,
) -> None:
    """Faults on real nodes; a run of everything is written to docs/bench/survival.json."""
    if unknown := sorted(set(only or ()) - set(survival.SCENARIOS)):
        raise typer.BadParameter(f"{', '.join(unknown)}: known are {', '.join(survival.SCENARIOS)}")
    found = figures.Figures()
    try:
        survival.bench(only or list(survival.SCENARIOS), repeats, stock, found)
    except ClusterError as error:
        sys.exit(str(error))
    finally:
        _tell(found, survival.NAME, survival.COMMAND, whole=not only and repeats >= 5)


@app.command(name="soak")
def soak_(
    minutes: Annotated[float, typer.Option(min=1, help="Of churn; 5 more to calm down.")] = 30.0,
    seed: Annotated[int, typer.Option(help="Of the faults.")] = 1,
) -> None:
    """Jobs that come and go while everything fails; half an hour of it is written to docs/bench/soak.json."""
    found = figures.Figures()
    try:
        soak.bench(minutes, seed, found)
    except ClusterError as error:
        sys.exit(str(error))
    _tell(found, soak.NAME, soak.COMMAND, whole=minutes >= 30)


@app.command(name="schedules")
def schedules_(
    count: Annotated[int, typer.Option(min=500, help="Schedules.")] = schedules.COUNT,
) -> None:
    """The checkpoint protocol under random schedules; 100,000 are written to docs/bench/schedules.json."""
    found = figures.Figures()
    schedules.bench(count, found)
    _tell(found, schedules.NAME, schedules.COMMAND, whole=count >= schedules.COUNT)


@app.command(name="guard-sweep")
def guard_sweep_(
    fleets: Annotated[int, typer.Option(min=1, help="Per seed.")] = guard_sweep.FLEETS,
) -> None:
    """Sweeps of made-up fleets, beside others' rules; written to docs/bench/guard_sweep.json."""
    found = figures.Figures()
    guard_sweep.bench(guard_sweep.SEEDS, fleets, found)
    _tell(found, guard_sweep.NAME, guard_sweep.COMMAND, whole=fleets >= guard_sweep.FLEETS)


@app.command(name="dashboard")
def dashboard_() -> None:
    """500 jobs in a real browser; written to docs/bench/dashboard.json."""
    found = figures.Figures()
    try:
        dashboard.bench(found)
    except ClusterError as error:
        sys.exit(str(error))
    _tell(found, dashboard.NAME, dashboard.COMMAND, whole=True)


@app.command(name="tiercheck")
def tiercheck_(
    only: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(tiercheck.ALL)}; default: all.")
    ] = None,
    parameters: Annotated[
        int, typer.Option(min=1_000_000, help="Of the model; its state has three times as many values.")
    ] = tiercheck.PARAMETERS,
    rounds: Annotated[int, typer.Option(min=2, help="Of each way to save.")] = tiercheck.ROUNDS,
    step: Annotated[
        list[float] | None,
        typer.Option(min=0, help="Seconds of a step; default: those published."),
    ] = None,
) -> None:
    """What saving and restoring cost, beside copies and others; written to docs/bench/tiercheck.json."""
    if unknown := sorted(set(only or ()) - set(tiercheck.ALL)):
        raise typer.BadParameter(f"{', '.join(unknown)}: known are {', '.join(tiercheck.ALL)}")
    lengths = tuple(step or tiercheck.STEP_SECONDS)
    options = tiercheck.Options(tuple(only or tiercheck.ALL), parameters, rounds, lengths)
    found, whole = figures.Figures(), False
    try:
        tiercheck.bench(options, found)
        whole = not only and not step and parameters >= tiercheck.PARAMETERS and rounds >= 5
    except ClusterError as error:
        sys.exit(str(error))
    finally:
        _tell(found, tiercheck.NAME, tiercheck.COMMAND, whole)


GUARD = ("replay", "jobs", "fleet", "storm", "speed", "telemetry", "burst", "large")


@app.command(name="guard")
def guard_(
    seeds: Annotated[int, typer.Option(min=1, help="Of every synthetic job.")] = 50,
    only: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(GUARD)}; default: all.")] = None,
) -> None:
    """Who is slow and why, on public traces and synthetic jobs; written to docs/bench/guard.json."""
    if unknown := sorted(set(only or ()) - set(GUARD)):
        raise typer.BadParameter(f"{', '.join(unknown)}: known are {', '.join(GUARD)}")
    found = figures.Figures()
    for name in only or GUARD:
        if name == "replay":
            guard_replay.as_they_are(found)
            guard_replay.slowed(found)
        elif name == "jobs":
            guard_jobs.bench(seeds, found)
        elif name == "fleet":
            guard_fleet.bench(seeds, found)
        elif name == "storm":
            guard_storm.bench(seeds, found)
        elif name == "burst":
            guard_burst.bench(found)
        elif name == "large":
            guard_large.bench(found)
        elif name == "telemetry":
            guard_telemetry.bench(found)
        else:
            guard_speed.bench(found)
    _tell(found, "guard", "make bench-guard", whole=not only and seeds >= 50)


def _tell(found: figures.Figures, name: str, command: str, whole: bool) -> None:
    """Prints the figures; those of a whole run replace the file."""
    for row in found.rows():
        print(figures.line(row))
    if whole:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        print(figures.write(name, command, found, today))


if __name__ == "__main__":
    app()
