"""The command logs, which prints the output of the ranks."""

from __future__ import annotations

from typing import Annotated

import typer

from convoy.cli.cluster import Context, Name, Namespace, connect


def logs(
    name: Name,
    rank: Annotated[
        int | None, typer.Option(metavar="RANK", help="Print only this rank; default: all.")
    ] = None,
    incarnation: Annotated[
        int | None, typer.Option(metavar="INCARNATION", help="Print only this incarnation; default: all.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Continue until the job, or the given incarnation, ends."),
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Print the output of the ranks. Each line begins with [incarnation/rank].

    Convoy reads the logs of existing pods. The output of replaced or suspended pods is lost. Without
    --incarnation, --rank reads the pod that has the rank now.
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
