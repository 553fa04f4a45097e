"""The command analyse, which shows where the time of traces goes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convoy.cli.cluster import Failure
from convoy.cli.output import Output
from convoy.cli.table import format_bytes, new_table, print_table
from convoy.cli.trace.files import IgnoreDangling, Paths, cell, load_checked, name_of, trace_files
from convoy.cli.trace.replay import Bandwidth, Latency, Scale, comm_model, format_us

if TYPE_CHECKING:
    from convoy_workloads.traces.analysis import Analysis


def analyse(
    paths: Paths,
    scale: Scale = 1.0,
    bandwidth: Bandwidth = None,
    latency: Latency = 10.0,
    top: Annotated[int, typer.Option(min=0, help="Number of operations to show.")] = 10,
    ignore_dangling: IgnoreDangling = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TEXT,
) -> None:
    """Show where the time of Chakra traces goes, each rank alone.

    Exposed communication is the time in which a communication runs and no computation. With nodes of GPUs,
    only these are computations: operators of the host launch them, or wait. Idle is the time in which nothing
    runs, such as Python between operators of a thread.
    """
    from convoy_workloads.traces.analysis import analyse as analyse_replay  # noqa: PLC0415
    from convoy_workloads.traces.findings import InvalidTrace  # noqa: PLC0415
    from convoy_workloads.traces.replay import replay  # noqa: PLC0415

    found: list[tuple[str, Analysis]] = []
    for path in trace_files(paths):
        trace = load_checked(path, ignore_dangling)
        try:
            replayed = replay(trace, comm_model(trace, scale, bandwidth, latency))
        except InvalidTrace as error:
            raise Failure(f"{path}: {error}") from error
        found.append((name_of(trace, path), analyse_replay(replayed)))
    if output is Output.JSON:
        typer.echo(json.dumps([as_json(name, one, top) for name, one in found], indent=2))
        return
    for number, (name, one) in enumerate(found):
        if number:
            typer.echo("")
        _print(name, one, top)


def as_json(name: str, one: Analysis, top: int) -> dict[str, Any]:
    """Return the figures of a rank as JSON values."""
    values = asdict(one)
    values["operations"] = values["operations"][:top]
    camel = {_camel(key): value for key, value in values.items()}
    lists = {
        key: [{_camel(k): v for k, v in row.items()} for row in camel[key]]
        for key in ("traffic", "operations")
    }
    return {"name": name, **camel, "exposedShare": one.exposed_share, **lists}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _print(name: str, one: Analysis, top: int) -> None:
    span = one.span_us or 1.0
    typer.echo(f"{name}: {format_us(one.span_us)}, {one.steps} step(s)")
    shares = new_table()
    shares.add_column("TIME")
    shares.add_column("", justify="right")
    shares.add_column("SHARE", justify="right")
    for label, micros in (
        ("computation", one.compute_us),
        ("communication", one.communication_us),
        ("exposed communication", one.exposed_us),
        ("host alone", one.host_us),
        ("idle", one.idle_us),
        ("recorded waits", float(one.waited_us)),
        ("critical path: computation", one.critical_compute_us),
        ("critical path: communication", one.critical_communication_us),
    ):
        shares.add_row(label, format_us(micros), f"{micros / span:.1%}")
    print_table(shares)
    if one.traffic:
        typer.echo(f"\n{format_bytes(round(one.bytes_per_step))} of communication a step")
        traffic = new_table()
        for head in ("GROUP", "KIND", "COUNT", "BYTES"):
            traffic.add_column(head, justify="right" if head in {"COUNT", "BYTES"} else "left")
        for row in one.traffic:
            traffic.add_row(cell(row.group) or "-", row.kind, str(row.count), str(row.bytes))
        print_table(traffic)
    if top and one.operations:
        typer.echo("")
        operations = new_table()
        for head in ("OPERATION", "KIND", "COUNT", "TOTAL", "SHARE", "CRITICAL"):
            operations.add_column(head, justify="left" if head in {"OPERATION", "KIND"} else "right")
        for each in one.operations[:top]:
            total, critical = format_us(each.total_us), format_us(each.critical_us)
            share = f"{each.total_us / span:.1%}"
            operations.add_row(cell(each.name), each.kind, str(each.count), total, share, critical)
        print_table(operations)
