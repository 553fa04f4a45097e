"""The command get, which prints a table of jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from convoy.cli.cluster import Context, Namespace, connect
from convoy.cli.table import fitting_columns, new_table, print_table, terminal_width
from convoy_crds.summaries import age, step, warning_message
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL, Phase

COLOURS = {
    Phase.RUNNING: "green",
    Phase.SUCCEEDED: "green",
    Phase.FAILED: "red",
    Phase.RESTARTING: "yellow",
    Phase.SUSPENDED: "blue",
}
MESSAGE = "MESSAGE"
MESSAGE_WIDTH = 30
"""Minimum width of the message column in a narrow terminal, in characters."""
HIDE_ORDER = ("ETA", "LOSS", "CHECKPOINT", "RESTARTS", "AGE", "READY", "STEP", "REASON")
"""Columns to hide if the terminal is too narrow, in the order in which they are hidden."""


def row(job: TrainingJob, now: datetime) -> dict[str, str]:
    """Return the text of each column in the row of one job, by name of the column."""
    status = job.status
    progress, checkpoint = status.progress, status.saved
    eta = loss = "-"
    if progress and (progress.diverged or progress.loss is not None):
        loss = "NaN" if progress.diverged else f"{progress.loss:.4f}"
    if progress and progress.eta_at and status.phase not in TERMINAL:
        eta = age(now, progress.eta_at)
    return {
        "NAME": job.metadata.name,
        "PHASE": status.phase or "-",
        "READY": status.ready or "-",
        "STEP": step(job),
        "LOSS": loss,
        "ETA": eta,
        "CHECKPOINT": f"step {checkpoint.step}, {age(checkpoint.time, now)} ago" if checkpoint else "-",
        "RESTARTS": str(status.restarts.total),
        "AGE": age(job.metadata.creation_timestamp, now),
        "REASON": status.reason or "-",
        MESSAGE: warning_message(job),
    }


def table(rows: list[dict[str, str]], width: int | None) -> Table:
    """Return a table of the rows. It hides columns that do not fit in `width` characters. Only the message
    column wraps.
    """
    heads = [head for head in rows[0] if head != MESSAGE or any(line[MESSAGE] for line in rows)]
    widths = {head: max(len(head), *(len(line[head]) for line in rows)) for head in heads}
    if width is not None and MESSAGE in widths:
        widths[MESSAGE] = min(widths[MESSAGE], MESSAGE_WIDTH)
    shown = fitting_columns(widths, HIDE_ORDER, width)
    made = new_table()
    for head in shown:
        made.add_column(head, no_wrap=head != MESSAGE, overflow="fold")
    for line in rows:
        colour = COLOURS.get(Phase(line["PHASE"])) if line["PHASE"] != "-" else None
        made.add_row(*(Text(line[head], (colour or "") if head == "PHASE" else "") for head in shown))
    return made


def get(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of a TrainingJob. Default: all.")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="List the jobs of all namespaces.")
    ] = False,
) -> None:
    """List jobs and their state.

    The table shows the phase, ready pods, step, loss, time left, last checkpoint, restarts and the current
    problem of each job. A narrow terminal shows fewer columns. Output to a file or pipe has all columns.
    """
    client = connect(namespace, context)
    found = client.training_jobs
    jobs = [found.get(name)] if name else found.list(everywhere=everywhere)
    if not jobs:
        typer.echo(f"no TrainingJobs in {'any namespace' if everywhere else f'namespace {client.namespace}'}")
        return
    now = datetime.now(UTC)
    rows = [row(job, now) for job in jobs]
    if everywhere:
        rows = [
            {"NAMESPACE": job.metadata.namespace or "", **line} for job, line in zip(jobs, rows, strict=True)
        ]
    print_table(table(rows, terminal_width()))
