"""The command status, which shows the progress and the results of experiments."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer

from convoy.cli.cluster import Context, Namespace, connect
from convoy.cli.experiment import tables
from convoy.cli.show import objects_table
from convoy.cli.table import print_table
from convoy_crds.experiment import KIND, Experiment
from convoy_crds.experiment_summary import summarise, values_shown
from convoy_crds.summaries import NOT_RECONCILED


def status(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the Experiment. Default: list all.")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Show the progress of an experiment: blocks, every failure, and at the end the medians and verdicts.

    Medians are no result: only the analysis at the end compares the arms in pairs. Before the end only a
    sweep shows them.
    """
    client = connect(namespace, context)
    if name is None:
        found = client.experiments.list()
        if found:
            print_table(objects_table(found, KIND, datetime.now(UTC)))
        else:
            typer.echo(f"no experiments in namespace {client.namespace}")
        return
    experiment = client.experiments.get(name)
    for line in head(experiment):
        typer.echo(line)
    print_results(experiment)


def print_results(experiment: Experiment) -> None:
    """Print blocks and medians of all conditions, tuning, every failure, controls and verdicts."""
    for cell in summarise(experiment):
        typer.echo(f"\n{tables.cell_line(experiment, cell)}")
        if values_shown(experiment):
            print_table(tables.cell_table(experiment, cell))
    here = experiment.status
    for title, shown, table in (
        ("tuning", here.tuning, tables.tuning_table),
        ("failed runs", here.failed_blocks, tables.failures_table),
        ("controls", here.controls, tables.controls_table),
        ("verdicts", here.verdicts, tables.verdicts_table),
    ):
        if shown:
            typer.echo(f"\n{title}")
            print_table(table(experiment))


def head(experiment: Experiment) -> Iterator[str]:
    """Yield the lines about the whole experiment."""
    name, here = experiment.metadata.name, experiment.status
    if here.phase is None:
        yield f"experiment/{name}: {NOT_RECONCILED}"
        return
    failed = f", {here.failed_blocks} failed" if here.failed_blocks else ""
    running = sum(one.state == "Running" for one in here.runs)
    runs = f", {running} runs are running" if running else ""
    yield f"experiment/{name}: {here.phase}, {here.progress or 'no'} blocks{failed}{runs}"
    if here.reason:
        yield f"{here.reason}: {here.message}"
    if here.plan is not None:
        since = (
            f", registered at {here.plan.registered_at:%Y-%m-%d %H:%M:%SZ}" if here.plan.registered_at else ""
        )
        yield f"plan {here.plan.hash}{since}"
    if here.stale_results:
        yield f"{here.stale_results} results of earlier attempts were refused"
    if here.artefact is not None and here.artefact.digest:
        yield f"result {here.artefact.digest} in CheckpointStore {here.artefact.store}"
        yield f"`convoy experiment report {name}` fetches the report"
