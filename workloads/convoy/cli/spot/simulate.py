"""The command simulate, which compares spot and on-demand nodes on a trace, in virtual time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from convoy.cli.cluster import Failure
from convoy.cli.field_errors import field_path
from convoy.cli.output import Output
from convoy.cli.table import new_table, print_table
from convoy.cli.text_file import read_text
from convoy_workloads.plot import curve

if TYPE_CHECKING:
    from convoy_workloads.simulators.spot.params import Params, Policy
    from convoy_workloads.simulators.spot.simulation import Run
    from convoy_workloads.spot.trace import SpotTrace

NODES, HOURS = 1000, 168.0
MAX_PLOT_POINTS = 2000


def simulate(
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="CSV file with rows of time,count; - for stdin. Default: see --model."
        ),
    ] = None,
    unit: Annotated[
        str, typer.Option(help="Unit of the times in the file: seconds, minutes or hours.")
    ] = "seconds",
    model: Annotated[
        str, typer.Option(help="A recorded trace or a model of zones and nodes. A wrong name lists all.")
    ] = "v100-16-nodes",
    zones: Annotated[int, typer.Option(help="Number of zones of a model; recorded traces ignore it.")] = 60,
    nodes: Annotated[int, typer.Option(help="Number of workers, and largest number of spot nodes.")] = NODES,
    hours: Annotated[float, typer.Option(help="Simulated hours. A shorter trace repeats.")] = HOURS,
    notice: Annotated[float, typer.Option(help="Seconds from a notice to the loss of the node.")] = 30.0,
    notice_share: Annotated[float, typer.Option(help="Share of the losses with a notice.")] = 1.0,
    boot: Annotated[float, typer.Option(help="Seconds until a node is ready.")] = 60.0,
    commit: Annotated[float, typer.Option(help="Seconds between saves of a worker.")] = 60.0,
    spot_price: Annotated[float, typer.Option(help="Price of a spot node per hour.")] = 0.27,
    on_demand_price: Annotated[float, typer.Option(help="Price of an on-demand node per hour.")] = 1.0,
    spot_below: Annotated[
        int, typer.Option(help="Ready spot nodes below which the pool falls back to on-demand nodes.")
    ] = 1,
    after: Annotated[str, typer.Option(help="Wait with too few spot nodes until the fall-back.")] = "2m",
    minimum_stay: Annotated[str, typer.Option(help="Minimum time on on-demand nodes.")] = "10m",
    max_interruptions: Annotated[
        int | None,
        typer.Option(
            help="Losses within an hour above which the pool falls back at once. Default: no limit."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    output: Annotated[Output, typer.Option("--format", help="Output format.")] = Output.TEXT,
) -> None:
    """Compare spot and on-demand nodes on a trace of capacity.

    The command needs no cluster. The pool's own code chooses between spot and on-demand nodes. Each node has
    one worker.
    """
    # numpy, which these need, would make every command start later.
    from convoy_workloads.simulators.spot.params import Params, Policy  # noqa: PLC0415
    from convoy_workloads.simulators.spot.simulation import run_trace  # noqa: PLC0415

    given = {
        "nodes": nodes,
        "trace": model,
        "zones": max(1, min(zones, nodes)) if trace is None else 1,
        "hours": hours,
        "noticeSeconds": notice,
        "noticeShare": notice_share,
        "bootSeconds": boot,
        "commitSeconds": commit,
        "spotPrice": spot_price,
        "onDemandPrice": on_demand_price,
        "fallback": {
            "spotBelow": spot_below,
            "after": after,
            "minimumStay": minimum_stay,
            "maxInterruptionsPerHour": max_interruptions,
        },
    }
    try:
        params = Params.model_validate(given)
    except ValidationError as error:
        raise Failure("; ".join(_problems(error))) from error
    found = _trace(params, seed, trace, unit)
    runs = {
        policy: run_trace(params.model_copy(update={"policy": policy}), found)
        for policy in (Policy.ON_DEMAND, Policy.SPOT_ONLY, Policy.POOL)
    }
    if output is Output.JSON:
        typer.echo(json.dumps(as_json(found, runs), indent=2))
    else:
        _print(found, runs)


def as_json(found: SpotTrace, runs: dict[Policy, Run]) -> dict[str, Any]:
    """Return the trace's figures and those of each policy as JSON values."""
    figures = found.figures()
    return {
        "trace": {
            "nodes": found.nodes,
            "seconds": found.seconds,
            "availability": figures.availability,
            "anyShare": figures.any_share,
            "losses": figures.losses,
            "lossesPerNodeHour": figures.losses_per_node_hour,
            "largestDrop": figures.largest_drop,
        },
        "policies": {str(policy): run.figures for policy, run in runs.items()},
    }


def _problems(error: ValidationError) -> Iterator[str]:
    for one in error.errors():
        where = field_path(one["loc"])
        yield f"{where}: {one['msg']}" if where else one["msg"].removeprefix("Value error, ")


def _trace(params: Params, seed: int, file: Path | None, unit: str) -> SpotTrace:
    """Return the trace of the file, or that of the model. Raises Failure with the file and the line."""
    from convoy_workloads.simulators.spot.capacity import base_trace, recorded  # noqa: PLC0415
    from convoy_workloads.spot.trace_csv import InvalidTrace, TimeUnit, parse_counts  # noqa: PLC0415

    if file is None:
        return base_trace(params, seed)
    if unit not in list(TimeUnit):
        raise Failure(f"--unit must be one of {', '.join(TimeUnit)}, not {unit!r}")
    text = read_text(file)
    try:
        return recorded(parse_counts(text, TimeUnit(unit)), params, seed)
    except InvalidTrace as error:
        raise Failure(f"{file}: {error}") from error


def _print(found: SpotTrace, runs: dict[Policy, Run]) -> None:
    figures = found.figures()
    typer.echo(
        f"trace: {found.nodes} nodes at most, {found.seconds / 3600:.1f} h, availability "
        f"{figures.availability:.0%}, {figures.losses_per_node_hour:.2f} losses per node-hour, largest drop "
        f"{figures.largest_drop} nodes\n"
    )
    shown = new_table()
    shown.add_column("POLICY")
    for head in (
        "USEFUL",
        "COST",
        "PER NODE-HOUR",
        "ON-DEMAND",
        "LOST",
        "IDLE",
        "BOOT",
        "LOSSES",
        "SWITCHES",
    ):
        shown.add_column(head, justify="right")
    for policy, run in runs.items():
        one = run.figures
        shown.add_row(
            str(policy),
            f"{one['usefulShare']:.1%}",
            f"{one['cost']:.2f}",
            f"{one['costPerUsefulNodeHour']:.3f}",
            f"{one['onDemandShare']:.1%}",
            *(f"{one[name]:.1f} h" for name in ("lostNodeHours", "idleNodeHours", "bootNodeHours")),
            f"{one['losses']:.0f}",
            f"{one['switches']:.0f}",
        )
    print_table(shown)
    *_, (policy, run) = runs.items()
    points = [(hour, float(count)) for hour, count in run.workers]
    points.append((found.seconds / 3600, points[-1][1]))
    typer.echo("\n" + curve(_thinned(points), f"workers on nodes, policy {policy}, by hour"))


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most MAX_PLOT_POINTS points that are evenly spread over the time."""
    end = points[-1][0]
    found, index = [], 0
    for number in range(MAX_PLOT_POINTS + 1):
        at = end * number / MAX_PLOT_POINTS
        while index + 1 < len(points) and points[index + 1][0] <= at:
            index += 1
        found.append((at, points[index][1]))
    return found
