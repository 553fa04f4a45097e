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
    role: Annotated[
        str | None,
        typer.Option(metavar="ROLE", help="Print only the lines of the pods of this role. Default: all."),
    ] = None,
    replica: Annotated[
        str | None,
        typer.Option(
            metavar="REPLICA",
            help="Print only the lines of this replica: role and number, such as spot-0 or server-0; for a "
            "TrainingJob also the name of a pod. Default: all.",
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

    The pods of Independent roles are outside the group of the other ranks. Each of their lines begins with
    the role and the number of the pod, such as [spot-0]. --rank and --incarnation leave these pods out.

    Only the logs of existing pods can be read: the logs of a replaced pod, and of the pods of a suspended
    job, are lost. With --rank but without --incarnation, Convoy reads only the pod of a TrainingJob that
    currently has the rank. Lines of earlier incarnations appear only if that pod wrote them. The ranks of a
    ServingJob are numbered in each replica.
    """
    client = connect(namespace, context)
    job = find_job(client, name)
    lines: Iterator[str]
    if isinstance(job, TrainingJob):
        lines = client.training_jobs.logs(
            job.metadata.name,
            rank=rank,
            incarnation=incarnation,
            role=role,
            replica=replica,
            follow=follow,
            notify=_notify,
        )
    else:
        if incarnation is not None:
            raise Failure("--incarnation is for TrainingJobs; for a ServingJob use --replica")
        lines = client.serving_jobs.logs(
            job.metadata.name, role=role, replica=replica, rank=rank, follow=follow, notify=_notify
        )
    shown = 0
    for line in lines:
        shown += 1
        typer.echo(line)
    if not shown:
        typer.echo("the logs of the existing pods have no such lines", err=True)


def _notify(sentence: str) -> None:
    typer.echo(sentence, err=True)
