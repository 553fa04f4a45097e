"""The command get, which prints a table for each kind of jobs, and one for experiments."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from convoy.cli.cluster import Context, Namespace, connect
from convoy.cli.jobs import KINDS, parse, refusal
from convoy.cli.table import fitting_columns, new_table, print_table, terminal_width
from convoy.client import Client, Forbidden, NotFound
from convoy.client.errors import ApiError
from convoy_crds import experiment, servingjob, trainingjob
from convoy_crds.experiment import Experiment
from convoy_crds.experiment_status import ExperimentPhase
from convoy_crds.kind import Kind
from convoy_crds.placement_summary import short
from convoy_crds.servingjob import ServingJob
from convoy_crds.servingjob_status import Traffic
from convoy_crds.summaries import NOT_RECONCILED, WARNING_REASONS, age, step, warning_message
from convoy_crds.trainingjob import TrainingJob
from convoy_crds.trainingjob_status import TERMINAL, Phase

COLOURS: Mapping[str, str] = {
    Phase.RUNNING: "green",
    Phase.SUCCEEDED: "green",
    Phase.FAILED: "red",
    Phase.RESTARTING: "yellow",
    Phase.SUSPENDED: "blue",
    ExperimentPhase.INVALID: "red",
}
"""Colour of a phase. The phases of TrainingJobs and Experiments with the same name have the same colour."""
MESSAGE = "MESSAGE"
PLACEMENT = "PLACEMENT"
OPTIONAL = (PLACEMENT, MESSAGE)
"""Columns that are left out if no row has a text in them."""
MESSAGE_WIDTH = 30
"""Minimum width of the message column in a narrow terminal, in characters."""


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
        "READY": (status.ready or "-") + (f" +{status.independent}" if status.independent else ""),
        "STEP": step(job),
        "LOSS": loss,
        "ETA": eta,
        "CHECKPOINT": f"step {checkpoint.step}, {age(checkpoint.time, now)} ago" if checkpoint else "-",
        "RESTARTS": str(status.restarts.total),
        "AGE": age(job.metadata.creation_timestamp, now),
        PLACEMENT: short(job),
        "REASON": status.reason or "-",
        MESSAGE: warning_message(job),
    }


def serving_row(job: ServingJob, now: datetime) -> dict[str, str]:
    """Return the text of each column in the row of one ServingJob, by name of the column."""
    status, traffic = job.status, job.status.traffic or Traffic()
    return {
        "NAME": job.metadata.name,
        "READY": status.ready or "-",
        "REVISION": status.update_revision or "-",
        "P95": "-" if traffic.p95_ms is None else f"{traffic.p95_ms:g} ms",
        "REQ/S": "-" if traffic.requests_per_second is None else f"{traffic.requests_per_second:g}",
        "QUEUE": "-" if traffic.queue is None else str(traffic.queue),
        "STEP": str(status.model.step) if status.model else "-",
        "AGE": age(job.metadata.creation_timestamp, now),
        "REASON": status.reason or "-",
        MESSAGE: serving_warning(job),
    }


def experiment_row(found: Experiment, now: datetime) -> dict[str, str]:
    """Return the text of each column in the row of one Experiment, by name of the column."""
    status = found.status
    new = status.phase is None
    return {
        "NAME": found.metadata.name,
        "PHASE": status.phase or "-",
        "BLOCKS": status.progress or "-",
        "FAILED": str(status.failed_blocks),
        "VERDICTS": status.summary or "-",
        "AGE": age(found.metadata.creation_timestamp, now),
        "REASON": status.reason or "-",
        MESSAGE: NOT_RECONCILED if new else status.message if status.reason in WARNING_REASONS else "",
    }


def serving_warning(job: ServingJob) -> str:
    """Return a text about the job's problem. Return an empty text if it has no problem."""
    if not job.status.observed_generation:
        return NOT_RECONCILED
    return job.status.message if job.status.reason in WARNING_REASONS else ""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of the table of one kind."""

    row: Callable[[Any, datetime], dict[str, str]]
    """(job, now) -> the text of each column, by name of the column."""
    hide_order: tuple[str, ...]
    """Columns to hide if the terminal is too narrow, in the order in which they are hidden."""


TRAINING = Layout(row, ("ETA", "LOSS", PLACEMENT, "CHECKPOINT", "RESTARTS", "AGE", "READY", "STEP", "REASON"))
SERVING = Layout(serving_row, ("STEP", "QUEUE", "REQ/S", "P95", "AGE", "REVISION", "REASON"))
EXPERIMENTS = Layout(experiment_row, ("AGE", "FAILED", "REASON", "VERDICTS"))
LAYOUTS: Mapping[str, Layout] = {
    trainingjob.KIND.name: TRAINING,
    servingjob.KIND.name: SERVING,
    experiment.KIND.name: EXPERIMENTS,
}
"""The layout of the table of each kind."""


def objects_table(found: Sequence[Any], kind: Kind[Any], now: datetime, *, everywhere: bool = False) -> Table:
    """Return the table of objects of one kind for the terminal. There must be at least one object."""
    layout = LAYOUTS[kind.name]
    rows = [
        ({"NAMESPACE": one.metadata.namespace or ""} if everywhere else {}) | layout.row(one, now)
        for one in found
    ]
    return table(rows, terminal_width(), layout)


def table(rows: list[dict[str, str]], width: int | None, layout: Layout) -> Table:
    """Return a table of the rows. It hides columns that do not fit in `width` characters. Only the message
    column wraps.
    """
    heads = [head for head in rows[0] if head not in OPTIONAL or any(line[head] for line in rows)]
    widths = {head: max(len(head), *(len(line[head]) for line in rows)) for head in heads}
    if width is not None and MESSAGE in widths:
        widths[MESSAGE] = min(widths[MESSAGE], MESSAGE_WIDTH)
    shown = fitting_columns(widths, layout.hide_order, width)
    made = new_table()
    for head in shown:
        made.add_column(head, no_wrap=head != MESSAGE, overflow="fold")
    for line in rows:
        colour = COLOURS.get(line.get("PHASE", ""), "")
        made.add_row(*(Text(line[head], colour if head == "PHASE" else "") for head in shown))
    return made


def get(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Name of a job or experiment, or KIND/NAME. Default: all."),
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="List the objects of all namespaces.")
    ] = False,
) -> None:
    """List jobs, experiments and their state.

    The table of TrainingJobs shows the phase, ready pods, step, loss, time left, last checkpoint, restarts,
    placement and the current problem of each job. The table of ServingJobs shows the ready replicas,
    revision, latency, load and the current problem. The table of Experiments shows the phase, ended and
    failed blocks, verdicts and the current problem. A narrow terminal shows fewer columns. Output to a file
    or pipe has all columns with a text.
    With NAME, the result of a TrainingJob follows its table.
    """
    client = connect(namespace, context)
    kinds, only = parse(name, KINDS) if name else (KINDS, None)
    found = listed_objects(client, kinds, only, everywhere=everywhere)
    if not any(found.values()):
        where = "any namespace" if everywhere else f"namespace {client.namespace}"
        typer.echo(f"no jobs and no experiments in {where}")
        return
    now = datetime.now(UTC)
    tables = [
        objects_table(listed, kind, now, everywhere=everywhere) for kind, listed in found.items() if listed
    ]
    for number, one in enumerate(tables):
        if number:
            typer.echo()
        print_table(one)
    for job in found.get(trainingjob.KIND, []) if only else []:
        if job.status.result:
            typer.echo(f"result: {json.dumps(job.status.result, ensure_ascii=False)}")


def listed_objects(
    client: Client, kinds: Sequence[Kind[Any]], name: str | None, *, everywhere: bool
) -> dict[Kind[Any], list[Any]]:
    """Return the objects of each kind: all, or those with this name. A kind that the user may not read is
    left out with a note on stderr, if another kind can be read. Raises NotFound if no kind has an object
    with this name.
    """
    found: dict[Kind[Any], list[Any]] = {}
    errors: list[ApiError] = []
    for kind in kinds:
        there = getattr(client, kind.attribute)
        try:
            found[kind] = [there.get(name)] if name else there.list(everywhere=everywhere)
        except (NotFound, Forbidden) as error:
            errors.append(error)
    if not found:
        raise refusal(client, name or "", kinds, errors)
    refused = [one for one in errors if isinstance(one, Forbidden)]
    for one in refused if not name else []:
        typer.echo(f"note: {one}", err=True)
    return found
