"""The command logs, which prints the output of the ranks."""

from __future__ import annotations

from typing import Annotated

import typer

from convoy.cli.cluster import Context, Name, Namespace, connect


def logs(
    name: Name,
    rank: Annotated[
        int | None, typer.Option(metavar="RANK", help="Print only the lines of this rank. Default: all.")
    ] = None,
    incarnation: Annotated[
        int | None,
        typer.Option(metavar="INCARNATION", help="Print only the lines of this incarnation. Default: all."),
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
    job, are lost. With --rank but without --incarnation, Convoy reads only the pod that currently has the
    rank. Lines of earlier incarnations appear only if that pod wrote them.
    """
    jobs = connect(namespace, context).training_jobs
    shown = 0
    for line in jobs.logs(name, rank=rank, incarnation=incarnation, follow=follow, notify=_notify):
        shown += 1
        typer.echo(line)
    if not shown:
        typer.echo("the logs of the existing pods have no such lines", err=True)


def _notify(sentence: str) -> None:
    typer.echo(sentence, err=True)
