"""The command validate, which checks traces."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from convoy.cli.cluster import Failure
from convoy.cli.output import Output
from convoy.cli.trace.files import Paths, json_of, trace_files


def validate(
    paths: Paths,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TEXT,
) -> None:
    """Check Chakra traces: each file, and the files of all ranks together.

    The command checks the file format, ids, dependencies, attributes and times. The collectives of several
    ranks must be the same in the same order, and each send needs a receive. The status is 1 if anything is
    wrong.
    """
    from convoy_workloads.traces.findings import Finding, InvalidTrace  # noqa: PLC0415
    from convoy_workloads.traces.validate.all_ranks import check_ranks  # noqa: PLC0415
    from convoy_workloads.traces.validate.one_trace import check_trace  # noqa: PLC0415
    from convoy_workloads.traces.wire.reader import read  # noqa: PLC0415

    traces, found, together = [], [], list[Finding]()
    files = trace_files(paths)
    for path in files:
        try:
            reading = read(path)
        except InvalidTrace as error:
            found.append((path, list(error.findings)))
            continue
        traces.append(reading.trace)
        found.append((path, [*reading.findings, *check_trace(reading.trace)]))
    together = check_ranks(traces)
    count = sum(len(findings) for _, findings in found) + len(together)
    if output is Output.JSON:
        listed = [one for path, findings in found for one in json_of(findings, path)]
        typer.echo(json.dumps({"files": len(files), "findings": listed + json_of(together)}, indent=2))
    else:
        for path, findings in found:
            for one in findings:
                typer.echo(f"{path}: {one.line()}")
        for one in together:
            typer.echo(one.line())
        if not count:
            nodes = sum(len(trace.nodes) for trace in traces)
            typer.echo(f"{len(files)} file(s) with {nodes} nodes: nothing is wrong")
    if count:
        raise Failure(f"{count} finding(s)")
