"""The command record, which lets a running job record some steps."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from convoy.cli import table
from convoy.cli.cluster import Context, Failure, Name, Namespace, connect
from convoy.client.traces import TraceRequest
from convoy_crds.trainingjob_trace import DEFAULT_STEPS, MAX_RANKS, MAX_STEPS, TraceState, TraceStatus

_RANK = re.compile(r"\d{1,7}")


def record(
    name: Name,
    steps: Annotated[
        int, typer.Option(metavar="COUNT", min=1, max=MAX_STEPS, help="Number of steps.")
    ] = DEFAULT_STEPS,
    first: Annotated[
        int | None,
        typer.Option(metavar="STEP", min=1, help="First step. Default: a step just ahead of all ranks."),
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(metavar="RANKS", help="Ranks, such as 0,1,8. Default: all.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="STORE", help="CheckpointStore for the files. Default: that of the job's spec."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Seconds to wait for the files.")
    ] = 900.0,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Record steps of a running job, and wait until the traces are in its store.

    The job trains on and is not restarted: the command sets spec.trace. `convoy trace fetch` gets the files.
    Exit status 1 if a trace is missing.
    """
    request = TraceRequest(steps, first, parse_ranks(ranks), store)
    client = connect(namespace, context)
    found = client.training_jobs.record_trace(name, request, timeout, lambda text: typer.echo(text, err=True))
    if found.files:
        print_files(found)
    if found.state is not TraceState.STORED:
        raise Failure(found.message)
    typer.echo(f"fetch them: convoy trace fetch {name}")


def parse_ranks(text: str | None) -> list[int] | None:
    """Return the ranks in the value of --ranks; None without the option. Raises Failure for another value."""
    if text is None:
        return None
    words = text.split(",")
    if not all(_RANK.fullmatch(one) for one in words) or len(set(words)) < len(words):
        raise Failure(f"--ranks {text}: must be different numbers with commas between them, such as 0,1,8")
    if len(words) > MAX_RANKS:
        raise Failure(f"--ranks: {len(words)} ranks; at most {MAX_RANKS} record at a time")
    return [int(one) for one in words]


def print_files(trace: TraceStatus) -> None:
    """Print the files of a recording, with their figures."""
    shown = table.new_table()
    for head in ("RANK", "FILE", "SIZE", "NODES", "BYTES A STEP", "EXPOSED"):
        shown.add_column(head, justify="left" if head == "FILE" else "right")
    for one in trace.files:
        share = f"{one.exposed_communication_ratio:.1%}"
        size, moved = table.format_bytes(one.bytes), str(one.comm_bytes_per_step)
        shown.add_row(str(one.rank), one.file, size, str(one.nodes), moved, share)
    table.print_table(shown)
