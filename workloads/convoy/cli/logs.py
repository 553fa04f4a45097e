"""The command logs, which prints the output of the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from convoy.cli.cluster import Context, Failure, Namespace, connect
from convoy.cli.jobs import JobName, find_job
from convoy_crds.trainingjob import TrainingJob


def logs(
    name: JobName,
    rank: Annotated[
        int | None, typer.Option(metavar="RANK", help="Print only the lines of this rank. Default: all.")
    ] = None,
    incarnation: Annotated[
        int | None,
        typer.Option(metavar="INCARNATION", help="Print only the lines of this incarnation. Default: all."),
    ] = None,
    replica: Annotated[
        str | None,
        typer.Option(
            metavar="REPLICA",
            help="Print only the lines of this replica of a ServingJob, such as server-0. Default: all.",
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Print new lines until the job ends or, with --incarnation, until that incarnation ends.",
        ),
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Print the output of the ranks. Each line of a rank begins with [incarnation/rank].

    Only the logs of existing pods can be read: the logs of a replaced pod, and of the pods of a suspended
    job, are lost. With --rank but without --incarnation, Convoy reads only the pod of a TrainingJob that
    currently has the rank. Lines of earlier incarnations appear only if that pod wrote them. The ranks of a
    ServingJob are numbered in each replica.
    """
    client = connect(namespace, context)
    job = find_job(client, name)
    lines: Iterator[str]
    if isinstance(job, TrainingJob):
        if replica is not None:
            raise Failure("--replica is for ServingJobs; for a TrainingJob use --rank")
        lines = client.training_jobs.logs(
            job.metadata.name, rank=rank, incarnation=incarnation, follow=follow, notify=_notify
        )
    else:
        if incarnation is not None:
            raise Failure("--incarnation is for TrainingJobs; for a ServingJob use --replica")
        lines = client.serving_jobs.logs(
            job.metadata.name, replica=replica, rank=rank, follow=follow, notify=_notify
        )
    shown = 0
    for line in lines:
        shown += 1
        typer.echo(line)
    if not shown:
        typer.echo("the logs of the existing pods have no such lines", err=True)


def _notify(sentence: str) -> None:
    typer.echo(sentence, err=True)
