"""The command generate, which writes the traces of a synthetic training job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from convoy.cli.cluster import Failure
from convoy.cli.table import format_bytes
from convoy.cli.trace.files import Gzip, Prefix, write_trace


def generate(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the traces.")] = Path(),
    layers: Annotated[int, typer.Option(help="Layers of the model.")] = 8,
    data: Annotated[int, typer.Option(help="Copies of the model.")] = 1,
    tensor: Annotated[int, typer.Option(help="Ranks that share each layer.")] = 1,
    pipeline: Annotated[int, typer.Option(help="Stages of a pipeline.")] = 1,
    microbatches: Annotated[int, typer.Option(help="Microbatches of a step.")] = 1,
    schedule: Annotated[str, typer.Option(help="Order of microbatches: 1F1B or GPipe.")] = "1F1B",
    steps: Annotated[int, typer.Option(help="Training steps.")] = 1,
    forward: Annotated[int, typer.Option(metavar="US", help="Microseconds of a layer's forward pass.")] = 100,
    backward: Annotated[int, typer.Option(metavar="US", help="Microseconds of its backward pass.")] = 200,
    optimizer: Annotated[int, typer.Option(metavar="US", help="Microseconds of its update.")] = 50,
    parameter_bytes: Annotated[int, typer.Option(metavar="BYTES", help="Parameters of a layer.")] = 4 * 2**20,
    activation_bytes: Annotated[
        int, typer.Option(metavar="BYTES", help="Activations that a layer passes on for a microbatch.")
    ] = 2**20,
    operations: Annotated[
        int, typer.Option(help="Floating-point operations of a layer's forward pass. 0 leaves them out.")
    ] = 0,
    prefix: Prefix = "trace",
    gzip: Gzip = False,
) -> None:
    """Write the Chakra traces of a synthetic training job, one file for each rank.

    The job may be data-parallel, tensor-parallel and pipelined at once, on data x tensor x pipeline ranks.
    Times are those of one rank; communications have sizes, and no times.
    """
    from convoy_workloads.traces.generate.traces import generate as generate_traces  # noqa: PLC0415
    from convoy_workloads.traces.generate.workload import InvalidWorkload, Schedule, Workload  # noqa: PLC0415

    if schedule not in list(Schedule):
        raise Failure(f"--schedule must be one of {', '.join(Schedule)}, not {schedule!r}")
    workload = Workload(
        layers=layers, data=data, tensor=tensor, pipeline=pipeline, microbatches=microbatches, steps=steps,
        forward_us=forward, backward_us=backward, optimizer_us=optimizer, parameter_bytes=parameter_bytes,
        activation_bytes=activation_bytes, operations=operations, schedule=Schedule(schedule),
    )  # fmt: skip
    nodes = size = 0
    try:
        for trace in generate_traces(workload):
            nodes += len(trace.nodes)
            size += write_trace(trace, out, prefix, gzip)[1]
    except InvalidWorkload as error:
        raise Failure(str(error)) from error
    typer.echo(f"{out}: {workload.ranks} file(s) with {nodes} nodes, {format_bytes(size)}")
