"""The command convert, which makes Chakra traces from torch's traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from convoy.cli.cluster import Failure
from convoy.cli.trace.files import MAX_FILES, TORCH_NAME, Gzip, Prefix, write_trace

HOW_TO_RECORD = (
    "The recorder, convoy_workloads.traces.record, writes both files of a rank. In your own profiling, pass "
    "`execution_trace_observer=ExecutionTraceObserver().register_callback(FILE)` to torch.profiler.profile, "
    "with `record_shapes=True`."
)
_MISSING = {
    "host": "The Kineto trace has the times alone; the tensors, with their bytes, are in the host trace.",
    "kineto": "The host trace has no times; they are in the Kineto trace.",
}


def convert(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder with host.RANK.json and kineto.RANK.json.")
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the traces.")] = Path(),
    prefix: Prefix = "trace",
    gzip: Gzip = False,
) -> None:
    """Convert torch's host and Kineto traces to Chakra traces, one file for each rank.

    The folder has, for each rank, the file host.RANK.json of torch's ExecutionTraceObserver and the file
    kineto.RANK.json of torch's profiler. Both may be compressed, as .json.gz. The recorder writes such files.
    """
    from convoy_workloads.traces.convert.convert import convert as convert_rank  # noqa: PLC0415
    from convoy_workloads.traces.findings import InvalidTrace  # noqa: PLC0415
    from convoy_workloads.traces.torch_json.document import load_json  # noqa: PLC0415

    for rank, (host, kineto) in sorted(pairs(folder).items()):
        try:
            conversion = convert_rank(load_json(host), load_json(kineto), rank)
        except InvalidTrace as error:
            raise Failure(f"rank {rank}: {error}") from error
        trace = conversion.trace
        if trace.rank != rank:
            raise Failure(
                f"{kineto}: the trace is that of rank {trace.rank}, but the file's name says {rank}"
            )
        path, size = write_trace(trace, out, prefix, gzip)
        typer.echo(f"{path}: {len(trace.nodes)} nodes, {size} bytes")
        for finding in conversion.findings:
            typer.echo(f"  {finding.line()}", err=True)


def pairs(folder: Path) -> dict[int, tuple[Path, Path]]:
    """Return the host and the Kineto trace of each rank. Raises Failure if one is missing."""
    found: dict[int, dict[str, Path]] = {}
    try:
        for path in sorted(folder.iterdir()):
            if match := TORCH_NAME.fullmatch(path.name):
                found.setdefault(int(match[2]), {})[match[1]] = path
    except OSError as error:
        raise Failure(f"{folder}: {error.strerror or error}") from error
    if not found:
        raise Failure(
            f"{folder}: the folder has no file host.RANK.json and kineto.RANK.json. {HOW_TO_RECORD}"
        )
    if len(found) > MAX_FILES:
        raise Failure(f"{folder}: {len(found)} ranks; at most {MAX_FILES} are allowed")
    for rank, files in sorted(found.items()):
        for kind in ("host", "kineto"):
            if kind not in files:
                raise Failure(f"{folder}: {kind}.{rank}.json is missing. {_MISSING[kind]} {HOW_TO_RECORD}")
    return {rank: (files["host"], files["kineto"]) for rank, files in found.items()}
