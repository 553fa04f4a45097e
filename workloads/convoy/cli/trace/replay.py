"""The command replay, which computes how long traces take, also with other communication times."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convoy.cli.cluster import Failure
from convoy.cli.output import Output
from convoy.cli.table import new_table, print_table
from convoy.cli.trace.files import IgnoreDangling, Paths, cell, load_checked, name_of, trace_files

if TYPE_CHECKING:
    from convoy_workloads.traces.replay import CommModel
    from convoy_workloads.traces.trace import Trace

Scale = Annotated[float, typer.Option(help="Factor of the recorded communication times.")]
Bandwidth = Annotated[
    float | None,
    typer.Option(metavar="GBPS", help="Gigabytes (10^9) a second of a link: use the ring model instead."),
]
Latency = Annotated[float, typer.Option(metavar="US", help="Microseconds of a link, for the ring model.")]


def replay(
    paths: Paths,
    scale: Scale = 1.0,
    bandwidth: Bandwidth = None,
    latency: Latency = 10.0,
    ignore_dangling: IgnoreDangling = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TEXT,
) -> None:
    """Replay Chakra traces by their dependencies, each rank alone.

    A node starts when its dependencies have ended, and the recorded gap of the host has passed. With --scale
    or --bandwidth, communications take other times than recorded. NAIVE, with recorded times, counts waits
    twice: as time of the operator that waits, and as time of the communication. A trace without recorded
    times, such as a synthetic one, has neither MEASURED nor NAIVE.
    """
    from convoy_workloads.traces.findings import InvalidTrace  # noqa: PLC0415
    from convoy_workloads.traces.replay import has_times, measured_span, naive_replay  # noqa: PLC0415
    from convoy_workloads.traces.replay import replay as replay_trace  # noqa: PLC0415

    rows: list[dict[str, Any]] = []
    for path in trace_files(paths):
        trace = load_checked(path, ignore_dangling)
        try:
            span = replay_trace(trace, comm_model(trace, scale, bandwidth, latency)).span
            naive = naive_replay(trace).span
        except InvalidTrace as error:
            raise Failure(f"{path}: {error}") from error
        timed = has_times(trace)
        rows.append({
            "name": name_of(trace, path), "nodes": len(trace.nodes),
            "measuredUs": measured_span(trace) if timed else None, "replayUs": span,
            "naiveUs": naive if timed else None,
        })  # fmt: skip
    if output is Output.JSON:
        typer.echo(json.dumps(rows, indent=2))
        return
    shown = new_table()
    for head in ("TRACE", "NODES", "MEASURED", "REPLAY", "RATIO", "NAIVE"):
        shown.add_column(head, justify="left" if head == "TRACE" else "right")
    for row in rows:
        measured = row["measuredUs"]
        ratio = f"{row['replayUs'] / measured:.3f}" if measured else ""
        times = [
            "" if row[key] is None else format_us(row[key]) for key in ("measuredUs", "replayUs", "naiveUs")
        ]
        shown.add_row(cell(row["name"]), str(row["nodes"]), *times[:2], ratio, times[2])
    print_table(shown)


def comm_model(trace: Trace, scale: float, bandwidth: float | None, latency: float) -> CommModel:
    """Return the model that the options name. Raises Failure for values that cannot be used."""
    from convoy_workloads.traces.attributes import number_of  # noqa: PLC0415
    from convoy_workloads.traces.comm_models import RingModel, Scaled  # noqa: PLC0415
    from convoy_workloads.traces.validate.all_ranks import named_groups  # noqa: PLC0415

    if not 0 <= scale <= 1e6:
        raise Failure(f"--scale must be from 0 to 1000000, not {scale}")
    if bandwidth is None:
        return Scaled(scale)
    if not 0 < bandwidth <= 1e6:
        raise Failure(f"--bandwidth must be above 0 and at most 1000000, not {bandwidth}")
    if not 0 <= latency <= 1e9:
        raise Failure(f"--latency must be from 0 to 1000000000, not {latency}")
    groups = {name: len(ranks) for name, ranks in named_groups([trace]).items()}
    ranks = max(number_of(trace.metadata, "world_size"), *groups.values(), 2)
    # A gigabyte a second is a thousand bytes a microsecond.
    return RingModel(latency, bandwidth * 1000, ranks, groups)


def format_us(micros: float) -> str:
    """Return a time in milliseconds or seconds."""
    return f"{micros / 1e6:.3f} s" if micros >= 1e7 else f"{micros / 1e3:.3f} ms"
